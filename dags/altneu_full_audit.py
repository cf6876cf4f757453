"""Compare the published result with a full recomputation from the landed upserts, every week.

In a run by hand, **epochs** names the epochs, also as ranges. Without it, the number of epochs in **sample** is drawn
(the newest is always among them; 0 means all). The draw depends on the week of the run, so that over time all epochs
are visited. Every table is compared with the fingerprints of what was published, at all epochs. The task fails when
anything differs: its message has the epochs, the checks and the first differing rows. Nothing is changed; the results
are kept for the reports.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param, task

from altneu.pipeline.scheduling import dag_builder, sites, task_support
from altneu.pipeline.tasks import maintenance

SITE = sites.current_site()


@task(
    execution_timeout=timedelta(hours=12),
    doc_md="Recomputes the epochs from scratch and compares every total, count and trussness; then compares every "
    "table with the fingerprints of what was published. A difference is not retried.",
)
@task_support.translate_errors
def audit(params: Any = None, run_id: str | None = None) -> dict[str, Any]:
    return maintenance.full_audit(SITE.home, params["sample"], str(run_id), task_support.log_progress, params["epochs"])


with DAG(
    SITE.dag_id("full_audit"),
    description="Published epochs against a full recomputation, weekly",
    schedule=CronTriggerTimetable("0 3 * * 0", timezone="UTC"),
    start_date=dag_builder.START,
    catchup=False,
    max_active_runs=1,
    default_args=dag_builder.DEFAULTS,
    params={
        "epochs": Param(
            [],
            type="array",
            items={"type": ["string", "integer"]},
            title="Epochs",
            description="One per line: an epoch such as 2004-04-15, or a range such as 2004-04-15..2004-05-01. "
            "If it is empty, epochs are drawn, see below.",
        ),
        "sample": Param(
            50,
            type="integer",
            minimum=0,
            title="How many epochs",
            description="Without epochs, this number of them is drawn, the newest among them; 0 means all.",
        ),
    },
    tags=["altneu", "audit"],
    doc_md=SITE.dag_doc(__doc__),
):
    audit()
