"""All plan choices of a run: `altneu plan` shows the list, and each stage takes its own from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from altneu.algorithms.graph import motif_patterns
from altneu.algorithms.graph.cost_model import BROADCAST_ROWS, MOTIF_NAMES, MotifPlanChoice, TrianglePlanChoice

from ...home import memory_budget
from ...home.schedule import sample_epochs
from ...home.settings import Config
from ...state.records import RunKind
from ...state.stage_results import AuditFacts, EdgesFacts, Facts, TrianglesFacts, TrussFacts
from .plan_choice import Label, Number, Numbers, PlanChoice, Scope, Strategy

FULL, LOCAL = "full", "local"  # `[audit] mode`
# "auto" recounts one of PARTS parts; their number doubles until a part has at most PART_EDGES edges.
PARTS, PART_EDGES = 32, 1 << 16
# Measured (tests/benchmarks/RESULTS.md): the seconds and the edges per second of a full check and of the rest of a run.
FULL_SECONDS, FULL_EDGES, REST_SECONDS, REST_EDGES = 3.5, 60_000, 5.0, 80_000
REGION = 300  # edges of a region for each edge that comes or goes (tests/benchmarks/RESULTS.md)
CERTIFIED = 1_000_000  # from so many edges on a peel costs more than writing and reading their certificates
SPREAD = 5  # the audit of a rebuild cuts history into so many spans, and looks at one epoch of each


@dataclass(frozen=True)
class EdgesChoice(PlanChoice):
    """The choice whether the touched pairs are sent to every task, or are shuffled to where the edges are."""

    NAME, FACTS = "edges", EdgesFacts
    upserts: Number
    max_broadcast_rows: int = BROADCAST_ROWS

    @classmethod
    def choose(cls, scope: Scope, config: Config, numbers: Numbers) -> Self:
        return cls(numbers.changed_upserts(), memory_budget.max_broadcast_rows(config))

    @property
    def strategy(self) -> Strategy:
        return Strategy.BROADCAST if self.upserts.value <= self.max_broadcast_rows else Strategy.SHUFFLE

    @property
    def possible_strategies(self) -> frozenset[str]:
        if self.upserts.is_at_most(self.max_broadcast_rows):
            return frozenset({Strategy.BROADCAST})
        return frozenset(
            {Strategy.SHUFFLE}
            if self.upserts.lower_bound > self.max_broadcast_rows
            else {Strategy.BROADCAST, Strategy.SHUFFLE}
        )

    def describe(self, label: Label) -> str:
        return "broadcast the touched pairs" if self.strategy is Strategy.BROADCAST else "shuffle by pair"

    @classmethod
    def strategy_of(cls, facts: Facts) -> str:
        assert isinstance(facts, EdgesFacts)
        return Strategy.BROADCAST if facts.broadcast else Strategy.SHUFFLE


@dataclass(frozen=True)
class TrianglesChoice(PlanChoice):
    """The choice of the plan that counts triangles.

    The delta query is chosen twice: before and after its proposals are counted.
    """

    NAME, FACTS = "triangles", TrianglesFacts
    requested_plan: str
    stored_edges: int
    changed_edges: Number
    proposals: int | None = None
    has_graph_cache: bool = False  # the parent's run has recorded a graph cache, and no edge expires that is not in it
    corrections: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def choose(cls, scope: Scope, config: Config, numbers: Numbers) -> Self:
        adds = scope.appends_to("edges") and scope.appends_to("triangle_counts") and config.edges.live_for is None
        return cls(
            config.triangles.plan,
            numbers.edges_since(),
            numbers.changed_rows("edges"),
            numbers.proposal_count(),
            adds and numbers.has_graph_cache(),
            numbers.cost_corrections(),
        )

    @property
    def cost_choice(self) -> TrianglePlanChoice:
        uncounted = TrianglePlanChoice(
            self.requested_plan,
            self.stored_edges,
            self.changed_edges.value,
            has_graph_cache=self.has_graph_cache,
            corrections=self.corrections,
        )
        return replace(uncounted, proposals=self.proposals) if uncounted.plan == Strategy.DELTA else uncounted

    def with_proposals(self, proposals: int) -> Self:
        return replace(self, proposals=proposals)

    @property
    def strategy(self) -> Strategy:
        return Strategy(self.cost_choice.plan) if self.changed_edges.value else Strategy.NOTHING

    @property
    def possible_strategies(self) -> frozenset[str]:
        strategies: set[str] = {Strategy.DELTA, Strategy.BULK}
        if self.requested_plan in strategies:
            strategies = {self.requested_plan}
        elif self.has_graph_cache:
            strategies.add(Strategy.RESUME)  # the graph cache may be missing by now
        return _unless_unchanged(self.changed_edges, strategies)

    def describe(self, label: Label) -> str:
        return self.cost_choice.describe()

    @classmethod
    def strategy_of(cls, facts: Facts) -> str:
        assert isinstance(facts, TrianglesFacts)
        return facts.plan or Strategy.NOTHING


@dataclass(frozen=True)
class MotifsChoice(PlanChoice):
    """The choice of the plan that counts motifs."""

    NAME, FACTS = "motifs", TrianglesFacts
    requested_plan: str
    limit: int
    rules: int
    tables: tuple[str, ...]  # the tables with the relations that the motifs consist of
    stored_rows: int
    changed_rows: Number

    @classmethod
    def choose(cls, scope: Scope, config: Config, numbers: Numbers) -> Self | None:
        motifs = config.motif_patterns()
        if not motifs:
            return None
        reads_edges = motif_patterns.OWN_EDGES in motif_patterns.list_relations(motifs)
        reads_motif_edges = bool(motif_patterns.extra_relations(motifs))
        tables = (*(("edges",) if reads_edges else ()), *(("motif_edges",) if reads_motif_edges else ()))
        changed = sum((numbers.changed_rows(table) for table in tables), Number.exact(0))
        stored = sum(numbers.stored_rows(table) for table in tables)
        return cls(
            config.triangles.plan,
            memory_budget.max_cell_edges(config),
            motif_patterns.count_rules(motifs),
            tables,
            stored,
            changed,
        )

    def _plan_for(self, changed: int) -> str:
        return (
            MotifPlanChoice(self.requested_plan, self.stored_rows, changed, self.rules, self.limit).plan
            if changed
            else Strategy.NOTHING
        )

    @property
    def strategy(self) -> Strategy:
        return Strategy(self._plan_for(self.changed_rows.value))

    @property
    def possible_strategies(self) -> frozenset[str]:
        # As changes become more, the plan goes from nothing to the delta query, the enumeration and the joins. Each
        # range of changes is represented by its first number.
        low, high = self.changed_rows.lower_bound, self.changed_rows.upper_bound
        begins = {low, 1, (self.stored_rows - 1) // self.rules + 1, self.limit - self.stored_rows + 1}
        return frozenset(self._plan_for(n) for n in begins if low <= n and (high is None or n <= high))

    def describe(self, label: Label) -> str:
        return MotifPlanChoice(
            self.requested_plan, self.stored_rows, self.changed_rows.value, self.rules, self.limit
        ).describe()

    @classmethod
    def strategy_of(cls, facts: Facts) -> str:
        assert isinstance(facts, TrianglesFacts)
        return next((way for way, words in MOTIF_NAMES.items() if words == facts.motif_plan), Strategy.NOTHING)


@dataclass(frozen=True, kw_only=True)
class TrussChoice(PlanChoice):
    """The choice from which epoch the trussness is replayed, and how.

    A graph that one task can hold is replayed in one task: from the graph cache of the parent's run, if its files exist
    and fit; from the truss checkpoint, where tasks do not see these files; or from the tables. A graph that no task can
    hold is updated by the region that the change reaches, from the truss checkpoint, or peeled in partitions that
    exchange messages.

    A new strategy is a member of `Strategy`, a line in `strategy`, one in `possible_strategies`, and a class in
    `truss_strategies`.
    """

    NAME, FACTS = "truss", TrussFacts
    first_epoch: int | None  # the earliest epoch that may be replayed; None when none is
    last_epoch: int | None
    expires: bool  # edges may expire between the old frontier and the new one, even if nothing changes
    changed_edges: Number
    edges: Number  # intervals in the whole history
    max_task_edges: int
    max_certified_edges: int  # edges that a task may hold with their certificates
    has_graph_cache: bool = False
    has_checkpoint: bool = False

    @classmethod
    def choose(cls, scope: Scope, config: Config, numbers: Numbers) -> Self:
        changed, last, old = numbers.changed_rows("edges"), scope.frontier, scope.parent.frontier
        first = numbers.first_change() if changed.upper_bound != 0 else None
        expires = scope.appends_to("edges") and last is not None and old is not None and last > old
        starts = [*([] if first is None else [first]), *([old + 1] if expires and old is not None else [])]
        earliest = min(starts, default=None)
        if earliest is not None and last is not None and earliest > last:
            earliest = None
        return cls(
            first_epoch=earliest,
            last_epoch=last,
            expires=expires,
            changed_edges=changed,
            edges=Number.exact(numbers.stored_rows("edges")) + changed,
            max_task_edges=memory_budget.max_task_edges(config),
            max_certified_edges=memory_budget.max_region_edges(config),
            has_graph_cache=scope.appends_to("edges") and numbers.has_graph_cache(),
            has_checkpoint=scope.appends_to("edges") and numbers.has_checkpoint(),
        )

    @property
    def needs_edge_count(self) -> bool:
        """Tell whether the edges that are alive in the replayed epochs must be counted, as all may be too many."""
        return self.edges.value > self.max_task_edges

    @property
    def strategy(self) -> Strategy:
        if self.first_epoch is None:
            return Strategy.NOTHING
        if self.has_graph_cache:
            return Strategy.RESUME
        if self.needs_edge_count:
            return Strategy.REGION if self._is_small(self.changed_edges.value) else Strategy.PARTS
        return Strategy.CHECKPOINT if self._can_restore(self.edges.value) else Strategy.TASK

    def _is_small(self, changed: int) -> bool:
        """Tell whether a task can hold the region of this number of changed edges."""
        return self.has_checkpoint and changed * REGION <= self.max_certified_edges

    def _can_restore(self, edges: int) -> bool:
        """Tell whether a task can hold the whole truss checkpoint."""
        return self.has_checkpoint and edges <= self.max_certified_edges

    @property
    def possible_strategies(self) -> frozenset[str]:
        if self.first_epoch is None:
            return frozenset({Strategy.NOTHING})
        within = self.edges.is_at_most(self.max_task_edges)
        strategies = {Strategy.TASK, *((Strategy.RESUME,) if self.has_graph_cache else ())}
        if self._can_restore(self.edges.lower_bound):
            strategies.add(Strategy.CHECKPOINT)
        if not within:
            strategies |= {
                Strategy.PARTS,
                *((Strategy.REGION,) if self._is_small(self.changed_edges.lower_bound) else ()),
            }
        return frozenset(strategies if self.expires else _unless_unchanged(self.changed_edges, strategies))

    def describe(self, label: Label) -> str:
        if self.first_epoch is None or self.last_epoch is None:
            return "nothing to replay"
        cache = ", from the graph cache if it exists" if self.has_graph_cache else ""
        where = f"in one task (in partitions beyond {self.max_task_edges:,} edges){cache}"
        if self.strategy is Strategy.REGION:
            some = f"{self.changed_edges.value * REGION:,} of {self.edges.value:,} edges"
            where = f"by region in one task, with some {some} (in partitions beyond {self.max_task_edges:,})"
        if self.strategy is Strategy.CHECKPOINT:
            where = f"in one task, from the truss checkpoint of {self.edges.value:,} edges"
        return f"replay {label(self.first_epoch)} … {label(self.last_epoch)} {where}"

    @classmethod
    def strategy_of(cls, facts: Facts) -> str:
        assert isinstance(facts, TrussFacts)
        if facts.plan in (Strategy.RESUME, Strategy.REGION, Strategy.CHECKPOINT):
            return facts.plan
        if facts.first_epoch is None and not facts.epochs:  # a replay of a graph without edges records no epoch
            return Strategy.NOTHING
        return Strategy.PARTS if facts.rounds else Strategy.TASK  # this also reads the facts of earlier versions


@dataclass(frozen=True, kw_only=True)
class AuditChoice(PlanChoice):
    """The choice how a run is checked besides the proof of every epoch.

    A full check recomputes some epochs from scratch: the last one of the run, the frontier, and what `[audit] epochs`
    asks for; in a rebuild also at least some epochs of all history. Otherwise a share of the vertices is recounted, or
    nothing.

    What cannot be proved is checked in full: motifs, and a graph that one task cannot hold, unless its trussness is
    maintained by region. In that case no share is recounted.
    """

    NAME, FACTS = "audit", AuditFacts
    epochs: tuple[int, ...]  # the epochs of a full check
    requested_mode: str  # `[audit] mode`
    wants_other_epochs: bool  # whether `[audit] epochs` asks for other epochs than the frontier
    provable: bool
    stored_edges: int
    changed_edges: Number
    region: bool = False  # the trussness is maintained by region
    may_be_region: bool = False

    @classmethod
    def choose(cls, scope: Scope, config: Config, numbers: Numbers) -> Self | None:
        if scope.frontier is None:
            return None
        truss = TrussChoice.choose(scope, config, numbers)
        region = truss.strategy is Strategy.REGION
        return cls(
            epochs=_epochs_to_recompute(scope, config, numbers.published_epochs(), scope.frontier),
            requested_mode=config.audit.mode,
            wants_other_epochs=config.audit.epochs != "frontier",
            provable=not config.motifs and (region or not truss.needs_edge_count),
            stored_edges=numbers.stored_rows("edges"),
            changed_edges=truss.changed_edges,
            region=region,
            may_be_region=Strategy.REGION in truss.possible_strategies and not config.motifs,
        )

    def _mode_for(self, changed: int) -> str:
        if not self.provable:
            return FULL
        if self.region and self.requested_mode != FULL:
            return FULL if self.wants_other_epochs and self.requested_mode == "auto" else LOCAL
        if self.requested_mode != "auto":
            return self.requested_mode
        full = FULL_SECONDS + len(self.epochs) * (self.stored_edges + changed) / FULL_EDGES
        rest = REST_SECONDS + changed / REST_EDGES
        if self.wants_other_epochs or full <= rest:
            return FULL
        return f"rolling {max(PARTS, 1 << (max(self.stored_edges - 1, 0) // PART_EDGES).bit_length())}"

    @property
    def mode(self) -> str:
        return self._mode_for(self.changed_edges.value)

    @property
    def audit_shares(self) -> int:
        """Return the number of audit shares, of which one is recounted, or 0 when none is."""
        name, _, n = self.mode.partition(" ")
        return int(n) if name == "rolling" else 0

    @property
    def strategy(self) -> str:
        return self._describe_mode(self.mode)

    def _describe_mode(self, mode: str) -> str:
        return f"{mode}: {_join_labels(self.epochs)}" if mode == FULL else mode

    @property
    def possible_strategies(self) -> frozenset[str]:
        """Return the possible modes. A full check is one of them, as a run recomputes an epoch that it cannot prove."""
        most = self.changed_edges.value if self.changed_edges.upper_bound is None else self.changed_edges.upper_bound
        modes = {self.mode, self._mode_for(self.changed_edges.lower_bound), self._mode_for(most), FULL}
        if self.may_be_region:
            modes.add(replace(self, region=True, provable=True).mode)
        return frozenset(map(self._describe_mode, modes))

    def describe(self, label: Label) -> str:
        if self.mode != FULL:
            part = f", and recount one in {self.audit_shares} vertices" if self.audit_shares else ""
            return f"prove every epoch{part}"
        shown = [label(epoch) for epoch in self.epochs]
        some = shown if len(shown) <= 4 else [*shown[:2], "…", shown[-1]]
        return f"recompute {len(shown):,} epoch{'' if len(shown) == 1 else 's'}: {', '.join(some)}"

    @classmethod
    def strategy_of(cls, facts: Facts) -> str:
        assert isinstance(facts, AuditFacts)
        return facts.mode if facts.mode and facts.mode != FULL else f"{FULL}: {_join_labels(facts.epochs)}"


def _epochs_to_recompute(scope: Scope, config: Config, published: Iterable[int], frontier: int) -> tuple[int, ...]:
    """Return the epochs that a full check of a run recomputes."""
    since = scope.parent.since if scope.appends_to("upserts") else None
    known = sorted(epoch for epoch in {*published, *scope.epochs, frontier} if since is None or epoch >= since)
    candidates = sorted(scope.epochs) if scope.kind is RunKind.RUN else known
    mode, _, n = config.audit.epochs.partition(" ")
    sample = () if scope.kind is RunKind.RUN else candidates[:: max(1, len(candidates) // SPREAD)]
    chosen = {frontier, *candidates[-1:], *sample}
    if mode == "all":
        chosen.update(candidates)
    elif mode == "every":
        chosen.update(epoch for epoch in candidates if epoch % int(n) == 0)
    elif mode == "sample":
        chosen.update(sample_epochs(known, int(n), str(scope.revision)))  # a plan and its run draw the same sample
    return tuple(sorted(chosen.intersection(known)))


def _join_labels(epochs: Iterable[int]) -> str:
    return " ".join(map(str, epochs))


def _unless_unchanged(changed: Number, ways: Iterable[str]) -> frozenset[str]:
    """Return the possible strategies, including `nothing` where it is possible that nothing changes."""
    if changed.upper_bound == 0:
        return frozenset({Strategy.NOTHING})
    return frozenset({*ways} if changed.lower_bound else {*ways, Strategy.NOTHING})


KINDS: tuple[type[PlanChoice], ...] = (EdgesChoice, TrianglesChoice, MotifsChoice, TrussChoice, AuditChoice)


def choose_all(scope: Scope, config: Config, numbers: Numbers) -> list[PlanChoice]:
    """Return all plan choices of a run, in the order in which the run makes them."""
    choices = (kind.choose(scope, config, numbers) for kind in KINDS)
    return [decision for decision in choices if decision is not None]
