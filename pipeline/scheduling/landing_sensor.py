"""The first task of `altneu_epoch`: it waits for the landing of an epoch without a worker.

If the epoch is published as it is landed, or is a gap, the rest of the run is skipped, so that such a run of a backfill
costs one short task.

The task looks once. If the folder does not exist, it hands over to a trigger, which looks again every `interval`
seconds inside Airflow's triggerer, where one process holds hundreds of them; no worker is held, and none is started for
a look. The triggerer needs this package and must see the home, as the workers do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..errors import AltneuError
from ..tasks import base, dag_epochs, run_batching
from . import task_support
from .sites import current_site

INTERVAL = 60.0  # seconds between two looks


class LandingTrigger(BaseTrigger):
    """A trigger that fires when an epoch is landed, is a gap, or is late.

    Its event is a dict with `state` (landed, gap, late, error), `epoch`, `says`, and `retry` for an error. `patience`
    and `interval` are in seconds; `deadline` is in seconds since 1970.
    """

    def __init__(
        self,
        home: str,
        epoch: int,
        patience: float,
        manual: bool,
        deadline: float,
        interval: float = INTERVAL,
        prefix: str = base.PREFIX,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.waiting: dict[str, Any] = {
            "home": home,
            "epoch": epoch,
            "patience": patience,
            "manual": manual,
            "deadline": deadline,
            "interval": interval,
            "prefix": prefix,
        }

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", self.waiting

    async def run(self) -> AsyncIterator[TriggerEvent]:
        arguments = dict(self.waiting)
        deadline, interval = arguments.pop("deadline"), arguments.pop("interval")
        while True:
            try:
                event = await asyncio.to_thread(check_landing, **arguments)
            except AltneuError as error:
                event = {"state": "error", "says": base.format_error(error), "retry": error.transient}
            if event["state"] == "waiting" and time.time() >= deadline:
                event["state"] = "late"
            if event["state"] != "waiting":
                yield TriggerEvent(event)
                return
            await asyncio.sleep(interval)


def check_landing(home: str, epoch: int, patience: float, manual: bool, prefix: str = base.PREFIX) -> dict[str, Any]:
    """Return the landing state of an epoch as plain values; `patience` is in seconds."""
    landing = dag_epochs.check_landing(home, epoch, patience=timedelta(seconds=patience), manual=manual, prefix=prefix)
    return {"state": landing.state, "epoch": epoch, "says": landing.says}


class LandingSensor(BaseOperator):
    """A sensor that returns the epoch of the run once its folder is in the landing, and fails after `patience`."""

    template_fields = ("home",)  # the page reads the home from the DAG that Airflow has stored

    def __init__(self, *, home: str, patience: timedelta, interval: float = INTERVAL, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.home, self.patience, self.interval = home, patience.total_seconds(), interval

    @task_support.translate_errors
    def execute(self, context: Any) -> int:
        manual = context["dag_run"].run_type not in ("scheduled", "backfill")
        dates = context.get("logical_date"), context.get("data_interval_start")
        site = current_site()
        epoch = dag_epochs.epoch_of(
            self.home, context["params"]["epoch"], *dates, manual, site.schedule_bounds[1], site.prefix
        )
        arguments: dict[str, Any] = {"home": self.home, "epoch": epoch, "patience": self.patience, "manual": manual}
        arguments["prefix"] = site.prefix
        event = check_landing(**arguments)
        if event["state"] == "waiting":
            task_support.log_progress(f"{event['says']}; looking again every {self.interval:.0f} s")
            until = time.time() + self.patience
            trigger = LandingTrigger(**arguments, deadline=until, interval=self.interval)
            self.defer(trigger=trigger, method_name="resume_landed")
        return self.resume_landed(context, event)

    def resume_landed(self, context: Any, event: dict[str, Any]) -> int:
        task_support.log_progress(event["says"])
        match event["state"]:
            case "landed":
                return self.require_unpublished(context, int(event["epoch"]))
            case "gap":
                task_support.skip_the_rest(self)
            case "late":
                waited = timedelta(seconds=self.patience)
                message = f"{event['says']}, after {waited}.\nnext: land it (altneu land), then clear this task"
                raise task_support.task_failure(message, retry=False)
        raise task_support.task_failure(event["says"], retry=event["retry"])

    landed = resume_landed  # tasks that an earlier version has deferred name this method

    def require_unpublished(self, context: Any, epoch: int) -> int:
        """Return the epoch; skip the rest of the run if another run has published it."""
        if run_batching.is_published(self.home, epoch, task_support.log_progress):
            context["ti"].xcom_push(key="return_value", value=epoch)  # the run finds the page of its epoch by it
            task_support.skip_the_rest(self)
        return epoch
