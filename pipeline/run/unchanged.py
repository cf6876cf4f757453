"""The proof that a compaction changes nothing: what each kept revision sees of the new tables has the fingerprints that
its runs have recorded, at every epoch that the tables answer for; or, where none are recorded, those of the old tables.

The new files are read back whole for it, in one job. Recorded fingerprints also show where the old tables were damaged:
then nothing is replaced either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import CheckFailed
from ..home.directory import Home
from ..state.ledger import Ledger
from ..state.prints import FingerprintDifference, Prints, fold_fingerprints, list_differences
from ..state.records import LANDED, PLAIN, Revision
from ..storage.prints import revision_fingerprints
from ..storage.warehouse import Warehouse, visible_rows
from .meaning import changed_meaning


def verify_compaction(
    home: Home,
    ledger: Ledger,
    warehouse: Warehouse,
    row: Revision,
    pins: Mapping[str, int],
    since: int | None,
    revisions: Sequence[int],
) -> None:
    """Compare the tables of `pins` with those of `row`, as some revisions in a row see them. Raises `CheckFailed`.
    Not the plain ones: they have no revisions."""
    pins = {table: snapshot for table, snapshot in pins.items() if table not in PLAIN}

    def fingerprints_seen(snapshots: Mapping[str, int]) -> dict[int, Prints]:
        rows = {
            table: visible_rows(warehouse.read_snapshot(table, snapshot), row) for table, snapshot in snapshots.items()
        }
        return revision_fingerprints(rows.__getitem__, warehouse, rows, revisions)

    def former_fingerprints(tables: Sequence[str]) -> dict[int, Prints]:
        return fingerprints_seen({table: row.snapshots[table] for table in tables})

    recorded, found = ledger.fingerprints_at(revisions), fingerprints_seen(pins)
    wrong = _first_difference(recorded, found, since)
    if wrong is not None:
        revision, difference = wrong
        damaged = _first_difference(recorded, former_fingerprints([difference.table]), since) is not None
        raise (
            _damaged_error(home, revision, difference)
            if damaged
            else _changed_error(home, ledger, revision, difference)
        )
    unknown = [
        table
        for table in pins
        if pins[table] != row.snapshots[table] and any(table not in recorded[r] for r in recorded)
    ]
    wrong = _first_difference(former_fingerprints(unknown), found, since) if unknown else None
    if wrong is not None:
        raise _changed_error(home, ledger, *wrong)


def _first_difference(
    expected: Mapping[int, Prints], found: Mapping[int, Prints], since: int | None
) -> tuple[int, FingerprintDifference] | None:
    """The newest revision that sees something else, and the first thing."""
    for revision in sorted(found, reverse=True):
        for difference in list_differences(
            fold_fingerprints(expected[revision], since), fold_fingerprints(found[revision], since)
        ):
            return revision, difference
    return None


def _damaged_error(home: Home, revision: int, difference: FingerprintDifference) -> CheckFailed:
    landing = " --from-landing" if difference.table in LANDED else ""
    return CheckFailed(
        f"what is stored is not what was published as revision {revision}: "
        f"{difference.describe(home.schedule.format_label(difference.epoch))}. Nothing was replaced.",
        f"altneu audit --fingerprints (names every table that is damaged), then: altneu rebuild{landing}",
    )


def _changed_error(home: Home, ledger: Ledger, revision: int, difference: FingerprintDifference) -> CheckFailed:
    meaning = changed_meaning(home, ledger)
    settings = f" The settings have changed since: {'; '.join(meaning.words)}." if meaning.words else ""
    return CheckFailed(
        f"the new tables are not the old ones at revision {revision}: "
        f"{difference.describe(home.schedule.format_label(difference.epoch))}.{settings} Nothing was replaced.",
        meaning.advice or "altneu compact; if it fails again, report it",
    )
