"""The certificate of a revision: a folder from which a stranger verifies every trussness and count, without altneu.

    certificate.json  the revision, its epochs, the digests of these files and of the landed ones, its fingerprints
    edges.parquet     a, b, epoch, until, trussness, place: the spans of each edge, and an order that proves them
    vertices.parquet  vertex, epoch, until, degree, triangles
    totals.parquet    epoch, measure, k, value: at each epoch at which it changes
    names.parquet     id, name: in homes with string ids
    verify.py         the verifier (`certificate_verifier`)

`until` is null for what still holds at the last epoch. What is written is what is published: the trussness is compared
with the order's, which is computed again from the edges, and the folder is verified before it is put in its place.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.fingerprint import Fingerprint

from ..errors import AltneuError, CheckFailed
from ..home.home import Home
from ..landing.known_folders import combine_digests, tag_digest
from ..landing.local_landing import EMPTY_DIGEST, digest_files, list_batches
from ..reading.engine_protocol import R, Tables
from ..reading.engines import Engines
from ..reading.views import require_answerable
from ..state import filesystem
from ..state.fingerprint_sums import fold_fingerprints
from ..state.ledger import Ledger
from ..state.records import Revision
from . import certificate_verifier

if TYPE_CHECKING:
    import pyarrow as pa

    from ..storage.duckdb_tables import DuckTables
    from ..storage.warehouse import Warehouse

FORMAT = 1
MANIFEST, VERIFIER = "certificate.json", "verify.py"
READS = ("trussness", "degrees", "triangle_counts")
PROVED_COLLECTIONS = ("edges", *READS)  # the collections whose fingerprints the verifier computes
SPANS = "a bigint, b bigint, epoch bigint, until bigint, trussness bigint, place bigint"


@dataclass(frozen=True)
class CertificateScope:
    """The epochs of a certificate, which begins with the state at the first one."""

    row: Revision
    first_epoch: int
    last_epoch: int

    @property
    def folder(self) -> str:
        """Return the name of its folder among the reports."""
        return f"certificate-r{self.row.revision}"


def certified_scope(ledger: Ledger, row: Revision, as_of: int | None = None) -> CertificateScope:
    """Return all epochs that a revision answers for, or one of them.

    Raises:
        UsageError: The revision does not answer for the epoch.
    """
    assert row.frontier is not None
    if as_of is not None:
        require_answerable(ledger.home, row, as_of)
        return CertificateScope(row, as_of, as_of)
    known = (epoch for _, _, epoch, _, _ in ledger.outputs.total_diffs(row.revision))
    return CertificateScope(row, min(known, default=row.frontier) if row.since is None else row.since, row.frontier)


def write_certificate(ledger: Ledger, engines: Engines, scope: CertificateScope, folder: Path) -> list[str]:
    """Write a certificate into an empty folder and verify it.

    Returns:
        The lines that the verifier has printed.

    Raises:
        CheckFailed: What is published is wrong.
    """
    tables = read_certified_rows(ledger.home, engines, scope)
    tables["totals"] = _list_totals(ledger, scope)
    _require_published_trussness(tables.pop("published"), tables["edges"], scope)
    _write_folder(folder, tables, describe_certificate(ledger, scope))
    return _verify_folder(folder, scope)


def read_certified_rows(home: Home, engines: Engines, scope: CertificateScope) -> dict[str, pa.Table]:
    """Read the rows of the certificate from the tables: `edges`, `vertices`, `names`, and the trussness `published`."""

    def select_all(tables: Tables[R], collect: Callable[[R], pa.Table]) -> dict[str, pa.Table]:
        queries = {"edges": _edge_spans, "vertices": _vertex_spans, "published": _trussness_changes}
        if home.config.vertices.ids == "string":
            queries["names"] = _select_names
        return {name: collect(query(tables, scope)) for name, query in queries.items()}

    def rows_by_duckdb(tables: DuckTables) -> dict[str, pa.Table]:
        return select_all(tables, tables.to_arrow)

    def rows_by_spark(warehouse: Warehouse) -> dict[str, pa.Table]:
        return select_all(warehouse, lambda frame: frame.toArrow())

    return engines.choose_and_run([scope.row], READS, works=True, by_duckdb=rows_by_duckdb, by_spark=rows_by_spark)


def _read_diffs(tables: Tables[R], scope: CertificateScope, table: str, *data: str) -> R:
    """Sum the diffs of a table by data and epoch, with what was before the first epoch at that one."""
    key = ", ".join((*data, f"greatest(epoch, CAST({scope.first_epoch} AS BIGINT))"))
    query = f"SELECT {key} AS epoch, CAST(sum(diff) AS BIGINT) AS n FROM {{rows}} WHERE epoch <= {scope.last_epoch}"
    rows = tables.select_rows(f"{query} GROUP BY {key}", rows=tables.read_table(table, scope.row))
    return tables.select_rows("SELECT * FROM {rows} WHERE n <> 0", rows=rows)


def _trussness_changes(tables: Tables[R], scope: CertificateScope) -> R:
    return _read_diffs(tables, scope, "trussness", "a", "b", "k")


def _edge_spans(tables: Tables[R], scope: CertificateScope) -> R:
    """Prove the trussness of the edges that exist, in one task."""
    changes = _read_diffs(tables, scope, "trussness", "a", "b")
    lives = "SELECT *, lead(epoch) OVER (PARTITION BY a, b ORDER BY epoch) AS until FROM {changes}"
    query = f"SELECT a, b, epoch, coalesce(until, {FOREVER}) AS until FROM ({lives}) lives WHERE n > 0"
    prove = partial(_prove_edges, scope.first_epoch, scope.last_epoch)
    return tables.apply_in_one_task(tables.select_rows(query, changes=changes), prove, SPANS)


def _prove_edges(first: int, last: int, lives: pa.Table) -> pa.Table:
    import pyarrow as pa

    from altneu.algorithms.graph.kernels.certificate_history import certify_history

    a, b, start, until = (lives[name].to_numpy() for name in ("a", "b", "epoch", "until"))
    spans = certify_history(a, b, start, until, first, last)
    columns = {name: pa.array(column) for name, column in spans._asdict().items()}
    return pa.table(columns | {"until": pa.array(spans.until, mask=spans.until == FOREVER)})


def _vertex_spans(tables: Tables[R], scope: CertificateScope) -> R:
    sides = {
        "degrees": _read_diffs(tables, scope, "degrees", "vertex"),
        "counts": _read_diffs(tables, scope, "triangle_counts", "vertex"),
    }
    both = "SELECT vertex, epoch, n AS d, 0 AS t FROM {degrees} UNION ALL SELECT vertex, epoch, 0, n FROM {counts}"
    sums = f"SELECT vertex, epoch, sum(d) AS d, sum(t) AS t FROM ({both}) sides GROUP BY vertex, epoch"
    line = "OVER (PARTITION BY vertex ORDER BY epoch)"
    spans = (
        f"SELECT vertex, epoch, lead(epoch) {line} AS until, CAST(sum(d) {line} AS BIGINT) AS degree, "
        f"CAST(sum(t) {line} AS BIGINT) AS triangles FROM ({sums}) sums"
    )
    return tables.select_rows(f"SELECT * FROM ({spans}) spans WHERE degree <> 0 OR triangles <> 0", **sides)


def _select_names(tables: Tables[R], scope: CertificateScope) -> R:
    return tables.select_rows("SELECT id, name FROM {names}", names=tables.read_table("names", scope.row))


def _list_totals(ledger: Ledger, scope: CertificateScope) -> pa.Table:
    """List the totals at each epoch at which they change; those of motifs are not proved."""
    import pyarrow as pa

    changes: dict[tuple[str, int, int], int] = {}
    for measure, k, epoch, _, diff in ledger.outputs.total_diffs(scope.row.revision):
        if measure != "motif" and epoch <= scope.last_epoch:
            key = measure, k if measure == "truss" else 0, max(epoch, scope.first_epoch)
            changes[key] = changes.get(key, 0) + diff
    values: dict[tuple[str, int], int] = {}
    rows = []
    for (measure, k, epoch), diff in sorted(changes.items()):
        values[measure, k] = values.get((measure, k), 0) + diff
        if diff:
            rows.append({"epoch": epoch, "measure": measure, "k": k, "value": values[measure, k]})
    types = {"epoch": pa.int64(), "measure": pa.string(), "k": pa.int64(), "value": pa.int64()}
    return pa.Table.from_pylist(rows, schema=pa.schema(types))


def _require_published_trussness(published: pa.Table, spans: pa.Table, scope: CertificateScope) -> None:
    """Raise `CheckFailed` where the published trussness is not that which the order proves."""

    def fingerprint_of(table: pa.Table, names: tuple[str, ...], diff: np.ndarray[Any, Any]) -> Fingerprint:
        return Fingerprint.from_rows([table[name].to_numpy() for name in names], diff)

    ended = spans.filter(spans["until"].is_valid())
    begun = fingerprint_of(spans, ("a", "b", "trussness", "epoch"), np.ones(spans.num_rows, np.int64))
    proved = begun + fingerprint_of(ended, ("a", "b", "trussness", "until"), np.full(ended.num_rows, -1, np.int64))
    if proved != fingerprint_of(published, ("a", "b", "k", "epoch"), published["n"].to_numpy()):
        raise CheckFailed(
            f"the published trussness of revision {scope.row.revision} differs from one that is computed again: there "
            "is no certificate.",
            "altneu audit",
        )


def describe_certificate(ledger: Ledger, scope: CertificateScope) -> dict[str, Any]:
    """Return the manifest, but for the digests of its files."""
    row, label = scope.row, ledger.home.schedule.format_label
    recorded = {
        name: each for name, each in ledger.outputs.fingerprints_of(row.revision).items() if name in PROVED_COLLECTIONS
    }
    prints = {
        name: {str(epoch): str(each) for epoch, each in sorted(by_epoch.items()) if epoch <= scope.last_epoch}
        for name, by_epoch in fold_fingerprints(recorded, scope.first_epoch).items()
    }
    return {
        "format": FORMAT,
        "revision": row.revision,
        "published_at": row.published_at,
        "run": row.run_id,
        "settings": ledger.runs.get(row.run_id).config,
        "first": scope.first_epoch,
        "last": scope.last_epoch,
        "first_label": label(scope.first_epoch),
        "last_label": label(scope.last_epoch),
        "batches": _list_landed(ledger, scope),
        "fingerprints": prints,
    }


def _list_landed(ledger: Ledger, scope: CertificateScope) -> list[dict[str, Any]]:
    """List the batches of a revision, with their files where these are still in the landing as they were read."""
    published = ledger.outputs.published_batches(scope.row.revision)
    published = {epoch: batch for epoch, batch in published.items() if epoch <= scope.last_epoch}
    landed = list_batches(ledger.home)
    digests = digest_files(ledger, [file for epoch in published if epoch in landed for file in landed[epoch].all_files])
    listed = []
    for epoch, batch in published.items():
        files: list[dict[str, Any]] = [
            {"name": file.name, "bytes": file.bytes, "sha256": digests[file]}
            for file in (landed[epoch].all_files if epoch in landed else ())
        ]
        digest = combine_digests(tag_digest(each["name"], each["sha256"]) for each in files) if files else EMPTY_DIGEST
        same = batch.digest == digest
        facts = {"epoch": epoch, "label": ledger.home.schedule.format_label(epoch), "revision": batch.revision}
        listed.append({**facts, "rows": batch.rows, "digest": batch.digest, "files": files if same else None})
    return listed


def _write_folder(folder: Path, tables: dict[str, pa.Table], manifest: dict[str, Any]) -> None:
    import pyarrow.parquet as pq

    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    shutil.copyfile(certificate_verifier.__file__, folder / VERIFIER)
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.suffix == ".parquet"
    }
    (folder / MANIFEST).write_text(json.dumps(manifest | {"files": digests}, indent=1) + "\n", "utf-8")


def _verify_folder(folder: Path, scope: CertificateScope) -> list[str]:
    """Run the verifier as a stranger runs it, and return what it prints. Raise `CheckFailed` where it finds a fault."""
    process = subprocess.run([sys.executable, str(folder / VERIFIER)], capture_output=True, text=True, check=False)
    if process.returncode:
        wrong = [line for line in process.stdout.splitlines() if line.startswith("WRONG")]
        why = "; ".join(wrong) or process.stderr.strip().splitlines()[-1]
        raise CheckFailed(f"revision {scope.row.revision} is not certified: {why}.", "altneu audit")
    return process.stdout.splitlines()


@contextmanager
def placed_folder(home: Home, scope: CertificateScope, output: Path | None) -> Iterator[tuple[Path, str]]:
    """Yield an empty folder to write into and the place to which it goes, as a whole, when the block has succeeded.

    The place is `output`, or by default a folder among the reports, where it replaces that of an earlier call.

    Raises:
        AltneuError: `output` exists.
    """
    place = str(output) if output else f"{home.reports_at}/{scope.folder}"
    local = filesystem.local_path(place)
    if output is not None and output.exists():
        raise AltneuError(f"{output} exists.", "altneu certify --output DIR   (a folder that is not there yet)")
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".certificate-", dir=local.parent if local else None) as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        yield made, place
        if local is None:
            filesystem.map_parallel(lambda file: filesystem.upload_file(file, f"{place}/{file.name}"), made.iterdir())
        else:
            shutil.rmtree(local, ignore_errors=True)
            made.rename(local)
