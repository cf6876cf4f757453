"""Ledgers for the report's tests, written through the Ledger's own methods: no Spark, no files landed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from altneu.pipeline import report
from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.state import clock, lease
from altneu.pipeline.state import schema as db
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import StagedBatch, StageState
from altneu.pipeline.state.stage_results import from_json

DAILY = '[epochs]\nevery = "1d"\n'
DAY = 12_600  # 2004-07-01
HOSTILE = """<script>alert('x')</script>"><img src=x onerror=alert(1)> & {{ 7 * 7 }}"""

CHECKS = 30  # of each run of a long history

Totals = dict[int, dict[str, int]]  # epoch -> measure -> diff; measures vertices, edges, triangles, truss2, truss3, …


def check(epoch: int, name: str, passed: bool = True, **other: Any) -> dict[str, Any]:
    row = {
        "epoch": epoch,
        "suite": "edges",
        "name": name,
        "severity": "critical",
        "passed": passed,
        "meaning": f"What {name} means.",
        "remedy": f"what to do about {name}",
        "observed": "0 of 10 rows" if passed else "3 of 10 rows",
        "rows": [],
    }
    return row | other


def audit(epoch: int, wrong: str | None = None, **other: Any) -> list[dict[str, Any]]:
    """A comparison with the full recomputation at an epoch; `wrong` names the kind that differs."""
    kinds = ("vertex totals", "edge totals", "triangle totals", "trussness values of edges")
    suite = {"suite": "incremental_versus_full"}
    return [check(epoch, f"{kind} equal", kind != wrong, **suite, **(other if kind == wrong else {})) for kind in kinds]


def proof(epoch: int) -> list[dict[str, Any]]:
    """A proof of an epoch, as a run brings it that was published: nothing fails."""
    return [check(epoch, f"{kind} are proved", suite="proof") for kind in ("edges", "rows", "trussness values")]


def write(*arguments: Any, **options: Any) -> list[Path]:
    """As the pages' own, in a folder of this machine."""
    return [Path(page) for page in report.write_pages(*arguments, **options)]


def write_former(*arguments: Any) -> Path:
    """The same."""
    return Path(report.write_former(*arguments))


class Seed:
    """A home whose database is filled run by run."""

    def __init__(self, path: Path, toml: str = DAILY) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "altneu.toml").write_text(toml)
        self.home = Home.open(path)
        self.ledger = Ledger(self.home)
        self.ids: Iterator[int] = iter(range(1, 1_000_000))

    def run(
        self,
        landed: dict[int, tuple[int, int]],
        totals: Totals | None = None,
        checks: list[dict[str, Any]] | None = None,
        facts: dict[str, dict[str, Any]] | None = None,
        error: str | None = None,
        mark: str | None = None,
        kind: str = "run",
        state: str = "failed",
    ) -> str:
        """A run over `landed` (epoch -> rows, quarantined): published, or ended in `state` with `error`."""
        parent = self.ledger.revisions.get()
        run_id = f"run{next(self.ids):04d}"
        self.ledger.runs.create(
            run_id, parent.revision, epochs=sorted(landed) if kind == "run" else [], config={}, kind=kind
        )
        for place, stage in enumerate(("ingest", "edges", "triangles", "truss", "audit")):
            started = time.time() - 5 + place
            self.ledger.stages.record(run_id, stage, StageState.RUNNING, started)
            said = from_json(stage, (facts or {}).get(stage, {"rows": 3}))
            self.ledger.stages.record(run_id, stage, StageState.DONE, started, said)
        batches = [StagedBatch(epoch, f"{epoch}-{run_id}", 1, rows, bad) for epoch, (rows, bad) in landed.items()]
        self.ledger.outputs.put_batches(run_id, batches)
        rows = []
        for epoch, diffs in (totals or {}).items():
            for name, diff in diffs.items():
                truss = name.startswith("truss")
                rows.append(("truss" if truss else name, int(name[5:]) if truss else 0, epoch, diff))
        self.ledger.outputs.put_totals(run_id, ["vertices", "edges", "triangles", "truss"], rows)
        self.ledger.checks.put(run_id, parent.revision + 1, checks or [])
        if error is not None:
            self.ledger.runs.finish(run_id, state, error)
        else:
            frontier = max([*landed, *([] if parent.frontier is None else [parent.frontier])])
            self.ledger.publish_revision(
                run_id, parent.revision, frontier=frontier, snapshots={}, digest="digest", mark=mark
            )
        return run_id

    def hold(self, epoch: int) -> str:
        """A run of one epoch that waits for a decision; with other settings than the home has."""
        run_id = self.run({epoch: (3, 0)}, error="", state="running")
        with lease.hold_lease(self.ledger, run_id):
            self.ledger.approvals.request(run_id)
        return run_id

    def rollback(self, revision: int) -> None:
        """Publish the state of a revision again."""
        with self.ledger.database.engine.begin() as connection:  # a seeded revision pins no tables
            connection.execute(
                db.ledger.update().where(db.ledger.c.revision == revision).values(snapshots={"t": str(revision)})
            )
        rollback.roll_back(self.ledger, revision)

    def audit(self, results: list[dict[str, Any]]) -> None:
        """An audit outside a run, of what is published now."""
        self.ledger.checks.put(None, self.ledger.revisions.get().revision, results)

    def good_days(self, count: int, first: int = DAY) -> None:
        """Days that load well, each a little larger, in one run, and audited."""
        days = range(first, first + count)
        totals = {
            day: {"vertices": 2, "edges": 5, "triangles": 3, "truss2": 1, "truss3": 4}
            if day % 7
            else {"edges": -1, "truss2": -1}
            for day in days
        }
        self.run({day: (20 + day % 5, 0) for day in days}, totals)
        self.audit([row for day in days for row in audit(day)])


def long_history(path: Path, days: int) -> Seed:
    """A home with a day a run, each audited, with `CHECKS` checks: its rows written at once."""
    seed = Seed(path)
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("runs", "ledger", "batches", "totals", "stages", "checks")
    }
    for number in range(1, days + 1):
        day, run_id, at = DAY + number - 1, f"run{next(seed.ids):06d}", clock.timestamp()
        run = {
            "run_id": run_id,
            "parent": number - 1,
            "epochs": [day],
            "state": "published",
            "config": {},
            "kind": "run",
        }
        rows["runs"].append(run | {"started_at": at, "finished_at": at, "beat_at": at})
        line = {"revision": number, "parent": number - 1, "run_id": run_id, "frontier": day, "snapshots": {}}
        rows["ledger"].append(line | {"config_digest": "digest", "published_at": at})
        rows["batches"].append(
            {"run_id": run_id, "epoch": day, "digest": run_id, "files": 1, "rows": 20 + day % 5, "bad_rows": 0}
        )
        sums = [("vertices", 0), ("edges", 0), ("triangles", 0), ("truss", 2), ("truss", 3), ("truss", 4)]
        rows["totals"] += [
            {"run_id": run_id, "measure": measure, "k": k, "epoch": day, "diff": 1 + day % 3} for measure, k in sums
        ]
        facts = [("ingest", {"rows": 20}), ("audit", {"checks": CHECKS})]
        rows["stages"] += [
            {"run_id": run_id, "stage": name, "state": "done", "started_at": at, "seconds": 1.0, "facts": told}
            for name, told in facts
        ]
        results = [*audit(day), *(check(day, f"check {n}") for n in range(CHECKS))]
        rows["checks"] += [{"run_id": run_id, "revision": number, "at": at, **result} for result in results]
    with seed.ledger.database.engine.begin() as connection:
        for name, listed in rows.items():
            connection.execute(db.metadata.tables[name].insert(), listed)
    return seed


def every_state(path: Path) -> Seed:
    """A home that has an epoch in every state, and text of strangers in every field that holds any."""
    seed = Seed(path)
    seed.good_days(40)
    last = DAY + 39
    sample = [{"epoch": last + 1, "file": f"a{HOSTILE}.csv", "line": 7, "reason": "not a number", "text": HOSTILE}]
    moved = {str(last + 1): [{"vertex": HOSTILE, "degree_change": 4, "triangles_change": -2}]}
    seed.run(
        {last + 1: (90, 5)},
        {last + 1: {"vertices": 1, "edges": 9, "triangles": 4, "truss4": 6, "truss3": 3}},
        [
            check(
                last + 1, "rows as usual", False, suite="volumes", severity="warning", rows=[{"rows": 90, "usual": 22}]
            ),
            check(last + 1, "edges are unique"),
            *audit(last + 1),
        ],
        {"ingest": {"rows": 90, "quarantine_sample": sample}, "triangles": {"top_vertices": moved, "broadcast": True}},
        mark="warning",
    )
    seed.run({last + 2: (21, 0)}, {last + 2: {"edges": 2, "truss2": 2}}, audit(last + 2))
    why = [f"the upsert of a{HOSTILE}.csv line 3 makes the edge", "maintained as 4, recomputed as 5"]
    difference = {"key": f"edge {HOSTILE}", "maintained": 4, "recomputed": 5, "note": None, "why": why}
    seed.audit(audit(last + 2, "trussness values of edges", rows=[difference], observed="1 difference"))
    seed.run({last + 3: (22, 0)}, {last + 3: {"edges": 1, "truss2": 1}})
    seed.run(
        {last + 4: (23, 0)},
        {},
        [check(last + 4, "edges are unique", False, rows=[{"a": 1, "b": 2, "copies": 3, "note": HOSTILE}])],
        error=f"audit: 1 critical check(s) failed {HOSTILE}",
    )
    seed.ledger.runs.create("open", seed.ledger.revisions.get().revision, epochs=[last + 5], config={})
    return seed
