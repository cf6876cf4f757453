"""Each published change is told once, whoever has published it and whichever tasks tell it, die, or come at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.errors import ClaimConflict, RunInProgress, is_transient
from altneu.pipeline.state import delivery_cursors
from altneu.pipeline.state.records import StagedBatch
from altneu.pipeline.tasks import epoch_event_claims
from altneu.pipeline.tasks.base import PublishedRun
from tests import home_helpers
from tests.postgres import DATABASE_KINDS

ASSET = "altneu://graph/epochs"


class ClaimWorld:
    """A home whose revisions are written without Spark: a revision changes its epochs, and all later ones."""

    def __init__(self, path: Path, toml: str) -> None:
        self.home, self.ledger = home_helpers.make(path / "home", toml)
        self.states: dict[str, str | None] = {}

    def publish(self, *epochs: int) -> int:
        parent = self.ledger.revisions.get()
        run_id, revision = f"run{parent.revision + 1}", parent.revision + 1
        self.ledger.runs.create(run_id, parent.revision, epochs=list(epochs), config={})
        self.ledger.outputs.put_batches(run_id, [StagedBatch(epoch, f"{epoch} {run_id}", 1, 3, 0) for epoch in epochs])
        frontier = max([*epochs, *([] if parent.frontier is None else [parent.frontier])])
        self.ledger.publish_revision(
            run_id, parent.revision, frontier=frontier, snapshots={"edges": revision}, digest="digest", mark=None
        )
        return revision

    def claim(self, task: str, own: int | None = None) -> dict[str, str]:
        """Epoch → what is told of it, by this task."""
        published = None if own is None else PublishedRun(run_id="", revision=own, epochs=[], labels=[], reruns=0)
        found = epoch_event_claims.claim_changes(str(self.home.path), ASSET, task, self.states.get, published)
        return {label: str(each["kind"]) for label, each in found["partitions"].items()}

    def deliver_changes(self, task: str, own: int | None = None) -> dict[str, str]:
        """Claim the changes for a task, and confirm that Airflow has them. Return epoch → what it is told."""
        said = self.claim(task, own)
        self.states[task] = "success"
        epoch_event_claims.confirm_changes(str(self.home.path), ASSET, task)
        return said


@pytest.fixture(params=DATABASE_KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> ClaimWorld:
    uri = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    return ClaimWorld(tmp_path, f'[storage]\ndatabase = "{uri}"\n' if uri else "")


def test_what_others_have_published_is_told_with_the_own(world: ClaimWorld) -> None:
    world.publish(1)  # of before anybody followed
    assert world.deliver_changes("a", world.publish(2, 3)) == {"2": "new", "3": "new"}
    assert world.deliver_changes("b") == {}
    world.publish(4)
    world.publish(3)
    assert world.deliver_changes("c", world.publish(5)) == {"3": "corrected", "4": "new", "5": "new"}
    assert world.deliver_changes("d", 5) == {} == world.deliver_changes("d")  # again, of the same run


def test_a_first_look_begins_with_what_is_published_then(world: ClaimWorld) -> None:
    world.publish(1)
    assert world.deliver_changes("a") == {}
    world.publish(2)
    assert world.deliver_changes("b") == {"2": "new"}


@pytest.mark.parametrize(
    ("state", "again"),
    [
        ("success", {"3": "new"}),  # it was told, and died before it could say so
        ("failed", {"2": "new", "3": "new"}),
        ("up_for_retry", {"2": "new", "3": "new"}),
        (None, {"2": "new", "3": "new"}),  # its run was deleted
        ("running", None),
    ],
)
def test_the_claim_of_a_task_that_did_not_confirm(
    world: ClaimWorld, state: str | None, again: dict[str, str] | None
) -> None:
    world.publish(1)
    assert world.deliver_changes("first") == {}
    world.publish(2)
    assert world.claim("a") == {"2": "new"}
    world.states["a"] = state
    world.publish(3)
    if again is None:
        with pytest.raises(RunInProgress):
            world.claim("b")
        world.states["a"], again = "success", {"3": "new"}
    assert world.deliver_changes("b") == again
    epoch_event_claims.confirm_changes(str(world.home.path), ASSET, "a")  # late: its claim is not its own any more
    assert delivery_cursors.read_cursor(world.ledger, ASSET) == delivery_cursors.DeliveryCursor(3)
    assert world.deliver_changes("c") == {}


def test_a_task_that_is_tried_again_tells_its_claim(world: ClaimWorld) -> None:
    assert world.claim("a", world.publish(1)) == {"1": "new"}
    world.publish(1)
    assert world.deliver_changes("a", 1) == {"1": "new"}  # with the newest totals: it was never told before
    assert world.deliver_changes("b") == {}


def test_of_many_tasks_at_once_each_change_is_told_by_one(world: ClaimWorld) -> None:
    world.publish(1)
    world.deliver_changes("first")
    world.publish(*range(2, 8))
    ready, said = threading.Barrier(6), list[Any]()

    def claim_at_once(task: str) -> None:
        ready.wait()
        world.states[task] = "running"
        try:
            said.append(world.claim(task))
        except RunInProgress as error:
            said.append(error)

    threads = [threading.Thread(target=claim_at_once, args=(f"task {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 6 and [each for each in said if isinstance(each, dict)] == [
        {str(epoch): "new" for epoch in range(2, 8)}
    ]


def test_a_task_that_others_always_forestall_claims_nothing(world: ClaimWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_cursors, "compare_and_set", lambda *cursors: False)
    with pytest.raises(ClaimConflict, match=f"have claimed the events, {epoch_event_claims.TRIES} times") as refused:
        world.claim("a", world.publish(1))
    assert is_transient(refused.value) and refused.value.next == "clear this task"


@pytest.mark.parametrize(
    ("steps", "kinds"),
    [
        ([[2], [2]], {"2": "new"}),
        ([[1], [1]], {"1": "corrected"}),
        ([[3], [2]], {"2": "new", "3": "new"}),  # restated before anybody had heard of it
        ([[1]], {"1": "corrected"}),
    ],
)
def test_what_is_said_of_several_publications(
    world: ClaimWorld, steps: Iterable[Iterable[int]], kinds: dict[str, str]
) -> None:
    world.publish(1)
    world.deliver_changes("first")
    for epochs in steps:
        world.publish(*epochs)
    assert world.deliver_changes("a") == kinds
