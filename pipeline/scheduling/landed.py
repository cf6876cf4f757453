"""An alias of `landing_sensor`: Airflow's database names this module in triggers that version 0.1 has started."""

from .landing_sensor import LandingTrigger

__all__ = ["LandingTrigger"]
