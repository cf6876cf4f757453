"""What a reader sees: totals over epochs (from SQL alone), and the tables as of an epoch and a revision (Spark).

Everything here reads one row of the ledger and the snapshots that it pins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from algorithms.times import FOREVER
from algorithms.triangles import triangle_changes

from ..errors import UsageError
from ..home.directory import Home
from ..state.ledger import Ledger
from ..state.records import Revision
from ..state.totals import accumulate, at_epochs
from ..storage.warehouse import Warehouse

MOST_EPOCHS = 100_000  # that are listed one by one


def totals(
    home: Home,
    ledger: Ledger,
    *,
    revision: int | None = None,
    as_of: int | None = None,
    all_epochs: bool = False,
) -> list[dict[str, Any]]:
    """The graph's totals at one epoch (default: the frontier), or at every epoch from the first landed one on.

    Rows: epoch, label, revision, and what `accumulate` gives, the motifs by name.
    Over more than `MOST_EPOCHS` epochs only those are listed that were landed or at which something changes.
    `revision` of a row is the newest published revision that contributes to it.
    """
    row = ledger.at(revision)
    if row.frontier is None:
        return []
    points = accumulate(ledger.total_diffs(row.revision), row.frontier)
    batches = ledger.batches(row.revision)
    first = min(batches, default=row.frontier)
    until = row.frontier if as_of is None else min(as_of, row.frontier)
    epochs: Iterable[int] = range(first, until + 1) if all_epochs else [until]
    if all_epochs and until - first > MOST_EPOCHS:
        epochs = sorted(epoch for epoch in {*points, *batches, until} if first <= epoch <= until)
    names = ledger.motifs(row)
    out, newest = [], 0
    for epoch, point in at_epochs(points, epochs).items():
        if epoch in batches:
            newest = max(newest, batches[epoch].revision)
        out.append(
            {
                "epoch": epoch,
                "label": home.schedule.label(epoch),
                **point,
                "motifs": {name: point["motifs"].get(place, 0) for place, name in enumerate(names)},
                "revision": max(point["revision"], newest),
            }
        )
    return out


def as_of(
    warehouse: Warehouse,
    revision: Revision,
    view: str,
    epoch: int,
    motifs: Sequence[str] = (),
    only: Only | None = None,
) -> DataFrame:
    """As of an epoch: `vertices` (vertex, degree, triangles, clustering, and a column for each of the motifs) or
    `edges` (src, dst, trussness).

    `clustering`: the local clustering coefficient, triangles / pairs of neighbours; 0 below two neighbours.
    """
    answerable(warehouse.home, revision, epoch)
    if view == "vertices":
        degree = _sum(warehouse.at("degrees", revision), epoch, "degree", "vertex")
        triangles = _sum(warehouse.at("triangle_counts", revision), epoch, "triangles", "vertex")
        rows = degree.join(triangles, "vertex", "left").fillna(0, ["triangles"])
        pairs = F.col("degree") * (F.col("degree") - 1) / 2
        rows = rows.withColumn("clustering", F.when(pairs > 0, F.col("triangles") / pairs).otherwise(0.0))
        if motifs and "motif_counts" in revision.snapshots:
            counted = warehouse.at("motif_counts", revision).where(F.col("epoch") <= epoch).groupBy("vertex")
            sums = [F.sum(F.when(F.col("motif") == name, F.col("diff")).otherwise(0)).alias(name) for name in motifs]
            rows = rows.join(counted.agg(*sums), "vertex", "left").fillna(0, list(motifs))
        return named(warehouse, revision, rows, ["vertex"], only).orderBy("vertex")
    rows = _sum(warehouse.at("trussness", revision), epoch, "n", "a", "b", "k")
    rows = rows.select(F.col("a").alias("src"), F.col("b").alias("dst"), F.col("k").alias("trussness"))
    return named(warehouse, revision, rows, ["src", "dst"], only).orderBy("src", "dst")


def changes(warehouse: Warehouse, revision: Revision, since: int, until: int, only: Only | None = None) -> DataFrame:
    """What a consumer applies to the edges of epoch `since` to have those of `until`: src, dst, trussness, diff."""
    forward(warehouse.home, revision, since, until)
    rows = warehouse.at("trussness", revision).where((F.col("epoch") > since) & (F.col("epoch") <= until))
    return _net_trussness(warehouse, revision, rows, only=only)


def changes_since(
    warehouse: Warehouse, old: Revision, new: Revision, all_epochs: bool = False, only: Only | None = None
) -> DataFrame:
    """What a consumer who has revision `old` applies to have `new`: exactly once, also after corrections.

    By default the edges at the frontier of each: src, dst, trussness, diff. With `all_epochs` the collection that they
    come from, src, dst, trussness, epoch, diff: the sum of the diffs at epochs <= t is the state at t. Ids of a home
    with string ids are names, whatever numbers either revision has for them.
    """
    since = max((row.since for row in (old, new) if row.since is not None), default=None)

    def rows(revision: Revision, sign: int) -> DataFrame:
        if revision.frontier is None:
            return warehouse.empty("trussness")
        frame = warehouse.at("trussness", revision).where(F.col("epoch") <= revision.frontier)
        at = F.col("epoch") if since is None else F.greatest("epoch", F.lit(since).cast("bigint"))
        return frame.withColumn("epoch", at).withColumn("diff", F.col("diff") * sign)

    came, went, by = rows(new, 1), rows(old, -1), ["epoch"] if all_epochs else []
    naming = _naming(warehouse, old, new)
    if naming is not None:
        return _net_trussness(warehouse, naming, came.unionByName(went), by, only)
    ends = ["a", "b"]
    both = named(warehouse, new, came, ends).unionByName(named(warehouse, old, went, ends))
    if only is not None:
        numbers(warehouse, only.names, old, new)
        both = only.of(both, ends, only.names)
    return _net(both, by).orderBy(*by, "src", "dst", "diff")


def _naming(warehouse: Warehouse, old: Revision, new: Revision) -> Revision | None:
    """Which of two revisions has the names of both; None when neither has: a rebuild from the landing makes them again,
    and after a rollback their numbers go to others."""
    if warehouse.home.config.vertices.ids == "integer":
        return new
    mine, others = (warehouse.at("names", each).select("id", "name") for each in (new, old))
    if others.join(mine, ["id", "name"], "left_anti").isEmpty():
        return new
    return old if mine.join(others, ["id", "name"], "left_anti").isEmpty() else None


def _net_trussness(
    warehouse: Warehouse, revision: Revision, rows: DataFrame, by: Sequence[str] = (), only: Only | None = None
) -> DataFrame:
    return named(warehouse, revision, _net(rows, by), ["src", "dst"], only).orderBy(*by, "src", "dst", "diff")


def _net(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    net = rows.groupBy("a", "b", "k", *by).agg(F.sum("diff").alias("diff")).where("diff <> 0")
    return net.select(F.col("a").alias("src"), F.col("b").alias("dst"), F.col("k").alias("trussness"), *by, "diff")


def answerable(home: Home, revision: Revision, epoch: int) -> None:
    """Raises `UsageError` when the tables cannot say what was there at an epoch: after the frontier, before `since`."""
    label = home.schedule.label
    if revision.frontier is not None and epoch > revision.frontier:
        raise UsageError(
            f"epoch {label(epoch)} is after the frontier {label(revision.frontier)}: its state is not final.",
            f"--as-of {label(revision.frontier)}",
        )
    if revision.since is not None and epoch < revision.since:
        raise UsageError(
            f"epoch {label(epoch)} was folded by a compaction: the tables answer from {label(revision.since)} on "
            "([retention] epochs). Totals are kept for all epochs.",
            f"--as-of {label(revision.since)}, or: altneu show totals --all-epochs",
        )


def forward(home: Home, revision: Revision, since: int, until: int, view: str = "changes") -> None:
    """Raises `UsageError` unless both epochs can be answered for, and the first comes first."""
    for epoch in (since, until):
        answerable(home, revision, epoch)
    if since > until:
        first, last = home.schedule.label(until), home.schedule.label(since)
        raise UsageError(
            f"from {last} to {first} is backwards: what changes is asked from an epoch to a later one.",
            f"altneu show {view} {first} {last}",
        )


def trusses(
    home: Home, ledger: Ledger, revision: int | None = None, all_epochs: bool = False, as_of: int | None = None
) -> list[dict[str, Any]]:
    """The sizes of every k-truss, from SQL alone: epoch, label, k, edges (of trussness >= k), exactly (of just k)."""
    out = []
    for point in totals(home, ledger, revision=revision, as_of=as_of, all_epochs=all_epochs):
        inside = 0
        for k, exactly in sorted(point["trusses"].items(), reverse=True):
            inside += exactly
            head = {"epoch": point["epoch"], "label": point["label"]}
            out.append({**head, "k": k, "edges": inside, "exactly": exactly})
    return out


def truss_changes(
    warehouse: Warehouse, revision: Revision, since: int, until: int, k: int, only: Only | None = None
) -> DataFrame:
    """Edges that entered (1) or left (-1) the k-truss between two epochs: src, dst, diff."""
    forward(warehouse.home, revision, since, until)
    rows = warehouse.at("trussness", revision).where((F.col("k") >= k) & (F.col("epoch") <= until))
    sign = F.when(F.col("epoch") <= until, F.col("diff")).otherwise(0) - F.when(
        F.col("epoch") <= since, F.col("diff")
    ).otherwise(0)
    net = rows.groupBy("a", "b").agg(F.sum(sign).alias("diff")).where("diff <> 0")
    net = net.select(F.col("a").alias("src"), F.col("b").alias("dst"), "diff")
    return named(warehouse, revision, net, ["src", "dst"], only).orderBy("src", "dst")


def communities(warehouse: Warehouse, revision: Revision, epoch: int, k: int, only: Only | None = None) -> DataFrame:
    """The k-truss communities of an epoch: src, dst, community (1 is the one with the most edges).

    A community is a class of edges of the k-truss that chains of triangles within it join; a vertex may be in several.
    Source: Huang et al. 2014. One task: about 55 bytes an edge of the k-truss.
    """
    answerable(warehouse.home, revision, epoch)
    inside = warehouse.at("trussness", revision).where(F.col("k") >= k)
    edges = _sum(inside, epoch, "n", "a", "b").select("a", "b", F.lit(0).alias("one"))
    found = edges.groupBy("one").applyInArrow(_communities, "src bigint, dst bigint, community bigint")
    return named(warehouse, revision, found, ["src", "dst"], only).orderBy("community", "src", "dst")


def _communities(edges: pa.Table) -> pa.Table:
    import algorithms.kernels.communities

    a, b = (np.ascontiguousarray(edges[name].to_numpy(), np.int64) for name in ("a", "b"))
    classes = algorithms.kernels.communities.communities(a, b, np.full(a.size, 2), 2)
    _, label, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    place = np.empty(sizes.size, np.int64)
    place[np.argsort(-sizes, kind="stable")] = np.arange(1, sizes.size + 1)
    return pa.table({"src": a, "dst": b, "community": place[label]})


def triangles(
    warehouse: Warehouse, revision: Revision, epoch: int, since: int | None = None, only: Only | None = None
) -> DataFrame:
    """The triangles of an epoch: a, b, c, diff (1). With `since`: those that came (1) and went (-1) since then."""
    forward(warehouse.home, revision, epoch if since is None else since, epoch)
    now = _edges_at(warehouse, revision, epoch)
    index = now.limit(0) if since is None else _edges_at(warehouse, revision, since)
    changed = now.unionByName(index.withColumn("diff", -F.col("diff")))
    delta = changed.groupBy("a", "b").agg(F.sum("diff").alias("diff")).where("diff <> 0").select(*_always())
    found = triangle_changes(index.select(*_always()), delta, broadcast=False)
    net = found.groupBy("a", "b", "c").agg(F.sum("diff").alias("diff")).where("diff <> 0")
    return named(warehouse, revision, net, ["a", "b", "c"], only).orderBy("a", "b", "c")


def support(warehouse: Warehouse, revision: Revision, epoch: int, only: Only | None = None) -> DataFrame:
    """How many triangles each edge of an epoch is in: src, dst, support. One task, about 200 bytes an edge; beyond
    `[triangles] limit_edges` by a join that lists every triangle."""
    answerable(warehouse.home, revision, epoch)
    edges = _edges_at(warehouse, revision, epoch).select("a", "b")
    if warehouse.size("edges", revision.snapshots["edges"]).rows <= warehouse.home.config.triangles.limit_edges:
        found = edges.coalesce(1).mapInArrow(_support, "src bigint, dst bigint, support bigint")
    else:
        always = edges.withColumn("diff", F.lit(1).cast("bigint")).select(*_always())
        listed = triangle_changes(always.limit(0), always, broadcast=False)
        sides = F.array(*[F.struct(F.col(x).alias("a"), F.col(y).alias("b")) for x, y in ("ab", "ac", "bc")])
        counted = listed.select(F.inline(sides)).groupBy("a", "b").agg(F.count("*").alias("support"))
        both = edges.join(counted, ["a", "b"], "left").fillna(0, ["support"])
        found = both.select(F.col("a").alias("src"), F.col("b").alias("dst"), "support")
    return named(warehouse, revision, found, ["src", "dst"], only).orderBy("src", "dst")


def _support(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from algorithms.kernels.triangles import count

    parts = list(batches)
    if parts:
        table = pa.Table.from_batches(parts)
        a, b = (np.ascontiguousarray(table[name].to_numpy(), np.int64) for name in ("a", "b"))
        columns = [a, b, count(a, b)[3].astype(np.int64)]
        yield from pa.table(columns, ["src", "dst", "support"]).to_batches(max_chunksize=1 << 20)


def _edges_at(warehouse: Warehouse, revision: Revision, epoch: int) -> DataFrame:
    alive = warehouse.at("edges", revision).where((F.col("epoch") <= epoch) & (F.col("until") > epoch))
    return alive.groupBy("a", "b").agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _always() -> list[Column]:
    """An edge set as intervals that never end."""
    zero, ever = F.lit(0).cast("bigint"), F.lit(FOREVER)
    return [F.col("a"), F.col("b"), zero.alias("epoch"), ever.alias("until"), F.col("diff")]


def _sum(rows: DataFrame, epoch: int, name: str, *data: str) -> DataFrame:
    return rows.where(F.col("epoch") <= epoch).groupBy(*data).agg(F.sum("diff").alias(name)).where(F.col(name) != 0)


@dataclass(frozen=True)
class Only:
    """The rows that touch one of some vertices, or with `all` every one of them."""

    names: tuple[str, ...]  # as typed
    all: bool = False

    def of(self, rows: DataFrame, columns: Sequence[str], ids: Iterable[int | str]) -> DataFrame:
        """`ids`: the vertices as the rows have them."""
        touched = [reduce(or_, (F.col(column) == vertex for column in columns)) for vertex in ids]
        return rows.where(reduce(and_ if self.all else or_, touched))


def named(
    warehouse: Warehouse, revision: Revision, rows: DataFrame, columns: list[str], only: Only | None = None
) -> DataFrame:
    """Replace vertex numbers by their names (homes with string ids); of the rows `only` those that it lets pass."""
    rows = only.of(rows, columns, numbers(warehouse, only.names, revision)) if only else rows
    if warehouse.home.config.vertices.ids == "integer":
        return rows
    names = warehouse.at("names", revision)
    order = rows.columns
    for column in columns:
        entry = names.select(F.col("id").alias(column), F.col("name").alias("_name"))
        rows = rows.join(entry, column).drop(column).withColumnRenamed("_name", column)
    return rows.select(*order)


def numbers(warehouse: Warehouse, names: Iterable[str], *revisions: Revision) -> list[int]:
    """Vertices as typed → their numbers in the first of the revisions that knows each."""
    wanted = list(names)
    if warehouse.home.config.vertices.ids == "integer":
        odd = [name for name in wanted if not re.fullmatch(r"[+-]?[0-9]+", name)]
        if odd:
            raise UsageError(f"{' '.join(odd)}: the vertices of this home are integers.", "altneu show vertices")
        return [int(name) for name in wanted]
    known: dict[str, int] = {}
    for revision in revisions:
        book = warehouse.at("names", revision).where(F.col("name").isin(wanted)).collect()
        known = {row["name"]: row["id"] for row in book} | known
    for name in wanted:
        if name not in known:
            which = " or ".join(str(revision.revision) for revision in revisions)
            raise UsageError(f"no vertex is called {name!r} at revision {which}.", "altneu show vertices")
    return [known[name] for name in wanted]


def quarantine(warehouse: Warehouse, revision: Revision, first: int | None, last: int | None) -> DataFrame:
    """The malformed rows of the published batches of some epochs, both included (default: all): epoch, file, line,
    reason, text."""
    rows = warehouse.at("quarantine", revision)
    for epoch, sign in ((first, 1), (last, -1)):
        rows = rows if epoch is None else rows.where(F.col("epoch") * sign >= epoch * sign)
    data = ["epoch", "file", "line", "reason", "text"]
    return rows.groupBy(*data).agg(F.sum("diff").alias("diff")).where("diff > 0").select(*data).orderBy(*data)
