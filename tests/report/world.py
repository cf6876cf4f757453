"""A home without Spark whose truth is known: random histories of batches of edges, published through the ledger's own
methods, sometimes wrongly; and the document that each epoch must have then, made from the history alone.

Nothing here asks the product's queries: totals are counted from the edges of the batches, freshness is looked up in the
list of what was published. `match` compares a document with the expected one, field by field: a field that nobody
expects is a failure, so that every statement has a source.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from tests.report.seed import DAILY, DAY, Seed, audit, check, proof

SUMS = ("vertices", "edges", "triangles")
LIVE, DAYS, VERTICES = 3, 9, 6
Edges = frozenset[tuple[int, int]]
Point = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    edges: Edges
    bad: int
    revision: int
    digest: str


@dataclass(frozen=True)
class Published:
    """One revision: what it had, and what it changed."""

    revision: int
    run_id: str
    kind: str
    epochs: tuple[int, ...]  # whose batches it replaced
    batches: dict[int, Batch]
    errors: dict[int, int]  # edges too many from an epoch on: what a faulty program has written
    frontier: int
    at: str
    diffs: dict[int, dict[str, int]]  # epoch -> what it changed in the totals there

    def sums(self, epoch: int) -> dict[str, int]:
        """What it changed in the totals as of an epoch."""
        return {name: sum(diffs.get(name, 0) for e, diffs in self.diffs.items() if e <= epoch) for name in SUMS}


@dataclass(frozen=True)
class Check:
    """A result on record."""

    row: dict[str, Any]
    revision: int
    at: str
    run_id: str | None


@dataclass
class Tried:
    run_id: str
    state: str
    error: str
    parent: int
    epochs: tuple[int, ...]


def trussness(edges: Edges) -> dict[int, int]:
    """k → edges of trussness k, by deleting edges with too few triangles."""
    left, found, k = set(edges), {}, 2
    while left:
        while True:
            low = {
                (a, b)
                for a, b in left
                if sum(1 for c in range(VERTICES) if {tuple(sorted((a, c))), tuple(sorted((b, c)))} <= left) < k - 1
            }
            if not low:
                break
            left -= low
            found[k] = found.get(k, 0) + len(low)
        k += 1
    return dict(sorted(found.items()))


@dataclass
class ReportWorld:
    seed: Seed
    dice: random.Random
    revisions: list[Published] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    known: dict[tuple[int, int], Point] = field(default_factory=dict)  # counted before
    said: dict[tuple[int, int], Any] = field(default_factory=dict)  # what a revision said of an epoch, by the product

    @classmethod
    def make(cls, path: Path, seed: int, toml: str = DAILY) -> ReportWorld:
        return cls(Seed(path, toml), random.Random(seed))

    # -- what is so ---------------------------------------------------------------------------------------------

    @property
    def newest(self) -> Published | None:
        return self.revisions[-1] if self.revisions else None

    def of(self, revision: int) -> Published:
        return self.revisions[revision - 1]

    def truth(self, batches: dict[int, Batch], epoch: int) -> Point:
        edges: Edges = frozenset().union(*(b.edges for e, b in batches.items() if e <= epoch < e + LIVE))
        triangles = sum(1 for a, b, c in combinations(range(VERTICES), 3) if {(a, b), (b, c), (a, c)} <= edges)
        trusses = trussness(edges)
        sums = {"vertices": len({v for edge in edges for v in edge}), "edges": len(edges), "triangles": triangles}
        return {**sums, "max_trussness": max(trusses, default=0), "trusses": trusses, "motifs": {}}

    def shown(self, at: Published | None, epoch: int) -> Point:
        """What a revision published of an epoch: the truth, and what a faulty program made of it."""
        key = at.revision if at else 0, epoch
        if key not in self.known:
            point = self.truth(at.batches if at else {}, epoch)
            wrong = sum(n for e, n in at.errors.items() if e <= epoch) if at else 0
            self.known[key] = {**point, "edges": point["edges"] + wrong}
        return self.known[key]

    def right(self, epoch: int) -> bool:
        assert self.newest
        return self.shown(self.newest, epoch) == self.truth(self.newest.batches, epoch)

    # -- what happens -------------------------------------------------------------------------------------------

    def batch(self, revision: int, run: str) -> Batch:
        pairs = list(combinations(range(VERTICES), 2))
        edges = frozenset(self.dice.sample(pairs, self.dice.randint(1, 9)))
        return Batch(edges, self.dice.choice([0, 0, 2]), revision, run)

    def step(self) -> str:
        kinds = ["land", "land", "correct", "correct", "fault", "audit", "audit", "fail", "stop", "lose", "warn"]
        kind = self.dice.choice([*kinds, "rollback", "rebuild"] if self.revisions else ["land", "fail", "stop"])
        return f"{kind} {getattr(self, kind)()}"

    def some(self, known: bool) -> list[int]:
        have = list(self.newest.batches) if self.newest else []
        pool = have if known and have else range(DAY, DAY + DAYS)
        return sorted(self.dice.sample(list(pool), min(len(list(pool)), self.dice.randint(1, 2))))

    def publish(self, epochs: list[int], kind: str = "run", fault: bool = False) -> Published:
        before, revision = self.newest, len(self.revisions) + 1
        batches, errors = (dict(before.batches), dict(before.errors)) if before else ({}, {})
        if kind == "rebuild":
            errors = {}
        for epoch in epochs:
            batches[epoch] = self.batch(revision, f"{revision}")
        if fault:
            errors[epochs[0]] = errors.get(epochs[0], 0) + 1
        frontier = max([*epochs, *([before.frontier] if before else [])])
        made = Published(revision, "", kind, tuple(epochs), batches, errors, frontier, "", {})
        diffs = self.diffs(before, made)
        results = [self.result(check(epoch, "as many rows as usual", suite="volumes")) for epoch in epochs]
        mine = audit(frontier, None if self.shown(made, frontier) == self.truth(batches, frontier) else "edge totals")
        if all(row["passed"] for row in mine):  # else the run would not have published
            results += mine
        low = min(batches) if kind == "rebuild" else min(epochs)
        touched = [epoch for epoch in sorted({*batches, frontier}) if epoch >= low]
        if self.dice.random() < 0.6 and all(self.shown(made, e) == self.truth(batches, e) for e in touched):
            results += [row for epoch in touched for row in proof(epoch)]
        landed = {epoch: (len(batches[epoch].edges), batches[epoch].bad) for epoch in epochs}
        run_id = self.seed.run(landed, diffs, results, kind=kind)
        return self.add(made, run_id, diffs, results)

    def add(self, made: Published, run_id: str, diffs: Any, results: list[dict[str, Any]]) -> Published:
        row = self.seed.ledger.revisions.get()
        found = Published(
            made.revision, run_id, made.kind, made.epochs, made.batches, made.errors, made.frontier,
            row.published_at, diffs,
        )  # fmt: skip
        self.revisions.append(found)
        at = {stored.name: stored.at for stored in self.seed.ledger.checks.select(run_id=run_id)}
        self.checks += [Check(result, made.revision, at[result["name"]], run_id) for result in results]
        return found

    def diffs(self, before: Published | None, after: Published) -> dict[int, dict[str, int]]:
        """How the timelines of the totals differ, as diffs of both."""

        def timeline(at: Published | None) -> dict[tuple[int, str], int]:
            out: dict[tuple[int, str], int] = {}
            last: dict[str, int] = {}
            for epoch in range(DAY, DAY + DAYS + LIVE + 1):
                point = self.shown(at, epoch)
                flat = {name: point[name] for name in SUMS} | {f"truss{k}": n for k, n in point["trusses"].items()}
                for name in {*flat, *last}:
                    out[epoch, name] = flat.get(name, 0) - last.get(name, 0)
                last = flat
            return out

        old, new = timeline(before), timeline(after)
        out: dict[int, dict[str, int]] = {}
        for epoch, name in {*old, *new}:
            diff = new.get((epoch, name), 0) - old.get((epoch, name), 0)
            if diff:
                out.setdefault(epoch, {})[name] = diff
        return out

    def result(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"severity": "warning"}

    def land(self) -> list[int]:
        return list(self.publish(self.some(known=False)).epochs)

    def correct(self) -> list[int]:
        return list(self.publish(self.some(known=True)).epochs)

    def fault(self) -> list[int]:
        return list(self.publish(self.some(known=True), fault=True).epochs)

    def rebuild(self) -> int:
        return self.publish([], "rebuild").revision

    def rollback(self) -> int:
        before = self.newest
        if before is None or len(self.revisions) < 2:
            return 0
        revision = self.dice.randint(1, len(self.revisions) - 1)  # the newest itself is refused
        target = self.of(revision)
        self.seed.rollback(revision)
        row = self.seed.ledger.revisions.get()
        number = len(self.revisions) + 1
        changed = {
            e for e in {*before.batches, *target.batches}
            if before.batches.get(e) != target.batches.get(e)
        }  # fmt: skip
        batches = {e: Batch(b.edges, b.bad, number, b.digest) if e in changed else b for e, b in target.batches.items()}
        made = Published(
            number, "", "rollback", tuple(sorted(changed)), batches, target.errors, target.frontier, "", {}
        )
        self.add(made, row.run_id, self.diffs(before, made), [])
        return revision

    def audit(self) -> list[int]:
        assert self.newest
        epochs = self.some(known=True)
        results = []
        for epoch in epochs:
            if epoch <= self.newest.frontier:
                results += audit(epoch, None if self.right(epoch) else "edge totals")
        self.seed.audit(results)
        self.record(results)
        return epochs

    def warn(self) -> int:
        assert self.newest
        name = self.dice.choice(["as many rows as usual", "the edges grow as usual"])
        row = check(self.dice.choice(self.some(known=True)), name, False, suite="volumes", severity="warning")
        self.seed.audit([row])
        self.record([row])
        return int(row["epoch"])

    def record(self, results: list[dict[str, Any]]) -> None:
        assert self.newest
        if results:
            at = max(row.at for row in self.seed.ledger.checks.select(epoch=results[0]["epoch"]))
            self.checks += [Check(row, self.newest.revision, at, None) for row in results]

    def end(self, state: str) -> list[int]:
        epochs = self.some(known=self.dice.random() < 0.7)
        error = f"it ended {state}"
        run_id = self.seed.run({epoch: (4, 0) for epoch in epochs}, {}, error=error, state=state)
        self.tried.append(Tried(run_id, state, error, len(self.revisions), tuple(epochs)))
        return epochs

    def fail(self) -> list[int]:
        return self.end("failed")

    def stop(self) -> list[int]:
        return self.end("interrupted")

    def lose(self) -> list[int]:
        return self.end("superseded")

    # -- what the documents have to say -------------------------------------------------------------------------

    def label(self, epoch: int) -> str:
        return self.seed.home.schedule.format_label(epoch)

    def may_have_changed(self, epoch: int, since: int) -> list[int]:
        """The revisions after `since` that may have changed an epoch."""
        out, recomputed = [], False
        for one in self.revisions:
            everywhere = one.kind == "rebuild" or (one.kind == "rollback" and recomputed)
            recomputed = recomputed or one.kind == "rebuild"
            if one.revision > since and (everywhere or any(e <= epoch for e in self.reach(one))):
                out.append(one.revision)
        return out

    def reach(self, one: Published) -> list[int]:
        """The epochs of what it published that is visible."""
        return [*one.epochs, *(e for e in one.diffs if e <= self.revisions[-1].frontier)]

    def recomputed(self, since: int) -> bool:
        return any(one.kind == "rebuild" and one.revision > since for one in self.revisions)

    def batch_of(self, epoch: int) -> Batch | None:
        return self.newest.batches.get(epoch) if self.newest else None

    def newest_checks(self, epoch: int) -> tuple[list[Check], list[Check], list[Check]]:
        """The newest result of each check, those of the newest audit, and those of the newest proof."""
        mine = [one for one in self.checks if one.row["epoch"] == epoch]
        full, proofs = ([one for one in mine if one.row["suite"] == s] for s in ("incremental_versus_full", "proof"))
        last = {one.row["name"]: one for one in mine if one not in full and one not in proofs}
        newest = [[one for one in found if one.at == found[-1].at] for found in (full, proofs)]
        return list(last.values()), newest[0], newest[1]

    def told(self, one: Check, epoch: int) -> dict[str, Any]:
        """A check as its document: fresh, and whether it counts."""
        of_batch = one.row["name"] == "as many rows as usual"
        batch = self.batch_of(epoch)
        same = batch is not None and batch.revision <= one.revision
        fresh = same if of_batch else not self.may_have_changed(epoch, one.revision)
        stands = same if of_batch else not self.recomputed(one.revision)
        return {
            **one.row,
            "revision": one.revision,
            "at": one.at,
            "fresh": fresh,
            "counts": not one.row["passed"] and stands,
            "label": self.label(epoch),
        }

    def attempts(self, epoch: int) -> list[dict[str, Any]]:
        made = [
            self.attempt(one.run_id, "published", None, len(one.epochs), one.revision, one.kind)
            for one in self.revisions
            if epoch in one.epochs
        ]
        made += [
            self.attempt(one.run_id, one.state, one.error, len(one.epochs), None, "run")
            for one in self.tried
            if epoch in one.epochs
        ]
        return sorted(made, key=lambda one: one["finished_at"])

    def attempt(
        self, run_id: str, state: str, error: str | None, epochs: int, revision: int | None, kind: str
    ) -> dict[str, Any]:
        row = self.seed.ledger.runs.get(run_id)
        return {
            "run_id": run_id,
            "state": state,
            "error": error,
            "kind": kind,
            "started_at": row.started_at,
            "finished_at": row.finished_at,
            "seconds": positive,
            "epochs": epochs,
            "revision": revision,
        }

    def pending(self, epoch: int) -> Tried | None:
        touched = max((one.revision for one in self.revisions if epoch in one.epochs), default=0)
        told = [t for t in self.tried if epoch in t.epochs and t.state != "superseded" and t.parent >= touched]
        return told[-1] if told else None


def positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and value >= 0


def match(expected: Any, found: Any, path: str = "") -> None:
    """The same, field by field; where a function is expected it judges. A field that nobody expects is an error."""
    if isinstance(expected, dict):
        assert isinstance(found, dict), (path, found)
        assert {*expected} == {*found}, f"{path}: {sorted({*map(str, expected)} ^ {*map(str, found)})} without a source"
        for key, value in expected.items():
            match(value, found[key], f"{path}.{key}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(expected) == len(found), (path, expected, found)
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            match(one, other, f"{path}[{place}]")
    elif isinstance(expected, Callable):
        assert expected(found), (path, found)
    else:
        assert expected == found, (path, expected, found)


__all__ = ["DAY", "DAYS", "SUMS", "ReportWorld", "match", "median", "positive"]
