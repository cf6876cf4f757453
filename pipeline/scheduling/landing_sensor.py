"""Waiting for an epoch's landing without a worker: the first task of `altneu_epoch`. An epoch that is published as it
is landed needs nothing more, nor does a gap: the rest is skipped, so that such a run of a backfill costs one short
task.

The task looks once. When the folder is not there it hands over to a trigger, which looks again every `interval` seconds
inside Airflow's triggerer, hundreds of them in one process; no worker is held and none is started for a look. The
triggerer needs this package and sees the home, as the workers do.
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
from . import dag_builder
from .sites import current_site

INTERVAL = 60.0  # seconds between two looks


class LandingTrigger(BaseTrigger):
    """Fires with a dict: `state` (landed, gap, late, error), `epoch`, `says`, `retry` (of an error). Seconds;
    `deadline` since 1970."""

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
        asked = dict(self.waiting)
        deadline, interval = asked.pop("deadline"), asked.pop("interval")
        while True:
            try:
                found = await asyncio.to_thread(check_landing, **asked)
            except AltneuError as error:
                found = {"state": "error", "says": base.format_error(error), "retry": error.transient}
            if found["state"] == "waiting" and time.time() >= deadline:
                found["state"] = "late"
            if found["state"] != "waiting":
                yield TriggerEvent(found)
                return
            await asyncio.sleep(interval)


def check_landing(home: str, epoch: int, patience: float, manual: bool, prefix: str = base.PREFIX) -> dict[str, Any]:
    """Whether an epoch is landed, as plain values."""
    found = dag_epochs.check_landing(home, epoch, patience=timedelta(seconds=patience), manual=manual, prefix=prefix)
    return {"state": found.state, "epoch": epoch, "says": found.says}


class LandingSensor(BaseOperator):
    """Hands on the epoch of the run once its folder is in the landing; fails after `patience`."""

    template_fields = ("home",)  # so that the page, which sees the DAG as Airflow has stored it, knows its home

    def __init__(self, *, home: str, patience: timedelta, interval: float = INTERVAL, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.home, self.patience, self.interval = home, patience.total_seconds(), interval

    @dag_builder.translate_errors
    def execute(self, context: Any) -> int:
        manual = context["dag_run"].run_type not in ("scheduled", "backfill")
        dates = context.get("logical_date"), context.get("data_interval_start")
        site = current_site()
        epoch = dag_epochs.epoch_of(
            self.home, context["params"]["epoch"], *dates, manual, site.schedule_bounds[1], site.prefix
        )
        asked: dict[str, Any] = {"home": self.home, "epoch": epoch, "patience": self.patience, "manual": manual}
        asked["prefix"] = site.prefix
        found = check_landing(**asked)
        if found["state"] == "waiting":
            dag_builder.log_progress(f"{found['says']}; looking again every {self.interval:.0f} s")
            until = time.time() + self.patience
            trigger = LandingTrigger(**asked, deadline=until, interval=self.interval)
            self.defer(trigger=trigger, method_name="resume_landed")
        return self.resume_landed(context, found)

    def resume_landed(self, context: Any, event: dict[str, Any]) -> int:
        dag_builder.log_progress(event["says"])
        match event["state"]:
            case "landed":
                return self.require_unpublished(context, int(event["epoch"]))
            case "gap":
                dag_builder.skip_the_rest(self)
            case "late":
                waited = timedelta(seconds=self.patience)
                say = f"{event['says']}, after {waited}.\nnext: land it (altneu land), then clear this task"
                raise dag_builder.task_failure(say, retry=False)
        raise dag_builder.task_failure(event["says"], retry=event["retry"])

    landed = resume_landed  # the name that tasks which an earlier version deferred have stored

    def require_unpublished(self, context: Any, epoch: int) -> int:
        """The epoch, unless another run has published it."""
        if run_batching.is_published(self.home, epoch, dag_builder.log_progress):
            context["ti"].xcom_push(key="return_value", value=epoch)  # by which the run finds the page of its epoch
            dag_builder.skip_the_rest(self)
        return epoch
