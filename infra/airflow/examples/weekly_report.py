"""A weekly report made of daily epochs: a CSV file for each complete week, written again when a day of it is corrected.

A run starts for each week that has become complete, and for each complete week one of whose days has changed, however
many days that are. Needs `ALTNEU_PERIODS=weeks`, which makes altneu emit the weeks.

`ALTNEU_HOME` is the home, `WEEKLY_REPORTS` the folder of the reports. With the policy `reprocess` a corrected week is
written again at once; `hold` asks a person first, `mark stale` leaves the report and marks it.
"""

from __future__ import annotations

import csv
import os
from datetime import date, timedelta
from pathlib import Path

from airflow.sdk import DAG

from altneu.pipeline.scheduling.consumers import PartitionChange, process_changes, schedule_on


def write_report(change: PartitionChange) -> str:
    """Write the totals of the days of a week, or remove the report of a week that is withdrawn."""
    from altneu import Graph

    folder = Path(os.environ["WEEKLY_REPORTS"])
    report = folder / f"week-{change['partition']}.csv"
    if change["kind"] == "withdrawn":
        report.unlink(missing_ok=True)
        return f"{report} is withdrawn"
    monday = date.fromisoformat(change["partition"])
    days = {f"{monday + timedelta(days=n)}" for n in range(7)}
    revision = change["revision"]
    totals = Graph(os.environ["ALTNEU_HOME"]).arrow.totals(all_epochs=True, revision=revision).to_pylist()
    folder.mkdir(parents=True, exist_ok=True)
    draft = report.with_suffix(".draft")
    with draft.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["day", "edges", "triangles", "revision"])
        for day in (row for row in totals if row["label"] in days):
            table.writerow([day["label"], day["edges"], day["triangles"], revision])
    draft.replace(report)  # a reader sees the report before or after, and a run that is repeated writes the same
    return f"{report} is {change['kind']}: {change['ranges']}"


with DAG("weekly_report", schedule=schedule_on("weeks"), doc_md=__doc__, tags=["altneu"]):
    process_changes(write_report, unit="weeks", on_correction=os.environ.get("WEEKLY_POLICY", "reprocess"))
