"""The module path that Airflow's database has of triggers which version 0.1 started."""

from .landing_sensor import LandingTrigger

__all__ = ["LandingTrigger"]
