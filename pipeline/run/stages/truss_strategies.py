"""The strategies of the truss stage: each computes the changes of the trussness in its own way, or says why it cannot.

`run_with_fallbacks` runs the strategy of the plan choice, and the fallback of each that cannot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from pyspark.sql import DataFrame

from altneu.algorithms.graph import truss, truss_bsp, truss_local_update
from altneu.algorithms.graph.truss_plan import PlanUnfit, ReplayRequest, TrussCheckpoint, TrussResult, read_result

from ...home import memory_budget
from ...state.fingerprint_sums import RunningFingerprint
from ...state.stage_results import SavedCheckpoint
from ...storage import bsp_round_tables
from ..choices.plan_choice import Strategy
from ..choices.plan_choices import TrussChoice
from ..run_context import RunContext
from . import resume_inputs, truss_checkpoint


@dataclass(frozen=True)
class TrussStrategy(ABC):
    """One way to compute the changes of the trussness.

    plan: its name in the facts of the stage; otherwise: what is done where it cannot, in words; fallback: the strategy
    that does it. `stack` holds what the result is read from.
    """

    context: RunContext
    choice: TrussChoice
    request: ReplayRequest
    stack: ExitStack

    plan: ClassVar[str] = "replay"
    otherwise: ClassVar[str] = "computing from the tables"
    fallback: ClassVar[type[TrussStrategy]]

    @abstractmethod
    def run(self) -> TrussResult:
        """Compute the changes; EXECUTES.

        Raises:
            PlanUnfit: The strategy cannot.
        """

    def save_checkpoint(self, result: TrussResult) -> SavedCheckpoint | None:
        """Write the truss checkpoint that the result has left for the next run; the result is stored already."""
        if result.checkpoint is not None:
            return truss_checkpoint.save_checkpoint(self.context, result.checkpoint)
        # Where nothing was replayed, the parent's checkpoint is still right.
        return None if result.summary.epochs else truss_checkpoint.parent_checkpoint(self.context)

    def read_result(self, rows: DataFrame) -> TrussResult:
        """Read the rows of a plan, and hold them; EXECUTES."""
        self.stack.callback(rows.persist().unpersist)
        return read_result(rows)

    def changed_edges(self, at: int) -> DataFrame:
        return resume_inputs.changed_edges(self.context, at, self.request.first_epoch)

    def parent_checkpoint(self) -> TrussCheckpoint:
        checkpoint = truss_checkpoint.read_parent_checkpoint(self.context)
        if checkpoint is None:
            raise PlanUnfit("the truss checkpoint of the last run is missing")
        return checkpoint

    @cached_property
    def rounds(self) -> bsp_round_tables.RoundTables:
        run = self.context
        return self.stack.enter_context(bsp_round_tables.round_tables(run.warehouse, run.ledger, run.run_id))


class Replay(TrussStrategy):
    """One task replays the epochs from the tables."""

    def run(self) -> TrussResult:
        edges, stored = self.context.read_after("edges"), self.context.read_before("trussness")
        return self.read_result(truss.replayed_changes(edges, stored, self.request))


class Distributed(TrussStrategy):
    """Partitions that exchange messages replay the epochs, where the edges that are alive are too many for a task."""

    fallback = Replay

    def run(self) -> TrussResult:
        run, choice = self.context, self.choice
        alive = truss.alive_intervals(run.read_after("edges"), self.request)
        # Where the table's whole history is within the limit, the edges need not be counted.
        if not choice.needs_edge_count or alive.count() <= choice.max_task_edges:
            raise PlanUnfit
        label, size = run.home.schedule.format_label, memory_budget.max_partition_edges(run.home.config)
        changes = truss_bsp.trussness_changes(
            alive,
            run.read_before("trussness"),
            self.request,
            size=size,
            say=lambda epoch, text: run.say(f"epoch {label(epoch)}: {text}"),
            rounds=self.rounds,
        )
        return self.read_result(changes)

    def save_checkpoint(self, result: TrussResult) -> SavedCheckpoint | None:
        if result.summary.rounds:
            return truss_checkpoint.create_checkpoint(self.context, self.rounds)
        return super().save_checkpoint(result)


class ResumeFromCache(TrussStrategy):
    """One task goes on from the parent's graph cache."""

    plan, fallback = "resume", Distributed

    def run(self) -> TrussResult:
        cache = self.request.cache
        graph = None if cache is None else resume_inputs.find_graph(self.context, cache.files)
        if graph is None:
            raise PlanUnfit
        edges, stored = self.changed_edges(graph.epoch), self.context.read_before("trussness")
        return self.read_result(truss.resumed_changes(edges, stored, graph, self.request))


class RestoreFromCheckpoint(TrussStrategy):
    """One task goes on from the parent's truss checkpoint, which it reads as a whole."""

    plan, fallback = "state", Replay

    def run(self) -> TrussResult:
        checkpoint = self.parent_checkpoint()
        counted = truss_checkpoint.published_graph_counts(self.context, checkpoint.epoch)
        if counted is None:
            raise PlanUnfit("the truss checkpoint of the last run is missing")
        edges, stored = self.changed_edges(checkpoint.epoch), self.context.read_before("trussness")
        return self.read_result(truss.restored_changes(edges, stored, checkpoint, counted, self.request))


class UpdateRegion(TrussStrategy):
    """One task computes the region that the changes reach, from the parent's truss checkpoint."""

    plan, otherwise, fallback = "region", "computing in partitions", Distributed

    def run(self) -> TrussResult:
        run, checkpoint = self.context, self.parent_checkpoint()
        fingerprints = run.known_fingerprints_since(checkpoint.epoch + 1)
        return truss_local_update.update_region(
            checkpoint,
            self.changed_edges(checkpoint.epoch),
            run.read_before("trussness"),
            self.request,
            size=self.choice.edges.value,
            most=self.choice.max_certified_edges,
            known=RunningFingerprint(fingerprints.get("trussness", {})).advance_to(checkpoint.epoch),
            rounds=self.rounds,
            stack=self.stack,
            say=run.say,
        )


STRATEGIES: Mapping[Strategy, type[TrussStrategy]] = {
    Strategy.TASK: Replay,
    Strategy.PARTS: Distributed,
    Strategy.RESUME: ResumeFromCache,
    Strategy.CHECKPOINT: RestoreFromCheckpoint,
    Strategy.REGION: UpdateRegion,
}


def run_with_fallbacks(
    run: RunContext, choice: TrussChoice, request: ReplayRequest, stack: ExitStack
) -> tuple[TrussStrategy, TrussResult]:
    """Run the chosen strategy, and as long as one cannot, its fallback; EXECUTES.

    Returns:
        The strategy that has computed the result, and the result, which can be read until the stack is closed.
    """
    kind = STRATEGIES[choice.strategy]
    while True:
        with ExitStack() as attempt:
            strategy = kind(run, choice, request, attempt)
            try:
                result = strategy.run()
            except PlanUnfit as error:
                if str(error):
                    run.say(f"{error}: {kind.otherwise}")
                kind = kind.fallback
            else:
                stack.enter_context(attempt.pop_all())
                return strategy, result
