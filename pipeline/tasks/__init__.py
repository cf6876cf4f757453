"""What the Airflow tasks decide and do, as plain functions of plain values; nothing here knows Airflow.

A task of `dags/` calls one function with the home's path and strings, numbers or small dicts, so that everything
travels by XCom and can be tested without a scheduler. `dag_epochs` knows which epoch a DAG run is for and whether it
has landed; `run_tasks` and `run_batching` have the tasks of a run, `epoch_event_claims` the events of epochs,
`maintenance` audits and maintenance, `airflow_page` the page inside Airflow, and `base` what they share. At parse time
only `dag_epochs.read_calendar` is called; Spark and the suites are imported inside the functions that need them.
"""
