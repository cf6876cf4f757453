"""Published epochs that land again, seen without a person: an asset's watcher in Airflow's triggerer.

What it has told is in memory alone. Restarted, and every `AGAIN` looks, it tells again what is still not published,
because an event may be lost between the triggerer and Airflow's database. The run that follows compares landing and
ledger itself, so that nothing is lost and no batch is published twice. A batch whose run has failed, or is at work, is
not told.
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
AGAIN = 5  # looks after which what is still not published is told again


class RelandedTrigger(BaseEventTrigger):
    """Fires with `epochs`, the labels of published epochs that have landed again since it last did, or long ago."""

    def __init__(self, home: str, interval: float = INTERVAL) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.home, self.interval = home, interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {"home": self.home, "interval": self.interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        told: dict[str, str] = {}
        last = 0  # the look that told something
        for look in itertools.count(1):
            try:
                found = await asyncio.to_thread(maintenance.list_corrected, self.home)
            except Exception as error:  # a home that cannot be read now is looked at again
                log.warning("%s: %s", self.home, error)
            else:
                new = [label for label, digest in found.items() if told.get(label) != digest or look - last >= AGAIN]
                told = found
                if new:
                    last = look
                    yield TriggerEvent({"epochs": new})
            await asyncio.sleep(self.interval)
