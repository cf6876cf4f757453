"""The complete periods whose results publications have changed: what a weekly report has to be made of again.

A period has changed when one of its epochs has, or when it has become complete. Nothing is said of a period that is
still incomplete; one that is not complete any more, after a rollback or a removal, is withdrawn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..home.periods import Period, PeriodUnit, periods_of
from ..home.schedule import Schedule
from .epoch_changes import EpochChange


class PeriodChangeKind(StrEnum):
    """The kinds of changes of a period."""

    NEW = "new"  # it has become complete
    CORRECTED = "corrected"  # it was complete before, and the results of one of its epochs have changed
    WITHDRAWN = "withdrawn"  # it is not complete any more


@dataclass(frozen=True)
class PeriodChange:
    """The change of one period, with the changes of its epochs."""

    period: Period
    kind: PeriodChangeKind
    epochs: tuple[EpochChange, ...]


def list_changed_periods(
    schedule: Schedule,
    unit: PeriodUnit,
    changes: Sequence[EpochChange],
    published: Collection[int],
    before: int | None,
    after: int | None,
) -> list[PeriodChange]:
    """List the periods that publications have changed, in the order of time, each once.

    Args:
        schedule: The schedule of the home.
        unit: The kind of the periods.
        changes: The epochs that the publications have changed.
        published: The epochs with a published batch after them.
        before: The frontier before them.
        after: The frontier after them.
    """
    changed = []
    for period in periods_of(schedule, unit, {*published, *(change.epoch for change in changes)}).values():
        was, is_now = period.is_complete(before), period.is_complete(after)
        own_changes = tuple(change for change in changes if period.contains(change.epoch))
        if (was or is_now) and (own_changes or was != is_now):
            changed.append(PeriodChange(period, _classify_period_change(was=was, is_now=is_now), own_changes))
    return changed


def _classify_period_change(*, was: bool, is_now: bool) -> PeriodChangeKind:
    """Tell what has become of a period, by whether it was complete and whether it is now."""
    if not is_now:
        return PeriodChangeKind.WITHDRAWN
    return PeriodChangeKind.CORRECTED if was else PeriodChangeKind.NEW
