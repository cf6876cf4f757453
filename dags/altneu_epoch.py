"""One epoch of the graph, from its landed files to its published, audited results.

A run covers one interval of `[epochs] every` in the home's `altneu.toml`; its logical date is the
interval's start, and it is due when the interval has ended. By hand: give the parameter **epoch** (a date
such as `2004-04-15`, or an integer), or a logical date that starts an epoch.

| task | what it does |
|---|---|
| landed | waits until the epoch's folder is in the landing, and says which folder it waits for |
| plan | compares landing and ledger; nothing new: the rest is skipped, and the run is a success |
| ingest … truss | the stages; nothing is visible yet |
| audit | suites and full recomputation; a critical failure stops the run before publish |
| publish | the revision becomes visible |
| assets | the assets are updated; skipped when this run had nothing to publish |
| warnings | **red: a check warns**; the epoch is published, the run is a success |
| report | the HTML pages, also of a run that has failed |

Landed an epoch again? Clear its whole run: just the difference is published. Any order and any number of
active runs is right (`airflow backfill create`): one that waits for its landing holds up no other, and they
compute one after the other, in a pool of one slot, `altneu_stages`. A run that was overtaken nonetheless
(its stages are skipped) runs its epoch again in publish. A long history is faster as one `altneu_backfill`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, DeltaDataIntervalTimetable, Param, task

from pipeline.scheduling import common
from pipeline.scheduling.landed import LandingSensor
from pipeline.scheduling.timetable import Bounded
from pipeline.tasks import base, due, orchestration
from pipeline.tasks.base import Planned

ACTIVE = 16  # runs, most of which wait; within the 20 that a scheduler looks at in one go
CALENDAR = due.calendar(common.HOME)


@task.short_circuit(
    pool=base.POOL,
    execution_timeout=timedelta(minutes=15),
    doc_md="Begins a run when the epoch is missing or has changed. Otherwise skips the rest and says at "
    "which revision the epoch was published.",
)
@common.translate_errors
def plan(epoch: int) -> Planned | None:
    return orchestration.plan(common.HOME, [epoch], common.say)


def timetable() -> Any:
    if CALENDAR.seconds is None:
        return None
    if any(common.BOUNDS):
        return Bounded(CALENDAR.seconds, *common.BOUNDS)
    if CALENDAR.cron:
        return CronDataIntervalTimetable(CALENDAR.cron, timezone="UTC")
    return DeltaDataIntervalTimetable(timedelta(seconds=CALENDAR.seconds))


NOTE = (
    f"\n\n**The home cannot be read, so runs are daily until it is fixed:** {CALENDAR.problem}"
    if CALENDAR.problem
    else ""
)

with DAG(
    "altneu_epoch",
    description="One epoch: landing → edges → triangles → trussness → audit → publish → report",
    schedule=timetable(),
    start_date=common.START,
    catchup=common.BOUNDS[0] is not None,
    max_active_runs=ACTIVE,
    default_args=common.DEFAULTS,
    params={
        "epoch": Param(
            None,
            type=["null", "string", "integer"],
            title="Epoch",
            description="A date such as 2004-04-15 (2004-04-15T12 for shorter epochs) or an integer. "
            "Empty: the epoch that the logical date starts; for any other moment, the last whole interval before it.",
        )
    },
    tags=["altneu", "graph"],
    doc_md=(__doc__ or "") + NOTE,
):
    landed = LandingSensor(
        task_id="landed",
        home=common.HOME,
        patience=common.WAIT,
        execution_timeout=None,
        doc_md="Waits for `landing/epoch=<label>` in the triggerer; no worker is held. Fails after "
        "`ALTNEU_WAIT_HOURS`.",
    )
    common.stages(plan(landed.output))
