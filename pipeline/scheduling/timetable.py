"""The schedule of `altneu_epoch`: one run for each epoch, with the epoch in its id: `scheduled__2004-04-15`.

The `start_date` and `end_date` of a DAG would also bound its runs by hand: in a run for a date outside of them Airflow
makes no task, and counts the run as a success. So the DAG has no bounds, and its timetable has them. A plugin registers
the timetable.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from airflow.configuration import conf
from airflow.sdk.timezone import coerce_datetime
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import DeltaDataIntervalTimetable
from airflow.utils.types import DagRunType

from ..errors import UsageError
from ..home.schedule import Schedule


class Epochs(DeltaDataIntervalTimetable):
    """A timetable of intervals of equal length since 1970-01-01 UTC that start between two instants, both included.

    `seconds` is the length of an interval; `first` and `last` are None for no bound.
    """

    def __init__(self, seconds: float, first: datetime | None = None, last: datetime | None = None) -> None:
        super().__init__(timedelta(seconds=seconds))
        self.first, self.last = first, last

    def serialize(self) -> dict[str, Any]:
        bounds = {"first": self.first, "last": self.last}
        return {"seconds": self._delta.total_seconds()} | {
            name: when and when.isoformat() for name, when in bounds.items()
        }

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Epochs:
        first, last = (data[name] and datetime.fromisoformat(data[name]) for name in ("first", "last"))
        return cls(data["seconds"], first, last)

    @property
    def summary(self) -> str:
        bounds = [f"{word} {when:%Y-%m-%d}" for word, when in (("from", self.first), ("to", self.last)) if when]
        return " ".join([str(self._delta), *bounds])

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the next run within the bounds of the schedule, or within the bounds of a backfill (`latest`).

        Raise `UsageError` for a bound that was typed as a date and read in another zone than UTC.
        """
        if restriction.latest is not None:
            for bound in filter(None, (restriction.earliest, restriction.latest)):
                self._require_utc(bound)
        if restriction.latest is None:
            earliest = max(filter(None, (restriction.earliest, self.first)), default=None)
            restriction = TimeRestriction(coerce_datetime(earliest), coerce_datetime(self.last), restriction.catchup)
        if restriction.earliest is not None:
            aligned = coerce_datetime(self._interval_start(restriction.earliest, up=True))
            restriction = restriction._replace(earliest=aligned)
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )

    def generate_run_id(self, *, run_type: DagRunType, data_interval: DataInterval | None, **how: Any) -> str:
        """Return an id with the epoch's label for runs of the schedule and of backfills; a run by hand may be for any
        epoch."""
        if data_interval is None or run_type not in (DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB):
            return super().generate_run_id(run_type=run_type, data_interval=data_interval, **how)
        schedule = Schedule(int(self._delta.total_seconds()))
        return run_type.generate_run_id(suffix=schedule.format_label(schedule.epoch_of(data_interval.start)))

    def infer_manual_data_interval(self, run_after: datetime) -> DataInterval:
        """Return the last whole interval before an instant."""
        end = coerce_datetime(self._interval_start(run_after))
        return DataInterval(start=self._get_prev(end), end=end)

    def _require_utc(self, bound: datetime) -> None:
        """Raise `UsageError` for midnight of Airflow's default zone, where no epoch begins.

        The first or the last epoch of a backfill would be missing otherwise.
        """
        name = conf.get("core", "default_timezone")
        local = bound.astimezone(None if name == "system" else ZoneInfo("UTC" if name == "utc" else name))
        if self._interval_start(bound) != bound and local.time() == time() and local.utcoffset():
            raise UsageError(
                f"{local.isoformat(timespec='minutes')} is a date in the zone {name} ([core] default_timezone), and no "
                "epoch begins then: epochs begin in UTC.",
                f"the same backfill with {local:%Y-%m-%d}T00:00Z instead of {local:%Y-%m-%d}",
            )

    def _interval_start(self, when: datetime, *, up: bool = False) -> datetime:
        """Return the start of an interval: the last one up to an instant, or with `up` the next one from it on."""
        number, beyond = divmod(when.timestamp(), self._delta.total_seconds())
        return datetime.fromtimestamp((number + (up and beyond > 0)) * self._delta.total_seconds(), UTC)
