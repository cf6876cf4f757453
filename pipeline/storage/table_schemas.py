"""The schemas of a home's Iceberg tables, and the snapshots that a revision pins. This module does not need Spark.

Every table but the serving tables is a collection of diff triples. `edges` stores signed validity intervals: a row
stands for two diff triples, `(epoch, +diff)` and `(until, -diff)`. A serving table has rows for other programs, with
the landed ids. It has no column `revision`: a revision is read by its snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping

from altneu.algorithms.sql_text import quote_identifier

from ..errors import AltneuError
from ..home.columns import SQL_TYPES
from ..home.home import Home
from ..home.queries import Definitions, is_query_table
from ..state.home_identity import ROUNDS
from ..state.records import SERVING_TABLES, Revision

NAMESPACE = "graph"
CHANGES = "changes"  # the table that other programs follow (`run.change_log`); no revision pins it
_TIME = "epoch bigint, revision bigint, diff bigint"

# table → its data columns; the time columns and diff follow in every table
TABLES = {
    "upserts": "src bigint, dst bigint, {values}, op string, seq bigint, file string, line bigint",
    "quarantine": "file string, line bigint, reason string, text string",
    "names": "id bigint, name string",
    "edges": "a bigint, b bigint, until bigint",
    "degrees": "vertex bigint",  # diff: the change of the degree
    "triangle_counts": "vertex bigint",  # diff: the change of the number of triangles at the vertex
    "trussness": "a bigint, b bigint, k bigint",
}
MOTIFS = {  # further tables of homes with motifs
    # The edges of motifs that `edges` does not have. They are no filter of `arcs`, because a pair is there once even if
    # both of its directions pass a condition, and few, where `arcs` would have all values of the home.
    "motif_edges": "relation string, a bigint, b bigint, until bigint",
    "motif_counts": "motif string, vertex bigint",  # diff: the change of the number of occurrences at the vertex
}
QUERY_INPUTS = {  # further tables of homes with a query that reads a relation of the same name
    # the landed values that are in force, with direction
    "arcs": "src bigint, dst bigint, {values}, until bigint",
    "vertices": "vertex bigint, degree bigint, triangles bigint",
}
ALWAYS = {  # the bigint columns of a table that are never null
    "upserts": ("src", "dst"),
    "names": ("id",),
    "edges": ("a", "b"),
    "degrees": ("vertex",),
    "triangle_counts": ("vertex",),
    "trussness": ("a", "b", "k"),
    "motif_edges": ("a", "b"),
    "motif_counts": ("vertex",),
    "arcs": ("src", "dst"),
    "vertices": ("vertex", "degree", "triangles"),
}
TIME = ("epoch", "revision", "diff", "until")  # columns of times and multiplicity; all others are data
CERTIFICATES = ROUNDS + "certificates"  # a cache, not a table of the home: see `storage.truss_checkpoint_table`
_CERTIFICATE = "a bigint, b bigint, level bigint, label bigint, own bigint, backing bigint, diff bigint"
INTERVALS = ("edges", "motif_edges", "arcs")  # tables whose rows are intervals


def ddl_schema(fields: Mapping[str, str]) -> str:
    """Write the declaration of columns in SQL: column → type."""
    return ", ".join(f"{quote_identifier(name)} {type_}" for name, type_ in fields.items())


def value_columns(home: Home) -> dict[str, str]:
    """Return the value columns of a home with their types in SQL."""
    return {name: SQL_TYPES[type_] for name, type_ in home.config.values.items()}


def serving_columns(home: Home, table: str) -> dict[str, str]:
    """Return the columns of a serving table with their types in SQL.

    Where epochs are times, there are also `valid_from` and `valid_to`, or `begins`.
    """
    config = home.config
    id_ = "string" if config.vertices.ids == "string" else "bigint"
    timed = home.schedule.seconds is not None
    motifs = {f"motif_{name}": "bigint" for name in config.motifs}
    if table == "vertex_history":
        times = {"valid_from": "timestamp", "valid_to": "timestamp"} if timed else {}
        counts = {"degree": "bigint", "triangles": "bigint", "clustering": "double", "trussness": "bigint"}
        validity = {"epoch": "bigint", "until": "bigint", **times, "is_current": "boolean"}
        return {"vertex": id_, **validity, **counts, **motifs}
    if table == "edge_now":
        return {"src": id_, "dst": id_, **value_columns(home), "trussness": "bigint", "both_ways": "boolean"}
    longs = dict.fromkeys(("vertices", "edges", "triangles", "max_trussness", "wedges"), "bigint")
    begins = {"begins": "timestamp"} if timed else {}
    return {"epoch": "bigint", "label": "string", **begins, **longs, "transitivity": "double", **motifs}


def table_columns(home: Home, table: str) -> dict[str, str]:
    """Return the columns of a table with their types in SQL."""
    if table in SERVING_TABLES:
        return serving_columns(home, table)
    if table == CERTIFICATES:
        return dict(column.split() for column in _CERTIFICATE.split(", "))
    before, values, after = f"{(TABLES | MOTIFS | QUERY_INPUTS)[table]}, {_TIME}".partition("{values}")
    own = [dict(column.split() for column in part.split(",") if column.strip()) for part in (before, after)]
    return own[0] | (value_columns(home) if values else {}) | own[1]


def query_columns(definitions: Definitions) -> dict[str, dict[str, str]]:
    """Return the tables of queries with their columns and types in SQL."""
    time = dict(column.split() for column in _TIME.split(", "))
    return {
        table: {**columns, **time}
        for definition in definitions.values()
        for table, columns in definition.columns_by_table.items()
    }


def query_inputs(definitions: Definitions) -> tuple[str, ...]:
    """Return the tables that exist only where a query reads them; one that is recomputed reads the landed rows."""
    maintained = [each for each in definitions.values() if not each.is_recomputed]
    return tuple(table for table in QUERY_INPUTS if any(table in each.relations for each in maintained))


def is_made_for_queries(table: str) -> bool:
    """Tell whether a table exists only where a query has it or reads it."""
    return table in QUERY_INPUTS or is_query_table(table)


def require_pinned_snapshot(table: str, revision: Revision) -> int:
    """Return the snapshot of a table at a revision. Raises `AltneuError` where a compaction has expired the
    revision."""
    if table not in revision.snapshots:
        raise AltneuError(
            f"revision {revision.revision} cannot be read any more: a compaction kept only the newest revisions "
            "([retention] revisions). Its totals can still be read.",
            "altneu status",
        )
    return revision.snapshots[table]


def visibility_condition(revision: Revision) -> str:
    """Write the SQL condition for the rows of its snapshots that a revision shows.

    A compacted snapshot serves all revisions that the compaction kept, and it still contains rows of revisions that a
    rollback has taken back.
    """
    return f"revision <= {revision.revision} AND {hidden_condition(revision)}"


def kept_epoch(revision: Revision) -> str:
    """Write the SQL expression for the epoch of a row; what a compaction has folded is at the first epoch it kept."""
    return "epoch" if revision.since is None else f"greatest(epoch, CAST({revision.since} AS BIGINT))"


def hidden_condition(revision: Revision) -> str:
    """Write the SQL condition for the rows that no rollback has taken back."""
    return " AND ".join(["true", *(f"revision NOT BETWEEN {first} AND {last}" for first, last in revision.hidden)])
