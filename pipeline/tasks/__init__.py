"""What the Airflow tasks decide and do, as plain functions of plain values; nothing here knows Airflow.

A task of `dags/` calls one function with the home's path and strings, numbers or small dicts, so that everything
travels by XCom and can be tested without a scheduler: `due` (which epoch, and has it landed), `orchestration` (a run),
`upkeep` (audits and maintenance), `web` (the page inside Airflow), `base` (what they share). At parse time only
`dag_epochs.read_calendar` is called; Spark and the suites are imported inside the functions that need them.
"""
