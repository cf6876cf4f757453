"""The task `plan` of `altneu_epoch`, the first one after the landing.

It holds neither a worker nor the pool while it waits for another run. A DAG run of a schedule or a backfill takes along
the epochs of the other DAG runs that wait or run, and in a catch-up of those that the schedule will make; a DAG run by
hand does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..errors import AltneuError, RunInProgress
from ..tasks import base, run_batching
from ..tasks.base import PlannedRun
from . import task_support
from .sites import current_site

INTERVAL = 3.0  # seconds between two polls
WAITING = ("queued", "running")  # states of DAG runs that want their epoch published


class RunTrigger(BaseTrigger):
    """A trigger that fires once a run is over.

    Its event is a dict with `state` (over, late, error), `says`, and `retry` for an error. `patience` and `interval`
    are in seconds.
    """

    def __init__(self, home: str, run_id: str, patience: float, interval: float = INTERVAL) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.waiting: dict[str, Any] = {"home": home, "run_id": run_id, "patience": patience, "interval": interval}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", self.waiting

    async def run(self) -> AsyncIterator[TriggerEvent]:
        arguments = self.waiting["home"], self.waiting["run_id"], self.waiting["patience"]
        while True:
            try:
                state, says = await asyncio.to_thread(run_batching.poll_run, *arguments)
                event: dict[str, Any] = {"state": state, "says": says}
            except AltneuError as error:
                event = {"state": "error", "says": base.format_error(error), "retry": error.transient}
            if event["state"] != "waiting":
                yield TriggerEvent(event)
                return
            await asyncio.sleep(self.waiting["interval"])


class PlanOperator(BaseOperator):
    """An operator that begins a run over an epoch that is missing or has changed, and returns the planned run.

    If there is nothing to run, it skips the following tasks and logs which run has published the epoch. `patience` is
    how long it waits for a person who has to decide on a run.
    """

    template_fields = ("epoch",)

    def __init__(
        self, *, home: str, epoch: Any, patience: timedelta, interval: float = INTERVAL, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.home, self.epoch, self.patience, self.interval = home, epoch, patience.total_seconds(), interval

    @task_support.translate_errors
    def execute(self, context: Any) -> PlannedRun:
        return self.plan_epoch(context)

    @task_support.translate_errors
    def resume_after_run(self, context: Any, event: dict[str, Any]) -> PlannedRun:
        """Go on after the other run has ended, is late, or could not be read."""
        task_support.log_progress(event["says"])
        match event["state"]:
            case "error":
                raise task_support.task_failure(event["says"], retry=event["retry"])
            case "late":
                waited = timedelta(seconds=self.patience)
                raise task_support.task_failure(
                    f"{event['says']}, after {waited}.\nnext: publish or discard the run, then clear this task",
                    retry=False,
                )
        return self.plan_epoch(context)

    again = resume_after_run  # tasks that an earlier version has deferred name this method

    def plan_epoch(self, context: Any) -> PlannedRun:
        run, ti = context["dag_run"], context["ti"]
        by_hand = run.run_type not in ("scheduled", "backfill")

        def count_runs(dates: Sequence[datetime]) -> int:
            count: int = ti.get_dr_count(dag_id=ti.dag_id, logical_dates=list(dates), states=list(WAITING))
            return count

        others, again = None if by_hand else count_runs, by_hand or run.clear_number > 0
        try:
            planned = run_batching.plan_epoch(
                self.home,
                int(self.epoch),
                task_support.log_progress,
                others,
                again=again,
                catch_up=self.catch_up_of(run, ti),
            )
        except RunInProgress as first:
            task_support.log_progress(f"{first.what} This run plans after the other one is over.")
            trigger = RunTrigger(self.home, first.run_id, self.patience, self.interval)
            self.defer(trigger=trigger, method_name="resume_after_run")
        if planned is None:
            task_support.skip_the_rest(self)
        return planned

    @staticmethod
    def catch_up_of(run: Any, ti: Any) -> run_batching.CatchUp | None:
        """Return what the schedule will still make runs for, if it catches up and this run is one of its."""
        start, end = current_site().schedule_bounds
        if start is None or run.run_type != "scheduled" or run.clear_number > 0:
            return None

        def count_all(dates: Sequence[datetime]) -> int:
            count: int = ti.get_dr_count(dag_id=ti.dag_id, logical_dates=list(dates))
            return count

        return run_batching.CatchUp(run.logical_date, end, count_all)
