"""Is what is published what is landed? Every day: fails when published epochs have landed again and nobody has
published the new batch; its message names them and says what to trigger. Nothing is changed.

Its other task tells those who follow `altneu://graph/epochs` what was published outside Airflow since they were told.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, task

from pipeline.scheduling import common, sites
from pipeline.scheduling.telling import epochs
from pipeline.tasks import upkeep

SITE = sites.current_site()


@task(
    execution_timeout=timedelta(hours=1),
    doc_md="Compares the landing with the ledger; needs no Spark. Red until the epochs that it names are published.",
)
@common.translate_errors
def relanded() -> dict[str, Any]:
    return upkeep.check_relanded(SITE.home, common.log_progress, SITE.prefix)


with DAG(
    SITE.dag_id("landing"),
    description="Published epochs that have landed again, daily",
    schedule=CronTriggerTimetable("0 6 * * *", timezone="UTC"),
    start_date=common.START,
    catchup=False,
    max_active_runs=1,
    default_args=common.DEFAULTS,
    tags=["altneu", "audit"],
    doc_md=SITE.dag_doc(__doc__),
):
    relanded()
    epochs.override(outlets=[SITE.epochs_asset])()
