"""Keeps the tables small: branches that failed, killed or overtaken runs have left in them are dropped, every week.

Nothing that a reader can see changes. **days** says how long ago a run must have begun: longer than any run takes,
retries included, because a run that is swept cannot be taken up again (clear it as a whole instead).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param, task

from dags import common
from pipeline import orchestration


@task(
    execution_timeout=timedelta(hours=2),
    doc_md="Drops the branches of runs that began more than `days` ago and were never published. Safe to repeat.",
)
@common.told
def sweep(params: Any = None) -> dict[str, Any]:
    return orchestration.sweep(common.HOME, params["days"], common.say)


with DAG(
    "altneu_maintenance",
    description="Drops what dead runs have left in the tables, weekly",
    schedule=CronTriggerTimetable("0 5 * * 0", timezone="UTC"),
    start_date=datetime(2020, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=common.DEFAULTS,
    params={
        "days": Param(7, type="number", minimum=1, title="Days", description="Runs that began longer ago than this.")
    },
    tags=["altneu", "maintenance"],
    doc_md=__doc__,
):
    sweep()
