"""The module path that Airflow's database has of triggers which version 0.1 started."""

from .plan_operator import RunTrigger

__all__ = ["RunTrigger"]
