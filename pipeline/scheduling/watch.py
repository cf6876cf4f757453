"""An alias of `relanded_trigger`: Airflow's database names this module in triggers that version 0.1 has started."""

from .relanded_trigger import RelandedTrigger

__all__ = ["RelandedTrigger"]
