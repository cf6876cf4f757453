"""The tables of a home as they are declared, and what of them a ledger row names: without Spark.

Every one but the plain ones is a collection of diff triples. `edges` keeps signed validity intervals: a row is the two
diff triples `(epoch, +diff)` and `(until, -diff)`. A plain table holds rows as other programs want them, with the
landed ids; it has no revision, and is read by the snapshot of one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import AltneuError
from ..home.home import Home
from ..state.home_identity import ROUNDS
from ..state.records import PLAIN, Revision

NAMESPACE = "graph"
_TIME = "epoch bigint, revision bigint, diff bigint"
SQL_TYPES = {"long": "bigint", "double": "double", "string": "string", "boolean": "boolean"}

# table -> its data columns; the time columns and diff follow in every one
TABLES = {
    "upserts": "src bigint, dst bigint, {values}, op string, seq bigint, file string, line bigint",
    "quarantine": "file string, line bigint, reason string, text string",
    "names": "id bigint, name string",
    "edges": "a bigint, b bigint, until bigint",
    "degrees": "vertex bigint",  # diff = change of the degree
    "triangle_counts": "vertex bigint",  # diff = change of the number of triangles at the vertex
    "trussness": "a bigint, b bigint, k bigint",
}
MOTIFS = {  # of homes that have some
    "motif_edges": "relation string, a bigint, b bigint, until bigint",  # what they are made of besides the edges
    "motif_counts": "motif string, vertex bigint",  # diff = change of the number of occurrences at the vertex
}
CERTIFICATES = ROUNDS + "certificates"  # no table of a home: see `storage.certificates`
_CERTIFICATE = "a bigint, b bigint, level bigint, label bigint, own bigint, backing bigint, diff bigint"
INTERVALS = ("edges", "motif_edges")  # whose rows are intervals


def quote_identifier(column: str) -> str:
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + column.replace("`", "``") + "`"


def ddl_schema(fields: Mapping[str, str]) -> str:
    """Column → type, as SQL declares them."""
    return ", ".join(f"{quote_identifier(name)} {type_}" for name, type_ in fields.items())


def value_columns(home: Home) -> dict[str, str]:
    """Value column → its type in SQL."""
    return {name: SQL_TYPES[type_] for name, type_ in home.config.values.items()}


def serving_columns(home: Home, table: str) -> dict[str, str]:
    """Column of a plain table → its type in SQL. `valid_from`, `valid_to` and `begins` where epochs are times."""
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
    """Column of a table → its type in SQL."""
    if table in PLAIN:
        return serving_columns(home, table)
    if table == CERTIFICATES:
        return dict(column.split() for column in _CERTIFICATE.split(", "))
    before, values, after = f"{(TABLES | MOTIFS)[table]}, {_TIME}".partition("{values}")
    own = [dict(column.split() for column in part.split(",") if column.strip()) for part in (before, after)]
    return own[0] | (value_columns(home) if values else {}) | own[1]


def require_pinned_snapshot(table: str, revision: Revision) -> int:
    """The snapshot of a table at a revision. Raises `AltneuError` when a compaction has expired the revision."""
    if table not in revision.snapshots:
        raise AltneuError(
            f"revision {revision.revision} cannot be read any more: a compaction kept only the newest ones "
            "([retention] revisions). Its totals can.",
            "altneu status",
        )
    return revision.snapshots[table]


def visibility_condition(revision: Revision) -> str:
    """Which rows of its snapshots a revision shows, in SQL: a compacted snapshot serves all revisions that were kept
    then, and those of revisions that a rollback has taken back stay in it."""
    hidden = "".join(f" AND revision NOT BETWEEN {first} AND {last}" for first, last in revision.hidden)
    return f"revision <= {revision.revision}{hidden}"
