"""Checks of the serving tables (`[publish] tables`) by other plans than those that derive them.

`compare_sums` reads all rows once, adds them up, and compares the sums at every epoch with the totals, which have
proofs of their own. `compare_rows` compares every row at some epochs: vertices with the sums of the diff triples, edges
with the landed rows and the trussness.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.sql_text import quote_identifier

from ..home.home import Home
from ..reading.epoch_totals import total_rows
from ..state.totals import EpochTotals, totals_at
from ..storage import local_frame
from .audited_rows import select_stored_rows, select_upserts_in_force
from .epoch_recount import MOTIF, PER_ROW
from .reported_totals_check import make_difference

Differences = list[dict[str, Any]]  # rows for `altneu.expectations.suite.check_serving_tables`
ROWS = 20  # differences of each kind and epoch that are shown


@dataclass(frozen=True)
class ServingTableInputs:
    """What the checks of serving tables need.

    `read_table` reads any table as a reader would see it, `tables` are the serving tables, `points` the totals at every
    epoch at which they change, `landed_epochs` the epochs with a batch, and `since` the epoch to which a compaction has
    folded.
    """

    read_table: Callable[[str], DataFrame]
    home: Home
    tables: Collection[str]
    points: dict[int, EpochTotals]
    landed_epochs: set[int]
    frontier: int
    since: int | None

    def check_context(self, epochs: Iterable[int]) -> dict[str, Any]:
        """Return the context that `altneu.expectations.suite.check_serving_tables` takes for some epochs."""
        label = self.home.schedule.format_label
        return {"tables": self.tables, "epochs": list(epochs), "labels": {epoch: label(epoch) for epoch in epochs}}


def compare_sums(sources: ServingTableInputs) -> Differences:
    """Compare the sums of the serving tables with the totals, and return the differences; EXECUTES."""
    read, home, points, frontier = sources.read_table, sources.home, sources.points, sources.frontier
    tables, differences = sources.tables, Differences()
    expected = total_rows(home, points, sources.landed_epochs, frontier)
    if "epoch_totals" in tables:
        names = read("epoch_totals").columns
        stored = {row["epoch"]: list(row) for row in read("epoch_totals").collect()}
        right = {row[0]: list(row) for row in expected}
        wrong = [
            (epoch, name, served, other)
            for epoch in sorted({*stored, *right})
            for name, served, other in _unequal_cells(names, stored.get(epoch), right.get(epoch))
        ]
        label = home.schedule.format_label
        differences += [
            make_difference(frontier, "epoch_totals", f"{name} at {label(epoch)}", served, other, len(wrong))
            for epoch, name, served, other in wrong[:ROWS]
        ]
    if "vertex_history" in tables:
        differences += _compare_series(read("vertex_history"), home, points, frontier, sources.since)
    if "edge_now" in tables:
        counts: dict[int, float] = defaultdict(float)
        for row in read("edge_now").groupBy("trussness", "both_ways").count().collect():
            counts[row["trussness"]] += row["count"] / (2 if row["both_ways"] else 1)
        right_counts = totals_at(points, [frontier])[frontier]["trusses"]
        differences += [
            make_difference(frontier, "edge_now", f"edges of trussness {k}", counts.get(k, 0), right_counts.get(k, 0))
            for k in sorted({*counts, *right_counts})
            if counts.get(k, 0) != right_counts.get(k, 0)
        ]
    return differences


def _unequal_cells(
    names: Sequence[str], mine: list[Any] | None, other: list[Any] | None
) -> Iterable[tuple[str, Any, Any]]:
    if mine is None or other is None:
        yield "rows", int(mine is not None), int(other is not None)
        return
    for name, one, two in zip(names, mine, other, strict=True):
        if name not in ("begins", "label") and one != two:
            yield name, one, two


def _compare_series(
    rows: DataFrame, home: Home, points: dict[int, EpochTotals], frontier: int, since: int | None
) -> Differences:
    """Compare the sums of `vertex_history` with the totals at every epoch at which either changes."""
    names = {"vertices": F.col("degree") > 0, "edges": F.col("degree"), "triangles": F.col("triangles")}
    motifs = home.config.motif_patterns()
    names |= {f"motif_{name}": F.col(quote_identifier(f"motif_{name}")) for name in motifs}
    times = {"vertices": 1, "edges": 2, "triangles": 3}
    times |= {f"motif_{name}": len(patterns[0].vertices) for name, patterns in motifs.items()}
    current = F.col("is_current") != (F.col("until") == FOREVER)
    columns = {**{name: column.cast("bigint") for name, column in names.items()}, "flags": current.cast("bigint")}
    ends = [
        F.struct(F.col(at).alias("at"), *((column * sign).alias(name) for name, column in columns.items()))
        for at, sign in (("epoch", 1), ("until", -1))
    ]
    steps = (
        rows.select(F.inline(F.array(*ends))).groupBy("at").agg(*(F.sum(quote_identifier(n)).alias(n) for n in columns))
    )
    by_epoch = {row["at"]: row.asDict() for row in steps.collect()}
    wrong, now = Differences(), dict.fromkeys(columns, 0)
    looked_at = sorted(epoch for epoch in {*by_epoch, *points, frontier} if epoch <= frontier)
    for epoch, point in totals_at(points, looked_at).items():
        now = {name: now[name] + int(by_epoch.get(epoch, {}).get(name) or 0) for name in columns}
        if since is not None and epoch < since:
            continue
        right: dict[str, int] = {name: point[name] for name in ("vertices", "edges", "triangles")}
        right |= {f"motif_{name}": point["motifs"].get(place, 0) for place, name in enumerate(motifs)}
        wrong += [
            make_difference(epoch, "vertex_history", f"{name} of all vertices", now[name], right[name] * times[name])
            for name in right
            if now[name] != right[name] * times[name]
        ]
        if now["flags"]:
            wrong.append(make_difference(epoch, "vertex_history", "rows whose is_current is wrong", now["flags"], 0))
    return wrong


def compare_rows(sources: ServingTableInputs, epochs: Sequence[int]) -> Differences:
    """Compare the rows of the serving tables at some epochs, and return the differences; EXECUTES."""
    differences = Differences()
    if "vertex_history" in sources.tables and epochs:
        differences += _compare_vertices(sources.read_table, sources.home, epochs)
    if "edge_now" in sources.tables:
        differences += _compare_edges(sources.read_table, sources.home, sources.frontier)
    return differences


def _compare_vertices(read: Callable[[str], DataFrame], home: Home, epochs: Sequence[int]) -> Differences:
    motifs = list(home.config.motifs)
    state = select_stored_rows(read, list(epochs), motifs)
    what = {name: F.col("what") == PER_ROW.index(name) for name in PER_ROW}
    ends = F.explode(F.when(what["trussness_of_edge"], F.array("a", "b")).otherwise(F.array("a"))).alias("vertex")
    each = state.where(~what["edge"]).select("epoch", ends, "what", "k", "n")

    def greatest_where(test: Column, column: Column) -> Column:
        return F.max(F.when(test, column).otherwise(F.lit(0)))

    measures = {
        "degree": greatest_where(what["degree_at_vertex"], F.col("n")),
        "triangles": greatest_where(what["triangles_at_vertex"], F.col("n")),
        "trussness": greatest_where(what["trussness_of_edge"], F.col("k")),
    }
    for place, name in enumerate(motifs):
        measures[f"motif_{name}"] = greatest_where(what[MOTIF] & (F.col("k") == place), F.col("n"))
    right = each.groupBy("epoch", "vertex").agg(*(column.alias(name) for name, column in measures.items()))
    if home.config.vertices.ids == "string":
        right = right.join(read("names").select(F.col("id").alias("vertex"), "name"), "vertex")
        right = right.drop("vertex").withColumnRenamed("name", "vertex")
    epoch_frame = F.broadcast(
        local_frame.local_frame(right.sparkSession, {"at": "bigint"}, [(epoch,) for epoch in epochs])
    )
    held = read("vertex_history").join(epoch_frame, (F.col("epoch") <= F.col("at")) & (F.col("at") < F.col("until")))
    names = [*map(quote_identifier, measures)]
    d = F.col("degree")
    whole = F.when(d > 1, F.col("triangles") / (d * (d - 1) / 2)).otherwise(F.lit(0.0)) == F.col("clustering")
    served = held.select(F.col("at").alias("epoch"), "vertex", F.struct(*names).alias("_mine"), whole.alias("_whole"))
    other = right.select("epoch", "vertex", F.struct(*names).alias("_other"))
    both = served.join(other, ["epoch", "vertex"], "full_outer")
    return _list_differences(
        both.where("NOT _mine <=> _other OR NOT coalesce(_whole, true)"), "vertex_history", ["vertex"]
    )


def _compare_edges(read: Callable[[str], DataFrame], home: Home, frontier: int) -> Differences:
    values = list(home.config.values)
    landed = select_upserts_in_force(read("upserts"), home, [frontier])
    truss = select_stored_rows(read, [frontier]).where(F.col("what") == PER_ROW.index("trussness_of_edge"))
    ways = F.count("*").over(Window.partitionBy("a", "b")) > 1
    right = landed.withColumn("both_ways", ways).join(truss.select("a", "b", F.col("k").alias("trussness")), ["a", "b"])
    if home.config.vertices.ids == "string":
        for end in ("src", "dst"):
            right = right.join(read("names").select(F.col("id").alias(end), "name"), end)
            right = right.drop(end).withColumnRenamed("name", end)
    names = [*map(quote_identifier, values), "trussness", "both_ways"]
    served = read("edge_now").select("src", "dst", F.struct(*names).alias("_mine"))
    both = served.join(right.select("src", "dst", F.struct(*names).alias("_other")), ["src", "dst"], "full_outer")
    wrong = both.where("NOT _mine <=> _other").withColumn("epoch", F.lit(frontier))
    return _list_differences(wrong, "edge_now", ["src", "dst"])


def _list_differences(wrong: DataFrame, what: str, keys: list[str]) -> Differences:
    """Return the first differing rows of each epoch, with their number."""
    by_epoch = Window.partitionBy("epoch")
    place = F.row_number().over(by_epoch.orderBy(*keys))
    rows_ = wrong.withColumns({"_count": F.count("*").over(by_epoch), "_place": place}).where(F.col("_place") <= ROWS)
    key_columns = [F.col(name).cast("string").alias(name) for name in keys]
    cells = [F.to_json(name).alias(name) for name in ("_mine", "_other")]
    return [
        {
            **make_difference(row["epoch"], what, row[keys[0]], row["_mine"], row["_other"], row["_count"]),
            "b": row[keys[1]] if keys[1:] else None,
        }
        for row in rows_.select("epoch", *key_columns, *cells, "_count").orderBy("epoch", "_place").collect()
    ]
