"""The views of a reader: totals over epochs (from SQL alone), and the tables as of an epoch and a revision.

Everything here reads one row of the ledger and the snapshots that it pins. A view is one query, by Spark or by DuckDB
(`engine_protocol.Tables`), and its rows have no order. The views that search for triangles are in `triangle_views`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import UsageError
from ..home.home import Home
from ..state.ledger import Ledger
from ..state.records import Revision
from ..state.totals import sum_totals, totals_at, truss_sizes
from .engine_protocol import R, Tables
from .vertex_names import RowFilter, numbers_of_names, replace_with_names

MOST_EPOCHS = 100_000  # up to so many epochs each is listed


def select_totals(
    ledger: Ledger,
    *,
    revision: int | None = None,
    as_of: int | None = None,
    all_epochs: bool = False,
) -> list[dict[str, Any]]:
    """Return the graph's totals at one epoch (default: the frontier), or at every epoch from the first landed one on.

    Of more than `MOST_EPOCHS` epochs only those are listed that have landed or at which something changes.

    Args:
        ledger: The ledger of the home.
        revision: The revision (default: the newest).
        as_of: The epoch, or the last one of `all_epochs`.
        all_epochs: Whether every epoch is listed.

    Returns:
        Rows of epoch, label, the totals of `sum_totals`, the motifs by name, and revision: the newest published
        revision that contributes to the row.
    """
    row = ledger.revisions.get(revision)
    if row.frontier is None:
        return []
    until = row.frontier if as_of is None else min(as_of, row.frontier)
    points = sum_totals(ledger.outputs.total_diffs(row.revision, None if all_epochs else until), row.frontier)
    batches = ledger.outputs.published_batches(row.revision, None if all_epochs else [until])
    first = min(batches, default=row.frontier)
    epochs: Iterable[int] = range(first, until + 1) if all_epochs else [until]
    if all_epochs and until - first > MOST_EPOCHS:
        epochs = sorted(epoch for epoch in {*points, *batches, until} if first <= epoch <= until)
    names = ledger.runs.list_motifs(row)
    rows, newest = [], 0
    for epoch, point in totals_at(points, epochs).items():
        if epoch in batches:
            newest = max(newest, batches[epoch].revision)
        rows.append(
            {
                "epoch": epoch,
                "label": ledger.home.schedule.format_label(epoch),
                **point,
                "motifs": {name: point["motifs"].get(place, 0) for place, name in enumerate(names)},
                "revision": max(point["revision"], newest),
            }
        )
    return rows


def select_as_of(
    tables: Tables[R],
    revision: Revision,
    view: str,
    epoch: int,
    motifs: Sequence[str] = (),
    only: RowFilter | None = None,
) -> R:
    """Return the view `vertices` or `edges` as of an epoch.

    Args:
        tables: The tables of the home.
        revision: The revision.
        view: "vertices" or "edges".
        epoch: The epoch.
        motifs: The names of the motifs.
        only: A filter of the rows by vertices.

    Returns:
        For `vertices`: vertex, degree, triangles, clustering, and a column for each motif; for `edges`: src, dst,
        trussness. `clustering` is the local clustering coefficient, which is the number of triangles divided by that of
        pairs of neighbours; it is 0 below two neighbours.
    """
    require_answerable(tables.home, revision, epoch)
    if view == "vertices":
        return replace_with_names(tables, revision, _select_vertices(tables, revision, epoch, motifs), ["vertex"], only)
    stored = sum_at_epoch(tables, tables.read_table("trussness", revision), epoch, "a", "b", "k")
    rows = tables.select_rows("SELECT a AS src, b AS dst, k AS trussness FROM {stored}", stored=stored)
    return replace_with_names(tables, revision, rows, ["src", "dst"], only)


def _select_vertices(tables: Tables[R], revision: Revision, epoch: int, motifs: Sequence[str]) -> R:
    relations = {
        "degrees": sum_at_epoch(tables, tables.read_table("degrees", revision), epoch, "vertex"),
        "counts": sum_at_epoch(tables, tables.read_table("triangle_counts", revision), epoch, "vertex"),
    }
    columns, joins = "", ""
    if motifs and "motif_counts" in revision.snapshots:
        names = [tables.quote_identifier(name) for name in motifs]
        counts = [
            f"CAST(sum(CASE WHEN motif = {tables.text_literal(motif)} THEN diff ELSE 0 END) AS BIGINT) AS {name}"
            for motif, name in zip(motifs, names, strict=True)
        ]
        query = f"SELECT vertex, {', '.join(counts)} FROM {{stored}} WHERE epoch <= {epoch} GROUP BY vertex"
        relations["motifs"] = tables.select_rows(query, stored=tables.read_table("motif_counts", revision))
        columns = "".join(f", coalesce(m.{name}, 0) AS {name}" for name in names)
        joins = " LEFT JOIN {motifs} m ON m.vertex = r.vertex"
    pairs = "degree * (degree - 1) / 2"
    query = (
        f"SELECT r.*{columns} FROM (SELECT vertex, degree, triangles, "
        f"CASE WHEN degree > 1 THEN triangles / ({pairs}) ELSE CAST(0 AS DOUBLE) END AS clustering FROM "
        "(SELECT d.vertex, d.n AS degree, coalesce(t.n, 0) AS triangles "
        f"FROM {{degrees}} d LEFT JOIN {{counts}} t ON t.vertex = d.vertex) both_counts) r{joins}"
    )
    return tables.select_rows(query, **relations)


def select_changes(tables: Tables[R], revision: Revision, since: int, until: int, only: RowFilter | None = None) -> R:
    """Return the diffs that turn the edges of epoch `since` into those of `until`: src, dst, trussness, diff."""
    require_forward(tables.home, revision, since, until)
    query = f"SELECT a, b, k, diff FROM {{stored}} WHERE epoch > {since} AND epoch <= {until}"
    rows = tables.select_rows(query, stored=tables.read_table("trussness", revision))
    return replace_with_names(tables, revision, _sum_diffs(tables, rows), ["src", "dst"], only)


def select_changes_since(
    tables: Tables[R], old: Revision, new: Revision, *, all_epochs: bool = False, only: RowFilter | None = None
) -> R:
    """Return the diffs that a consumer of revision `old` applies exactly once to have revision `new`.

    By default they are about the edges at the frontier of each revision: src, dst, trussness, diff. With `all_epochs`
    they are about the whole collection: src, dst, trussness, epoch, diff, where the sum of the diffs at epochs <= t is
    the state at t. In a home with string ids the vertices are names, even if the revisions have different numbers for
    them.
    """
    since = max((row.since for row in (old, new) if row.since is not None), default=None)

    def signed_edges(revision: Revision, sign: int) -> R:
        if revision.frontier is None:
            return tables.select_rows("SELECT a, b, k, epoch, diff FROM {none}", none=tables.empty_rows("trussness"))
        folded_epoch = "t.epoch" if since is None else f"greatest(t.epoch, CAST({since} AS BIGINT))"
        query = f"SELECT a, b, k, {folded_epoch} AS epoch, {sign} * diff AS diff FROM {{stored}} t"
        query += f" WHERE t.epoch <= {revision.frontier}"
        return tables.select_rows(query, stored=tables.read_table("trussness", revision))

    def union_changes(came: R, went: R) -> R:
        return tables.select_rows("SELECT * FROM {came} UNION ALL SELECT * FROM {went}", came=came, went=went)

    came, went, by = signed_edges(new, 1), signed_edges(old, -1), ["epoch"] if all_epochs else []
    naming = _revision_with_names(tables, old, new)
    if naming is not None:
        return replace_with_names(
            tables, naming, _sum_diffs(tables, union_changes(came, went), by), ["src", "dst"], only
        )
    ends = ["a", "b"]
    both = union_changes(replace_with_names(tables, new, came, ends), replace_with_names(tables, old, went, ends))
    if only is not None:
        numbers_of_names(tables, only.names, old, new)
        both = only.for_ids(tables, both, ends, map(tables.text_literal, only.names))
    return _sum_diffs(tables, both, by)


def _revision_with_names(tables: Tables[R], old: Revision, new: Revision) -> Revision | None:
    """Return which of two revisions has the names of both, or None when neither has.

    A rebuild from the landing numbers the names again, and after a rollback other names may get the same numbers.
    """
    if tables.home.config.vertices.ids == "integer":
        return new

    def has_more_names(one: Revision, other: Revision) -> bool:
        """Tell whether one revision has names that the other does not have."""
        same = "SELECT 1 FROM {other} o WHERE o.id = m.id AND o.name = m.name"
        query = f"SELECT count(*) AS n FROM {{one}} m WHERE NOT EXISTS ({same})"
        return bool(
            tables.collect_rows(
                tables.select_rows(query, one=tables.read_table("names", one), other=tables.read_table("names", other))
            )[0]["n"]
        )

    if not has_more_names(old, new):
        return new
    return None if has_more_names(new, old) else old


def _sum_diffs(tables: Tables[R], rows: R, by: Sequence[str] = ()) -> R:
    data = ", ".join(["a", "b", "k", *by])
    query = f"SELECT {data}, CAST(sum(diff) AS BIGINT) AS n FROM {{rows}} GROUP BY {data}"
    also = "".join(f"{name}, " for name in by)
    head = f"SELECT a AS src, b AS dst, k AS trussness, {also}n AS diff"
    return tables.select_rows(f"{head} FROM ({query}) net WHERE n <> 0", rows=rows)


def require_answerable(home: Home, revision: Revision, epoch: int) -> None:
    """Raise `UsageError` when the tables have no answer for an epoch: after the frontier, or before `since`."""
    label = home.schedule.format_label
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


def require_forward(home: Home, revision: Revision, since: int, until: int, view: str = "changes") -> None:
    """Raise `UsageError` unless both epochs can be answered for, and `since` is not after `until`.

    Args:
        home: The home.
        revision: The revision.
        since: The first epoch.
        until: The last epoch.
        view: The view, which the error names.
    """
    for epoch in (since, until):
        require_answerable(home, revision, epoch)
    if since > until:
        first, last = home.schedule.format_label(until), home.schedule.format_label(since)
        raise UsageError(
            f"the range from {last} to {first} is backwards: give the earlier epoch first.",
            f"altneu show {view} {first} {last}",
        )


def list_trusses(
    ledger: Ledger, revision: int | None = None, *, all_epochs: bool = False, as_of: int | None = None
) -> list[dict[str, Any]]:
    """Return the sizes of every k-truss, from SQL alone, for each epoch the greatest k first.

    Args:
        ledger: The ledger of the home.
        revision: The revision (default: the newest).
        all_epochs: Whether every epoch is listed.
        as_of: The epoch (default: the frontier).

    Returns:
        Rows of epoch, label, k, edges (of trussness >= k), exactly (of trussness k).
    """
    rows = []
    for point in select_totals(ledger, revision=revision, as_of=as_of, all_epochs=all_epochs):
        head = {"epoch": point["epoch"], "label": point["label"]}
        for k, edges in reversed(truss_sizes(point["trusses"]).items()):
            rows.append({**head, "k": k, "edges": edges, "exactly": point["trusses"].get(k, 0)})
    return rows


def select_truss_changes(
    tables: Tables[R], revision: Revision, since: int, until: int, k: int, only: RowFilter | None = None
) -> R:
    """Return the edges that entered (1) or left (-1) the k-truss between two epochs: src, dst, diff."""
    require_forward(tables.home, revision, since, until)
    query = (
        "SELECT a AS src, b AS dst, n AS diff FROM (SELECT a, b, CAST(sum(diff) AS BIGINT) AS n FROM {stored} "
        f"WHERE k >= {k} AND epoch > {since} AND epoch <= {until} GROUP BY a, b) net WHERE n <> 0"
    )
    rows = tables.select_rows(query, stored=tables.read_table("trussness", revision))
    return replace_with_names(tables, revision, rows, ["src", "dst"], only)


def sum_at_epoch(tables: Tables[R], rows: R, epoch: int, *data: str) -> R:
    """Sum the diffs of equal data up to an epoch as `n`, and return the data whose sum is not zero."""
    columns = ", ".join(data)
    query = f"SELECT {columns}, CAST(sum(diff) AS BIGINT) AS n FROM {{rows}} WHERE epoch <= {epoch} GROUP BY {columns}"
    return tables.select_rows(f"SELECT * FROM ({query}) sums WHERE n <> 0", rows=rows)


def select_quarantine(tables: Tables[R], revision: Revision, first: int | None, last: int | None) -> R:
    """Return the malformed rows of the published batches of a range of epochs, including both (default: all).

    The columns are epoch, file, line, reason, text.
    """
    bounds = [f"epoch {sign} {epoch}" for sign, epoch in ((">=", first), ("<=", last)) if epoch is not None]
    where = f"WHERE {' AND '.join(bounds)}" if bounds else ""
    data = "epoch, file, line, reason, text"
    query = f"SELECT {data}, CAST(sum(diff) AS BIGINT) AS n FROM {{stored}} {where} GROUP BY {data}"
    return tables.select_rows(
        f"SELECT {data} FROM ({query}) net WHERE n > 0", stored=tables.read_table("quarantine", revision)
    )
