"""Run one epoch of the graph, from its landed files to its published, audited results.

A run covers one interval of `[epochs] every` in the home's `altneu.toml`; its logical date is the
interval's start, and it is due when the interval has ended. For a run by hand, give the parameter **epoch** (a date
such as `2004-04-15`, or an integer), or a logical date that starts an epoch.

| task | what it does |
|---|---|
| landed | waits for the epoch's folder in the landing; skips the rest if it is published as landed, or is a gap |
| plan | compares landing and ledger; waits while another run is running; skips the rest if there is nothing new |
| ingest … truss | run the stages; nothing is visible yet |
| audit | runs suites, and a proof or a full recomputation; a critical failure stops the run before publish |
| approve | holds the run until a person has approved it, where the settings ask for one |
| publish | makes the revision visible |
| assets | updates the assets; it is skipped if this run had nothing to publish |
| epochs | emits an event for each epoch whose results have changed since the last events; skipped if there are none |
| days, weeks, months | emit an event for each complete period whose results have changed (`ALTNEU_PERIODS`) |
| warnings | **fails if a check warns**; the epoch is published, and the run is a success |
| report | writes the HTML pages, even of a run that has failed |

If an epoch has landed again, clear its whole run: only the difference is published. A backfill (`airflow backfill
create`) and a catch-up go together, in any order and with any number of active runs: the first run to plan takes
along the landed epochs of the other runs that are queued or running (in a catch-up, of those to come as well), and
publishes them as one revision; the others then end in `landed` or `plan` and say which run has published their epoch.
An epoch whose files are broken or mostly malformed, or (where `[checks] rows = "stop"`) whose number of rows is
unusual, is left out, as if it had not landed, and its own run fails. A run by hand takes no other epochs along. A run
that was overtaken nonetheless (its stages are skipped) runs its epochs again in publish.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from altneu.pipeline.scheduling import dag_builder, sites
from altneu.pipeline.scheduling.landing_sensor import LandingSensor
from altneu.pipeline.scheduling.plan_operator import PlanOperator
from altneu.pipeline.scheduling.timetable import Epochs
from altneu.pipeline.tasks import dag_epochs

ACTIVE = 16  # active runs, most of which wait; a scheduler looks at 20 in one go
SITE = sites.current_site()
CALENDAR = dag_epochs.read_calendar(SITE.home)


NOTE = (
    f"\n\n**The home cannot be read, so runs are daily until it is fixed:** {CALENDAR.problem}"
    if CALENDAR.problem
    else ""
)

with DAG(
    SITE.dag_id("epoch"),
    description="One epoch: landing → edges → triangles → trussness → audit → publish → report",
    schedule=None if CALENDAR.seconds is None else Epochs(CALENDAR.seconds, *SITE.schedule_bounds),
    start_date=dag_builder.START,
    catchup=SITE.schedule_bounds[0] is not None,
    max_active_runs=ACTIVE,
    deadline=dag_builder.deadline_alert(CALENDAR.seconds),
    default_args=dag_builder.DEFAULTS,
    params={
        "epoch": Param(
            None,
            type=["null", "string", "integer"],
            title="Epoch",
            description="A date such as 2004-04-15 (2004-04-15T12 for shorter epochs) or an integer. "
            "If it is empty, the run is for the epoch that the logical date starts, or else for the last whole "
            "interval before that date.",
        )
    },
    tags=["altneu", "graph"],
    doc_md=SITE.dag_doc(__doc__) + NOTE,
):
    landed = LandingSensor(
        task_id="landed",
        home=SITE.home,
        patience=SITE.landing_patience,
        execution_timeout=None,
        doc_md="Waits for `landing/epoch=<label>` in the triggerer; no worker is held. It fails after "
        "`ALTNEU_WAIT_HOURS`.",
    )
    plan = PlanOperator(
        task_id="plan",
        home=SITE.home,
        epoch=landed.output,
        patience=SITE.approval_patience,
        execution_timeout=timedelta(minutes=15),
        doc_md="Begins a run when the epoch is missing or has changed; in a backfill or a catch-up it takes along the "
        "landed epochs of the other DAG runs that wait. Otherwise it skips the rest and logs which run has published "
        "the epoch, as which revision. While another run is running it waits without a worker.",
    )
    dag_builder.stages(plan.output)
