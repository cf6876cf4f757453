"""The commit protocol (docs/protocol.md), explored: real ledger and branches, every interleaving up to a bound.

Seven variants that are broken on purpose show that the search would find what it looks for. Of very many interleavings
the wide sweeps look at a random sample, another one each time; `ALTNEU_EXECUTIONS=100000` looks at all of them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import altneu.pipeline.storage.branches
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages import publish as publish_stage
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import Revision, encode_snapshots
from altneu.pipeline.state.revisions import RevisionStore
from altneu.pipeline.state.runs import RunStore
from altneu.pipeline.state.schema import ledger
from altneu.pipeline.state.stage_results import AuditFacts, PublishFacts
from tests import seeds
from tests.protocol.explore import Deviations, Violation, search
from tests.protocol.memory import Scheduler
from tests.protocol.world import Protocol, ProtocolWorld, protocol, see

MOST = int(os.environ.get("ALTNEU_EXECUTIONS", "1000"))  # executions with the greatest number of deviations

Works = dict[str, Callable[[ProtocolWorld], Any]]
Record = Callable[[str, object], None]

WRITER: Works = {"a": lambda world: world.write("a")}
OTHER: Works = {"b": lambda world: world.write("b")}
ZOMBIE: Works = {"later": lambda world: world.take_over("later", "run of a")}
COMPACTION: Works = {"compaction": lambda world: world.compact("compaction")}
ROLLBACK: Works = {"rollback": lambda world: world.roll_back("rollback", 1)}
READER: Works = {"reader": lambda world: world.look("reader")}

HOLDER: Works = {"holder": lambda world: world.hold("holder")}
APPROVAL: Works = {"ada": lambda world: world.decide("ada", "publish")}
REJECTION: Works = {"bob": lambda world: world.decide("bob", "discard")}

SCENES: dict[str, Works] = {
    "two writers": WRITER | OTHER,
    "a process that hung": WRITER | ZOMBIE,
    "a compaction and its readers": COMPACTION | READER | WRITER,
    "a rollback": ROLLBACK | COMPACTION,
    "a held run": HOLDER | APPROVAL | REJECTION,
    "a held run, overtaken": HOLDER | WRITER | APPROVAL,
    "a held run and a compaction": HOLDER | COMPACTION | APPROVAL,
    "all": WRITER | OTHER | COMPACTION | ROLLBACK | READER,
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Protocol]:
    with protocol(tmp_path) as made:
        yield made


def orders(names: list[str]) -> list[list[str]]:
    return [[*names[place:], *names[:place]] for place in range(len(names))]


def explore(world: Protocol, scene: str, bound: int, wide: bool) -> str:
    """Look at the executions of a scene with up to `bound` deviations; of those with so many, at `MOST` or fewer, which
    are drawn. Return how many they were."""
    works, possible, executions = SCENES[scene], 0, Counter[int]()
    chosen = orders(list(works)) if wide or len(works) < 3 else [list(works)]
    if scene == "two writers":  # who begins does not matter: they do the same
        chosen = chosen[:1]
    seed = seeds.one()
    draw = random.Random(seed)

    def choose(deviations: Deviations) -> Deviations:
        nonlocal possible
        possible += len(deviations)
        return draw.sample(deviations, min(len(deviations), MOST // len(chosen)))

    for execution in search(lambda: world.make_world(works), chosen, bound, wide, choose=choose):
        executions[len(execution.deviations)] += 1
    return f"{scene}: {executions[bound]:,} of {possible:,} executions with {bound} deviation(s), {seeds.NAME}={seed}"


QUICK = ("two writers", "a held run", "a compaction and its readers")


@pytest.mark.law(7, 9)
@pytest.mark.parametrize(
    "scene",
    [scene if scene in QUICK else pytest.param(scene, marks=pytest.mark.slow) for scene in SCENES if scene != "all"],
)
def test_the_invariants_hold_whatever_one_process_does(world: Protocol, scene: str) -> None:
    """One switch, crash or lost reply, before each step that writes."""
    explore(world, scene, 1, wide=False)


# -- broken on purpose -------------------------------------------------------------------------------------------------


def without_compare_and_swap(world: Protocol, patch: pytest.MonkeyPatch) -> None:
    """Who publishes second takes the next number, whatever was published since its run began."""
    publish = Ledger.publish_revision
    patch.setattr(RunStore, "require_newest_parent", lambda store, run_id: None)
    patch.setattr(
        Ledger,
        "publish_revision",
        lambda book, run, _, **more: publish(book, run, book.revisions.get().revision, **more),
    )


def ledger_first(world: Protocol, patch: pytest.MonkeyPatch) -> None:
    """The row comes before the data that it pins."""
    world.stages["audit"] = lambda run: AuditFacts(checks=0, failed=0, critical=0)

    def publish(run: RunContext) -> PublishFacts:
        facts = publish_stage.publish(run)
        see(run)
        return facts

    world.stages["publish"] = publish


def without_pin(world: Protocol, patch: pytest.MonkeyPatch) -> None:
    """What the branches hold is published, not what was audited."""
    head = lambda run, table: run.warehouse.branch_snapshot(table, run.run_id, run.base_snapshot(table))  # noqa: E731
    patch.setattr(RunContext, "verified_snapshot", head)


def without_grace(world: Protocol, patch: pytest.MonkeyPatch) -> None:
    """What nothing pins goes at once, whoever reads it."""
    world.grace = 0


def shared_branch(world: Protocol, patch: pytest.MonkeyPatch) -> None:
    """All runs write to one branch."""
    patch.setattr(altneu.pipeline.storage.branches, "branch_of", lambda run_id: "run_shared")


def held_given_up(world: Protocol, patch: pytest.MonkeyPatch) -> None:
    """A held run counts as one that nobody works on any more."""
    leftovers = RunStore._dead_records
    patch.setattr(RunStore, "_dead_records", lambda store: [*leftovers(store), *store.list_held()])


def shared_over_a_rollback(world: Protocol, patch: pytest.MonkeyPatch) -> None:
    """Revisions that were taken back share the snapshots of those that do not hold their rows."""

    def share(store: RevisionStore, row: Revision, own: int) -> None:
        with store.database.write_transaction(row.run_id) as connection:
            old = ledger.update().where(ledger.c.revision <= row.revision - own)
            connection.execute(old.values(snapshots=encode_snapshots(row.snapshots)))

    patch.setattr(RevisionStore, "share_snapshots", share)


Variant = Callable[[Protocol, pytest.MonkeyPatch], None]
READING = READER | COMPACTION
BROKEN: dict[str, tuple[Variant, Works, int, str]] = {  # how, where it shows, with how many deviations, as what
    "no compare-and-swap": (without_compare_and_swap, WRITER | OTHER, 1, "published on another parent than its own"),
    "ledger first": (ledger_first, WRITER, 0, "holds .*, not"),
    "no pin": (without_pin, WRITER | ZOMBIE, 2, "holds .*, not"),
    "expiry without grace": (without_grace, READING, 1, "cannot read on"),
    "held given up": (held_given_up, HOLDER | WRITER, 0, "its branch of .* is gone"),
    "shared over a rollback": (shared_over_a_rollback, ROLLBACK | WRITER, 0, "revision 2: .* holds .*, not"),
    "shared branch": (shared_branch, WRITER | OTHER, 2, "undisturbed|holds .*, not"),
}


@pytest.mark.law(7)
@pytest.mark.parametrize("variant", BROKEN)
def test_a_broken_variant_is_caught(world: Protocol, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    how, works, bound, found = BROKEN[variant]
    world.make_world(works)  # the two revisions before are sound
    how(world, monkeypatch)
    with pytest.raises(Violation, match=found):
        first = {"no pin": "write edges", "shared branch": "commit edges"}.get(variant, "")  # where these show
        wide = works is READING
        for _ in search(lambda: world.make_world(works), [list(works)], bound, wide, faults=False, first=first):
            pass


# -- wider, of what is much a random sample ----------------------------------------------------------------------------


class Steps:
    """A world in which each process takes three steps that write, and nothing can go wrong."""

    def start(self, steps: dict[str, Scheduler]) -> None:
        self.steps = steps

    def work(self, name: str) -> str:
        return "".join(self.steps[name](f"step {number}", True) for number in range(3))

    def check(self) -> None: ...

    def settle(self, outcomes: dict[str, str], faulty: bool) -> None: ...


def test_a_search_has_the_sample_that_is_chosen_and_all_with_fewer_deviations() -> None:
    def count_executions(choose: Callable[[Deviations], Deviations]) -> Counter[int]:
        executions = search(Steps, [["a", "b"]], 2, choose=choose)
        return Counter(len(execution.deviations) for execution in executions)

    whole, sample = count_executions(list), count_executions(lambda possible: possible[:7])
    assert whole[2] > 50 and whole[0] == 1
    assert sample == {0: 1, 1: whole[1], 2: 7}


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_one_deviation_at_any_step(world: Protocol, scene: str, record_property: Record) -> None:
    record_property("sample", explore(world, scene, 1, wide=True))


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_two_deviations(world: Protocol, scene: str, record_property: Record) -> None:
    record_property("sample", explore(world, scene, 2, wide=False))
