"""The revision that was published at a moment: the transaction time as a clock shows it.

It is the last one, in the order of publication, whose moment is not later. So a revision that was rolled back later is
found for as long as it was what readers saw, and where a clock went back, the publication counts that came last.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..errors import AltneuError, UsageError
from ..state import clock
from ..state.ledger import Ledger

MAX_CLOCK_LEAD = timedelta(minutes=1)  # by which the clock of a reader may be ahead


def parse_moment(text: str) -> datetime:
    """Parse a moment in the form of ISO 8601. Without a time zone it is in UTC, and a date is its first moment.

    Raises:
        UsageError: The text is no moment.

    >>> [parse_moment(text).isoformat() for text in ("2026-05-01", "2026-05-01T12:00:00+02:00")]
    ['2026-05-01T00:00:00+00:00', '2026-05-01T10:00:00+00:00']
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is not a moment.", "--published-at 2026-05-01T12:00, or …T12:00+02:00") from None


def choose_revision(ledger: Ledger, revision: int | None, published_at: str | None) -> int | None:
    """Return the revision that is given by its number or by a moment; None: neither is given.

    Raises:
        UsageError: Both are given, or the moment has not come yet.
        AltneuError: Nothing was published at that moment.
    """
    if published_at is None:
        return revision
    if revision is not None:
        raise UsageError("--revision and --published-at do not go together.", "leave one of them out")
    moment = parse_moment(published_at)
    if moment > clock.read_clock() + MAX_CLOCK_LEAD:
        raise UsageError(f"{moment.isoformat()} has not come yet.", "leave --published-at out for the newest revision")
    row = ledger.revisions.published_before(moment)
    if row is None:
        first = ledger.revisions.get(1) if ledger.revisions.get().revision else None
        when = f"revision 1 is of {first.published_at}" if first else "nothing is published yet"
        after = "altneu show totals --revision 1" if first else "altneu backfill --all"
        raise AltneuError(f"nothing was published at {moment.isoformat()}: {when}.", after)
    return row.revision
