"""The audit of what the SQL database reports to readers: the totals of epochs, and the rows of batches.

`ReportedTotals` is what a published revision reports (`reported_totals`), or what a run would report once it is
published (`reported_totals_from`). It is compared with a recount (`differing_totals`) and with the stored rows
(`differing_rows`). Both return rows for `altneu.expectations.suite.check_differences`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..state.ledger import Ledger
from ..state.records import Revision
from ..state.totals import TotalDiff, sum_totals, totals_at

Measure = tuple[str, int]  # what is counted, and the trussness or the index in `[motifs]`, or 0
Difference = dict[str, Any]
SINGLE = ("vertices", "edges", "triangles", "wedges", "max_trussness")
MANY = ("trusses", "motifs")
ROWS = {"upserts": "rows_of_batch", "quarantine": "quarantined_of_batch"}


@dataclass(frozen=True)
class ReportedTotals:
    """The totals of each epoch, without zeros, and the rows and quarantined rows of its batch.

    `kinds` are the measures that can be compared. Wedges are not among them in a home whose last revision was published
    by a version that did not count them.
    """

    totals: dict[int, dict[Measure, int]]
    batches: dict[int, tuple[int, int]]
    kinds: frozenset[str]


def reported_totals(ledger: Ledger, revision: Revision, epochs: Iterable[int]) -> ReportedTotals:
    batches = ledger.outputs.published_batches(revision.revision)
    rows = {epoch: (batch.rows, batch.bad_rows) for epoch, batch in batches.items()}
    return reported_totals_from(ledger.outputs.total_diffs(revision.revision), rows, epochs)


def reported_totals_from(
    diffs: list[TotalDiff], rows: dict[int, tuple[int, int]], epochs: Iterable[int]
) -> ReportedTotals:
    """Compute the reported totals from total diffs and from the rows and quarantined rows of each batch."""
    wanted = sorted(set(epochs))
    points = totals_at(sum_totals(diffs, max(wanted, default=None)), wanted)
    counted = {measure for measure, *_ in diffs}
    uncounted = {"wedges"} if "edges" in counted and "wedges" not in counted else set()
    kinds = frozenset({*SINGLE, *MANY, *ROWS.values()} - uncounted)
    totals = {epoch: _nonzero_measures(point) for epoch, point in points.items()}
    return ReportedTotals(totals, {epoch: rows.get(epoch, (0, 0)) for epoch in wanted}, kinds)


def make_difference(
    epoch: int, what: str, a: int | str | None, maintained: Any, recomputed: Any, count: int = 1
) -> Difference:
    """Build a row for `altneu.expectations.suite.check_differences`.

    Args:
        epoch: The epoch.
        what: The kind of difference.
        a: What differs, as it is shown to a reader.
        maintained: The maintained value, as it is shown to a reader.
        recomputed: The recomputed value, as it is shown to a reader.
        count: The number of differences of the kind at the epoch.
    """
    values = {"maintained": maintained, "recomputed": recomputed, "count": count}
    return {"epoch": epoch, "what": what, "a": a, "b": None, **values}


def _nonzero_measures(point: Mapping[str, Any]) -> dict[Measure, int]:
    measures = {(name, 0): point[name] for name in SINGLE}
    measures |= {(name, k): n for name in MANY for k, n in point[name].items()}
    return {measure: value for measure, value in measures.items() if value}


def differing_totals(shown: ReportedTotals, counted: Mapping[int, Mapping[Measure, int]]) -> list[Difference]:
    """Return the totals in `shown` that differ from the recounted ones (by epoch, without zeros)."""
    differences: list[Difference] = []
    for epoch, totals in shown.totals.items():
        fresh = counted.get(epoch, {})
        wrong = sorted(m for m in {*totals, *fresh} if totals.get(m, 0) != fresh.get(m, 0) and m[0] in shown.kinds)
        for what, k in wrong:
            a, count = k if what in MANY else None, sum(name == what for name, _ in wrong)
            differences.append(
                make_difference(epoch, what, a, totals.get((what, k), 0), fresh.get((what, k), 0), count)
            )
    return differences


def count_stored_rows(shown: ReportedTotals, read: Callable[[str], DataFrame]) -> DataFrame:
    """Count the stored rows of each batch: epoch, table, n."""
    epochs = list(shown.batches)
    parts = [
        read(table).where(F.col("epoch").isin(epochs)).select("epoch", F.lit(table).alias("table"), "diff")
        for table in ROWS
    ]
    return parts[0].unionByName(parts[1]).groupBy("epoch", "table").agg(F.sum("diff").alias("n"))


def differing_rows(shown: ReportedTotals, stored: Mapping[tuple[int, str], int]) -> list[Difference]:
    """Return the batches whose reported number of rows or quarantined rows differs from that of the stored ones."""
    differences = []
    for epoch, reported in shown.batches.items():
        for (table, what), stated in zip(ROWS.items(), reported, strict=True):
            number = stored.get((epoch, table), 0)
            if stated != number:
                differences.append(make_difference(epoch, what, None, stated, number))
    return differences


def find_unnamed_vertices(upserts: DataFrame, names: DataFrame, epoch: int, most: int) -> list[Difference]:
    """Find vertices of landed rows without exactly one name, and names of several vertices, in homes with string ids.

    Args:
        upserts: The landed rows.
        names: The rows of the table `names`.
        epoch: The epoch at which the differences are reported.
        most: How many differences are returned.
    """
    used = upserts.select(F.explode(F.array("src", "dst")).alias("id")).distinct()
    by_id = used.join(names.groupBy("id").agg(F.count("*").alias("n")), "id", "left").fillna(0, ["n"])
    by_name = names.groupBy("name").agg(F.count("*").alias("n")).where("n <> 1")
    wrong = by_id.where("n <> 1").select(F.col("id").cast("string").alias("key"), "n")
    wrong = wrong.unionByName(by_name.select(F.col("name").alias("key"), "n"))
    rows = wrong.orderBy("key").limit(most + 1).collect()
    return [make_difference(epoch, "names", row["key"], row["n"], 1, len(rows)) for row in rows[:most]]
