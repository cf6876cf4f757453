"""The table `changes`: what each publication has changed, as rows that are only ever appended (`[publish] tables`).

A row is about a number and the epoch from which on it has a value: the trussness of an edge, the degree or triangles of
a vertex, a total, the edges of one trussness, or how often a row is in the result of a declared query. `before` and
`after` are this value before and after the publication, null where none begins at that epoch. So whoever keeps the last
`after` of each (what, key, other, epoch) has what is published, at every epoch: the value at an epoch is that of the
last one that is not later.

The table follows the ledger, and is not a part of the commit: each revision is one append, which names its revision,
so that what a killed process has left out is appended by the next one, and nothing twice. Rollbacks are revisions as
others. A compaction does not touch it. Where a run has added rows, only the edges and vertices of these rows are
compared, and the whole results of the queries that it has changed; after a rollback, a rebuild or a compaction two
whole states are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from altneu.expectations.model import Check

from ..errors import describe_error
from ..home.home import Home
from ..home.queries import QueryDefinition
from ..reading.engine_protocol import R, Tables
from ..reading.engines import Engines
from ..reading.query_results import published_queries, select_result_diffs
from ..reading.vertex_names import replace_with_names
from ..state import home_identity
from ..state.ledger import Ledger
from ..state.records import EMPTY, Revision, RunKind
from ..storage.table_schemas import CHANGES, NAMESPACE, kept_epoch

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from ..storage.duckdb_tables import DuckTables
    from ..storage.warehouse import Warehouse

REVISION = "altneu.revision"  # the property of a snapshot that names the revision that it has appended
CONTENTS, WITH_QUERIES = "altneu.contents", "2"  # the property of a snapshot up to which the table has queries
READS = ("trussness", "degrees", "triangle_counts")
SCHEMA = pa.schema(
    {
        "revision": pa.int64(),
        "published_at": pa.timestamp("us", "UTC"),
        "epoch": pa.int64(),
        "what": pa.string(),
        "key": pa.string(),
        "other": pa.string(),
        "kind": pa.string(),
        "before": pa.int64(),
        "after": pa.int64(),
    }
)
_STEP = ("what", "key", "other", "epoch")
STEPS = pa.schema([*(SCHEMA.field(name) for name in _STEP), pa.field("value", pa.int64())])


def try_to_follow(ledger: Ledger, spark: Callable[[], Warehouse], say: Callable[[str], None]) -> None:
    """Append what was published, if the settings ask for it. What is published stays so if that does not succeed."""
    if ledger.home.config.publish.logs_changes:
        try:
            follow_publications(ledger, spark)
        except Exception as error:
            say(f"the next publication appends to the table {CHANGES} what was published ({describe_error(error)[0]})")


def follow_publications(ledger: Ledger, spark: Callable[[], Warehouse]) -> int:
    """Append what the revisions have changed that the table does not have yet, and return the newest of them.

    The table begins with the whole state of the newest revision. A revision that cannot be read any more is left out:
    the next one then has its changes, too.
    """
    table = open_change_log(ledger.home)
    engines = Engines(ledger.home, spark)
    last, readable = appended_revision(table), ledger.revisions.list_readable()
    newest = ledger.revisions.get()
    wanted = [newest.revision] if last is None else [r for r in {*readable, newest.revision} if r > last]
    for number in sorted(wanted):
        row = ledger.revisions.get(number)
        old = ledger.revisions.get(last) if last and (last in readable) else EMPTY
        if last and (last not in readable or not has_queries(table)):
            before, after = _fold_changes(table), list_steps(ledger, engines, row)
        else:
            between = (old, row) if follows_by_runs(ledger, old, row) else None
            before, after = (list_steps(ledger, engines, side, between) for side in (old, row))
        rows = _compare_steps(before, after, old, row)
        table.append(rows, snapshot_properties={REVISION: str(number), CONTENTS: WITH_QUERIES})
        last = number
    return last or 0


def check_change_log(ledger: Ledger, spark: Callable[[], Warehouse]) -> list[Check]:
    """Compare what the table adds up to with what is published, as the result of a check; none without the table."""
    home = ledger.home
    row = ledger.revisions.get()
    if not home.config.publish.logs_changes or row.frontier is None:
        return []
    table = open_change_log(home)
    steps = list_steps(ledger, Engines(home, spark), row)
    if not has_queries(table):
        steps = steps.filter(pc.not_equal(steps["what"], "query"))
    wrong = _compare_steps(_fold_changes(table), steps, row, row)
    check: Check = {
        "epoch": row.frontier,
        "suite": CHANGES,
        "name": "changes add up to what is published",
        "severity": "critical",
        "passed": not wrong.num_rows,
        "meaning": "A program that has applied every row of the table `changes` has what the newest revision shows.",
        "remedy": "altneu run EPOCH (appends what is lacking); else look at who has written to the table",
        "observed": f"{wrong.num_rows:,} of {steps.num_rows:,} values differ; the table has revision "
        f"{appended_revision(table)} of {row.revision}",
        "rows": wrong.select([*_STEP, "before", "after"]).slice(0, 10).to_pylist(),
    }
    return [check]


def open_change_log(home: Home) -> Table:
    """Open the table, and make it where there is none yet."""
    from pyiceberg.catalog import load_catalog

    identity = home_identity.require_identity(home)
    catalog = load_catalog(identity.catalog, type="sql", uri=home.database, warehouse=home.warehouse)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    # a commit is refused where another process has appended since, and not repeated
    return catalog.create_table_if_not_exists(
        (NAMESPACE, CHANGES), SCHEMA, properties={"commit.retry.num-retries": "0", "format-version": "2"}
    )


def appended_revision(table: Table) -> int | None:
    """Return the last revision that the table has, or None where it is empty."""
    snapshot = table.current_snapshot()
    named = snapshot.summary[REVISION] if snapshot and snapshot.summary else None
    return None if named is None else int(named)


def has_queries(table: Table) -> bool:
    """Tell whether the table has the rows of queries, which it has since the first append by this version."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return True
    return snapshot.summary is not None and snapshot.summary.additional_properties.get(CONTENTS) == WITH_QUERIES


def follows_by_runs(ledger: Ledger, old: Revision, row: Revision) -> bool:
    """Tell whether a revision is an older one and the rows that runs have added since: no rollback, no rebuild and no
    fold of epochs lies between."""
    if old.frontier is None or row.frontier is None or old.frontier > row.frontier:
        return False
    between = [each.run_id for each in ledger.revisions.list_all() if old.revision < each.revision <= row.revision]
    kinds = {ledger.runs.get(run_id).kind for run_id in between}
    return old.hidden == row.hidden and old.since == row.since and kinds <= {RunKind.RUN}


def list_steps(
    ledger: Ledger, engines: Engines, row: Revision, between: tuple[Revision, Revision] | None = None
) -> pa.Table:
    """List the values of a revision with the epochs from which on they hold: what, key, other, epoch, value.

    Args:
        ledger: The ledger of the home.
        engines: What reads its tables.
        row: The revision.
        between: Only of edges and vertices with rows that the second revision has added to the first, of queries whose
            results it may have changed, and of totals.
    """
    if row.frontier is None:
        return STEPS.empty_table()

    def union_steps(tables: Tables[R]) -> R:
        parts = {
            "trussness": _select_steps(tables, row, between, "trussness", "a", "b"),
            "degree": _select_steps(tables, row, between, "degrees", "vertex"),
            "triangles": _select_steps(tables, row, between, "triangle_counts", "vertex"),
        }
        union = " UNION ALL ".join(f"SELECT '{what}' AS what, * FROM {{{what}}}" for what in parts)
        return tables.select_rows(union, **parts)

    def steps_by_duckdb(tables: DuckTables) -> pa.Table:
        return tables.to_arrow(union_steps(tables))

    def steps_by_spark(warehouse: Warehouse) -> pa.Table:
        return union_steps(warehouse).toArrow()

    read = [row] if between is None else list({each.revision: each for each in (row, *between)}.values())
    steps = engines.choose_and_run(read, READS, works=True, by_duckdb=steps_by_duckdb, by_spark=steps_by_spark)
    queries = _list_query_steps(ledger, engines, row, _changed_queries(ledger, row, between))
    return pa.concat_tables([steps.select(STEPS.names).cast(STEPS), queries, _list_total_steps(ledger, row)])


def _select_steps(
    tables: Tables[R], row: Revision, between: tuple[Revision, Revision] | None, table: str, *ends: str
) -> R:
    """Add up the diffs of a table along the epochs, by the vertices in `ends`: key, other, epoch, value."""
    folded_epoch = kept_epoch(row)
    amount, data = "k * diff" if table == "trussness" else "diff", ", ".join(ends)
    query = f"SELECT {data}, {folded_epoch} AS epoch, CAST(sum({amount}) AS BIGINT) AS n FROM {{rows}}"
    query += f" WHERE epoch <= {row.frontier}"
    relations = {"rows": tables.read_table(table, row)}
    if between is not None:
        relations["added"] = _select_added_keys(tables, between, table, data)
        query += f" AND ({data}) IN (SELECT {data} FROM {{added}})"
    sums = tables.select_rows(f"{query} GROUP BY {data}, {folded_epoch}", **relations)
    named = replace_with_names(tables, row, sums, list(ends))
    value = f"CAST(sum(n) OVER (PARTITION BY {data} ORDER BY epoch) AS BIGINT) AS value"
    keys = _write_keys(tables.home, *ends)
    return tables.select_rows(f"SELECT {keys}, epoch, {value} FROM {{named}} WHERE n <> 0", named=named)


def _select_added_keys(tables: Tables[R], between: tuple[Revision, Revision], table: str, data: str) -> R:
    """Select the keys of the rows that are new in the second revision, or at epochs after the frontier of the first."""
    old, row = between
    new = f"epoch <= {row.frontier} AND (revision > {old.revision} OR epoch > {old.frontier})"
    return tables.select_rows(f"SELECT DISTINCT {data} FROM {{rows}} WHERE {new}", rows=tables.read_table(table, row))


def _write_keys(home: Home, first: str, second: str | None = None) -> str:
    """Write the columns `key` and `other` of an edge or of a vertex."""
    if second is None:
        return f"concat({first}, '') AS key, '' AS other"
    if home.config.vertices.ids == "string":  # the numbers of names may change, and so their order
        return f"least({first}, {second}) AS key, greatest({first}, {second}) AS other"
    return f"concat({first}, '') AS key, concat({second}, '') AS other"


def _changed_queries(
    ledger: Ledger, row: Revision, between: tuple[Revision, Revision] | None
) -> dict[str, QueryDefinition]:
    """Return the queries of a revision, without those whose results are the same in both revisions."""
    if between is None or between[0].frontier != between[1].frontier:
        return published_queries(ledger, row)
    old, new = between
    sides = published_queries(ledger, old), published_queries(ledger, new)
    queries = sides[0] if row is old else sides[1]

    def is_changed(name: str, query: QueryDefinition) -> bool:
        same = all(query.has_same_meaning(side.get(name)) for side in sides)
        return not same or old.snapshots[query.table] != new.snapshots[query.table]

    return {name: query for name, query in queries.items() if is_changed(name, query)}


def _list_query_steps(
    ledger: Ledger, engines: Engines, row: Revision, queries: Mapping[str, QueryDefinition]
) -> pa.Table:
    """List how often each row of some queries is in the result, as `list_steps` does: `other` is the row as JSON."""
    if not queries:
        return STEPS.empty_table()

    def diffs_by_duckdb(tables: DuckTables) -> list[pa.Table]:
        return [tables.to_arrow(select_result_diffs(tables, row, query)) for query in queries.values()]

    def diffs_by_spark(warehouse: Warehouse) -> list[pa.Table]:
        return [select_result_diffs(warehouse, row, query).toArrow() for query in queries.values()]

    read = tuple(query.table for query in queries.values())
    diffs_by_query = engines.choose_and_run([row], read, works=True, by_duckdb=diffs_by_duckdb, by_spark=diffs_by_spark)
    steps = [_sum_copies(query, diffs) for query, diffs in zip(queries.values(), diffs_by_query, strict=True)]
    return pa.concat_tables(steps)


def _sum_copies(query: QueryDefinition, diffs: pa.Table) -> pa.Table:
    """Add up the diffs of a result along the epochs."""
    copies: dict[str, int] = {}
    steps: list[dict[str, Any]] = []
    for row in sorted(diffs.to_pylist(), key=lambda row: int(row["epoch"])):
        text = json.dumps({name: row[name] for name in query.columns}, ensure_ascii=False)
        copies[text] = copies.get(text, 0) + row["diff"]
        steps.append({"what": "query", "key": query.name, "other": text, "epoch": row["epoch"], "value": copies[text]})
    return pa.Table.from_pylist(steps, schema=STEPS)


def _list_total_steps(ledger: Ledger, row: Revision) -> pa.Table:
    """List the totals at each epoch at which they change, as `list_steps` does."""
    assert row.frontier is not None
    changes: dict[tuple[str, str, int], int] = {}
    for measure, k, epoch, _, diff in ledger.outputs.total_diffs(row.revision):
        if measure != "motif" and epoch <= row.frontier:
            key = ("truss", str(k)) if measure == "truss" else ("total", measure)
            folded_epoch = epoch if row.since is None else max(epoch, row.since)
            changes[(*key, folded_epoch)] = changes.get((*key, folded_epoch), 0) + diff
    sums: dict[tuple[str, str], int] = {}
    steps: list[dict[str, Any]] = []
    for (what, name, epoch), diff in sorted(changes.items()):
        sums[what, name] = sums.get((what, name), 0) + diff
        if diff:
            steps.append({"what": what, "key": name, "other": "", "epoch": epoch, "value": sums[what, name]})
    return pa.Table.from_pylist(steps, schema=STEPS)


def _fold_changes(table: Table) -> pa.Table:
    """Return what the table has, as `list_steps` lists it: the last value of each step."""
    import duckdb

    with duckdb.connect() as database:
        database.register("changes", table.scan().to_arrow())
        return database.sql(
            "SELECT what, key, coalesce(other, '') AS other, epoch, arg_max(after, revision) AS value FROM ("
            "SELECT * REPLACE (coalesce(after, -1) AS after) FROM changes) GROUP BY ALL HAVING value >= 0"
        ).to_arrow_table()


def _compare_steps(before: pa.Table, after: pa.Table, old: Revision, row: Revision) -> pa.Table:
    """List the steps that differ, as rows of the table.

    Where a compaction has folded epochs, what began before the first kept one is compared there: a step that is gone
    has the value 0, because an older one of the consumer may still be in force.
    """
    import duckdb

    since = max((each.since for each in (old, row) if each.since is not None), default=None)
    folded = "false" if since is None else f"epoch = {since}"
    with duckdb.connect() as database:
        for name, steps in (("before", before), ("after", after)):
            database.register(f"{name}_all", steps)
            folded_epoch = "epoch" if since is None else f"greatest(epoch, {since})"
            database.execute(
                f"CREATE VIEW {name}_steps AS SELECT what, key, other, {folded_epoch} AS epoch, "
                f"arg_max(value, epoch) AS value FROM {name}_all GROUP BY what, key, other, {folded_epoch}"
            )
        moved = (
            f"SELECT {', '.join(_STEP)}, o.value AS before, "
            f"CASE WHEN {folded} THEN coalesce(n.value, 0) ELSE n.value END AS after "
            f"FROM before_steps o FULL JOIN after_steps n USING ({', '.join(_STEP)}) "
            f"WHERE CASE WHEN {folded} THEN coalesce(o.value, 0) <> coalesce(n.value, 0) "
            "ELSE o.value IS DISTINCT FROM n.value END"
        )
        rows = database.sql(
            f"SELECT {row.revision}::BIGINT AS revision, '{row.published_at}'::TIMESTAMPTZ AS published_at, "
            "epoch, what, key, nullif(other, '') AS other, "
            "CASE WHEN before IS NULL THEN 'insert' WHEN after IS NULL THEN 'delete' ELSE 'update' END AS kind, "
            f"before, after FROM ({moved}) ORDER BY what, key, other, epoch"
        )
        return rows.to_arrow_table().cast(SCHEMA)
