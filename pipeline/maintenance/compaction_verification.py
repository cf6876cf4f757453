"""The verification that a compaction has changed no answer, by fingerprints.

What each kept revision sees of the new tables must have the fingerprints that its runs have recorded, at every epoch
that the tables answer for. Where none are recorded, it must have the fingerprints of the old tables.

One job reads back all new files. The recorded fingerprints also show where the old tables were damaged already; then
nothing is replaced. Of the upserts before the kept epochs a compaction keeps only those that are in force. These have
no recorded fingerprint: the upserts in force are selected from the old and from the new table, and compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.algebra.upserts import DELETE

from ..errors import CheckFailed
from ..home.home import Home
from ..run.semantic_settings import changed_meaning
from ..state.fingerprint_sums import FingerprintDifference, Prints, fold_fingerprints, list_differences
from ..state.ledger import Ledger
from ..state.records import SERVING_TABLES, Revision, is_landed
from ..storage.table_fingerprints import revision_fingerprints, table_fingerprints
from ..storage.warehouse import Warehouse, visible_rows


def verify_compaction(
    ledger: Ledger,
    warehouse: Warehouse,
    *,
    row: Revision,
    pins: Mapping[str, int],
    since: int | None,
    revisions: Sequence[int],
    live_for: int | None,
) -> None:
    """Compare the new tables with the old ones, as consecutive revisions see them.

    Serving tables are left out, because they have no revisions.

    Args:
        ledger: The ledger of the home.
        warehouse: Its tables.
        row: The revision that is compacted, with the snapshots of the old tables.
        pins: The snapshot of each new table.
        since: The epoch before which history is folded; None keeps all epochs.
        revisions: The consecutive revisions that will read the new tables.
        live_for: For how many epochs an upsert makes an edge; None without a window.

    Raises:
        CheckFailed: A new table differs from the old one, or the old one from what was published.
    """
    pins = {table: snapshot for table, snapshot in pins.items() if table not in SERVING_TABLES}

    def fingerprints_seen(snapshots: Mapping[str, int]) -> dict[int, Prints]:
        rows = {
            table: visible_rows(warehouse.read_snapshot(table, snapshot), row) for table, snapshot in snapshots.items()
        }
        return revision_fingerprints(rows.__getitem__, warehouse, rows, revisions)

    def former_fingerprints(tables: Sequence[str]) -> dict[int, Prints]:
        return fingerprints_seen({table: row.snapshots[table] for table in tables})

    recorded, actual = ledger.outputs.fingerprints_at(revisions), fingerprints_seen(pins)
    wrong = _first_difference(recorded, actual, since)
    if wrong is not None:
        revision, difference = wrong
        damaged = _first_difference(recorded, former_fingerprints([difference.table]), since) is not None
        raise (
            _damaged_error(ledger.home, revision, difference)
            if damaged
            else _changed_error(ledger, revision, difference)
        )
    unknown = [
        table
        for table in pins
        if pins[table] != row.snapshots[table] and any(table not in recorded[r] for r in recorded)
    ]
    wrong = _first_difference(former_fingerprints(unknown), actual, since) if unknown else None
    if wrong is None and since is not None and pins["upserts"] != row.snapshots["upserts"]:
        old, new = (
            _fingerprint_rows_in_force(warehouse, row, snapshot, since, revisions, live_for)
            for snapshot in (row.snapshots["upserts"], pins["upserts"])
        )
        wrong = _first_difference(old, new, None)
    if wrong is not None:
        raise _changed_error(ledger, *wrong)


def _fingerprint_rows_in_force(
    warehouse: Warehouse,
    row: Revision,
    snapshot: int,
    since: int,
    revisions: Sequence[int],
    live_for: int | None,
) -> dict[int, Prints]:
    """Compute the fingerprints of the upserts from before epoch `since` that are in force at it; EXECUTES.

    They are computed as the oldest and the newest of `revisions` see them.
    """
    stored = visible_rows(warehouse.read_snapshot("upserts", snapshot), row).where(F.col("epoch") < since)
    fingerprints = {}
    for revision in {revisions[0], revisions[-1]}:
        rows = _select_rows_in_force(stored.where(F.col("revision") <= revision), since, live_for)
        fingerprints[revision] = table_fingerprints({"upserts": rows}.__getitem__, warehouse, ["upserts"])
    return fingerprints


def _select_rows_in_force(upserts: DataFrame, since: int, live_for: int | None) -> DataFrame:
    """Select the upserts from before epoch `since` that are in force at it, with all columns (law 1).

    One aggregation selects them, not the windows of `winning_upserts`, which compactions fold by.
    """
    ordered = ("epoch", "seq", "_is_value")
    rest = [c for c in upserts.columns if c not in ("src", "dst", "op", "revision", "diff", *ordered, "file", "line")]
    data = [column for column in upserts.columns if column not in ("revision", "diff")]
    present = upserts.groupBy(*data).agg(F.sum("diff").alias("diff")).where("diff > 0")
    newest = F.max(F.struct(*ordered, *rest, "file", "line", "op")).alias("_newest")
    last = (
        present.withColumn("_is_value", F.col("op") != DELETE)
        .groupBy("src", "dst")
        .agg(newest)
        .select("src", "dst", "_newest.*", F.lit(1).alias("diff"))
        .where("_is_value")
        .drop("_is_value")
    )
    return last if live_for is None else last.where(F.col("epoch") + live_for > since)


def _first_difference(
    expected: Mapping[int, Prints], actual: Mapping[int, Prints], since: int | None
) -> tuple[int, FingerprintDifference] | None:
    """Return the newest revision at which the fingerprints differ, with the first difference there, or None."""
    for revision in sorted(actual, reverse=True):
        for difference in list_differences(
            fold_fingerprints(expected[revision], since), fold_fingerprints(actual[revision], since)
        ):
            return revision, difference
    return None


def _damaged_error(home: Home, revision: int, difference: FingerprintDifference) -> CheckFailed:
    landing = " --from-landing" if is_landed(difference.table) else ""
    return CheckFailed(
        f"the stored tables are not what was published as revision {revision}: "
        f"{difference.describe(home.schedule.format_label(difference.epoch))}. Nothing was replaced.",
        f"altneu audit --fingerprints (names every table that is damaged), then: altneu rebuild{landing}",
    )


def _changed_error(ledger: Ledger, revision: int, difference: FingerprintDifference) -> CheckFailed:
    meaning = changed_meaning(ledger)
    settings = f" The settings have changed since: {'; '.join(meaning.descriptions)}." if meaning.descriptions else ""
    return CheckFailed(
        f"the new tables differ from the old ones at revision {revision}: "
        f"{difference.describe(ledger.home.schedule.format_label(difference.epoch))}.{settings} Nothing was replaced.",
        meaning.advice or "altneu compact; if it fails again, report it",
    )
