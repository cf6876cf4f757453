"""The module path that Airflow's database has of triggers which version 0.1 started."""

from .relanded_trigger import RelandedTrigger

__all__ = ["RelandedTrigger"]
