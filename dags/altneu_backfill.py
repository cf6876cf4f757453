"""Run many epochs in one pass: one run and one revision, whatever their number.

If more files have landed than `[ingest] max_revision_mb`, there is a run for each part, and each starts the next one.
The run takes every landed epoch between **first** and **last** that is missing or has changed; empty bounds mean the
first and the last landed epoch. It is much faster than a run of `altneu_epoch` for each epoch, and gives the same
result; runs of `altneu_epoch` that come later find their epoch published and finish at once. Both are safe at the same
time: see `publish`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param, chain, task

from altneu.pipeline.scheduling import dag_builder, sites, task_support
from altneu.pipeline.tasks import run_tasks
from altneu.pipeline.tasks.base import PlannedRun, RemainingRange

SITE = sites.current_site()


@task.short_circuit(
    pool=SITE.pool,
    execution_timeout=timedelta(minutes=30),
    doc_md="Begins one run over the epochs of the range that are missing or changed; without any, it skips the rest.",
)
@task_support.translate_errors
def plan(params: Any = None) -> PlannedRun | None:
    first, last, again, accept = (params[name] for name in ("first", "last", "again", "accept"))
    return run_tasks.plan_range(SITE.home, first, last, again, accept, task_support.log_progress)


@task.short_circuit(
    doc_md="Returns the part of the range that `[ingest] max_revision_mb` leaves for another run, if any."
)
def rest(planned: PlannedRun) -> RemainingRange | None:
    return planned.get("rest")


def bound(title: str) -> Param:
    about = "A date such as 2004-04-15, or an integer. If it is empty, there is no bound."
    return Param(None, type=["null", "string", "integer"], title=title, description=about)


with DAG(
    SITE.dag_id("backfill"),
    description="A range of epochs in one pass and one revision",
    schedule=None,
    max_active_runs=1,
    default_args=dag_builder.DEFAULTS | {"execution_timeout": timedelta(hours=12)},
    params={
        "first": bound("First epoch"),
        "last": bound("Last epoch"),
        "again": Param(
            False,
            type="boolean",
            title="Again",
            description="Takes epochs that are published as landed, too: they are read and computed again.",
        ),
        "accept": Param(
            False,
            type="boolean",
            title="Accept",
            description='Takes epochs with an unusual number of rows, which `[checks] rows = "stop"` would leave out.',
        ),
    },
    tags=["altneu", "graph"],
    doc_md=SITE.dag_doc(__doc__),
):
    planned = plan()
    # the result of a task function stands for its output, which Airflow fills in
    left = rest(cast("PlannedRun", planned))
    onward = TriggerDagRunOperator(
        task_id="next",
        trigger_dag_id=SITE.dag_id("backfill"),
        conf=cast("dict[str, Any]", left),
        doc_md="Starts the run over the rest of the range.",
    )
    chain(dag_builder.stages(planned), left, onward)
