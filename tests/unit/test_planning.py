"""What a run takes up: each epoch by how it is landed and published, and what is refused with the command that helps.
No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.queries import RELATION_PREFIX
from altneu.pipeline.landing import local_landing
from altneu.pipeline.landing.epoch_states import EpochComparison, compare_with_ledger
from altneu.pipeline.run import planning
from altneu.pipeline.run.planning import Plan
from altneu.pipeline.run.query_changes import QueryChanges
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import EMPTY, RunKind, StagedBatch
from tests import home_helpers

HomeAndLedger = tuple[Home, Ledger]
ROW = [(1, 2, None, "upsert", 0)]


@pytest.fixture
def world(tmp_path: Path) -> HomeAndLedger:
    """Epochs 2, 4 and 6 are published as they are landed; the landing of 8 is new."""
    home, ledger = home_helpers.make(tmp_path / "home")
    for epoch in (2, 4, 6):
        home_helpers.put(home, epoch, ROW)
    publish(ledger)
    home_helpers.put(home, 8, ROW)
    return home, ledger


def publish(ledger: Ledger, since: int | None = None) -> None:
    """All that is landed, without its tables."""
    parent, found = compare_with_ledger(ledger)
    run_id = f"r{parent.revision + 1}"
    ledger.runs.create(run_id, parent.revision, epochs=[*found], config={})
    ledger.outputs.put_batches(
        run_id, [StagedBatch(e.epoch, e.digest or local_landing.EMPTY_DIGEST, 1, 1, 0) for e in found.values()]
    )
    ledger.publish_revision(
        run_id, parent.revision, frontier=max(found), snapshots={}, digest="digest", mark=None, since=since
    )


def change(home: Home, epoch: int) -> None:
    home_helpers.put(home, epoch, [(3, 4, None, "upsert", 0)])


def gone(home: Home, epoch: int) -> None:
    path = home.landing / f"epoch={epoch}"
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


def unfinished(home: Home, epoch: int, *, files: bool = True) -> None:
    home_helpers.put(home, epoch, ROW)
    path = home.landing / f"epoch={epoch}"
    (path / "more.csv.part").touch()
    if not files:
        (path / "rows.csv").unlink()


def everything(epoch: EpochComparison) -> bool:
    return True


def test_what_is_missing_or_changed_is_run(world: HomeAndLedger) -> None:
    home, ledger = world
    change(home, 4)
    gone(home, 6)
    unfinished(home, 9)
    plan = planning.plan_run(ledger, everything)
    assert [(each.epoch, each.state) for each in plan.epochs] == [
        (2, "published"),
        (4, "changed"),
        (6, "gone"),
        (8, "missing"),
        (9, "incomplete"),
    ]
    assert (plan.parent, plan.run, plan.kind) == (ledger.revisions.get(), (4, 8), RunKind.RUN)
    assert planning.plan_run(ledger, everything, force=True).run == (2, 4, 8)
    some = planning.plan_run(ledger, lambda epoch: epoch.epoch < 4, force=True)
    assert ([each.epoch for each in some.epochs], some.run) == ([2], (2,))
    assert (plan.scope.parent, plan.scope.epochs, plan.scope.kind) == (plan.parent, plan.run, plan.kind)


@pytest.mark.parametrize(
    ("first", "last", "inside"),
    [
        (None, None, [2, 4, 6, 8]),
        ("4", None, [4, 6, 8]),
        (None, "4", [2, 4]),
        ("4", "6", [4, 6]),
        ("4", "4", [4]),
        ("3", "3", []),
        ("0", "2", [2]),
        ("-3", "0", []),
    ],
)
def test_a_range_includes_both_ends(
    world: HomeAndLedger, first: str | None, last: str | None, inside: list[int]
) -> None:
    home, ledger = world
    found = planning.plan_run(ledger, planning.epochs_within(home, first, last))
    assert [epoch.epoch for epoch in found.epochs] == inside


def test_a_range_that_ends_before_it_begins_is_refused(world: HomeAndLedger) -> None:
    with pytest.raises(UsageError, match="the range 5 … 4 is empty: the first epoch is after the last"):
        planning.epochs_within(world[0], "5", "4")
    with pytest.raises(UsageError, match="the range 1 … 0 is empty"):
        planning.epochs_within(world[0], "1", "0")


def test_named_epochs_are_run_unless_they_are_published_as_they_are(world: HomeAndLedger) -> None:
    home, ledger = world
    change(home, 4)
    plan = planning.plan_epochs(ledger, [8, 2, 4])
    assert ([each.epoch for each in plan.epochs], plan.run) == ([8, 2, 4], (8, 4))
    assert (plan.parent, plan.kind) == (ledger.revisions.get(), RunKind.RUN)


def test_an_epoch_that_is_not_landed_is_refused_with_the_nearest(world: HomeAndLedger) -> None:
    home, ledger = world
    home_helpers.put(home, 20, ROW)
    with pytest.raises(UsageError) as caught:
        planning.plan_epochs(ledger, [2, 7])
    assert caught.value.what.startswith(f"epoch 7 is not landed (no {home.landing / 'epoch=7'}).")
    assert caught.value.what.endswith("The nearest landed epochs are 6, 8, 4.")
    assert caught.value.next == "altneu land FILE --columns src,dst --epoch 7"
    gone(home, 6)
    with pytest.raises(UsageError) as caught:
        planning.plan_epochs(ledger, [6])
    assert caught.value.what.endswith("The nearest landed epochs are 4, 8, 2.")  # 6 itself is none
    assert caught.value.next == "altneu run 6 --remove"


def test_where_nothing_is_landed_that_is_said(tmp_path: Path) -> None:
    _, ledger = home_helpers.make(tmp_path / "home")
    with pytest.raises(UsageError, match=r"epoch 7 is not landed .*\. Nothing is landed\.$"):
        planning.plan_epochs(ledger, [7], remove=True)


def test_what_is_gone_is_taken_back_when_that_is_asked_for(world: HomeAndLedger) -> None:
    home, ledger = world
    gone(home, 6)
    assert planning.plan_epochs(ledger, [6], remove=True).run == (6,)


def test_what_is_not_landed_completely_is_refused(world: HomeAndLedger) -> None:
    home, ledger = world
    unfinished(home, 4)
    for remove in (False, True):
        with pytest.raises(UsageError, match=r"epoch 4 is not landed completely: more\.csv\.part is still being"):
            planning.plan_epochs(ledger, [4], remove=remove)
    unfinished(home, 4, files=False)
    with pytest.raises(UsageError, match="epoch 4 is not landed completely"):
        planning.plan_epochs(ledger, [4])
    assert planning.plan_epochs(ledger, [4], remove=True).run == (4,)  # there is no file to wait for


def test_what_a_compaction_has_folded_is_neither_replaced_nor_taken_back(world: HomeAndLedger) -> None:
    home, ledger = world
    publish(ledger, since=6)
    change(home, 4)
    with pytest.raises(UsageError, match=r"epoch 4 cannot be replaced: a compaction has folded .* before epoch 6 "):
        planning.plan_epochs(ledger, [4])
    for epoch in (2, 6):
        gone(home, epoch)
    with pytest.raises(UsageError, match="epoch 2 cannot be replaced"):
        planning.plan_epochs(ledger, [2], remove=True)
    assert planning.plan_epochs(ledger, [6], remove=True).run == (6,)  # from `since` on the tables know all
    assert planning.plan_run(ledger, everything).run == ()


def test_a_rebuild_from_the_stored_rows_covers_what_is_published(world: HomeAndLedger) -> None:
    home, ledger = world
    gone(home, 2)
    change(home, 4)
    unfinished(home, 9)
    plan = planning.plan_rebuild(ledger, from_landing=False)
    assert ([each.epoch for each in plan.epochs], plan.run, plan.kind) == ([2, 4, 6], (), RunKind.REBUILD)


def test_a_rebuild_from_the_landing_needs_all_of_it(world: HomeAndLedger) -> None:
    home, ledger = world
    change(home, 4)
    plan = planning.plan_rebuild(ledger, from_landing=True)
    assert ([each.epoch for each in plan.epochs], plan.run) == ([2, 4, 6, 8], (2, 4, 6, 8))
    assert (plan.parent, plan.kind) == (ledger.revisions.get(), RunKind.RELOAD)
    for epoch in (2, 6):
        gone(home, epoch)
    with pytest.raises(UsageError, match=r"2 published epoch\(s\) are not in the landing any more \(the first: 2\)"):
        planning.plan_rebuild(ledger, from_landing=True)
    unfinished(home, 4)
    with pytest.raises(UsageError, match="epoch 4 is not landed completely: more"):
        planning.plan_rebuild(ledger, from_landing=True)


def test_where_nothing_is_published_nothing_is_rebuilt(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 1, ROW)
    for from_landing in (False, True):
        with pytest.raises(UsageError, match="nothing is published, so there is nothing to rebuild"):
            planning.plan_rebuild(ledger, from_landing=from_landing)


NEW_QUERY = QueryChanges(anew=(("pairs", "it is new"),), is_published=True)


@pytest.mark.parametrize(
    ("plan", "is_idle"),
    [
        (Plan(EMPTY, ()), True),
        (Plan(EMPTY, (), (4,)), False),
        (Plan(EMPTY, (), kind=RunKind.REBUILD), False),
        (Plan(EMPTY, (), queries=NEW_QUERY), False),
        (Plan(EMPTY, (), queries=replace(NEW_QUERY, is_published=False)), True),
    ],
)
def test_a_plan_without_work_is_idle(plan: Plan, *, is_idle: bool) -> None:
    assert plan.is_idle == is_idle


def test_published_epochs_with_files_of_a_relation_that_is_written_again_are_run() -> None:
    queries = QueryChanges(rewritten_tables=frozenset({f"{RELATION_PREFIX}people"}), relations=("people", "banks"))
    landed = {1: "people", 2: "banks", 3: "people", 4: ""}
    states = [EpochComparison(e, str(e), "published", relations=frozenset([name])) for e, name in landed.items()]
    assert planning._epochs_of_new_relations(states, queries) == {1, 3}
    others = [state._replace(state=name) for state in states for name in ("missing", "changed", "gone", "folded")]
    assert planning._epochs_of_new_relations(others, queries) == set()


@pytest.mark.parametrize(
    ("megabytes", "cut"),
    [
        ([], []),
        ([0.5, 0.5, 0.5], [(0, 1), (2,)]),  # full to the last byte
        ([0.5, 0.6, 0.4, 0.01], [(0,), (1, 2), (3,)]),
        ([5, 0, 0.1, 3], [(0,), (1, 2), (3,)]),  # one that is too large has a revision of its own
        ([0, 0, 0], [(0, 1, 2)]),
        ([1, 1, 0, 1], [(0,), (1, 2), (3,)]),
    ],
)
def test_a_plan_is_cut_into_revisions_of_so_many_megabytes(
    tmp_path: Path, megabytes: list[float], cut: list[tuple[int, ...]]
) -> None:
    home, _ = home_helpers.make(tmp_path / "home", "[ingest]\nmax_revision_mb = 1\n")
    epochs = tuple(EpochComparison(i, str(i), "missing", bytes=int(size * 2**20)) for i, size in enumerate(megabytes))
    plan = Plan(EMPTY, epochs, tuple(range(len(epochs))))
    assert planning.split_by_size(home, plan) == cut
    alone = Plan(EMPTY, epochs[::2], plan.run[::2])
    assert planning.split_by_size(home, replace(plan, run=alone.run)) == planning.split_by_size(
        home, alone
    )  # what is not run is free
