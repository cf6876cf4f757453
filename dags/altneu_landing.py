"""Compare what is published with what is landed, every day.

It fails if published epochs have landed again and nobody has published the new batch; its message names them and says
what to trigger. Nothing is changed.

The other tasks emit events of `altneu://graph/epochs`, and of the assets of periods, for what was published outside
Airflow since the last events.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, task

from altneu.pipeline.scheduling import dag_builder, sites, task_support
from altneu.pipeline.scheduling.epoch_events import make_event_tasks
from altneu.pipeline.tasks import maintenance

SITE = sites.current_site()


@task(
    execution_timeout=timedelta(hours=1),
    doc_md="Compares the landing with the ledger. It fails until the epochs in its message are published.",
)
@task_support.translate_errors
def relanded() -> dict[str, Any]:
    return maintenance.check_relanded(SITE.home, task_support.log_progress, SITE.prefix)


with DAG(
    SITE.dag_id("landing"),
    description="Published epochs that have landed again, daily",
    schedule=CronTriggerTimetable("0 6 * * *", timezone="UTC"),
    start_date=dag_builder.START,
    catchup=False,
    max_active_runs=1,
    default_args=dag_builder.DEFAULTS,
    tags=["altneu", "audit"],
    doc_md=SITE.dag_doc(__doc__),
):
    relanded()
    make_event_tasks()
