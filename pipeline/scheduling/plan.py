"""An alias of `plan_operator`: Airflow's database names this module in triggers that version 0.1 has started."""

from .plan_operator import RunTrigger

__all__ = ["RunTrigger"]
