"""What the DAG files are made of: tasks, the sensor, the submission, the timetable, and the plugin with the page.

It is the one package here that imports Airflow; what its tasks do is in `tasks/`. Nothing of Airflow is imported by
this file or by `dag_paths.py`, which says where the DAG files and the plugin are.
"""
