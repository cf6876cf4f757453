"""The serving tables, which other programs read without knowing of diff triples (`[publish] tables`).

Each serving table is derived from the collections alone, so that it is right where they are. `maintain_serving_tables`
derives only the rows again whose vertices, or pairs of vertices, have new rows in a collection, and replaces the rows
that differ. A table that the parent does not have, or that a rebuild writes again, is written as a whole.
`serving_rows` are the rows of a table at a revision; a rollback writes them again where a compaction has made revisions
share their tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.algebra.upserts import DELETE, winning_upserts
from altneu.algorithms.graph.cost_model import BROADCAST_ROWS
from altneu.algorithms.graph.edge_derivation import PAIR, join_on_pair
from altneu.algorithms.graph.kernels.vertex_history_kernel import TRUSS
from altneu.algorithms.graph.vertex_history import vertex_rows
from altneu.algorithms.sql_predicates import only_where
from altneu.algorithms.sql_text import quote_identifier

from ..errors import CheckFailed
from ..home.home import Home
from ..reading.epoch_totals import MOST_EPOCHS, total_rows
from ..state.ledger import Ledger
from ..state.records import SERVING_TABLES, Revision
from ..state.totals import TotalDiff, sum_totals
from ..storage import local_frame
from ..storage.table_schemas import table_columns
from ..storage.warehouse import Warehouse
from .run_context import RunContext

TableReader = Callable[[str], DataFrame]
KEYS = {"vertex_history": ["vertex", "epoch"], "edge_now": ["src", "dst"], "epoch_totals": ["epoch"]}
_FIRST, _LAST = -62_135_596_800, 253_402_214_400  # seconds of 0001-01-01 and 9999-12-31, the bounds of open intervals


def maintain_serving_tables(run: RunContext) -> None:
    """Bring the serving tables on the branches of a run up to date with what it has written; EXECUTES."""
    for table in run.warehouse.serving_tables:
        if table not in run.parent.snapshots or not run.appends_to("edges"):
            run.say(f"{table}: writing all of it")
            run.replace_rows(table, None, _rows_after_run(run, table))
        elif table == "epoch_totals":
            old, first = run.warehouse.read_snapshot(table, run.base_snapshot(table)), _first_total(run)
            new = _totals_after_run(run, first)
            _replace_changed_rows(run, table, old if first is None else old.where(F.col("epoch") >= first), new)
        else:
            _update_table(run, table)


def _update_table(run: RunContext, table: str) -> None:
    """Bring the rows of a serving table up to date that a run touches."""
    old, touched = run.warehouse.read_snapshot(table, run.base_snapshot(table)), _touched_keys(run, table).persist()
    try:
        count = touched.limit(BROADCAST_ROWS + 1).count()
        if not count:
            run.replace_rows(table, None, None)
        elif count > BROADCAST_ROWS:  # too many to be sent to every task
            _replace_changed_rows(run, table, old, _rows_after_run(run, table))
        else:
            _replace_changed_rows(
                run, table, _rows_of_keys(run, table, old, touched), _rows_after_run(run, table, touched)
            )
    finally:
        touched.unpersist()


def serving_rows(table: str, read: TableReader, ledger: Ledger, row: Revision) -> DataFrame:
    """Derive all rows of a serving table as of a published revision.

    Args:
        table: The serving table.
        read: A function that reads a collection at the revision.
        ledger: The ledger of the home.
        row: The revision.
    """
    home = ledger.home
    assert row.frontier is not None
    if table == "epoch_totals":
        landed = set(ledger.outputs.published_batches(row.revision))
        return _totals_rows(read("edges"), home, ledger.outputs.total_diffs(row.revision), landed, row.frontier)
    return _vertex_rows(read, home, row.frontier) if table == "vertex_history" else _edge_rows(read, home, row.frontier)


def _rows_after_run(run: RunContext, table: str, touched: DataFrame | None = None) -> DataFrame:
    """Derive the rows of a serving table after the run: all, or those of the touched vertices or pairs."""
    if table == "epoch_totals":
        return _totals_after_run(run, None)
    derive = _vertex_rows if table == "vertex_history" else _edge_rows
    return derive(run.read_after, run.home, run.frontier, touched)


def _first_total(run: RunContext) -> int | None:
    """Return the first epoch whose row of `epoch_totals` the run may change or add; None: it may be any.

    Of a span that is so long that not every epoch has a row, any may come or go.
    """
    until = run.parent.frontier
    assert until is not None
    span = run.frontier - min({*run.published_batches, *run.epochs})
    return min(run.scope.first_changed_epoch, until + 1) if span < MOST_EPOCHS else None


def _totals_after_run(run: RunContext, first: int | None) -> DataFrame:
    """Derive the rows of `epoch_totals` after the run, from an epoch on; None: all."""
    diffs = run.total_diffs(first)
    return _totals_rows(run.read_after("edges"), run.home, diffs, run.landed_epochs(), run.frontier, first)


def _replace_changed_rows(run: RunContext, table: str, old: DataFrame, new: DataFrame) -> None:
    """Remove the old rows that are not among the new ones, and add the new rows that are not among the old ones."""
    columns = run.warehouse.column_names(table)
    names = [quote_identifier(name) for name in columns]

    def with_sign(rows: DataFrame, sign: int) -> DataFrame:
        return rows.select(*names, F.lit(sign).alias("_sign"))

    both = with_sign(old, -1).unionByName(with_sign(new, 1)).groupBy(*names).agg(F.sum("_sign").alias("_sign"))
    moved = both.where("_sign <> 0").persist()
    try:
        signs = {row["_sign"]: row["n"] for row in moved.groupBy("_sign").agg(F.count("*").alias("n")).collect()}
        gone, come = moved.where("_sign < 0").select(*KEYS[table]), moved.where("_sign > 0").select(*names)
        removed = signs.get(-1, 0)
        keys = F.broadcast(gone) if removed <= BROADCAST_ROWS else gone
        added = signs.get(1, 0)
        rows = come.coalesce(1) if added <= BROADCAST_ROWS else come
        run.replace_rows(table, keys if removed else None, rows if added else None)
        if signs:
            run.say(f"{table}: {added:,} rows replace {removed:,}")
    finally:
        moved.unpersist()


# -- compaction ------------------------------------------------------------------------------------------------------


def declared_as_stored(warehouse: Warehouse, table: str, snapshot: int) -> bool:
    """Tell whether a snapshot has the declared columns. If not, the next run writes the table again."""
    return set(warehouse.stored_columns(table, snapshot)) == set(warehouse.column_names(table))


def fold_serving_table(warehouse: Warehouse, table: str, snapshot: int, since: int | None) -> DataFrame:
    """Fold the rows of a serving table: drop those that ended by `since`, and let earlier ones begin at `since`.

    `edge_now` has no such rows, and the totals of all epochs are kept.
    """
    rows = warehouse.read_snapshot(table, snapshot)
    if since is None or table != "vertex_history":
        return rows
    rows = rows.where(F.col("until") > since).withColumn("epoch", F.greatest("epoch", F.lit(since).cast("bigint")))
    seconds = warehouse.home.schedule.seconds
    return rows if seconds is None else rows.withColumn("valid_from", _epoch_begin("epoch", seconds))


def hash_sum(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows and the sum of their hashes, which does not depend on their order; EXECUTES."""
    lanes = F.xxhash64(*map(quote_identifier, sorted(rows.columns))).cast("decimal(20, 0)")
    row = rows.agg(F.count("*").alias("count"), F.coalesce(F.sum(lanes), F.lit(0)).alias("sum")).collect()[0]
    return int(row["count"]), int(row["sum"])


def verify_folded(warehouse: Warehouse, row: Revision, pins: Mapping[str, int], since: int | None) -> None:
    """Raise `CheckFailed` unless the serving tables that a compaction has written are the old ones, folded."""
    for table, snapshot in pins.items():
        if table not in SERVING_TABLES or snapshot == row.snapshots[table]:
            continue
        if hash_sum(fold_serving_table(warehouse, table, row.snapshots[table], since)) != hash_sum(
            warehouse.read_snapshot(table, snapshot)
        ):
            raise CheckFailed(
                f"the new table {table} differs from the old one. Nothing was replaced.",
                "altneu compact; if it fails again: altneu rebuild",
            )


# -- what a run touches ---------------------------------------------------------------------------------------------


def _touched_keys(run: RunContext, table: str) -> DataFrame:
    """Return the vertices (`vertex`) or the pairs (`a` < `b`), by number, whose rows the run may change."""
    until, window = run.parent.frontier, run.home.config.edges.live_for
    assert until is not None
    passed = (F.col("epoch") > until) & (F.col("epoch") <= run.frontier)  # stored before, and in force by now
    counts = [name for name in ("degrees", "triangle_counts", "motif_counts") if name in run.warehouse.collections]
    if table == "vertex_history":
        ends = run.read_delta("trussness").select(F.explode(F.array("a", "b")).alias("vertex"))
        parts = [ends, *(run.read_delta(name).select("vertex") for name in counts)]
        if window is not None and run.frontier > until:
            parts += [run.read_after(name).where(passed).select("vertex") for name in counts]
        return reduce(DataFrame.unionByName, parts).distinct()
    landed = [run.read_delta("upserts")]
    if window is not None and run.frontier > until:  # add the upserts that expire between the frontiers
        ends_at = F.col("epoch") + window
        landed.append(run.read_after("upserts").where((ends_at > until) & (ends_at <= run.frontier)))
    pairs = [rows.where("src <> dst").selectExpr(*PAIR) for rows in landed]
    return reduce(DataFrame.unionByName, [*pairs, run.read_delta("trussness").select("a", "b")]).distinct()


def _rows_of_keys(run: RunContext, table: str, rows: DataFrame, touched: DataFrame) -> DataFrame:
    """Return the rows of a serving table that belong to touched vertices or pairs."""
    names = run.read_after("names") if run.home.config.vertices.ids == "string" else None
    if table == "vertex_history":
        wanted = touched if names is None else _add_names(touched, names, ["vertex"])
        return rows.join(F.broadcast(wanted), "vertex", "left_semi")
    wanted = touched if names is None else _add_names(touched, names, ["a", "b"])
    low, high = (
        F.least("a", "b").alias("_a"),
        F.greatest("a", "b").alias("_b"),
    )  # names have another order than their numbers
    keyed = rows.withColumns({"_a": F.least("src", "dst"), "_b": F.greatest("src", "dst")})
    return keyed.join(F.broadcast(wanted.select(low, high)), ["_a", "_b"], "left_semi").drop("_a", "_b")


# -- what the tables hold -------------------------------------------------------------------------------------------


def _vertex_rows(read: TableReader, home: Home, frontier: int, vertices: DataFrame | None = None) -> DataFrame:
    """Derive the rows of `vertex_history` at a frontier, of all vertices or of those that are given."""
    zero, motifs = F.lit(0).cast("bigint"), list(home.config.motifs)
    measures = ["trussness", "degree", "triangles", *(f"motif_{name}" for name in motifs)]

    def measure_rows(table: str, measure: Column, k: Column = zero, vertex: Column | None = None) -> DataFrame:
        rows = read(table).where(F.col("epoch") <= frontier)
        key = F.col("vertex") if vertex is None else vertex
        rows = rows.select(key.alias("vertex"), "epoch", measure.alias("measure"), k.alias("k"), "diff")
        return rows if vertices is None else rows.join(F.broadcast(vertices), "vertex", "left_semi")

    parts = [
        measure_rows("trussness", F.lit(TRUSS), F.col("k"), F.explode(F.array("a", "b"))),
        measure_rows("degrees", F.lit(measures.index("degree"))),
        measure_rows("triangle_counts", F.lit(measures.index("triangles"))),
    ]
    if motifs:
        place = F.array_position(F.array(*map(F.lit, motifs)), F.col("motif"))
        parts.append(measure_rows("motif_counts", (place + len(measures) - len(motifs) - 1).cast("int")))
    rows = vertex_rows(reduce(DataFrame.unionByName, parts), measures)
    d = F.col("degree")
    rows = rows.withColumns(
        {
            "clustering": F.when(d > 1, F.col("triangles") / (d * (d - 1) / 2)).otherwise(F.lit(0.0)),
            "is_current": F.col("until") == FOREVER,
        }
    )
    if (seconds := home.schedule.seconds) is not None:
        rows = rows.withColumns(
            {"valid_from": _epoch_begin("epoch", seconds), "valid_to": _epoch_begin("until", seconds)}
        )
    return _cast_to_declared(home, "vertex_history", rows, read, ["vertex"])


def _epoch_begin(epoch: str, seconds: int) -> Column:
    """Return the time at which an epoch begins, bounded by `_FIRST` and `_LAST`, where the calendar ends."""
    last, first = _LAST // seconds, -(-_FIRST // seconds)
    return F.timestamp_seconds(F.greatest(F.least(F.col(epoch), F.lit(last)), F.lit(first)) * seconds)


def _edge_rows(read: TableReader, home: Home, frontier: int, pairs: DataFrame | None = None) -> DataFrame:
    """Derive the rows of `edge_now` at a frontier, of all pairs or of those that are given."""
    config, ends = home.config, ["a", "b"]
    values = list(config.values)
    few_ = None if pairs is None else pairs.select(F.col("a").alias("_a"), F.col("b").alias("_b"))

    def rows_of_pairs(rows: DataFrame) -> DataFrame:
        return rows if few_ is None else join_on_pair(rows, ("a", "b"), few_, ("_a", "_b")).drop("_a", "_b")

    landed = rows_of_pairs(read("upserts").where("src <> dst").where(F.col("epoch") <= frontier).selectExpr("*", *PAIR))
    data = [*ends, "src", "dst", *values, "op", "seq", "epoch"]
    present = landed.groupBy(*data).agg(F.sum("diff").alias("_n")).where("_n > 0")
    key = [*ends, "src", "dst"]
    won = winning_upserts(present, key, values)
    last = won.groupBy(*key).agg(F.max("epoch").alias("epoch"))
    in_force = won.join(last, [*key, "epoch"]).where(F.col("op") != DELETE)
    if config.edges.live_for is not None:
        in_force = in_force.where(F.col("epoch") + config.edges.live_for > frontier)
    if config.edge_condition is not None:
        in_force = in_force.where(only_where(f"op <> '{DELETE}'", config.edge_condition))
    truss = rows_of_pairs(read("trussness").where(F.col("epoch") <= frontier))
    now = truss.groupBy(*ends, "k").agg(F.sum("diff").alias("_n")).where("_n > 0")
    ways = in_force.groupBy(*ends).agg((F.count("*") > 1).alias("both_ways"))
    rows = in_force.join(now.select(*ends, F.col("k").alias("trussness")), ends).join(ways, ends)
    return _cast_to_declared(home, "edge_now", rows.drop("a", "b"), read, ["src", "dst"])


def _totals_rows(
    frame: DataFrame,
    home: Home,
    diffs: Sequence[TotalDiff],
    landed: set[int],
    frontier: int,
    first: int | None = None,
) -> DataFrame:
    """Derive the rows of `epoch_totals` from the database alone, those from epoch `first` on; None: all."""
    rows = total_rows(home, sum_totals(diffs, frontier), landed, frontier, first)
    return local_frame.local_frame(frame.sparkSession, table_columns(home, "epoch_totals"), rows)


def _cast_to_declared(home: Home, table: str, rows: DataFrame, read: TableReader, vertices: list[str]) -> DataFrame:
    """Select the declared columns of a serving table, with the vertices as they landed."""
    named = _add_names(rows, read("names"), vertices) if home.config.vertices.ids == "string" else rows
    return named.select(*map(quote_identifier, table_columns(home, table)))


def _add_names(rows: DataFrame, names: DataFrame, columns: list[str]) -> DataFrame:
    for column in columns:
        book = names.select(F.col("id").alias(column), F.col("name").alias("_name"))
        rows = rows.join(book, column).drop(column).withColumnRenamed("_name", column)
    return rows
