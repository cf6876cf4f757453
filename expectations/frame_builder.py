"""The frames on which expectations are checked, built from the frames of a run: helper columns, small joins, sums.

A helper column is null if a row is right and has a text if it is not, so that an offending row explains itself. Each
frame is built once for all expectations on it, and persisted if others are made from it.

Cost    `upserts` and `edge_delta` one window each, `edge_set` and `vertices` one grouping each of the rows that they
        cover. Small frames are fetched by one query, and counts over them are made in pandas: on few rows a query costs
        more than its work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from . import aggregate_frames
from .gx_runner import arrow_to_pandas

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame

Frames = Mapping[str, "DataFrame | list[dict[str, Any]]"]
Context = Mapping[str, Any]

_SQL_TYPES = {"long": "bigint", "double": "double", "string": "string", "boolean": "boolean"}
_TIME = {"epoch": "bigint", "revision": "bigint", "diff": "bigint"}


# the Spark frames from which others are counted, or which are judged as they are
FETCHED = ("upserts", "upserts_net", "quarantine", "edge_delta", "edge_set", "vertices")


class FrameBuilder:
    """A builder of the frames of one call, each of them at most once; `release_frames` unpersists those it has
    persisted.

    few: all frames are small; alone: `suite.check_tables` explains it.
    """

    def __init__(self, given: Frames, context: Context, few: bool = False, alone: bool = False) -> None:
        self.context = context
        self._few, self.alone = few, alone
        self._built: dict[str, Any] = {}
        self._held: list[DataFrame] = []
        self.given: dict[str, Any] = {
            name: self._persist_frame(frame) if name == "upserts_net" and not alone else frame
            for name, frame in given.items()
        }

    def fetch_small_frames(self) -> None:
        """Fetch small frames into pandas, by one query."""
        if not self._few:
            return
        frames = {name: frame for name in FETCHED if (frame := self.get_frame(name)) is not None}
        if frames:
            self._built |= collect_frames(frames)

    def is_scanned(self, name: str) -> bool:
        """Tell whether a frame is read as its table is stored, column by column."""
        return self.alone and name in ("upserts", "upserts_net")

    def _persist_frame(self, frame: Any) -> Any:
        if self._few:
            return frame
        held = frame.persist()
        self._held.append(held)
        return held

    def release_frames(self) -> None:
        for frame in self._held:
            frame.unpersist()

    def get_frame(self, name: str) -> Any:
        """Return a frame by name, of pandas or Spark; None if a frame that it needs was not given."""
        if name not in self._built:
            frame = _BUILDERS[name](self)
            # many upserts make many changed edges: to test whether they are few would compute them once more
            held = ("edge_set", "vertices", *(("edge_delta",) if self.alone else ()))
            self._built[name] = self._persist_frame(frame) if name in held and frame is not None else frame
        return self._built[name]

    def get_table(self, name: str) -> DataFrame:
        """Return a Spark frame that was given."""
        frame: DataFrame = self.given[name]
        return frame

    def run_epochs(self) -> list[int] | None:
        """Return the epochs of the run."""
        volumes = self.given.get("volumes")
        return None if volumes is None else [int(row["epoch"]) for row in volumes]


def collect_frames(frames: Mapping[str, DataFrame]) -> dict[str, pd.DataFrame]:
    """Return small Spark frames in pandas, fetched by one query."""
    import pyarrow.compute as pc
    from pyspark.sql import functions as F

    own = {name: [f"{name}.{column}" for column in frame.columns] for name, frame in frames.items()}
    parts = [frame.toDF(*own[name]).withColumn("frame", F.lit(name)) for name, frame in frames.items()]
    # in one task: the start of more tasks costs more than their work
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts).coalesce(1).toArrow()
    fetched = {}
    for name, columns in own.items():
        table = rows.filter(pc.equal(rows["frame"], name)).select(columns)
        fetched[name] = arrow_to_pandas(table.rename_columns([column.partition(".")[2] for column in columns]))
    return fetched


def _declared_columns(shop: FrameBuilder, table: str, declared: dict[str, str]) -> pd.DataFrame | None:
    """Return the type of each column, and the type that it should have."""
    import pandas as pd

    if table not in shop.given:
        return None
    types = dict(shop.given[table].dtypes)
    names = [*declared, *(name for name in types if name not in declared)]
    rows = [(name, types.get(name, "missing"), declared.get(name, "no such column")) for name in names]
    return pd.DataFrame(rows, columns=["column", "type", "declared"])


def _upserts_columns(shop: FrameBuilder) -> pd.DataFrame | None:
    values = {name: _SQL_TYPES[type_] for name, type_ in shop.context["value_types"].items()}
    own = {"op": "string", "seq": "bigint", "file": "string", "line": "bigint"}
    return _declared_columns(shop, "upserts", {"src": "bigint", "dst": "bigint"} | values | own | _TIME)


def _edge_delta_columns(shop: FrameBuilder) -> pd.DataFrame | None:
    return _declared_columns(shop, "edge_delta", {"a": "bigint", "b": "bigint", "until": "bigint"} | _TIME)


def _has_columns(shop: FrameBuilder, table: str) -> bool:
    """Tell whether a table was given and has the columns from which helper columns are made."""
    columns = shop.get_frame(f"{table}_columns")
    return columns is not None and bool((columns["type"] == columns["declared"]).all())


def _bad_words(bad: Column, text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(bad, text)


def _build_upserts(shop: FrameBuilder) -> DataFrame | None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if not _has_columns(shop, "upserts"):
        return None
    types: dict[str, str] = shop.context["value_types"]
    contents = F.struct("op", *types)
    tie = Window.partitionBy("epoch", "src", "dst", "seq")
    doubles = [name for name, type_ in types.items() if type_ == "double"]
    strange = [F.when(F.isnan(name) | (F.abs(name) == math.inf), F.lit(name)) for name in doubles]
    empty = [F.when(F.col(name).isNull(), F.lit(name)) for name in types]
    epochs = shop.run_epochs()
    known = F.col("epoch").isin(epochs) if epochs is not None else F.lit(True)
    differ = F.lit(False) if shop.alone else F.min(contents).over(tie) != F.max(contents).over(tie)
    return shop.get_table("upserts").select(
        "*",
        _bad_words(~known, F.lit("not an epoch of this run")).alias("foreign"),
        _bad_words(differ, F.lit("same key, same seq, other contents")).alias("rivals"),
        F.coalesce(*strange, F.lit(None).cast("string")).alias("not_finite"),
        _bad_words(F.col("op") == "upsert", F.coalesce(*empty, F.lit(None).cast("string"))).alias("no_value"),
        _bad_words(F.col("src") == F.col("dst"), F.lit("src = dst")).alias("self_loop"),
    )


def _build_upserts_net(shop: FrameBuilder) -> DataFrame | None:
    return shop.get_table("upserts_net") if "upserts_net" in shop.given else None


def _build_quarantine(shop: FrameBuilder) -> DataFrame | None:
    from pyspark.sql import functions as F

    if "quarantine" not in shop.given:
        return None
    return shop.get_table("quarantine").withColumn("reason_text", F.coalesce(F.trim("reason"), F.lit("")))


def _build_edge_delta(shop: FrameBuilder) -> DataFrame | None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if not _has_columns(shop, "edge_delta"):
        return None
    # the window and the join use the same columns: one exchange of the changed edges
    pair = [F.least("a", "b").alias("_low"), F.greatest("a", "b").alias("_high")]
    line = Window.partitionBy("_low", "_high").orderBy("epoch", "until").rowsBetween(Window.unboundedPreceding, -1)
    frame = shop.get_table("edge_delta").select("*", *pair).withColumn("_earlier", F.max("until").over(line))
    message = F.concat(F.lit("an earlier row lasts until "), F.col("_earlier").cast("string"))
    frame = frame.withColumn("overlaps", _bad_words(F.col("epoch") < F.col("_earlier"), message)).drop("_earlier")
    if "upserts_net" not in shop.given:
        return frame.drop("_low", "_high")
    ends = [F.least("src", "dst").alias("_low"), F.greatest("src", "dst").alias("_high")]
    batches = shop.given["upserts_net"].groupBy(*ends).agg(F.min("epoch").alias("_first"))
    whole = F.col("a").isNotNull() & F.col("b").isNotNull()
    first = F.col("_first")
    why = F.when(first.isNull(), F.lit("no upsert of this edge in the run's batches")).when(
        first > F.col("epoch"), F.concat(F.lit("its first upsert is at epoch "), first.cast("string"))
    )
    explained = frame.join(batches, ["_low", "_high"], "left").withColumn("unexplained", _bad_words(whole, why))
    return explained.drop("_low", "_high", "_first")


def _build_edge_set(shop: FrameBuilder) -> DataFrame | None:
    """Return one row per pair that is an edge or has a trussness; columns of the side that lacks the pair are null."""
    from pyspark.sql import functions as F

    none = F.lit(None).cast("bigint")
    parts = []
    if "edges_at" in shop.given:
        parts.append(shop.given["edges_at"].select("a", "b", "copies", none.alias("k"), none.alias("k_copies")))
    if "trussness_at" in shop.given:
        listed = shop.given["trussness_at"]
        parts.append(listed.select("a", "b", none.alias("copies"), "k", F.col("copies").alias("k_copies")))
    if not parts:
        return None
    # if the copies are not all 1, show one that is not
    worst = F.when(F.max("k_copies") != 1, F.max("k_copies")).otherwise(F.min("k_copies"))
    return (
        _union_frames(parts)
        .groupBy("a", "b")
        .agg(
            _null_if_zero(F.count("copies")).alias("edge_rows"),
            F.sum("copies").alias("copies"),
            _null_if_zero(F.count("k")).alias("k_rows"),
            F.min("k").alias("k"),
            F.max("k").alias("greatest_k"),
            worst.alias("k_copies"),
        )
    )


def _build_vertices(shop: FrameBuilder) -> DataFrame | None:
    """Return one row per vertex with an edge, a degree or triangles: its stored numbers, and a fresh count of its
    edges.
    """
    from pyspark.sql import functions as F

    none = F.lit(None).cast("bigint")
    parts = []
    if "degrees_at" in shop.given:
        parts.append(shop.given["degrees_at"].select("vertex", "degree", none.alias("triangles"), none.alias("ends")))
    if "triangle_counts_at" in shop.given:
        listed = shop.given["triangle_counts_at"]
        parts.append(listed.select("vertex", none.alias("degree"), "triangles", none.alias("ends")))
    if not parts:
        return None
    if "edges_at" in shop.given:
        listed = shop.get_frame("edge_set").where("copies IS NOT NULL")
        ends = listed.select(F.explode(F.array("a", "b")).alias("vertex"), "copies")
        count = F.col("copies").alias("ends")
        parts.append(ends.select("vertex", none.alias("degree"), none.alias("triangles"), count))
    frame = (
        _union_frames(parts)
        .groupBy("vertex")
        .agg(
            _null_if_zero(F.count("degree")).alias("degree_rows"),
            F.sum("degree").alias("degree"),
            _null_if_zero(F.count("triangles")).alias("triangle_rows"),
            F.sum("triangles").alias("triangles"),
            F.sum("ends").alias("edges"),
        )
    )
    d = F.coalesce("degree", F.lit(0)).cast("double")
    most = F.greatest(d * (d - 1) / 2, F.lit(0.0))
    too_many = F.concat(F.lit("at most "), most.cast("decimal(38,0)").cast("string"))
    wrong = F.concat(F.lit("in the edge set: "), F.coalesce("edges", F.lit(0)).cast("string"))
    return frame.select(
        "*",
        _bad_words(F.col("triangles") > most, too_many).alias("too_many_triangles"),
        _bad_words(F.coalesce("degree", F.lit(0)) != F.coalesce("edges", F.lit(0)), wrong).alias("wrong_degree"),
    )


def _null_if_zero(column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.nullif(column, F.lit(0).cast("bigint"))


def _union_frames(parts: list[DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame

    return reduce(DataFrame.unionByName, parts)


_BUILDERS: dict[str, Callable[[FrameBuilder], Any]] = {
    "upserts_columns": _upserts_columns,
    "upserts": _build_upserts,
    "upserts_net": _build_upserts_net,
    "quarantine": _build_quarantine,
    "edge_delta_columns": _edge_delta_columns,
    "edge_delta": _build_edge_delta,
    "edge_set": _build_edge_set,
    "vertices": _build_vertices,
    "trusses": aggregate_frames.truss_frame,
    "sums": aggregate_frames.totals_frame,
    "volumes": aggregate_frames.volumes_frame,
    "motifs": aggregate_frames.motifs_frame,
}
