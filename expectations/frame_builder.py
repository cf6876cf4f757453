"""The frames on which expectations are checked, built from the frames of a run: helper columns, small joins, sums.

A helper column is null if a row is right and has a text if it is not, so that an offending row explains itself. Each
frame is built once for all expectations on it, and persisted if others are made from it.

Engine  Spark frames are worked on by Spark, small Arrow tables by DuckDB. The SQL is the same.
Cost    `upserts` two windows, `edge_delta` one, `edge_set` and `vertices` one grouping each of the rows that they
        cover. Small frames are fetched by one query, and counts over them are made in pandas: on few rows a query costs
        more than its work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from . import aggregate_frames, relations
from .gx_runner import arrow_to_pandas

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

Frames = Mapping[str, "DataFrame | pa.Table | list[dict[str, Any]]"]
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
        self._are_small, self.alone = few or any(map(relations.is_arrow, given.values())), alone
        self._built: dict[str, Any] = {}
        self._persisted: list[DataFrame] = []
        self.frames: dict[str, Any] = {
            name: self._persist_frame(frame) if name == "upserts_net" and not alone else frame
            for name, frame in given.items()
        }

    def fetch_small_frames(self) -> None:
        """Fetch small frames into pandas, by one query."""
        if not self._are_small:
            return
        frames = {name: frame for name in FETCHED if (frame := self.get_frame(name)) is not None}
        if frames:
            self._built |= collect_frames(frames)

    def is_scanned(self, name: str) -> bool:
        """Tell whether a frame is read as its table is stored, column by column."""
        return self.alone and name in ("upserts", "upserts_net")

    def _persist_frame(self, frame: Any) -> Any:
        if self._are_small:
            return frame
        held = frame.persist()
        self._persisted.append(held)
        return held

    def release_frames(self) -> None:
        for frame in self._persisted:
            frame.unpersist()

    def get_frame(self, name: str) -> Any:
        """Return a frame by name, of pandas or Spark; None if a frame that it needs was not given."""
        if name not in self._built:
            frame = _BUILDERS[name](self)
            # many upserts make many changed edges: to test whether they are few would compute them once more
            held = ("edge_set", "vertices", *(("edge_delta",) if self.alone else ()))
            self._built[name] = self._persist_frame(frame) if name in held and frame is not None else frame
        return self._built[name]

    def run_epochs(self) -> list[int] | None:
        """Return the epochs of the run."""
        volumes = self.frames.get("volumes")
        return None if volumes is None else [int(row["epoch"]) for row in volumes]


def collect_frames(frames: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Return small frames in pandas. Spark frames are fetched by one query."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import functions as F

    if all(isinstance(frame, pa.Table) for frame in frames.values()):
        return {name: arrow_to_pandas(frame) for name, frame in frames.items()}
    columns_by_frame = {name: [f"{name}.{column}" for column in frame.columns] for name, frame in frames.items()}
    parts = [frame.toDF(*columns_by_frame[name]).withColumn("frame", F.lit(name)) for name, frame in frames.items()]
    # in one task: the start of more tasks costs more than their work
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts).coalesce(1).toArrow()
    fetched = {}
    for name, columns in columns_by_frame.items():
        table = rows.filter(pc.equal(rows["frame"], name)).select(columns)
        fetched[name] = arrow_to_pandas(table.rename_columns([column.partition(".")[2] for column in columns]))
    return fetched


def _declared_columns(shop: FrameBuilder, table: str, declared: dict[str, str]) -> pd.DataFrame | None:
    """Return the type of each column, and the type that it should have."""
    import pandas as pd

    if table not in shop.frames:
        return None
    types = relations.column_types(shop.frames[table])
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


def _build_upserts(shop: FrameBuilder) -> Any:
    if not _has_columns(shop, "upserts"):
        return None
    upserts, types = shop.frames["upserts"], shop.context["value_types"]
    name, text = relations.quote_identifier(upserts), relations.text_literal(upserts)
    infinity, zero, nothing = "CAST('Infinity' AS double)", "CAST(0 AS double)", "CAST(NULL AS string)"
    doubles = [each for each, type_ in types.items() if type_ == "double"]
    strange = [f"CASE WHEN isnan({name(v)}) OR abs({name(v)}) = {infinity} THEN {text(v)} END" for v in doubles]
    empty = [f"CASE WHEN {name(v)} IS NULL THEN {text(v)} END" for v in types]
    epochs = shop.run_epochs()
    known = "true" if epochs is None else f"epoch IN ({', '.join(map(str, epochs))})" if epochs else "false"
    # 0.0 and -0.0 are one value
    contents = ["op", *(f"{name(v)} + {zero}" if v in doubles else name(v) for v in types)]
    tie = "epoch, src, dst, seq"
    differ = (
        "false"
        if shop.alone
        else f"count(*) OVER (PARTITION BY {tie}) <> count(*) OVER (PARTITION BY {tie}, {', '.join(contents)})"
    )
    return relations.select_rows(
        f"""
        SELECT *,
            CASE WHEN NOT ({known}) THEN 'not an epoch of this run' END AS foreign,
            CASE WHEN {differ} THEN 'same key, same seq, other contents' END AS rivals,
            {_first_text(strange)} AS not_finite,
            CASE WHEN op = 'upsert' THEN {_first_text(empty)} ELSE {nothing} END AS no_value,
            CASE WHEN src = dst THEN 'src = dst' END AS self_loop
        FROM {{upserts}}""",
        upserts=upserts,
    )


def _first_text(texts: list[str]) -> str:
    """Write the first of some texts that is not null."""
    return f"coalesce({', '.join([*texts, 'CAST(NULL AS string)'])})"


def _build_upserts_net(shop: FrameBuilder) -> Any:
    return shop.frames.get("upserts_net")


def _build_quarantine(shop: FrameBuilder) -> Any:
    if "quarantine" not in shop.frames:
        return None
    query = "SELECT *, coalesce(trim(reason), '') AS reason_text FROM {quarantine}"
    return relations.select_rows(query, quarantine=shop.frames["quarantine"])


def _build_edge_delta(shop: FrameBuilder) -> Any:
    if not _has_columns(shop, "edge_delta"):
        return None
    # the window and the join use the same columns: one exchange of the changed edges
    lines = """
        SELECT *, max(until) OVER (
            PARTITION BY low, high ORDER BY epoch NULLS FIRST, until NULLS FIRST
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS earlier
        FROM (SELECT *, least(a, b) AS low, greatest(a, b) AS high FROM {edge_delta})"""
    foreign = relations.text_literal(shop.frames["edge_delta"])("no upsert of this edge in the run's batches")
    overlaps = "CASE WHEN epoch < earlier THEN 'an earlier row lasts until ' || CAST(earlier AS string) END AS overlaps"
    columns = "a, b, until, epoch, revision, diff"
    if "upserts_net" not in shop.frames:
        return relations.select_rows(
            f"SELECT {columns}, {overlaps} FROM ({lines})", edge_delta=shop.frames["edge_delta"]
        )
    return relations.select_rows(
        f"""
        SELECT {columns}, {overlaps}, CASE
            WHEN a IS NULL OR b IS NULL THEN NULL
            WHEN earliest IS NULL THEN {foreign}
            WHEN earliest > epoch THEN 'its first upsert is at epoch ' || CAST(earliest AS string)
        END AS unexplained
        FROM ({lines}) LEFT JOIN (
            SELECT least(src, dst) AS low, greatest(src, dst) AS high, min(epoch) AS earliest
            FROM {{upserts_net}} GROUP BY least(src, dst), greatest(src, dst)
        ) USING (low, high)""",
        edge_delta=shop.frames["edge_delta"],
        upserts_net=shop.frames["upserts_net"],
    )


def _build_edge_set(shop: FrameBuilder) -> Any:
    """Return one row per pair that is an edge or has a trussness; columns of the side that lacks the pair are null."""
    none = "CAST(NULL AS bigint)"
    parts = {
        "edges_at": f"SELECT a, b, copies, {none} AS k, {none} AS k_copies FROM {{edges_at}}",
        "trussness_at": f"SELECT a, b, {none} AS copies, k, copies AS k_copies FROM {{trussness_at}}",
    }
    given = {table: shop.frames[table] for table in parts if table in shop.frames}
    if not given:
        return None
    # if the copies are not all 1, one that is not 1 is shown
    return relations.select_rows(
        f"""
        SELECT a, b,
            {_count_or_null("copies")} AS edge_rows,
            CAST(sum(copies) AS bigint) AS copies,
            {_count_or_null("k")} AS k_rows,
            min(k) AS k,
            max(k) AS greatest_k,
            CASE WHEN max(k_copies) <> 1 THEN max(k_copies) ELSE min(k_copies) END AS k_copies
        FROM ({" UNION ALL ".join(parts[table] for table in given)})
        GROUP BY a, b""",
        **given,
    )


def _build_vertices(shop: FrameBuilder) -> Any:
    """Return one row per vertex with an edge, a degree or triangles: its stored numbers, and a fresh count of its
    edges.
    """
    none = "CAST(NULL AS bigint)"
    parts = {
        "degrees_at": f"SELECT vertex, degree, {none} AS triangles, {none} AS ends FROM {{degrees_at}}",
        "triangle_counts_at": f"SELECT vertex, {none} AS degree, triangles, {none} AS ends FROM {{triangle_counts_at}}",
    }
    given = {table: shop.frames[table] for table in parts if table in shop.frames}
    if not given:
        return None
    if "edges_at" in shop.frames:
        given["edge_set"] = shop.get_frame("edge_set")
        parts["edge_set"] = " UNION ALL ".join(
            f"SELECT {end} AS vertex, {none} AS degree, {none} AS triangles, copies AS ends FROM {{edge_set}} "
            "WHERE copies IS NOT NULL"
            for end in ("a", "b")
        )
    most = "greatest(d * (d - 1) / 2, CAST(0 AS double))"
    return relations.select_rows(
        f"""
        SELECT vertex, degree_rows, degree, triangle_rows, triangles, edges,
            CASE WHEN triangles > {most} THEN 'at most ' || CAST(CAST({most} AS decimal(38, 0)) AS string) END
                AS too_many_triangles,
            CASE WHEN coalesce(degree, 0) <> coalesce(edges, 0)
                THEN 'in the edge set: ' || CAST(coalesce(edges, 0) AS string) END AS wrong_degree
        FROM (
            SELECT vertex,
                {_count_or_null("degree")} AS degree_rows,
                CAST(sum(degree) AS bigint) AS degree,
                {_count_or_null("triangles")} AS triangle_rows,
                CAST(sum(triangles) AS bigint) AS triangles,
                CAST(sum(ends) AS bigint) AS edges,
                CAST(coalesce(sum(degree), 0) AS double) AS d
            FROM ({" UNION ALL ".join(parts[table] for table in given)})
            GROUP BY vertex
        )""",
        **given,
    )


def _count_or_null(column: str) -> str:
    return f"nullif(count({column}), CAST(0 AS bigint))"


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
