"""Airflow's parts of altneu: operators, the sensor, the submission to a cluster, the timetable, and the plugin.

This is the only package here that imports Airflow; what its tasks do is in `tasks/`. This file and `dag_paths.py`,
which knows the folders of the DAG files and of the plugin, import nothing of Airflow.
"""
