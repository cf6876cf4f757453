"""Run the published epochs that have landed again, without a person: exactly those, in one pass.

With `ALTNEU_WATCH=1` the triggerer looks at the landing, and a correction there starts a run of this DAG through the
asset `altneu://landing`. Without it, the DAG is triggered by hand. If nothing has landed again, the rest is skipped. A
batch whose run has failed is not tried again: `altneu status` has its error. The tasks are those of `altneu_epoch`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetWatcher, task

from altneu.pipeline.scheduling import dag_builder, sites, task_support
from altneu.pipeline.scheduling.relanded_trigger import RelandedTrigger
from altneu.pipeline.tasks import run_tasks
from altneu.pipeline.tasks.base import PlannedRun

SITE = sites.current_site()
PLACE = "altneu://landing" if SITE.is_default_site else f"altneu://{SITE.prefix}/landing"
WATCHERS = [AssetWatcher(name=f"{SITE.prefix}_landing", trigger=RelandedTrigger(SITE.home))] if SITE.watch else []


@task.short_circuit(
    pool=SITE.pool,
    execution_timeout=timedelta(minutes=30),
    doc_md="Begins a run over the published epochs that have landed again; if there are none, it skips the rest.",
)
@task_support.translate_errors
def plan() -> PlannedRun | None:
    return run_tasks.plan_corrected(SITE.home, task_support.log_progress)


with DAG(
    SITE.dag_id("relanded"),
    description="Published epochs that have landed again, in one pass",
    schedule=[Asset(name=f"{SITE.prefix}_landing", uri=PLACE, group="altneu", watchers=WATCHERS)] if WATCHERS else None,
    start_date=dag_builder.START,
    catchup=False,
    max_active_runs=1,
    default_args=dag_builder.DEFAULTS,
    tags=["altneu", "graph"],
    doc_md=SITE.dag_doc(__doc__),
):
    dag_builder.stages(plan())
