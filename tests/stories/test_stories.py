"""Any story told to a home ends in the truth: Hypothesis makes up landings, runs, corrections, rollbacks, compactions,
rebuilds, repairs, other settings, kills and races, and after every step readers of every kind say the same, and what is
true.

A step costs a run of the real product; graphs have five vertices. `ALTNEU_STORIES` and `ALTNEU_STEPS` say how many
stories and how long, `ALTNEU_SEED` tells the same ones again (the seed is printed), `ALTNEU_SHRINK=1` looks for the
shortest story that fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyspark.sql import SparkSession

from altneu.pipeline.checking import audit
from altneu.pipeline.errors import AltneuError, RunFailed, UsageError
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.run import planning, runner, stages
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages import get_stage
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.stories.world import Settings, StoryWorld

pytestmark = pytest.mark.usefixtures("tiny")

EPOCHS = st.integers(0, 3)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 4), st.integers(0, 4), st.integers(-1, 2), st.sampled_from(["upsert"] * 4 + ["delete"]),
        st.integers(0, 2),
    ),
    max_size=12,
)  # fmt: skip
RUN = [name for name in stages.NAMES[:-1] if name != "queries"]  # the stages of a home without queries
COMPUTING = [stage.name for stage in stages.STAGES if stage.before_publish]
RETENTION = ["", "[retention]\nrevisions = 2\n", "[retention]\nepochs = 2\n"]


class Killed(BaseException):
    """What a process that is killed leaves to do: nothing."""


def file(rows: list[tuple[int, int, int, str, int]]) -> tuple[Any, ...]:
    return tuple((src, dst, None if op == "delete" else w, op, seq) for src, dst, w, op, seq in rows)


class Story(RuleBasedStateMachine):
    spark: SparkSession  # set by the test

    @initialize(ids=st.sampled_from(["integer", "string"]), retention=st.sampled_from(RETENTION), rows=ROWS)
    def a_home(self, ids: str, retention: str, rows: Any) -> None:
        self.world = StoryWorld(self.spark, ids, retention)
        self.world.land(1, (file(rows),))

    def teardown(self) -> None:
        try:
            if hasattr(self, "world") and sys.exc_info()[0] is None:
                self.world.check_old()
        finally:
            if hasattr(self, "world"):
                self.world.close()

    @invariant()
    def all_readers_see_the_truth(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    # -- what refuses, and what then is not changed -----------------------------------------------------------------

    def _restated(self) -> bool:
        """Do the settings give another meaning to history than what is published?"""
        world = self.world
        return world.ledger.revisions.get().revision > 0 and world.newest.settings != world.settings

    def _folded(self, epoch: int) -> bool:
        since = self.world.ledger.revisions.get().since
        return since is not None and epoch < since

    def _run(self, epochs: list[int], remove: bool = False) -> None:
        """Run some epochs, as a person would; what must be refused is, and changes nothing."""
        world = self.world
        todo = [e for e in epochs if e in world.changed() or (remove and e not in world.landed)]
        if not todo:
            assert home_helpers.run(world.ledger, epochs, remove) is None
        elif self._restated() or any(map(self._folded, todo)):
            with pytest.raises(UsageError):
                home_helpers.run(world.ledger, epochs, remove)
        else:
            assert home_helpers.run(world.ledger, epochs, remove) is not None
            world.published(todo)

    # -- the landing ------------------------------------------------------------------------------------------------

    @rule(epoch=EPOCHS, rows=ROWS)
    def land_and_run(self, epoch: int, rows: Any) -> None:
        self.world.land(epoch, (file(rows),))
        self._run([epoch])

    @rule(batches=st.dictionaries(EPOCHS, ROWS, min_size=2, max_size=3))
    def land_and_run_some(self, batches: dict[int, Any]) -> None:
        for epoch, rows in batches.items():
            self.world.land(epoch, (file(rows),))
        self._run(list(batches))

    @rule(epoch=EPOCHS, rows=ROWS)
    def land_only(self, epoch: int, rows: Any) -> None:
        self.world.land(epoch, (file(rows),))

    @precondition(lambda self: self.world.landed)
    @rule(data=st.data(), rows=ROWS)
    def append_and_run(self, data: st.DataObject, rows: Any) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.world.landed)))
        self.world.land(epoch, (*self.world.landed[epoch], file(rows)))
        self._run([epoch])

    @precondition(lambda self: set(self.world.landed) & set(self.world.newest.batches))
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        world = self.world
        epoch = data.draw(st.sampled_from(sorted(set(world.landed) & set(world.newest.batches))))
        world.remove(epoch)
        with pytest.raises(UsageError, match="is not landed"):
            home_helpers.run(world.ledger, [epoch])
        self._run([epoch], remove=True)

    # -- runs over all ----------------------------------------------------------------------------------------------

    @rule()
    def backfill(self) -> None:
        world = self.world
        todo = [epoch for epoch in world.changed() if not self._folded(epoch)]
        plan = planning.plan_run(world.ledger, lambda epoch: True)
        if not todo:
            assert runner.execute_run(world.ledger, plan) is None
        elif self._restated():
            with pytest.raises(UsageError):
                home_helpers.run_as_planned(world.ledger, plan)
        else:
            home_helpers.run_as_planned(world.ledger, plan)
            world.published(todo)

    @precondition(lambda self: self.world.newest.batches)
    @rule(live_for=st.sampled_from([None, 1, 2]), positive=st.booleans(), motif=st.booleans())
    def other_settings(self, live_for: int | None, positive: bool, motif: bool) -> None:
        self.world.configure(Settings(live_for, positive, motif))
        self._rebuild(from_landing=False)

    @precondition(lambda self: self.world.newest.batches)
    @rule(from_landing=st.booleans())
    def rebuild(self, from_landing: bool) -> None:
        self._rebuild(from_landing)

    def _rebuild(self, from_landing: bool) -> None:
        world = self.world
        since = world.ledger.revisions.get().since
        gone = [e for e, batch in world.newest.batches.items() if e not in world.landed and batch != ()]
        folded = since is not None and self._restated()  # what is folded can be counted otherwise from the files alone
        if (from_landing and gone) or (not from_landing and folded):
            with pytest.raises(UsageError):
                plan = planning.plan_rebuild(world.ledger, from_landing=from_landing)
                home_helpers.run_as_planned(world.ledger, plan)
            world.configure(world.newest.settings)
            return
        home_helpers.run_as_planned(world.ledger, planning.plan_rebuild(world.ledger, from_landing=from_landing))
        world.published(sorted({*world.landed, *world.newest.batches}) if from_landing else [])

    @precondition(lambda self: self.world.newest.batches)
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        world = self.world
        readable = [
            r.revision for r in world.ledger.revisions.list_all() if r.snapshots and r.revision not in world.damaged
        ]
        revision = data.draw(st.sampled_from(sorted(readable)))
        if revision == world.ledger.revisions.get().revision:
            return
        rollback.roll_back(world.ledger, revision)
        world.rolled_back(revision)
        world.configure(world.newest.settings)

    @precondition(lambda self: self.world.newest.batches)
    @rule()
    def compact(self) -> None:
        compact(self.world.ledger, self.spark, grace=0)

    @precondition(lambda self: self.world.newest.batches and self.world.ledger.revisions.get().since is None)
    @rule(measure=st.sampled_from(["vertices", "edges", "triangles"]), wrong=st.sampled_from([-3, 5]))
    def repair(self, measure: str, wrong: int) -> None:
        """Somebody writes into the database: the audit finds it, and what `altneu repair` does then puts it right."""
        world, row = self.world, self.world.ledger.revisions.get()
        if self._restated() or row.revision in world.damaged:
            return
        world.damage(measure, wrong)
        assert row.frontier is not None
        warehouse = Warehouse(self.spark, world.home)
        found = audit.audit_published(warehouse, row, [row.frontier], lambda text: None)
        assert not all(check["passed"] for check in found)
        self._rebuild(audit.needs_landing(found))

    # -- kills and races ----------------------------------------------------------------------------------------------

    @rule(epoch=EPOCHS, rows=ROWS, stage=st.sampled_from(RUN), after=st.booleans())
    def killed(self, epoch: int, rows: Any, stage: str, after: bool) -> None:
        """A run that stops at a stage has published nothing, or all; then somebody types the same again."""
        world = self.world
        world.land(epoch, (file(rows),))
        if self._restated() or self._folded(epoch) or epoch not in world.changed():
            return
        with dying(stage, after), pytest.raises((Killed, RunFailed)):
            home_helpers.run(world.ledger, [epoch])
        if stage == "publish" and after:
            world.published([epoch])
        world.check()
        self._run([epoch])

    @rule(epochs=st.permutations([0, 1, 2, 3]), rows=ROWS, others=ROWS, stage=st.sampled_from(COMPUTING))
    def two_writers(self, epochs: list[int], rows: Any, others: Any, stage: str) -> None:
        """One is overtaken after a stage by another, which wins: it is told, and changes nothing."""
        world = self.world
        mine, theirs = epochs[:2]
        world.land(mine, (file(rows),))
        world.land(theirs, (file(others),))
        if self._restated() or self._folded(mine) or self._folded(theirs):
            return
        if not {mine, theirs} <= set(world.changed()):
            return
        run_id = runner.begin_run(world.ledger, planning.plan_epochs(world.ledger, [mine]))
        assert run_id is not None
        done = stages.NAMES[: stages.NAMES.index(stage) + 1]
        for name in done:
            runner.execute_stage(world.ledger, run_id, name)
        home_helpers.run(world.ledger, [theirs])
        world.published([theirs])
        with pytest.raises(AltneuError):
            for name in stages.NAMES[len(done) : -1]:
                runner.execute_stage(world.ledger, run_id, name)
        world.check()
        self._run([mine])


@contextmanager
def dying(stage: str, after: bool) -> Iterator[None]:
    """Inside, a stage raises what nobody catches, before it has worked or after."""
    row = get_stage(stage)
    module = row.load_module()
    work: Callable[[RunContext], Any] = getattr(module, row.function)

    def die(run: RunContext) -> Any:
        if after:
            work(run)
        raise Killed

    setattr(module, row.function, die)
    try:
        yield
    finally:
        setattr(module, row.function, work)


def tell(spark: SparkSession, stories: int, steps: int) -> None:
    number = seeds.one()
    print(f"ALTNEU_STORIES={stories} ALTNEU_STEPS={steps}")
    shrink = (Phase.shrink,) if os.environ.get("ALTNEU_SHRINK") else ()
    told = settings(
        max_examples=stories,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, *shrink),
    )
    story = seed(number)(type("Told", (Story,), {"spark": spark}))
    run_state_machine_as_test(story, settings=told)


def asked(name: str, default: int) -> int:
    return int(os.environ.get(name) or default)


@pytest.mark.dear("a step is a run, and readers of all kinds look after each")
@pytest.mark.law(2, 3, 4, 7, 9)
def test_short_stories(spark: SparkSession, unaudited: None) -> None:
    """The long stories have the audit stage; the model checks more."""
    tell(spark, asked("ALTNEU_STORIES", 3), asked("ALTNEU_STEPS", 2))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(12))
def test_long_stories(spark: SparkSession, part: int) -> None:
    """Each part tells its own, by a seed that is drawn for it."""
    tell(spark, asked("ALTNEU_STORIES", 4), asked("ALTNEU_STEPS", 12))
