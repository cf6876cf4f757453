"""The difference that readers would see between two states of a graph: revisions, or a held run.

Both states are compared at every epoch, as a reader sees them. After the frontier of a state its last values hold, so
that a new epoch is compared with the newest published one. Rows are spans of epochs in which the values before and
after stay the same; a missing value is 0. Totals, trusses, motifs and checks come from the SQL database alone.

Where one state has followed from the other by added batches, only the rows in between are read, and the older rows of
the vertices and edges that they touch. Otherwise all rows of both states are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from altneu.algorithms.sql_text import quote_identifier

from ..errors import UsageError
from ..home.queries import QueryDefinition, recorded_queries
from ..state.epoch_status import select_newest_checks
from ..state.ledger import Ledger
from ..state.records import CheckRecord, Revision, RunKind, RunRecord
from ..state.totals import MEASURES, EpochTotals, TotalDiff, sum_totals, totals_at, truss_sizes
from ..storage.warehouse import Warehouse
from .query_results import published_queries
from .vertex_names import replace_with_names as named_of

Document = dict[str, Any]
TABLES = {  # view → its keys in the tables, and for each value its table and how much a row adds to it
    "vertices": (("vertex",), {"degree": ("degrees", "diff"), "triangles": ("triangle_counts", "diff")}),
    "edges": (("a", "b"), {"trussness": ("trussness", "k * diff")}),
}
TREND = 60  # epochs in the charts
COLUMNS = {
    "vertices": ("vertex", "first", "last", "degree_before", "degree", "triangles_before", "triangles"),
    "edges": ("src", "dst", "first", "last", "trussness_before", "trussness"),
}


@dataclass(frozen=True)
class DiffSide:
    """One of the two states: a revision, or a held run (`run`) as it would be published."""

    ledger: Ledger
    row: Revision
    run: RunRecord | None = None

    @property
    def name(self) -> str:
        return f"run {self.run.run_id}" if self.run else f"revision {self.row.revision}"

    def total_diffs(self) -> list[TotalDiff]:
        if self.run is None:
            return self.ledger.outputs.total_diffs(self.row.revision)
        staged = self.ledger.outputs.staged_totals(self.run.run_id, self.row.revision)
        return self.ledger.outputs.total_diffs(self.run.parent) + staged

    @cached_property
    def epoch_totals(self) -> dict[int, EpochTotals]:
        """Return the totals at every epoch at which they change, up to the frontier."""
        return {} if self.row.frontier is None else sum_totals(self.total_diffs(), self.row.frontier)

    def list_motifs(self) -> list[str]:
        run = self.run or (self.ledger.runs.get(self.row.run_id) if self.row.revision else None)
        return list(run.config.get("motifs") or {}) if run else []

    def declared_queries(self) -> dict[str, QueryDefinition]:
        if self.run is None:
            return published_queries(self.ledger, self.row)
        return recorded_queries(self.run.config)

    def newest_checks(self) -> dict[tuple[int, str, str], CheckRecord]:
        """Return the newest result for each epoch, suite and name."""
        known = self.row.revision if self.run is None else self.run.parent
        records = [CheckRecord.from_row(row) for row in self.ledger.database.read_rows(select_newest_checks(known))]
        records += self.ledger.checks.select(run_id=self.run.run_id) if self.run else []
        return {(each.epoch, each.suite, each.name): each for each in records}


@dataclass(frozen=True)
class RevisionDiff:
    """The difference of the state `after` to the state `before`."""

    before: DiffSide
    after: DiffSide

    def __post_init__(self) -> None:
        one, other = self.before.ledger.home.config, self.after.ledger.home.config
        if (one.epochs.every, one.vertices.ids) != (other.epochs.every, other.vertices.ids):
            raise UsageError(
                f"{self.before.ledger.home.path} and {self.after.ledger.home.path} cannot be compared, "
                "because their epochs or vertex ids differ ([epochs] every, [vertices] ids)."
            )

    @property
    def first_epoch(self) -> int | None:
        """Return the first epoch that both states can answer for, or None when nothing was folded."""
        return max((side.row.since for side in (self.before, self.after) if side.row.since is not None), default=None)

    @property
    def last_epoch(self) -> int | None:
        """Return the last epoch that one of the states can answer for, or None when both are empty."""
        ends = [side.row.frontier for side in (self.before, self.after) if side.row.frontier is not None]
        return max(ends, default=None)

    # -- from SQL alone ---------------------------------------------------------------------------------------------

    def to_document(self) -> Document:
        """Return the difference as a JSON document, without the rows of vertices and edges."""
        totals = list(self._total_spans())
        return {
            "before": _describe_side(self.before),
            "after": _describe_side(self.after),
            "first": self._label_of(self.first_epoch),
            "last": self._label_of(self.last_epoch),
            "totals": totals,
            "trend": self._trend_rows(),
            "trusses": self._truss_sizes(),
            "checks": self._changed_checks(),
        }

    def _label_of(self, epoch: int | None) -> str | None:
        return None if epoch is None else self.after.ledger.home.schedule.format_label(epoch)

    def _total_spans(self) -> Iterable[Document]:
        """Yield the spans of epochs in which a total differs."""
        old, new = self.before.epoch_totals, self.after.epoch_totals
        names = self.before.list_motifs(), self.after.list_motifs()
        if self.last_epoch is None:
            return
        epochs = sorted({*old, *new})
        was, now = totals_at(old, epochs), totals_at(new, epochs)
        for place, epoch in enumerate(epochs):
            pair = _shown_totals(was[epoch], names[0]), _shown_totals(now[epoch], names[1])
            if pair[0] == pair[1]:
                continue
            last = epochs[place + 1] - 1 if place + 1 < len(epochs) else self.last_epoch
            measures: Document = {
                name: {"before": pair[0].get(name, 0), "after": pair[1].get(name, 0)} for name in {**pair[0], **pair[1]}
            }
            totals: Document = {name: both for name, both in measures.items() if name in MEASURES}
            yield {
                "first": self._label_of(epoch),
                "last": self._label_of(last),
                "epochs": last - epoch + 1,
                **totals,
                "motifs": {name[6:]: both for name, both in measures.items() if name.startswith("motif ")},
                "trusses": {name[6:]: both for name, both in measures.items() if name.startswith("truss ")},
            }

    def _trend_rows(self) -> list[Document]:
        """Return the totals of the last epochs, before and after."""
        starts = [epoch for side in (self.before, self.after) for epoch in side.epoch_totals]
        if self.last_epoch is None or not starts:
            return []
        epochs = range(max(min(starts), self.last_epoch - TREND + 1), self.last_epoch + 1)
        was, now = (totals_at(side.epoch_totals, epochs) for side in (self.before, self.after))
        return [
            {
                "label": self._label_of(epoch),
                "before": {name: was[epoch][name] for name in MEASURES},
                "after": {name: now[epoch][name] for name in MEASURES},
            }
            for epoch in epochs
        ]

    def _truss_sizes(self) -> list[Document]:
        """Return the number of edges in each k-truss at the last epoch, before and after."""
        if self.last_epoch is None:
            return []
        ends = [
            totals_at(side.epoch_totals, [self.last_epoch])[self.last_epoch]["trusses"]
            for side in (self.before, self.after)
        ]
        greatest = max(max(end, default=0) for end in ends)
        before, after = (truss_sizes(end, greatest) for end in ends)
        return [{"k": k, "before": size, "after": after[k]} for k, size in before.items()]

    def _changed_checks(self) -> list[Document]:
        """Return the checks that pass in one state and fail in the other, or that fail and are new."""
        before, after = self.before.newest_checks(), self.after.newest_checks()
        turned = []
        for key, check in sorted(after.items()):
            former = before.get(key)
            if check.severity != "info" and check.passed != (former.passed if former else True):
                turned.append(
                    {
                        "epoch": self._label_of(check.epoch),
                        "suite": check.suite,
                        "name": check.name,
                        "severity": check.severity,
                        "before": None if former is None else former.passed,
                        "after": check.passed,
                        "observed": check.observed,
                    }
                )
        return turned

    # -- from the tables --------------------------------------------------------------------------------------------

    def select_rows(self, spark: SparkSession, view: str) -> DataFrame:
        """Select the spans in which the values of a vertex or an edge differ, the greatest difference first.

        Returns:
            The columns of `COLUMNS`, with epochs as integers.
        """
        keys, values = TABLES[view]
        parts = []
        for name, (table, amount) in values.items():
            old, net = self._table_sides(spark, table, keys)
            zero = F.lit(0).cast("bigint")
            others = [zero.alias(f"{kind}{each}") for each in values if each != name for kind in ("old_", "net_")]
            worth = F.expr(amount)
            parts.append(old.select(*keys, "epoch", worth.alias(f"old_{name}"), zero.alias(f"net_{name}"), *others))
            parts.append(net.select(*keys, "epoch", zero.alias(f"old_{name}"), worth.alias(f"net_{name}"), *others))
        sums = [f"{kind}{name}" for name in values for kind in ("old_", "net_")]
        steps = _union_frames([part.select(*keys, "epoch", *sums) for part in parts])
        touched = _union_frames(
            [part.where(" OR ".join(f"net_{name} <> 0" for name in values)) for part in parts[1::2]]
        )
        steps = steps.join(touched.select(*keys).distinct(), list(keys), "left_semi")
        steps = steps.groupBy(*keys, "epoch").agg(*[F.sum(each).alias(each) for each in sums])
        steps = steps.where(" OR ".join(f"{each} <> 0" for each in sums))
        line = Window.partitionBy(*keys).orderBy("epoch")
        for each in sums:
            steps = steps.withColumn(each, F.sum(each).over(line.rowsBetween(Window.unboundedPreceding, 0)))
        end = F.coalesce(F.lead("epoch").over(line) - 1, F.lit(self.last_epoch).cast("bigint"))
        spans = steps.withColumn("last", end).where(" OR ".join(f"net_{name} <> 0" for name in values))
        names = COLUMNS[view][: len(keys)]
        shown = [F.col(key).alias(name) for key, name in zip(keys, names, strict=True)]
        for name in values:
            shown += [F.col(f"old_{name}").alias(f"{name}_before"), (F.expr(f"old_{name} + net_{name}")).alias(name)]
        size = reduce(add, (F.abs(F.col(f"net_{name}")) for name in values))
        ordered = spans.select(*shown, F.col("epoch").alias("first"), "last", size.alias("size"))
        ordered = self._with_names(spark, ordered, list(names))
        return ordered.orderBy(F.desc("size"), *names, "first").select(*COLUMNS[view])

    def truss_movements(self, edges: DataFrame) -> list[Document]:
        """Count how many edges enter and leave each k-truss at the last epoch."""
        end = (
            edges.where(F.col("last") == F.lit(self.last_epoch))
            .groupBy("trussness_before", "trussness")
            .count()
            .collect()
        )
        ks = sorted({k for row in end for k in range(2, max(row[0], row[1]) + 1)})
        movements = []
        for k in ks:
            came = sum(row["count"] for row in end if row[0] < k <= row[1])
            went = sum(row["count"] for row in end if row[1] < k <= row[0])
            if came or went:
                movements.append({"k": k, "entered": came, "left": went})
        return movements

    def changed_queries(self, spark: SparkSession) -> list[Document]:
        """Count the rows of each declared query that come and go at the end, and find the first epoch at which rows do.

        Rows of a query that one state does not have, or with other columns, all come or go.
        """
        sides = self.before.declared_queries(), self.after.declared_queries()
        frames = [
            self._query_steps(spark, name, side.get(name), sign)
            for side, sign in zip(sides, (-1, 1), strict=True)
            for name in side
        ]
        if not frames:
            return []
        net = _union_frames(frames).groupBy("query", "row", "epoch").agg(F.sum("diff").alias("diff"))
        at_end = Window.partitionBy("query", "row")
        net = net.where("diff <> 0").withColumn("n", F.sum("diff").over(at_end))
        rows = net.groupBy("query", "row").agg(F.min("epoch").alias("first"), F.first("n").alias("n"))
        came, went = F.greatest("n", F.lit(0)), F.greatest(-F.col("n"), F.lit(0))
        sums = [F.sum(came).alias("came"), F.sum(went).alias("went"), F.min("first").alias("first")]
        changes = {row["query"]: row.asDict() for row in rows.groupBy("query").agg(*sums).collect()}
        return [{**row, "first": self._label_of(row["first"])} for _, row in sorted(changes.items())]

    def _query_steps(self, spark: SparkSession, name: str, query: QueryDefinition | None, sign: int) -> DataFrame:
        """Return the signed rows of a query in one state, up to its frontier: query, row (as JSON), epoch, diff."""
        assert query is not None
        side = self.after if sign > 0 else self.before
        warehouse = Warehouse(spark, side.ledger.home)
        rows = self._clamp_epochs(warehouse.read_table(query.table, side.row), side.row)
        if query.vertices and self._compares_by_name:
            rows = named_of(warehouse, side.row, rows, list(query.vertices))
        data = F.to_json(F.struct(*map(quote_identifier, query.columns)), {"ignoreNullFields": "false"})
        return rows.select(F.lit(name).alias("query"), data.alias("row"), "epoch", (F.col("diff") * sign).alias("diff"))

    def _table_sides(self, spark: SparkSession, table: str, keys: tuple[str, ...]) -> tuple[DataFrame, DataFrame]:
        """Return a table's rows before, and the difference to its rows after, as diff triples."""
        before, after = (Warehouse(spark, side.ledger.home) for side in (self.before, self.after))
        old = self._clamp_epochs(before.read_table(table, self.before.row), self.before.row)
        if self._is_additive:
            new = after.read_table(table, self.after.row)
            is_newer, end = F.col("revision") > self.before.row.revision, self.before.row.frontier
            if end is None:
                return old, self._clamp_epochs(new, self.after.row)
            due = (F.col("epoch") > end) & ~is_newer  # stored before, but after the frontier then
            return old, self._clamp_epochs(new.where(is_newer | due), self.after.row)
        new = self._clamp_epochs(after.read_table(table, self.after.row), self.after.row)
        if self._compares_by_name:
            old, new = self._with_keys(before, self.before, old, keys), self._with_keys(after, self.after, new, keys)
        minus = old.withColumn("diff", -F.col("diff"))
        data = [*keys, *(["k"] if table == "trussness" else []), "epoch"]
        both = new.select(*data, "diff").unionByName(minus.select(*data, "diff"))
        return old, both.groupBy(*data).agg(F.sum("diff").alias("diff")).where("diff <> 0")

    def _clamp_epochs(self, rows: DataFrame, row: Revision) -> DataFrame:
        if row.frontier is None:
            return rows.limit(0)
        rows = rows.where(F.col("epoch") <= row.frontier)
        if self.first_epoch is None:
            return rows
        return rows.withColumn("epoch", F.greatest("epoch", F.lit(self.first_epoch).cast("bigint")))

    @cached_property
    def _is_additive(self) -> bool:
        """Tell whether the state after has followed from the state before by added batches only."""
        old, new = self.before, self.after
        if old.ledger.home.path != new.ledger.home.path or old.row.hidden != new.row.hidden or old.run is not None:
            return False
        last = new.run.parent if new.run else new.row.revision
        ends = old.row.frontier, new.row.frontier
        if old.row.revision > last or (ends[0] is not None and (ends[1] is None or ends[0] > ends[1])):
            return False
        kinds = {run.run_id: run.kind for run in new.ledger.runs.list_all()}
        between = [
            kinds[row.run_id] for row in new.ledger.revisions.list_all() if old.row.revision < row.revision <= last
        ]
        between += [new.run.kind] if new.run else []
        return set(between) <= {RunKind.RUN}

    @cached_property
    def _compares_by_name(self) -> bool:
        """Tell whether the states may have different numbers for the same names."""
        return not self._is_additive and self.after.ledger.home.config.vertices.ids == "string"

    def _with_keys(self, warehouse: Warehouse, side: DiffSide, rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        if side.row.frontier is None:
            return rows.select(*[F.col(c).cast("string").alias(c) if c in keys else F.col(c) for c in rows.columns])
        named = named_of(warehouse, side.row, rows, list(keys))
        if len(keys) == 1:
            return named
        low, high = F.least(*keys), F.greatest(*keys)  # which end comes first depends on the numbers
        return (
            named.withColumn("_low", low)
            .withColumn("_high", high)
            .drop(*keys)
            .withColumnsRenamed({"_low": keys[0], "_high": keys[1]})
        )

    def _with_names(self, spark: SparkSession, rows: DataFrame, columns: list[str]) -> DataFrame:
        if self._compares_by_name or self.after.row.frontier is None:
            return rows
        return named_of(Warehouse(spark, self.after.ledger.home), self.after.row, rows, columns)


def _union_frames(frames: list[DataFrame]) -> DataFrame:
    first, *others = frames
    for each in others:
        first = first.unionByName(each)
    return first


def _shown_totals(point: EpochTotals, motifs: list[str]) -> Mapping[str, int]:
    totals: dict[str, int] = {name: point[name] for name in MEASURES}
    totals |= {f"truss {k}": n for k, n in point["trusses"].items() if n}
    return totals | {f"motif {name}": point["motifs"].get(place, 0) for place, name in enumerate(motifs)}


def _describe_side(side: DiffSide) -> Document:
    frontier = None if side.row.frontier is None else side.ledger.home.schedule.format_label(side.row.frontier)
    run = side.run.run_id if side.run else None
    return {
        "name": side.name,
        "home": str(side.ledger.home.path),
        "revision": side.row.revision,
        "run": run,
        "frontier": frontier,
    }
