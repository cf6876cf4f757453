"""Horizons that move while a history is corrected, held, rolled back, compacted and expires: what a run would read from
its first epoch on gives what all rows give, and both give what a plain reference counts. Without Spark."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.run import approval, runner
from altneu.pipeline.state import clock, fingerprint_sums
from altneu.pipeline.state.records import Revision
from altneu.pipeline.storage.horizons import table_horizon
from altneu.pipeline.storage.table_schemas import table_columns
from tests import home_helpers, reference, seeds
from tests.builders import draw_batch
from tests.ledger_only import LedgerOnly
from tests.reference import Row

LIVE_FOR, OWN = 3, 2
VERTICES = range(6)
Rows = list[dict[str, Any]]
History = dict[int, list[Row]]


@dataclass
class MovingHistory:
    """A home, what was landed at each of its revisions, and the hours that have gone by."""

    owner: LedgerOnly
    path: Path
    patch: pytest.MonkeyPatch
    landed: History = field(default_factory=dict)
    expected: dict[int, History] = field(default_factory=dict)
    hours: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(seeds.one())
        settings = f"[edges]\nlive_for = {LIVE_FOR}\n[retention]\nrevisions = {OWN}\n"
        self.home, self.ledger = home_helpers.make(self.path, settings)
        began = clock.read_clock()
        self.patch.setattr(clock, "read_clock", lambda: began + timedelta(hours=self.hours))

    @property
    def frontier(self) -> int:
        return max(self.landed, default=0)

    def land(self, *epochs: int) -> None:
        for epoch in epochs:
            self.landed[epoch] = draw_batch(self.rng, VERTICES, self.rng.randrange(1, 7), deletes=0.25)
            home_helpers.put(self.home, epoch, self.landed[epoch])

    def record_revision(self) -> None:
        self.expected[self.ledger.revisions.get().revision] = copy.deepcopy(self.landed)

    # -- what happens ------------------------------------------------------------------------------------------------

    def publish(self, *epochs: int) -> None:
        self.land(*epochs)
        home_helpers.run(self.ledger, epochs)
        self.record_revision()

    def append(self) -> None:
        self.publish(*range(self.frontier + 1, self.frontier + 1 + self.rng.randrange(1, 4)))

    def correct_before_horizon(self) -> None:
        self.publish(self.rng.randrange(1, max(self.frontier - LIVE_FOR, 1) + 1))

    def correct_after_horizon(self) -> None:
        self.publish(self.rng.randrange(max(self.frontier - LIVE_FOR + 1, 1), self.frontier + 1))

    def hold(self) -> None:
        """Hold a run of two epochs, of which one is new, and publish or reject it."""
        before, epochs = copy.deepcopy(self.landed), [self.rng.randrange(1, self.frontier + 1), self.frontier + 1]
        self.land(*epochs)
        held = home_helpers.hold(self.ledger, epochs)
        self.assert_as_expected()
        if self.rng.random() < 0.5:
            approval.approve_run(self.ledger, held, None, None)
            runner.publish_held_run(self.ledger, held.run_id)
            self.record_revision()
        else:
            approval.reject_run(self.ledger, held, None, None)
            self.land_again(before)

    def land_again(self, landed: History) -> None:
        """Put back into the landing what a revision has taken from it."""
        for epoch in self.landed.keys() - landed.keys():
            home_helpers.remove(self.home, epoch)
        self.landed = copy.deepcopy(landed)
        for epoch, rows in landed.items():
            home_helpers.put(self.home, epoch, rows)

    def roll_back(self) -> None:
        newest = self.ledger.revisions.get().revision
        targets = [number for number in self.ledger.revisions.list_readable() if 0 < number < newest]
        if targets:
            target = self.rng.choice(targets)
            rollback.roll_back(self.ledger, target)
            self.land_again(self.expected[target])
            self.record_revision()

    def compact(self) -> None:
        compact(self.ledger, None, grace=0)  # type: ignore[arg-type]

    def expire(self) -> None:
        """Let hours go by, after which what only old revisions had goes with the next publications."""
        self.hours += 5
        self.append()

    # -- what has to hold --------------------------------------------------------------------------------------------

    def assert_as_expected(self) -> None:
        for number in self.ledger.revisions.list_readable():
            row, landed = self.ledger.revisions.get(number), self.expected[number]
            epochs = range(1, max(landed) + LIVE_FOR + 1)
            graphs = {epoch: reference.edges(landed, epoch, LIVE_FOR) for epoch in epochs}
            for first in epochs:
                self.assert_horizon(row, graphs, first)
            self.assert_fingerprints(number)

    def assert_horizon(self, row: Revision, graphs: dict[int, set[reference.Edge]], first: int) -> None:
        read = {table: self.read_from_horizon(row, table, first) for table in ("upserts", "edges", "trussness")}
        whole = self.read_rows(row, "trussness")
        for epoch in range(first, max(graphs) + 1):
            assert edges_of_upserts(read["upserts"], epoch) == graphs[epoch], (row.revision, first, epoch)
            alive = sum_rows(read["edges"], ("a", "b"), lambda each, at=epoch: each["epoch"] <= at < each["until"])
            assert alive == Counter(dict.fromkeys(graphs[epoch], 1)), (row.revision, first, epoch)
            before = sum_rows(whole, ("a", "b", "k"), lambda each: each["epoch"] < first)
            before.update(sum_rows(read["trussness"], ("a", "b", "k"), lambda each, at=epoch: each["epoch"] <= at))
            if epoch <= (row.frontier or 0):
                trussness = {(a, b, k): 1 for (a, b), k in reference.trussness(graphs[epoch]).items()}
                assert {key: n for key, n in before.items() if n} == trussness, (row.revision, first, epoch)

    def assert_fingerprints(self, number: int) -> None:
        whole = self.ledger.outputs.fingerprints_of(number)
        assert self.ledger.outputs.known_tables(number) == set(whole)
        for first in (1, self.frontier - LIVE_FOR, self.frontier + 1):
            assert self.ledger.outputs.fingerprints_since(number, first) == fingerprint_sums.sum_before(whole, first)

    def read_rows(self, row: Revision, table: str) -> Rows:
        names, tables = table_columns(self.home, table), self.owner.tables(self.home)
        return [dict(zip(names, each, strict=True)) for each in tables.shown(table, row.snapshots[table], row)]

    def read_from_horizon(self, row: Revision, table: str, first: int) -> Rows:
        horizon = table_horizon(table, first, LIVE_FOR)
        assert horizon is not None
        return [each for each in self.read_rows(row, table) if each[horizon.column] >= horizon.lower_bound]


def sum_rows(rows: Rows, key: tuple[str, ...], counts: Callable[[dict[str, Any]], bool]) -> Counter[tuple[Any, ...]]:
    sums: Counter[tuple[Any, ...]] = Counter()
    for each in rows:
        if counts(each):
            sums[tuple(each[name] for name in key)] += each["diff"]
    return Counter({data: number for data, number in sums.items() if number})


def edges_of_upserts(rows: Rows, epoch: int) -> set[reference.Edge]:
    """The edges at an epoch by stored upserts, whose diffs take back what was replaced."""
    batches: History = {}
    names = ("src", "dst", "op", "seq", "epoch")
    for (src, dst, op, seq, at), number in sum_rows(rows, names, lambda each: True).items():
        batches.setdefault(at, []).extend([(src, dst, None, op, seq)] * number)
    return reference.edges(batches, epoch, LIVE_FOR)


STEPS: list[Callable[[MovingHistory], None]] = [
    MovingHistory.append,
    MovingHistory.correct_before_horizon,
    MovingHistory.correct_after_horizon,
    MovingHistory.hold,
    MovingHistory.roll_back,
    MovingHistory.compact,
    MovingHistory.expire,
]


def play(history: MovingHistory, more: int) -> None:
    """Take every step once, in any order, and some more."""
    history.append()
    steps = history.rng.sample(STEPS, len(STEPS)) + history.rng.choices(STEPS, k=more)
    for step in steps:
        step(history)
        history.assert_as_expected()


@pytest.mark.law(9, 11)
def test_what_is_read_from_a_moving_horizon_on_is_what_all_rows_say(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(MovingHistory(ledger_only, tmp_path / "home", monkeypatch), 0)


@pytest.mark.slow
@pytest.mark.law(9, 11)
@pytest.mark.parametrize("number", range(6))
def test_many_histories_whose_horizons_move(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    play(MovingHistory(ledger_only, tmp_path / f"home{number}", monkeypatch), 12)
