"""Keep the tables small and fast, every week.

It folds history that is not kept, merges small files, and deletes what nobody can read, including what failed, killed
or overtaken runs have left. No answer that is kept changes.

`[retention]` in altneu.toml says what is kept. Readers and runs may go on meanwhile: what expires can be read for
**grace** hours more.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param, task

from altneu.pipeline.scheduling import dag_builder, sites, task_support
from altneu.pipeline.tasks import maintenance

SITE = sites.current_site()


@task(
    execution_timeout=timedelta(hours=6),
    doc_md="Runs `altneu compact`: the same answers from fewer rows and files. It may be repeated, even after a kill.",
)
@task_support.translate_errors
def compact(params: Any = None) -> dict[str, Any]:
    return maintenance.compact_home(SITE.home, params["grace"], task_support.log_progress)


with DAG(
    SITE.dag_id("maintenance"),
    description="Compaction and retention, weekly",
    schedule=CronTriggerTimetable("0 5 * * 0", timezone="UTC"),
    start_date=dag_builder.START,
    catchup=False,
    max_active_runs=1,
    default_args=dag_builder.DEFAULTS,
    params={
        "grace": Param(1, type="number", minimum=0, title="Grace, hours", description="For those who are reading now.")
    },
    tags=["altneu", "maintenance"],
    doc_md=SITE.dag_doc(__doc__),
):
    compact()
