"""The former package `pipeline`, for what Airflow has stored: Airflow's path ends with the folder of plugins."""

from altneu import former_names

former_names.serve()
__path__ = []  # nothing is beside this file
