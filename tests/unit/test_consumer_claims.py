"""A consumer processes each published change of a partition once, whatever dies, is cleared, repeated or comes at once.

The reference is a plain fold: what a consumer has processed, added up over its runs, against the changes of the ledger.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.errors import ClaimConflict, RunInProgress, UsageError
from altneu.pipeline.reading.epoch_changes import changed_since
from altneu.pipeline.state import delivery_cursors
from altneu.pipeline.tasks import consumer_claims
from altneu.pipeline.tasks.consumer_claims import ConsumerPartition, PartitionChange

from .test_delivery_cursors import ClaimWorld

MONDAY = 12_520  # 2004-04-12


class Consumer:
    """A consumer of a home: each run is a task with a token, and its state in Airflow is in `states`."""

    def __init__(self, world: ClaimWorld, unit: str) -> None:
        self.world, self.unit = world, unit
        self.states: dict[str, str | None] = {}
        self.said: list[str] = []

    def where(self, partition: str) -> ConsumerPartition:
        return ConsumerPartition("report", self.unit, partition)

    def claim(self, task: str, partition: str, **how: Any) -> PartitionChange | None:
        path = str(self.world.home.path)
        return consumer_claims.claim_partition(
            path, self.where(partition), task, self.states.get, say=self.said.append, **how
        )

    def confirm(self, task: str, partition: str) -> None:
        consumer_claims.confirm_partition(str(self.world.home.path), self.where(partition), task)

    def process(self, task: str, partition: str, **how: Any) -> PartitionChange | None:
        """A whole run."""
        change = self.claim(task, partition, **how)
        if change is not None:
            self.states[task] = "success"
            self.confirm(task, partition)
        return change


@pytest.fixture
def world(tmp_path: Path) -> ClaimWorld:
    return ClaimWorld(tmp_path, '[epochs]\nevery = "1d"\n')


def test_a_week_is_processed_when_it_is_complete_and_once_for_a_correction_of_many_days(world: ClaimWorld) -> None:
    weeks = Consumer(world, "weeks")
    world.publish(*range(MONDAY, MONDAY + 6))
    assert weeks.process("a", "2004-04-12") is None  # Sunday is to come
    world.publish(MONDAY + 6)
    change = weeks.process("b", "2004-04-12")
    assert change is not None and (change["kind"], change["ranges"]) == ("new", "2004-04-12..2004-04-18")
    assert weeks.process("b", "2004-04-12") is None is weeks.process("c", "2004-04-12")  # cleared; another one
    world.publish(MONDAY + 6)
    world.publish(MONDAY + 9)  # of the next week
    change = weeks.process("d", "2004-04-12")
    assert change is not None
    assert (change["kind"], change["since"], change["revision"]) == ("corrected", 2, 4)
    assert change["epochs"] == {"2004-04-18": "corrected"}


def test_a_gap_does_not_hold_a_week_up(world: ClaimWorld) -> None:
    weeks = Consumer(world, "weeks")
    world.publish(MONDAY, MONDAY + 8)
    change = weeks.process("a", "2004-04-12")
    assert change is not None and change["epochs"] == {"2004-04-12": "new"}


def test_epochs_that_are_not_neighbours_are_one_change_of_the_graph(world: ClaimWorld) -> None:
    graph = Consumer(world, "graph")
    world.publish(MONDAY, MONDAY + 1)
    change = graph.process("a", "graph")
    assert change is not None and change["kind"] == "new"
    world.publish(MONDAY + 1)
    world.publish(MONDAY + 5, MONDAY + 9)
    world.publish(MONDAY + 9)
    change = graph.process("b", "graph")
    assert change is not None and change["kind"] == "corrected"
    assert change["ranges"] == "2004-04-13, 2004-04-17, 2004-04-21"
    assert change["epochs"] == {"2004-04-13": "corrected", "2004-04-17": "new", "2004-04-21": "new"}


def test_the_graph_begins_with_the_events_that_have_started_its_first_run(world: ClaimWorld) -> None:
    world.publish(MONDAY)
    world.publish(MONDAY + 1)
    change = Consumer(world, "graph").process("a", "graph", begin=1)
    assert change is not None and change["epochs"] == {"2004-04-13": "new"}


@pytest.mark.parametrize(
    ("state", "since"), [("success", 2), (None, 1), ("running", "in progress"), ("waiting", "nothing")]
)
def test_the_claim_of_another_run(world: ClaimWorld, state: str | None, since: int | str) -> None:
    """Ended and not confirmed; gone or failed; at work; waiting for a person, who gets this change, too."""
    epochs = Consumer(world, "epochs")
    world.publish(MONDAY)
    epochs.process("first", "2004-04-12")
    world.publish(MONDAY)
    assert epochs.claim("a", "2004-04-12") is not None
    epochs.states["a"] = state
    world.publish(MONDAY)
    if since == "in progress":
        with pytest.raises(RunInProgress, match="epoch 2004-04-12 up to revision 2"):
            epochs.claim("b", "2004-04-12")
    elif since == "nothing":
        assert epochs.claim("b", "2004-04-12") is None and "takes this change along" in epochs.said[-1]
        assert consumer_claims.has_claim(str(world.home.path), epochs.where("2004-04-12"), "a")
    else:
        change = epochs.claim("b", "2004-04-12")
        assert change is not None and change["since"] == since
        assert not consumer_claims.has_claim(str(world.home.path), epochs.where("2004-04-12"), "a")
        epochs.confirm("a", "2004-04-12")  # too late: the claim is the other one's
        assert consumer_claims.has_claim(str(world.home.path), epochs.where("2004-04-12"), "b")


def test_a_run_that_others_always_forestall_claims_nothing(world: ClaimWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish(MONDAY)
    monkeypatch.setattr(delivery_cursors, "compare_and_set", lambda *cursors: False)
    with pytest.raises(ClaimConflict, match="have claimed epoch 2004-04-12"):
        Consumer(world, "epochs").claim("a", "2004-04-12")


def test_what_is_released_is_in_the_next_change(world: ClaimWorld) -> None:
    epochs, path = Consumer(world, "epochs"), str(world.home.path)
    world.publish(MONDAY)
    epochs.process("a", "2004-04-12")
    world.publish(MONDAY)
    change = epochs.claim("b", "2004-04-12")
    assert change is not None and not consumer_claims.has_changed_since(path, epochs.where("2004-04-12"), change)
    consumer_claims.release_partition(path, epochs.where("2004-04-12"), "b")
    world.publish(MONDAY)
    assert consumer_claims.has_changed_since(path, epochs.where("2004-04-12"), change)
    change = epochs.process("c", "2004-04-12")
    assert change is not None and (change["since"], change["revision"]) == (1, 3)


def test_a_run_by_hand_processes_what_is_processed(world: ClaimWorld) -> None:
    epochs = Consumer(world, "epochs")
    world.publish(MONDAY)
    epochs.process("a", "2004-04-12")
    change = epochs.process("b", "2004-04-12", by_hand=True)
    assert change is not None and change["by_hand"] and change["epochs"] == {}


@pytest.mark.parametrize(
    ("unit", "partition"), [("weeks", "2004-04-13"), ("months", "2004"), ("epochs", "soon"), ("years", "2004")]
)
def test_a_partition_that_is_none(world: ClaimWorld, unit: str, partition: str) -> None:
    with pytest.raises(UsageError, match=f"{partition}|{unit}"):
        Consumer(world, unit).claim("a", partition)


def test_whatever_happens_each_change_is_processed_once(world: ClaimWorld) -> None:
    """Random publications, and runs that succeed, die before or after their success, are cleared, or mark it stale."""
    draw, graph, path = random.Random(55), Consumer(world, "graph"), str(world.home.path)
    processed: list[PartitionChange] = []
    for step in range(60):
        if draw.random() < 0.5:
            world.publish(*{MONDAY + draw.randrange(20) for _ in range(draw.randint(1, 3))})
        task = draw.choice([f"run {step}", f"run {max(step - 1, 0)}"])  # a run of its own, or one cleared before
        graph.states[task] = None
        change = graph.claim(task, "graph")
        if change is None:
            continue
        match draw.choice(["done", "done", "dies", "dies after its success", "stale"]):
            case "done":
                processed.append(change)
                graph.confirm(task, "graph")
            case "dies after its success":
                processed.append(change)
                graph.states[task] = "success"
                assert graph.claim(f"after {step}", "graph") is None  # it confirms what the other could not
            case "stale":
                consumer_claims.release_partition(path, graph.where("graph"), task)
    last = graph.process("last", "graph")
    processed += [last] if last else []
    newest = world.ledger.revisions.get().revision
    assert newest > 20 and processed[0]["since"] == 0 and processed[-1]["revision"] <= newest
    for one, other in itertools.pairwise(processed):
        assert one["revision"] <= other["since"], "the ranges of revisions do not overlap"
        assert not changed_since(world.ledger, one["revision"], other["since"]), "and leave nothing out"
    assert not changed_since(world.ledger, processed[-1]["revision"], newest)
