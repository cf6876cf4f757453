"""A forecast of what a run would do and cost, from the landing's listing and the SQL database, without Spark.

The forecast takes the same plan choices as the run (`plan_choices`), from estimates instead of counts. Rows are counted
in small landings, including malformed ones. In large landings they are estimated from the size of the files, by the
bytes per row of what was published before. Seconds are estimated for each stage by a straight line through the rows and
seconds of the newest published runs. The output says that these are estimates.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import linear_regression, median
from typing import Any

from altneu.algorithms.graph import motif_patterns

from .. import landing
from ..home.home import Home
from ..landing.epoch_states import EpochComparison
from ..state.ledger import Ledger
from ..state.records import Batch, RunKind
from ..state.stage_results import EdgesFacts, IngestFacts, TrianglesFacts
from ..storage import graph_cache
from .choices import learned_costs
from .choices.plan_choice import Number, PlanChoice
from .choices.plan_choices import choose_all
from .planning import Plan, split_by_size
from .query_forecast import QueryForecast, forecast_queries

MAX_COUNTED_BYTES = 2**23  # up to so many bytes of landed files rows are counted; beyond that they are estimated
RUNS = 50  # the newest published runs, from which the seconds are learned


@dataclass(frozen=True)
class Forecast:
    """What a plan would do, and what it would cost.

    `decisions` are the plan choices of the first of its `revisions`; there are none when there is nothing to do.
    `restated_epochs` are published epochs that are not run again but whose results may change, because a batch before
    them changes (within the window, if there is one). `stages` has the seconds of each stage; it is None before the
    first published run.
    """

    plan: Plan
    revisions: int
    chosen_epochs: Sequence[EpochComparison]
    late_epochs: Sequence[int]
    restated_epochs: Sequence[int]
    rows: int
    decisions: Sequence[PlanChoice]
    stages: dict[str, float] | None
    choice_descriptions: dict[str, str]  # name of a plan choice → its description
    learned: int = 0  # number of runs from which the seconds are estimated
    queries: Sequence[QueryForecast] = ()

    @property
    def revision(self) -> int | None:
        """Return the first revision that would be published, or None when there is nothing to do."""
        return None if self.plan.is_idle else self.plan.scope.revision

    @property
    def seconds(self) -> float | None:
        return None if self.stages is None else round(sum(self.stages.values()), 1)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of epochs in each state."""
        counts: dict[str, int] = {}
        for entry in self.plan.epochs:
            counts[entry.state] = counts.get(entry.state, 0) + 1
        return counts

    @property
    def incomplete(self) -> list[EpochComparison]:
        return self.plan.in_state("incomplete")

    def to_document(self) -> dict[str, Any]:
        """Return the plan as a JSON document."""
        return {
            "kind": self.plan.kind,
            "parent": self.plan.parent.revision,
            "revision": self.revision,
            "revisions": self.revisions,
            "frontier": self.plan.scope.frontier,
            "counts": self.counts,
            "epochs": [
                {
                    "epoch": e.epoch,
                    "label": e.label,
                    "state": e.state,
                    "files": e.files,
                    "bytes": e.bytes,
                    "rows": e.rows,
                }
                for e in self.chosen_epochs
            ],
            "incomplete": [{"label": e.label, "why": e.why} for e in self.incomplete],
            "folded": [{"label": e.label, "why": e.why} for e in self.plan.in_state("folded")],
            "late": self.late_epochs,
            "restated": self.restated_epochs,
            "rows": self.rows,
            "plans": self.choice_descriptions,
            "queries": {
                "from_changes": list(self.plan.queries.unchanged),
                "anew": dict(self.plan.queries.anew),
                "dropped": list(self.plan.queries.dropped),
                "each": [query.to_document() for query in self.queries],
            },
            "decisions": [
                {
                    "name": each.NAME,
                    "way": each.strategy,
                    "may": sorted(each.possible_strategies),
                    "depends": each.is_open,
                }
                for each in self.decisions
            ],
            "seconds": self.seconds,
            "stages": self.stages,
        }


def forecast_run(ledger: Ledger, plan: Plan) -> Forecast:
    """Estimate what a run of the plan would do and cost."""
    home = ledger.home
    run, frontier = set(plan.run), plan.parent.frontier
    chosen = [epoch for epoch in plan.epochs if epoch.epoch in run]
    late = [epoch.epoch for epoch in chosen if frontier is not None and epoch.epoch <= frontier]
    whole = EstimatedCounts(ledger, plan)
    others = [epoch for epoch in whole.published_epochs() if epoch not in run]
    restated = _restated_epochs(home, sorted(run), others) if plan.kind is RunKind.RUN else others
    pieces = split_by_size(home, plan) if plan.kind is RunKind.RUN else [plan.run]
    first = EstimatedCounts(ledger, replace(plan, run=pieces[0])) if len(pieces) > 1 else whole
    idle = not chosen and plan.kind is RunKind.RUN
    decided = [] if idle else choose_all(first.plan.scope, home.config, first)
    seconds, learned = stage_seconds(ledger, whole.rows)
    return Forecast(
        plan=plan,
        revisions=len(pieces),
        chosen_epochs=chosen,
        late_epochs=late,
        restated_epochs=restated,
        rows=whole.rows,
        decisions=decided,
        stages=seconds,
        learned=learned,
        choice_descriptions={each.NAME: each.describe(home.schedule.format_label) for each in decided},
        queries=forecast_queries(plan.queries, [row.facts for row in ledger.stages.list_recent(RUNS)], runs=not idle),
    )


@dataclass(frozen=True)
class EstimatedCounts:
    """The numbers for the plan choices before a run: what is stored is known, and what changes is bounded."""

    ledger: Ledger
    plan: Plan

    @cached_property
    def _published_batches(self) -> Mapping[int, Batch]:
        return self.ledger.outputs.published_batches(self.plan.parent.revision)

    @cached_property
    def _chosen_epochs(self) -> list[EpochComparison]:
        run = set(self.plan.run)
        return [epoch for epoch in self.plan.epochs if epoch.epoch in run]

    @cached_property
    def _is_counted(self) -> bool:
        return sum(epoch.bytes for epoch in self._chosen_epochs) <= MAX_COUNTED_BYTES

    @cached_property
    def rows(self) -> int:
        """Return the number of rows in the landed files; for a rebuild, of the stored rows."""
        if self.plan.kind is RunKind.REBUILD:
            return sum(batch.rows for batch in self._published_batches.values())
        if self._is_counted:
            return _count_landed_rows(self.ledger.home, set(self.plan.run))
        known = [(e.bytes, e.rows) for e in self.plan.epochs if e.state == "published" and e.rows]
        per_row = sum(b for b, _ in known) / sum(n for _, n in known) if known else landing.BYTES_PER_ROW
        return round(sum(epoch.bytes for epoch in self._chosen_epochs) / per_row)

    @cached_property
    def _table_rows(self) -> dict[str, int] | None:
        """Return the number of rows of each table, or None where the metadata of the tables cannot be read."""
        if not self.plan.parent.revision:
            return {}
        if self.ledger.runs.get(self.plan.parent.run_id).kind is RunKind.ROLLBACK:  # a rollback records no sizes
            from ..storage.refs_without_spark import open_branches  # loads PySpark

            try:
                tables = open_branches(self.ledger.home)
                pins = self.plan.parent.snapshots.items()
                return {table: tables.snapshot_size(table, snapshot).rows for table, snapshot in pins}
            except (OSError, LookupError):
                return None
        return {table: size.rows for table, size in self.ledger.stages.table_sizes().items()}

    def _sum_or_unknown(self, tables: Sequence[str], rows: int) -> int | None:
        """Return `rows` plus the rows of some tables, or None where one of them is not known."""
        counted = self._is_counted or self.plan.kind is RunKind.REBUILD
        if self._table_rows is None or not counted:
            return None
        return rows + sum(self._table_rows.get(table, 0) for table in tables)

    def changed_upserts(self) -> Number:
        replaced = sum(
            self._published_batches[epoch].rows for epoch in self.plan.run if epoch in self._published_batches
        )
        if self.plan.kind is RunKind.RUN:
            return Number(max(self.rows, replaced), 0, self._sum_or_unknown([], self.rows + replaced))
        most = (
            self._sum_or_unknown(["upserts"], 0)
            if self.plan.kind is RunKind.REBUILD
            else self._sum_or_unknown([], self.rows)
        )
        return Number(self.rows, 0, most)

    def stored_rows(self, table: str) -> int:
        return (self._table_rows or {}).get(table, 0) if self.plan.scope.appends_to(table) else 0

    def edges_since(self) -> int:
        scope, most = self.plan.scope, self.stored_rows("edges")
        if not scope.epochs:
            return 0
        return most and self.ledger.outputs.estimate_edges_since(scope.parent.revision, scope.first_changed_epoch, most)

    def changed_rows(self, table: str) -> Number:
        """Bound the number of changed edge intervals.

        There is about one for each row, and at most all stored intervals and one for each new row.
        """
        relations = (
            1 if table == "edges" else len(motif_patterns.extra_relations(self.ledger.home.config.motif_patterns()))
        )
        most = self.changed_upserts().upper_bound
        if self.plan.kind is RunKind.RUN:
            before = self._sum_or_unknown([table], 0)
            after = self._sum_or_unknown(["upserts"], self.rows)
            most = None if before is None or after is None else before + after * relations
        elif most is not None:
            most *= relations
        return Number(self.changed_upserts().value * relations, 0, most)

    def first_change(self) -> int | None:
        if self.plan.kind is RunKind.RUN:
            return min(self.plan.run, default=None)
        return min([*self._published_batches, *self.plan.run], default=None)

    def proposal_count(self) -> int | None:
        """Estimate the proposals: as many for each changed interval as in earlier runs."""
        changed: dict[str, int] = {}
        proposed: dict[str, int] = {}
        for row in self.ledger.stages.list_recent(RUNS):
            if isinstance(row.facts, EdgesFacts) and row.facts.rows:
                changed[row.run_id] = row.facts.rows
            if isinstance(row.facts, TrianglesFacts) and row.facts.proposals:
                proposed[row.run_id] = row.facts.proposals
        known = [(proposed[run], changed[run]) for run in proposed if run in changed]
        per_row = sum(p for p, _ in known) / sum(n for _, n in known) if known else None
        return None if per_row is None else round(self.changed_rows("edges").value * per_row)

    def cost_corrections(self) -> Mapping[str, float]:
        return learned_costs.triangle_corrections(self.ledger)

    def has_graph_cache(self) -> bool:
        return graph_cache.cached_graph_key(self.ledger, self.plan.parent) is not None

    def has_checkpoint(self) -> bool:
        return graph_cache.saved_checkpoint(self.ledger, self.plan.parent) is not None

    def published_epochs(self) -> Collection[int]:
        return self._published_batches


def _count_landed_rows(home: Home, epochs: set[int]) -> int:
    return sum(map(landing.count_batch_rows, landing.list_batches(home, epochs).values())) if epochs else 0


def _restated_epochs(home: Home, run: list[int], others: list[int]) -> list[int]:
    """Return the other epochs at which an edge of a batch in `run` may be alive."""
    live_for = home.config.edges.live_for
    restated = []
    for epoch in others:
        place = bisect_right(run, epoch)
        if place and (live_for is None or epoch < run[place - 1] + live_for):
            restated.append(epoch)
    return restated


def stage_seconds(ledger: Ledger, rows: int) -> tuple[dict[str, float] | None, int]:
    """Return the expected seconds of each stage for this number of landed rows, and from how many runs they come.

    The seconds are None before the first published run.
    """
    stages = ledger.stages.list_recent(RUNS)
    landed = {row.run_id: row.facts.rows for row in stages if isinstance(row.facts, IngestFacts)}
    points: dict[str, list[tuple[int, float]]] = {}
    for row in stages:
        if row.run_id in landed and row.seconds is not None:
            points.setdefault(row.stage, []).append((landed[row.run_id], row.seconds))
    if not points:
        return None, 0
    return {stage: round(_fit_line(pairs, rows), 2) for stage, pairs in points.items()}, max(map(len, points.values()))


def _fit_line(points: list[tuple[int, float]], rows: int) -> float:
    x, y = zip(*points, strict=True)
    slope = max(linear_regression(x, y).slope, 0.0) if min(x) < max(x) else 0.0
    return max(median(seconds - slope * landed for landed, seconds in points), 0.0) + slope * rows
