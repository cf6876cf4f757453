"""The epoch of a DAG run: which one it is, when it is due, and whether it has landed.

At parse time only `read_calendar` is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ..errors import AltneuError, UsageError
from ..home.home import Home
from ..home.schedule import Schedule
from ..state import clock
from .base import PREFIX, open_ledger


@dataclass(frozen=True)
class Calendar:
    """The interval at which epoch runs are due. `problem` is why the home could not be read (then runs are daily)."""

    every: str | None
    seconds: int | None  # None: integer epochs, no schedule
    problem: str | None = None


def read_calendar(path: str) -> Calendar:
    """Return the home's schedule; never raise an error.

    A home that does not exist or is broken counts as daily until it is fixed.
    """
    try:
        every, problem = Home.open(path).config.epochs.every, None
    except (AltneuError, OSError, ValueError) as error:
        every, problem = "1d", error.what if isinstance(error, AltneuError) else str(error)
    return Calendar(every, Schedule.from_text(every).seconds, problem)


def schedule_bounds(first: str | None, last: str | None) -> tuple[datetime | None, datetime | None]:
    """Return the settings `start` and `end`, ISO dates, as UTC instants. Raise `UsageError` if they are wrong."""

    def parse_instant(name: str, text: str | None) -> datetime | None:
        if not text:
            return None
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(f"{name} = {text!r} is not a date.", f"{name} = 2004-04-15") from None
        return when.replace(tzinfo=when.tzinfo or UTC)

    start, end = parse_instant("start", first), parse_instant("end", last)
    if start is not None and end is not None and end < start:
        raise UsageError(f"end = {last!r} is before start = {first!r}.", f"end = {first}")
    return start, end


def epoch_of(
    path: str,
    asked: str | int | None,
    logical: datetime | None,
    start: datetime | None,
    manual: bool,
    until: datetime | None = None,
    prefix: str = PREFIX,
) -> int:
    """Return the epoch of a DAG run.

    A run of the schedule or a backfill is for the epoch of its data interval, and the parameter may not name another
    one. A run by hand is for the epoch of the parameter; without it, for the epoch that its logical date starts (as a
    scheduled run of that date is), or for the last whole interval before any other instant, such as now, unless the
    schedule has ended by then.

    Args:
        path: The folder of the home.
        asked: The parameter of the run.
        logical: The logical date of the run.
        start: The start of its data interval.
        manual: The run was started by hand.
        until: The start of the last epoch of the schedule, if it ends.
        prefix: The prefix of the DAGs, for messages.

    Raises:
        UsageError: The run does not have an epoch.
    """
    schedule = Home.open(path).schedule
    if asked not in (None, ""):
        named = schedule.parse_epoch(str(asked))
        if not manual and schedule.seconds is not None and start is not None and named != schedule.epoch_of(start):
            raise UsageError(
                f"this run is for the epoch of its date, "
                f"{schedule.format_label(schedule.epoch_of(start))}, but the parameter "
                f"epoch asks for {schedule.format_label(named)}. A backfill takes its epochs from its dates.",
                "start the same backfill again, with the parameter epoch left empty",
            )
        return named
    if schedule.seconds is None:
        raise UsageError(
            "this home has integer epochs (no [epochs] every), so a run must name its epoch.",
            'trigger the DAG with the parameter epoch, e.g. {"epoch": "1"}',
        )
    if manual and logical is not None and schedule.start_of(schedule.epoch_of(logical)) == logical:
        return schedule.epoch_of(logical)
    if start is None:
        raise UsageError(
            "this run has no logical date, so it must name its epoch.",
            f"trigger the DAG with the parameter epoch, e.g. "
            f'{{"epoch": "{schedule.format_label(schedule.epoch_of(clock.read_clock()))}"}}',
        )
    epoch = schedule.epoch_of(start)
    if manual and until is not None and schedule.start_of(epoch) > until:
        last = schedule.format_label(schedule.epoch_of(until))
        raise UsageError(
            f"this run names no epoch, so it would be for the last whole interval, {schedule.format_label(epoch)}; the "
            f"schedule has ended with {last} (ALTNEU_END).",
            f'trigger the DAG with the parameter epoch, e.g. {{"epoch": "{last}"}}; or {prefix}_backfill for many',
        )
    return epoch


@dataclass(frozen=True)
class LandingState:
    """Whether a run may start. `state` is landed, waiting, or gap (nothing has landed, but later epochs have)."""

    epoch: int
    label: str
    state: str
    says: str


def check_landing(
    path: str, epoch: int, *, patience: timedelta, manual: bool, now: datetime | None = None, prefix: str = PREFIX
) -> LandingState:
    """Return whether an epoch's batch has landed. An epoch that is published counts as landed, even without a folder.

    A gap is an epoch that ended longer than `patience` ago and has not landed while a later one has: nothing happened
    in it, and waiting would hold up the history behind it. A run that was started by hand always waits.

    Args:
        now: The current time, for tests.
        prefix: The prefix of the DAGs, for messages.
    """
    from .. import landing

    ledger = open_ledger(path, writes=False)
    home = ledger.home
    schedule = home.schedule
    label = schedule.format_label(epoch)
    batch = landing.list_batches(home, {epoch}).get(epoch)
    if batch is not None and batch.incomplete:
        return LandingState(epoch, label, "waiting", f"waiting for epoch {label}: {batch.incomplete}")
    if batch is not None:
        return LandingState(epoch, label, "landed", f"epoch {label} is landed: {len(batch.all_files)} file(s)")
    if epoch in ledger.outputs.published_batches(epochs=[epoch]):
        return LandingState(
            epoch, label, "landed", f"epoch {label} is published; its landing folder does not exist any more"
        )
    folder, batches = f"{home.landed_at}/epoch={label}", landing.list_batches(home)
    later = [e for e in batches if e > epoch]
    ended = None if schedule.seconds is None else schedule.start_of(epoch + 1)
    if not manual and later and ended is not None and ended + patience < (now or clock.read_clock()):
        return LandingState(
            epoch,
            label,
            "gap",
            f"nothing has landed for epoch {label} ({folder}), but {len(later)} later epoch(s) have: "
            f"it counts as a gap. If it lands late, clear this run or trigger {prefix}_backfill",
        )
    newest = f"; the newest landed is {schedule.format_label(max(batches))}" if batches else ""
    return LandingState(epoch, label, "waiting", f"waiting for epoch {label}: {folder} does not exist yet{newest}")
