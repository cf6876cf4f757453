"""The audit of a home outside of Spark: DuckDB and kernels over the rows of its tables, in this process.

The functions answer what `edge_rederivation`, `audited_rows` and `table_fingerprints` have Spark answer, with the same
results. The rows come from the data files of the snapshots that are audited, by pyiceberg and DuckDB, so that the audit
shares neither a plan nor a reader with the run. All of them are held in memory.

Errors  `UncertainCondition` and `Refused` where only Spark can evaluate a condition of the settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph import motif_patterns
from altneu.algorithms.graph.proof_records import COLLECTIONS, Proof
from altneu.expectations.relations import select_rows

from ..home.home import Home
from ..storage.arrow_fingerprints import interval_steps, sum_by_epoch
from ..storage.duckdb_predicates import translate_to_duckdb
from ..storage.horizons import table_horizon
from ..storage.table_schemas import ALWAYS, value_columns
from .audit import Recount
from .edge_rederivation import last_rows, steps_of_pairs
from .epoch_recount import MOTIF, PER_ROW, STORED, compare_epoch
from .motif_reference import Motifs, read_motifs
from .reported_totals_check import ROWS, ReportedTotals

Rows = Mapping[str, pa.Table]  # table → its rows as a reader will see them


class Conditions:
    """The conditions of a home's settings on values, in the SQL of DuckDB: of edges, and of relations of motifs."""

    def __init__(self, home: Home) -> None:
        types = value_columns(home)
        wanted = home.config.edge_condition
        self.of_edges = None if wanted is None else _is_true(translate_to_duckdb(wanted, types))
        self.of_relations: dict[str, str] = {}
        for name in motif_patterns.extra_relations(read_motifs(home.config.motifs)):
            condition = motif_patterns.relation_condition(name)
            self.of_relations[name] = "true" if condition is None else _is_true(translate_to_duckdb(condition, types))


def _is_true(condition: str) -> str:
    return f"coalesce({condition}, false)"


def derive_steps(upserts: pa.Table, home: Home, conditions: Conditions) -> pa.Table:
    """Derive the diff triples a, b, epoch, diff of the edges of some pairs from all their landed rows."""
    if conditions.of_edges is None:  # without a condition values do not matter
        query = f"""
            SELECT least(src, dst) AS a, greatest(src, dst) AS b, src < dst AS forth, epoch,
                coalesce(seq, {-FOREVER - 1}) AS seq, coalesce(op = 'upsert', false) AS present, diff
            FROM {{upserts}} WHERE src <> dst AND epoch IS NOT NULL AND diff IS NOT NULL"""
    else:
        query = f"""
            SELECT least(src, dst) AS a, greatest(src, dst) AS b, src < dst AS forth, epoch,
                CAST(0 AS bigint) AS seq, is_value AND {conditions.of_edges} AS present, CAST(1 AS bigint) AS diff
            FROM ({_last_upserts(home, "epoch", "{upserts}")})"""
    rows = select_rows(query, upserts=upserts)
    names = ("a", "b", "forth", "epoch", "seq", "present", "diff")
    last = last_rows(*(rows[name].to_numpy() for name in names))
    return pa.table(
        dict(zip(("a", "b", "epoch", "diff"), steps_of_pairs(*last, home.config.edges.live_for), strict=True))
    )


def _last_upserts(home: Home, at: str, upserts: str, epochs: str = "") -> str:
    """Write the query for the last upsert of each key and `at`, in the order of Spark, and whether it is a value."""
    values = [_quote(name) for name in home.config.values]
    columns = ", ".join(["src", "dst", *values, "op", "seq", "epoch"])
    order = ", ".join(f"{column} DESC NULLS LAST" for column in ("epoch", "seq", "is_value", *values))
    return f"""
        SELECT *, coalesce(op = 'upsert', false) AS is_value
        FROM (
            SELECT {columns} FROM {upserts} WHERE src <> dst AND epoch IS NOT NULL
            GROUP BY {columns} HAVING sum(diff) > 0
        ) {epochs}
        QUALIFY row_number() OVER (PARTITION BY {at}, src, dst ORDER BY {order}) = 1"""


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""').replace("{", "{{").replace("}", "}}") + '"'


def landed_fingerprints(
    rows: Rows,
    landed: pa.Table,
    home: Home,
    conditions: Conditions,
    *,
    first: int,
    whole: bool,
    part: Proof | None,
    frontier: int,
) -> dict[str, dict[int, Fingerprint]]:
    """Compute what the proof of a run compares: the fingerprints by epoch of the edges of some pairs, and of a share.

    Args:
        rows: The tables.
        landed: The upserts that the run has written, which choose the pairs.
        home: The home.
        conditions: Its conditions.
        first: The first epoch about which the proof states something: rows that cannot matter to it are left out.
        whole: Whether all pairs are chosen.
        part: The proof that has recounted a share of the vertices, whose pairs are chosen, too.
        frontier: The epoch at which the rows of the share are compared.

    Returns:
        The fingerprints `landed` and `stored`, and with `part` those of the share's rows by table.
    """
    chosen = "true"
    if not whole:
        chosen = "({a}, {b}) IN (SELECT (least(src, dst), greatest(src, dst)) FROM {landed} WHERE src <> dst)"
        if part is not None:
            chosen += f" OR {{a}} BETWEEN {part.between[0]} AND {part.between[1]}"

    def choose_rows(table: str, a: str, b: str) -> pa.Table:
        horizon = table_horizon(table, first, home.config.edges.live_for)
        matters = "true" if horizon is None else horizon.condition
        condition = chosen.format(a=a, b=b, landed="{landed}")
        return select_rows(f"SELECT * FROM {{rows}} WHERE {matters} AND ({condition})", rows=rows[table], landed=landed)

    steps = derive_steps(choose_rows("upserts", "least(src, dst)", "greatest(src, dst)"), home, conditions)
    edges = interval_steps(choose_rows("edges", "a", "b"))
    prints = {"landed": sum_by_epoch(steps, ["a", "b"]), "stored": sum_by_epoch(edges, ["a", "b"])}
    if part is not None:
        for table in COLLECTIONS:
            some = edges if table == "edges" else rows[table]
            vertex, (least, greatest) = some[ALWAYS[table][0]], part.between
            in_share = pc.and_(pc.greater_equal(vertex, least), pc.less_equal(vertex, greatest))
            in_share = pc.and_(in_share, pc.less_equal(some["epoch"], frontier))
            some = some.filter(in_share)
            epochs = pa.repeat(pa.scalar(frontier, pa.int64()), some.num_rows)
            some = some.set_column(some.schema.get_field_index("epoch"), "epoch", epochs)
            prints[table] = sum_by_epoch(some, list(ALWAYS[table]))
    return prints


def recount_epochs(
    rows: Rows, home: Home, conditions: Conditions, epochs: Sequence[int], motifs: Motifs, shown: ReportedTotals | None
) -> Recount:
    """Recount some epochs from the landed rows, and compare them with the stored rows."""
    if not epochs:
        return Recount([], {}, {})
    stored, graph = (
        _stored_rows(rows, epochs, list(motifs)),
        _recompute_edges(rows["upserts"], home, conditions, epochs),
    )
    compared = [
        compare_epoch(
            motifs,
            (pa.scalar(epoch),),
            stored.filter(pc.equal(stored["epoch"], epoch)),
            graph.filter(pc.equal(graph["epoch"], epoch)),
        )
        for epoch in epochs
    ]
    counts = [] if shown is None else _count_stored_rows(rows, list(shown.batches))
    return Recount.from_rows([*pa.concat_tables(compared).to_pylist(), *counts])


def _stored_rows(rows: Rows, epochs: Sequence[int], motifs: Sequence[str]) -> pa.Table:
    """Select the maintained state at some epochs, with the columns of `audited_rows.select_stored_rows`."""
    none = "CAST(NULL AS bigint)"
    columns = {
        "edges": ("edge", "a", "b", none, "until"),
        "degrees": ("degree_at_vertex", "vertex", none, none, none),
        "triangle_counts": ("triangles_at_vertex", "vertex", none, none, none),
        "trussness": ("trussness_of_edge", "a", "b", "k", none),
    }
    if motifs:
        place = " ".join(f"WHEN '{name}' THEN {place}" for place, name in enumerate(motifs))
        columns["motif_counts"] = (MOTIF, "vertex", none, f"CAST(CASE motif {place} ELSE -1 END AS bigint)", none)
    parts = (
        f"SELECT epoch, {PER_ROW.index(what)} AS what, {a} AS a, {b} AS b, {k} AS k, {until} AS until, diff "
        f"FROM {{{table}}}"
        for table, (what, a, b, k, until) in columns.items()
    )
    return select_rows(
        f"""
        SELECT moment AS epoch, what, a, b, k, CAST(sum(diff) AS bigint) AS n
        FROM ({" UNION ALL ".join(parts)}) JOIN {_moments(epochs)}
            ON epoch <= moment AND (until IS NULL OR moment < until)
        GROUP BY moment, what, a, b, k HAVING sum(diff) <> 0""",
        **{table: rows[table] for table in columns},
    )


def _recompute_edges(upserts: pa.Table, home: Home, conditions: Conditions, epochs: Sequence[int]) -> pa.Table:
    """Recompute the edges at some epochs from the landed upserts: epoch, relation, a, b."""
    last = _last_upserts(home, "moment", "{upserts}", f"JOIN {_moments(epochs)} ON epoch <= moment")
    alive = ["is_value"]
    if home.config.edges.live_for is not None:
        alive.append(f"moment - epoch < {home.config.edges.live_for}")
    if conditions.of_edges is not None:
        alive.append(conditions.of_edges)
    undirected = "least(src, dst) AS a, greatest(src, dst) AS b"
    relations = [f"SELECT moment AS epoch, '{motif_patterns.OWN_EDGES}' AS relation, {undirected} FROM alive"]
    for name, condition in conditions.of_relations.items():
        ends = "src AS a, dst AS b" if name.startswith("->") else undirected
        text = name.replace("'", "''").replace("{", "{{").replace("}", "}}")
        relations.append(f"SELECT moment AS epoch, '{text}' AS relation, {ends} FROM alive WHERE {condition}")
    return select_rows(
        f"WITH alive AS (SELECT * FROM ({last}) WHERE {' AND '.join(alive)}) {' UNION ALL '.join(relations)}",
        upserts=upserts,
    )


def _moments(epochs: Sequence[int]) -> str:
    return f"(VALUES {', '.join(f'(CAST({epoch} AS bigint))' for epoch in epochs)}) moments(moment)"


def _count_stored_rows(rows: Rows, epochs: Sequence[int]) -> list[dict[str, object]]:
    """Count the stored rows of each batch, as rows for `Recount.from_rows`."""
    listed = ", ".join(map(str, epochs))
    parts = (
        f"SELECT epoch, '{table}' AS what, CAST(sum(diff) AS bigint) AS maintained "
        f"FROM {{{table}}} WHERE epoch IN ({listed}) GROUP BY epoch"
        for table in ROWS
    )
    counted = select_rows(" UNION ALL ".join(parts), **{table: rows[table] for table in ROWS})
    return [{"kind": STORED, **row} for row in counted.to_pylist()]
