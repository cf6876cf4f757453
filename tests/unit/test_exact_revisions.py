"""The revisions whose snapshots show exactly their rows, against a model that knows what each snapshot contains."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from altneu.pipeline.state.records import EMPTY, Revision
from altneu.pipeline.state.revisions import exact_revisions, republished_revision
from tests import seeds


@dataclass
class Model:
    """A history of revisions. A snapshot is the set of the revisions whose rows are in it."""

    rows: list[Revision] = field(default_factory=lambda: [EMPTY])
    contents: list[frozenset[int]] = field(default_factory=lambda: [frozenset()])

    def shown_revisions(self, row: Revision) -> frozenset[int]:
        """The revisions whose rows a reader of the ledger sees."""
        taken_back = {one for first, last in row.hidden for one in range(first, last + 1)}
        own = {one.revision for one in self.rows[1 : row.revision + 1] if republished_revision(one) is None}
        return frozenset(own - taken_back)

    def snapshot(self, content: frozenset[int]) -> dict[str, int]:
        self.contents.append(content)
        return {"edges": len(self.contents) - 1}

    def content(self, row: Revision) -> frozenset[int]:
        return self.contents[row.snapshots["edges"]] if row.snapshots else frozenset()

    def publish(self) -> None:
        parent = self.rows[-1]
        number = parent.revision + 1
        row = replace(parent, revision=number, parent=parent.revision, frontier=1)
        self.rows.append(replace(row, snapshots=self.snapshot(self.content(parent) | {number})))

    def roll_back(self, revision: int, former: bool) -> None:
        """Publish a former revision again; the version before took its snapshots also where these have other rows."""
        target, parent = self.rows[revision], self.rows[-1]
        hidden = (*target.hidden, (revision + 1, parent.revision))
        pins = target.snapshots
        if revision and not former and self.content(target) != self.shown_revisions(target):
            pins = self.snapshot(self.shown_revisions(target))
        row = replace(target, revision=parent.revision + 1, parent=parent.revision, hidden=hidden, snapshots=pins)
        self.rows.append(row)

    def compact(self, retained: int) -> None:
        """Let the newest revisions share one snapshot, as far back as there was no rollback, and drop the others."""
        newest = self.rows[-1]
        if newest.frontier is None:
            return
        oldest = newest.revision - retained + 1
        pins = self.snapshot(self.shown_revisions(newest))
        rollbacks = [row.revision for row in self.rows if republished_revision(row) is not None]
        for number in range(max([1, oldest, *rollbacks]), newest.revision + 1):
            if self.rows[number].frontier is not None:
                self.rows[number] = replace(self.rows[number], snapshots=pins)
        for number in range(1, oldest):
            self.rows[number] = replace(self.rows[number], snapshots={})


def play(rng: random.Random, steps: int, former: bool) -> Model:
    model = Model()
    for _ in range(steps):
        kind = rng.random()
        readable = [row.revision for row in model.rows[:-1] if row.snapshots or row.frontier is None]
        if kind < 0.6 or not readable:
            model.publish()
        elif kind < 0.8:
            target = rng.choice(readable)
            if model.rows[target].frontier is not None or model.rows[-1].frontier is not None:
                model.roll_back(target, former and rng.random() < 0.5)
        else:
            model.compact(20 if former else rng.randint(1, 8))
    return model


@pytest.mark.parametrize("former", [False, True], ids=["rollbacks of today", "rollbacks of the version before"])
def test_a_revision_is_exact_if_its_snapshots_have_the_rows_that_it_shows(former: bool) -> None:
    rng = random.Random(seeds.one())
    for _ in range(400):
        model = play(rng, rng.randint(1, 12), former)
        rows = [row for row in model.rows[1:] if row.snapshots or row.frontier is None]
        wanted = {
            row.revision for row in rows if row.frontier is None or model.content(row) == model.shown_revisions(row)
        }
        exact = exact_revisions(model.rows[1:])
        assert exact <= wanted, model.rows
        assert former or exact == wanted, model.rows


def test_a_rollback_that_reads_rows_of_later_revisions_is_not_exact_once_its_revision_is_dropped() -> None:
    model = Model()
    model.publish()
    model.publish()
    model.compact(20)
    model.roll_back(1, former=True)
    model.roll_back(1, former=False)
    model.publish()
    model.compact(4)
    assert [bool(row.snapshots) for row in model.rows] == [False, False, True, True, True, True]
    assert model.content(model.rows[3]) == {1, 2} and model.shown_revisions(model.rows[3]) == {1}
    assert exact_revisions(model.rows[1:]) == {2, 5}


def test_a_rollback_names_the_revision_that_it_publishes_again() -> None:
    model = Model()
    for _ in range(4):
        model.publish()
    model.roll_back(2, former=False)
    model.publish()
    assert [republished_revision(row) for row in model.rows] == [None, None, None, None, None, 2, None]
    model.roll_back(6, former=False)
    model.roll_back(0, former=False)
    assert [republished_revision(row) for row in model.rows[7:]] == [6, 0]
