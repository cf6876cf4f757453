"""The recomputation of declared queries: the text itself, run on the landed rows as of an epoch, by DuckDB or Spark.

The relations are made from the table `upserts` by SQL of their own, so that a recount shares neither the compiler nor
the algebra nor a stored relation with the maintenance. Only `edges.trussness` and `vertices.triangles` come from their
tables, which have proofs of their own. The queries are written once, for `reading.engine_protocol.Tables`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from ..home.home import Home
from ..home.queries import ARCS, EDGES, LANDED_ROWS, VERTICES, Definitions, QueryDefinition, list_inputs
from ..reading.engine_protocol import R, Tables
from ..reading.engines import LITTLE
from ..reading.query_explanation import explain_query_difference
from ..state import filesystem
from ..state.records import Revision
from ..storage.condition_errors import Refused, UncertainCondition
from ..storage.duckdb_tables import DuckTables, Query
from ..storage.table_schemas import value_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..storage.warehouse import Warehouse

_PROVED_TABLES = {EDGES: "trussness", VERTICES: "triangle_counts"}  # relation → a table of which it has a column
ROWS = 20  # differing rows of a query at an epoch that are kept


@dataclass(frozen=True)
class QuerySource(Generic[R]):
    """The tables of an engine, how to read one of them, all queries that there are, and whether the engine is Spark."""

    tables: Tables[R]
    read_table: Callable[[str], R]
    definitions: Definitions
    in_spark: bool


def find_differing_rows(
    source: QuerySource[R], queries: Sequence[QueryDefinition], epochs: Sequence[int]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Recompute queries at some epochs.

    Returns:
        The rows of each query whose stored and recomputed numbers of copies differ, as `check_queries` takes them, and
        the seconds that each query took.

    Raises:
        UncertainCondition: DuckDB might understand the condition of edges in another way than Spark.
    """
    differences, seconds = list[dict[str, Any]](), dict[str, float]()
    for query in queries:
        started = time.monotonic()
        for epoch in epochs:
            differences += _compare_at_epoch(source, query, epoch)
        seconds[query.name] = round(time.monotonic() - started, 2)
    return differences, seconds


def recompute_published(
    warehouse: Warehouse, revision: Revision, queries: Definitions, epochs: Sequence[int]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Recompute published queries, by DuckDB where it can read the tables and they are small, else by Spark."""
    in_duckdb, all_queries = DuckTables(warehouse.home), list(queries.values())
    duckdb_source = QuerySource(in_duckdb, lambda table: in_duckdb.read_table(table, revision), queries, in_spark=False)
    spark_source = QuerySource(warehouse, lambda table: warehouse.read_table(table, revision), queries, in_spark=True)
    return recompute_by_either(warehouse, revision.snapshots, all_queries, epochs, duckdb_source, spark_source)


def recompute_by_either(
    warehouse: Warehouse,
    snapshots: Mapping[str, int],
    queries: Sequence[QueryDefinition],
    epochs: Sequence[int],
    in_duckdb: QuerySource[Query],
    in_spark: QuerySource[DataFrame],
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Recompute queries by DuckDB, or by Spark where DuckDB cannot; `snapshots` are those of the tables."""
    if fits_duckdb(warehouse, snapshots, queries):
        try:
            return find_differing_rows(in_duckdb, queries, epochs)
        except (UncertainCondition, Refused):
            pass  # only Spark can evaluate the condition of edges
    return find_differing_rows(in_spark, queries, epochs)


def fits_duckdb(warehouse: Warehouse, snapshots: Mapping[str, int], queries: Sequence[QueryDefinition]) -> bool:
    """Tell whether DuckDB is allowed, can read the tables from a disk of this machine, and they are small enough."""
    if warehouse.home.config.audit.engine == "spark":
        return False
    folder = filesystem.local_path(warehouse.home.warehouse)
    if warehouse.home.config.storage.catalog is not None or folder is None or not folder.is_dir():
        return False
    tables = ["upserts", *(query.table for query in queries)]
    return sum(warehouse.snapshot_size(table, snapshots[table]).rows for table in tables) <= LITTLE


def select_recomputed_rows(source: QuerySource[R], query: QueryDefinition, epoch: int) -> R:
    """Return the rows that the text of a query has at an epoch, with the types that its result is stored with."""
    ctes, stored = _write_inputs(source, query, epoch)
    return source.tables.select_rows(f"WITH {', '.join(ctes)} {_typed_text(source, query)}", **stored)


def _write_inputs(source: QuerySource[R], query: QueryDefinition, epoch: int) -> tuple[list[str], dict[str, R]]:
    """Write what a query reads as the parts of a WITH; and return the stored tables that these read."""
    tables, inputs = source.tables, list_inputs(query, source.definitions)
    texts = [query, *inputs.values()]
    landed = [each for each in texts if each.has_landed]
    relations = _relation_queries(source, {name for each in texts for name in each.relations}, epoch)
    ctes = [f"{name} AS ({sql})" for name, sql in relations.items()]
    ctes += [f"{tables.quote_identifier(each.name)} AS ({_landed_relation(source, each, epoch)})" for each in landed]
    named = {name: each for name, each in inputs.items() if not each.has_landed}
    ctes += [f"{tables.quote_identifier(name)} AS ({_typed_text(source, each)})" for name, each in named.items()]
    stored = {"upserts": source.read_table("upserts")}
    stored |= {each.state_table: source.read_table(each.state_table) for each in landed}
    stored |= {table: source.read_table(table) for name, table in _PROVED_TABLES.items() if name in relations}
    return ctes, stored


def _compare_at_epoch(source: QuerySource[R], query: QueryDefinition, epoch: int) -> list[dict[str, Any]]:
    tables, columns = source.tables, [source.tables.quote_identifier(name) for name in query.columns]
    listed = ", ".join(columns)
    ctes, stored = _write_inputs(source, query, epoch)
    texts = [query, *list_inputs(query, source.definitions).values()]
    shown = ", ".join(map(_comparable_column, columns, query.columns.values())) if _has_doubles(texts) else listed
    sql = f"""
        WITH {", ".join([*ctes, f"_recomputed ({listed}) AS ({_text(source, query)}"])}
        )
        SELECT {listed}, CAST(sum(maintained) AS bigint) AS maintained, CAST(sum(recomputed) AS bigint) AS recomputed
        FROM (
            SELECT {shown}, diff AS maintained, 0 AS recomputed FROM {{stored}} WHERE epoch <= {epoch}
            UNION ALL SELECT {shown}, 0 AS maintained, 1 AS recomputed FROM _recomputed
        )
        GROUP BY {listed} HAVING sum(maintained) <> sum(recomputed)"""
    rows = tables.collect_rows(tables.select_rows(sql, **stored, stored=source.read_table(query.table)))
    in_order = sorted(rows, key=lambda row: str(row))
    return [_make_difference(query, epoch, row, len(rows)) for row in in_order[:ROWS]]


def _make_difference(query: QueryDefinition, epoch: int, row: Mapping[str, Any], count: int) -> dict[str, Any]:
    text = ", ".join(f"{name} {row[name]}" for name in query.columns)
    copies = {"maintained": row["maintained"], "recomputed": row["recomputed"]}
    data = {name: row[name] for name in query.columns}
    return {"epoch": epoch, "what": "query_rows", "a": query.name, "b": text, "row": data, "count": count, **copies}


def explain_first_difference(
    tables: Tables[R], revision: Revision, definitions: Definitions, differences: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return differences with the landed rows that the first one follows from."""
    if not differences:
        return []
    first, *others = differences
    why = explain_query_difference(tables, revision, definitions, first["a"], first["epoch"], first["row"])
    return [{**first, "why": why}, *others]


def _text(source: QuerySource[R], query: QueryDefinition) -> str:
    """Return the text of a query for an engine, in a query whose braces name relations."""
    text = query.text.strip().rstrip(";")
    if source.in_spark:
        from altneu.algorithms.sql_query import spark_text

        text = spark_text(text)
    return text.replace("{", "{{").replace("}", "}}")


def _typed_text(source: QuerySource[R], query: QueryDefinition) -> str:
    """Return the text of a query that another one reads, with the types that its result is stored with."""
    columns = [source.tables.quote_identifier(name) for name in query.columns]
    typed = [f"CAST({name} AS {type_}) AS {name}" for name, type_ in zip(columns, query.columns.values(), strict=True)]
    return f"SELECT {', '.join(typed)} FROM (\n{_text(source, query)}\n) AS t ({', '.join(columns)})"


def _has_doubles(queries: Sequence[QueryDefinition]) -> bool:
    """Tell whether some query has doubles that depend on the order in which numbers are added."""
    return any(query.is_recomputed or "avg(" in query.normal_form.lower() for query in queries)


def _comparable_column(column: str, type_: str) -> str:
    """Return a column for a comparison: a sum of doubles may differ between the engines in its last digit."""
    return f"CAST(CAST({column} AS float) AS double) AS {column}" if type_ == "double" else column


def _relation_queries(source: QuerySource[R], needed: Set[str], epoch: int) -> dict[str, str]:
    """Write the queries for relations as they are at an epoch, those that others build on first.

    Their names begin with an underscore where no text may name them.
    """
    home, quote = source.tables.home, source.tables.quote_identifier
    values = [quote(name) for name in home.config.values]
    relations = {"_rows_landed": _landed_rows(values, epoch)}
    if LANDED_ROWS in needed:
        declared = [value for value in values if value.strip('"`').lower() != "age"]
        columns = ", ".join(["src", "dst", *declared, "op", "seq", "epoch", f"{epoch} - epoch AS age"])
        relations[LANDED_ROWS] = f"SELECT {columns} FROM _rows_landed"
    if needed & {ARCS, EDGES, VERTICES}:
        relations["_rows_in_force"] = _rows_in_force(home, values, epoch, _condition(source, home))
    if ARCS in needed:
        relations[ARCS] = f"SELECT {', '.join(['src', 'dst', *values])} FROM _rows_in_force"
    if EDGES in needed:
        relations[EDGES] = f"""
            SELECT least(e.src, e.dst) AS src, greatest(e.src, e.dst) AS dst, max(t.k) AS trussness
            FROM _rows_in_force e LEFT JOIN (
                SELECT a, b, k FROM {{trussness}} WHERE epoch <= {epoch} GROUP BY a, b, k HAVING sum(diff) > 0
            ) t ON t.a = least(e.src, e.dst) AND t.b = greatest(e.src, e.dst)
            GROUP BY least(e.src, e.dst), greatest(e.src, e.dst)"""
    if VERTICES in needed:
        relations[VERTICES] = f"""
            SELECT d.vertex, d.degree, coalesce(t.triangles, 0) AS triangles
            FROM (
                SELECT vertex, count(*) AS degree
                FROM (SELECT src AS vertex, dst FROM _rows_in_force UNION SELECT dst, src FROM _rows_in_force)
                GROUP BY vertex
            ) d LEFT JOIN (
                SELECT vertex, CAST(sum(diff) AS bigint) AS triangles
                FROM {{triangle_counts}} WHERE epoch <= {epoch} GROUP BY vertex
            ) t ON t.vertex = d.vertex"""
    return relations


def _landed_relation(source: QuerySource[R], relation: QueryDefinition, epoch: int) -> str:
    """Write the query for the rows of a declared relation that are in force at an epoch."""
    quoted = {name: source.tables.quote_identifier(name) for name in relation.columns}
    columns, own = ", ".join(quoted.values()), ", ".join([*quoted.values(), "op", "seq", "epoch", "file", "line"])
    values = [f"{quoted[name]} DESC NULLS LAST" for name in quoted if name not in relation.key]
    order = ["epoch DESC", "seq DESC", "(op = 'delete')", *values]
    key = ", ".join(quoted[name] for name in relation.key)
    landed = f"SELECT {own} FROM {{{relation.state_table}}} WHERE epoch <= {epoch} GROUP BY {own} HAVING sum(diff) > 0"
    placed = f"row_number() OVER (PARTITION BY {key} ORDER BY {', '.join(order)}) AS _place"
    return f"SELECT {columns} FROM (SELECT *, {placed} FROM ({landed})) WHERE _place = 1 AND op <> 'delete'"


def _landed_rows(values: Sequence[str], epoch: int) -> str:
    columns = ", ".join(["src", "dst", *values, "op", "seq", "epoch"])
    own = f"{columns}, file, line"
    summed = f"SELECT {own} FROM {{upserts}} WHERE epoch <= {epoch} GROUP BY {own} HAVING sum(diff) > 0"
    return f"SELECT {columns} FROM ({summed})"


def _rows_in_force(home: Home, values: Sequence[str], epoch: int, condition: str | None) -> str:
    """Write the query for the last value of each key, where it passes the condition and still lives (law 1)."""
    order = ["epoch DESC", "seq DESC", "(op = 'delete')", *(f"{value} DESC NULLS LAST" for value in values)]
    tests = ["place = 1", "op <> 'delete'"]
    if home.config.edges.live_for is not None:
        tests.append(f"{epoch} - epoch < {home.config.edges.live_for}")
    if condition is not None:
        tests.append(f"coalesce({condition}, false)")
    placed = f"row_number() OVER (PARTITION BY src, dst ORDER BY {', '.join(order)}) AS place"
    return f"SELECT * FROM (SELECT *, {placed} FROM _rows_landed WHERE src <> dst) WHERE {' AND '.join(tests)}"


def _condition(source: QuerySource[R], home: Home) -> str | None:
    wanted = home.config.edge_condition
    return None if wanted is None else source.tables.translate_condition(wanted, value_columns(home))
