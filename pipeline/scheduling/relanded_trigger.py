"""A trigger for published epochs that land again without a person: an asset's watcher in Airflow's triggerer.

It keeps in memory which epochs it has reported. After a restart, and every `LOOKS_UNTIL_REPORTED_AGAIN` looks, it
reports again what is still not published, because an event may be lost between the triggerer and Airflow's database.
The run that follows compares the landing with the ledger itself, so that nothing is lost and no batch is published
twice. A batch whose run has failed or is running is not reported.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from ..tasks import maintenance
from .landing_sensor import INTERVAL

log = logging.getLogger("altneu.tasks")
LOOKS_UNTIL_REPORTED_AGAIN = 5  # the number of looks after which unpublished epochs are reported again


class RelandedTrigger(BaseEventTrigger):
    """A trigger that fires with `epochs`: the labels of published epochs that have landed again since it last fired, or
    long ago."""

    def __init__(self, home: str, interval: float = INTERVAL) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.home, self.interval = home, interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {"home": self.home, "interval": self.interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        reported: dict[str, str] = {}  # label → digest
        last = 0  # the number of the last look that reported something
        for look in itertools.count(1):
            try:
                corrected = await asyncio.to_thread(maintenance.list_corrected, self.home)
            except Exception as error:  # the next look tries again
                log.warning("%s: %s", self.home, error)
            else:
                new = [
                    label
                    for label, digest in corrected.items()
                    if reported.get(label) != digest or look - last >= LOOKS_UNTIL_REPORTED_AGAIN
                ]
                reported = corrected
                if new:
                    last = look
                    yield TriggerEvent({"epochs": new})
            await asyncio.sleep(self.interval)
