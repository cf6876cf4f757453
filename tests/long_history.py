"""Homes with a long history, without a run: the rows that runs leave in the database, and the batches that they read.

`fill_history` writes what `altneu run` leaves of every epoch: its batch, its totals, its fingerprints, the checks and
the stages of its run, as many as a run of real rows leaves of a batch without a fault. The tables are absent, since
nothing here reads them: for what commands, pages and plans cost after twenty thousand epochs.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from altneu.algorithms.fingerprint import Fingerprint
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing.batch_files import LandedFile
from altneu.pipeline.landing.local_landing import seal_folder
from altneu.pipeline.state import clock
from altneu.pipeline.state import schema as db
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import LANDED_TABLES
from altneu.pipeline.storage.table_schemas import TABLES

PER_RUN = 35  # checks of the tables that a run writes
PER_EPOCH = {"proof": 4, "volumes": 5}  # suite → checks of each epoch of a run
STAGES = ("ingest", "edges", "triangles", "truss", "audit", "publish", "report")
ROWS = 4
SIZES = {table: {"files": 3, "bytes": 4000, "rows": 100} for table in TABLES}


def fill_history(
    path: Path, epochs: int, *, at_once: int = 1, first: int = 0, revision: int = 1
) -> tuple[Home, Ledger]:
    """Make a home in which `epochs` epochs from `first` on are landed and published, `at_once` with each revision.

    `revision` is the first of these revisions, in a home that has those before it.
    """
    path.mkdir(parents=True, exist_ok=True)
    (path / "altneu.toml").write_text("[ingest]\nsettle = 0\n")
    home = Home.open(path)
    ledger, rows = Ledger(home, writes=True), {name: [] for name in db.metadata.tables}  # type: ignore[var-annotated]
    for number, begin in enumerate(range(first, first + epochs, at_once), revision):
        mine = range(begin, min(begin + at_once, first + epochs))
        _put_run(rows, number, mine)
        for epoch in mine:
            _put_epoch(rows, f"run{number:06d}", number, epoch, _land(home, rows, epoch))
    with ledger.database.engine.begin() as connection:
        for name, listed in rows.items():
            if listed:
                connection.execute(db.metadata.tables[name].insert(), listed)
    return home, ledger


def _land(home: Home, rows: dict[str, list[dict[str, Any]]], epoch: int) -> str:
    """Land a batch, an hour ago, and return its digest."""
    folder = home.landing / f"epoch={home.schedule.format_label(epoch)}"
    folder.mkdir(parents=True)
    file = folder / "rows.csv"
    file.write_text("src,dst\n" + "".join(f"{epoch + row},{epoch + row + 1}\n" for row in range(ROWS)))
    os.utime(file, (time.time() - 3600,) * 2)
    seal_folder(folder, ROWS)
    os.utime(folder, (time.time() - 3600,) * 2)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    rows["digests"].append({"path": str(file), "stamp": LandedFile.from_path(file).stamp, "digest": digest})
    return hashlib.sha256(digest.encode()).hexdigest()


def _put_run(rows: dict[str, list[dict[str, Any]]], revision: int, epochs: range) -> None:
    """Put what a run leaves that does not depend on the number of its epochs."""
    run_id, at = f"run{revision:06d}", clock.timestamp()
    pins = {table: str(9_000_000_000_000_000_000 + revision) for table in TABLES}
    run = {"run_id": run_id, "parent": revision - 1, "epochs": list(epochs), "state": "published", "config": {}}
    base = {"since": None, "snapshots": pins}
    times = {"started_at": at, "finished_at": at, "beat_at": at}
    rows["runs"].append(run | times | {"kind": "run", "base": base, "discarded": True})
    row = {"revision": revision, "parent": revision - 1, "run_id": run_id, "frontier": epochs[-1], "snapshots": pins}
    rows["ledger"].append(row | {"config_digest": "digest", "published_at": at, "hidden": []})
    facts: dict[str, dict[str, Any]] = {stage: {} for stage in STAGES}
    facts["ingest"] = {"rows": ROWS * len(epochs), "changed_rows": ROWS * len(epochs)}
    facts["edges"] = {"rows": ROWS * len(epochs), "first_epoch": epochs[0]}
    facts["triangles"] = {"rows": 8, "proposals": 9, "plan": "delta", "estimate": {"delta": 0.5, "bulk": 0.9}}
    facts["publish"] = {"revision": revision, "tables": SIZES}
    rows["stages"] += [
        {"run_id": run_id, "stage": stage, "state": "done", "started_at": at, "seconds": 1.0, "facts": facts[stage]}
        for stage in STAGES
    ]
    rows["fingerprints"] += [
        {"run_id": run_id, "collection": table, "epoch": 0, "fingerprint": str(Fingerprint())}
        for table in LANDED_TABLES
        if table != "upserts"
    ]
    rows["checks"] += [_check(run_id, revision, epochs[-1], at, "upserts", number) for number in range(PER_RUN)]


def _put_epoch(rows: dict[str, list[dict[str, Any]]], run_id: str, revision: int, epoch: int, digest: str) -> None:
    batch = {"run_id": run_id, "epoch": epoch, "digest": digest, "files": 1, "rows": ROWS, "bad_rows": 0}
    rows["batches"].append(batch)
    measures = [("vertices", 0), ("edges", 0), ("triangles", 0), ("wedges", 0), ("truss", 2), ("truss", 3)]
    rows["totals"] += [
        {"run_id": run_id, "measure": measure, "k": k, "epoch": epoch, "diff": 1 + epoch % 3} for measure, k in measures
    ]
    print_ = str(Fingerprint(1, epoch))
    rows["fingerprints"] += [
        {"run_id": run_id, "collection": table, "epoch": epoch, "fingerprint": print_}
        for table in ("upserts", "edges", "degrees", "triangle_counts", "trussness")
    ]
    at = rows["runs"][-1]["started_at"]
    rows["checks"] += [
        _check(run_id, revision, epoch, at, suite, number)
        for suite, many in PER_EPOCH.items()
        for number in range(many)
    ]


def _check(run_id: str, revision: int, epoch: int, at: str, suite: str, number: int) -> dict[str, Any]:
    texts = {"meaning": "What it means. " * 5, "remedy": "What to do about it. " * 4, "observed": "0 of 500 rows"}
    key = {"run_id": run_id, "revision": revision, "epoch": epoch, "suite": suite, "name": f"check {number}"}
    return {**key, **texts, "severity": "critical", "passed": True, "rows": [], "at": at}
