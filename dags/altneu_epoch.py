"""One epoch of the graph, from its landed files to its published, audited results.

A run covers one interval of `[epochs] every` in the home's `altneu.toml`; its logical date is the
interval's start, and it is due when the interval has ended. By hand: give the parameter **epoch** (a date
such as `2004-04-15`, or an integer), or a logical date that starts an epoch.

| task | what it does |
|---|---|
| landed | waits until the epoch's folder is in the landing, and says which folder it waits for |
| plan | compares landing and ledger; nothing new: the rest is skipped, and the run is a success |
| ingest … truss | the stages; nothing is visible yet |
| validate | suites and full recomputation; a critical failure stops the run before publish |
| publish | the revision becomes visible; the assets are updated |
| report | the HTML pages |

Landed an epoch again? Clear its whole run: just the difference is published. Any order and any number of
active runs is right (`airflow backfill create`): publish has a pool of one slot, `altneu_publish`, and a
run that lost a race runs its epoch again there. So several active runs gain little; a long history is
faster as one `altneu_backfill`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import (
    DAG,
    BaseSensorOperator,
    CronDataIntervalTimetable,
    DeltaDataIntervalTimetable,
    Param,
    PokeReturnValue,
    task,
)
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowSkipException

from dags import common
from pipeline import orchestration

CALENDAR = orchestration.calendar(common.HOME)


class LandingSensor(BaseSensorOperator):
    """Waits for the landing of the run's epoch without holding a worker; hands on the epoch."""

    def poke(self, context: Any) -> PokeReturnValue:
        found = self.look(context)
        common.say(found.says)
        if found.state == "gap":
            raise AirflowSkipException(found.says)
        return PokeReturnValue(found.state == "landed", found.epoch)

    def execute(self, context: Any) -> Any:
        try:
            return super().execute(context)
        except AirflowSensorTimeout:
            raise AirflowSensorTimeout(
                f"{self.look(context).says}, after {timedelta(seconds=self.timeout)}.\n"
                "next: land it (altneu land), then clear this task"
            ) from None

    @staticmethod
    @common.told
    def look(context: Any) -> orchestration.Landing:
        manual = context["dag_run"].run_type not in ("scheduled", "backfill")
        dates = context.get("logical_date"), context.get("data_interval_start")
        epoch = orchestration.epoch_of(common.HOME, context["params"]["epoch"], *dates, manual)
        return orchestration.landing(common.HOME, epoch, patience=common.WAIT, manual=manual)


@task.short_circuit(
    execution_timeout=timedelta(minutes=15),
    doc_md="Begins a run when the epoch is missing or has changed. Otherwise skips the rest and says at "
    "which revision the epoch was published.",
)
@common.told
def plan(epoch: int) -> dict[str, Any] | None:
    return orchestration.plan(common.HOME, [epoch], common.say)


def timetable() -> Any:
    if CALENDAR.seconds is None:
        return None
    if CALENDAR.cron:
        return CronDataIntervalTimetable(CALENDAR.cron, timezone="UTC")
    return DeltaDataIntervalTimetable(timedelta(seconds=CALENDAR.seconds))


FIRST, LAST = common.BOUNDS
NOTE = (
    f"\n\n**The home cannot be read, so runs are daily until it is mended:** {CALENDAR.problem}"
    if CALENDAR.problem
    else ""
)

with DAG(
    "altneu_epoch",
    description="One epoch: landing → edges → triangles → trussness → audit → publish → report",
    schedule=timetable(),
    start_date=FIRST or datetime(1970, 1, 1, tzinfo=UTC),
    end_date=LAST,
    catchup=FIRST is not None,
    max_active_runs=1,
    default_args=common.DEFAULTS,
    params={
        "epoch": Param(
            None,
            type=["null", "string", "integer"],
            title="Epoch",
            description="A date such as 2004-04-15 (2004-04-15T12 for shorter epochs) or an integer. "
            "Empty: the run's interval.",
        )
    },
    tags=["altneu", "graph"],
    doc_md=(__doc__ or "") + NOTE,
):
    landed = LandingSensor(
        task_id="landed",
        mode="reschedule",
        poke_interval=60,
        timeout=common.WAIT,
        doc_md="Waits for `landing/epoch=<label>`; between two looks it holds no worker. Fails after "
        "`ALTNEU_WAIT_HOURS`.",
    )
    common.stages(plan(landed.output))
