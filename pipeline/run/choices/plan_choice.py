"""The interface of a plan choice: a rule that chooses the strategy of a stage from numbers.

The numbers are estimates with bounds before a run (`forecast.EstimatedCounts`), and counts inside it
(`run_context.ActualCounts`). `strategy` is what the rule chooses from them. `possible_strategies` are all that the
bounds leave open; the run takes one of them, and `strategy_of` reads from the facts of the stage which one it was. The
module `plan_choices` has all plan choices. Nothing here loads Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, Self

from ...home.settings import Config
from ...state.records import Revision, RunKind, is_landed
from ...state.stage_results import Facts

Label = Callable[[int], str]  # epoch → its label


class Strategy(StrEnum):
    """The ways in which a stage may compute its result."""

    NOTHING = "nothing"
    BROADCAST = "broadcast"  # edges
    SHUFFLE = "shuffle"
    DELTA = "delta"  # triangles, motifs
    BULK = "bulk"
    JOINS = "joins"  # motifs
    RESUME = "resume"  # triangles, truss
    TASK = "task"
    PARTS = "parts"
    REGION = "region"
    CHECKPOINT = "state"


@dataclass(frozen=True)
class Scope:
    """What a run builds on and which epochs it covers. It is known before the run begins."""

    parent: Revision
    epochs: tuple[int, ...]  # the epochs whose batches it replaces
    kind: RunKind = RunKind.RUN
    rewritten_tables: frozenset[str] = frozenset()  # tables of queries that the run writes again, whatever its kind is

    @property
    def revision(self) -> int:
        return self.parent.revision + 1

    @property
    def frontier(self) -> int | None:
        """Return the greatest epoch whose state is final once the run is published."""
        return max([*self.epochs, *([] if self.parent.frontier is None else [self.parent.frontier])], default=None)

    @property
    def first_changed_epoch(self) -> int:
        """Return the first epoch at which the run may change anything, where it adds rows to the tables.

        A run without epochs changes tables of queries only, and these from their beginning on.
        """
        assert self.epochs or self.frontier is not None
        return min(self.epochs, default=self.frontier or 0)

    def appends_to(self, table: str) -> bool:
        """Tell whether the run adds rows to a table.

        A rebuild writes every table except the landed rows again, and a reload writes these again as well. A run
        writes the tables of new and changed queries again.
        """
        if table in self.rewritten_tables:
            return False
        return self.kind is RunKind.RUN or (self.kind is RunKind.REBUILD and is_landed(table))


@dataclass(frozen=True)
class Number:
    """A count, or an estimate that lies between two bounds."""

    value: int
    lower_bound: int
    upper_bound: int | None  # None means that there is no bound

    @classmethod
    def exact(cls, value: int) -> Self:
        return cls(value, value, value)

    def __add__(self, other: Number) -> Number:
        most = None if self.upper_bound is None or other.upper_bound is None else self.upper_bound + other.upper_bound
        return Number(self.value + other.value, self.lower_bound + other.lower_bound, most)

    def is_at_most(self, limit: int) -> bool:
        """Tell whether every number within the bounds is at most `limit`."""
        return self.upper_bound is not None and self.upper_bound <= limit


class Numbers(Protocol):
    """The numbers from which the rules choose."""

    def changed_upserts(self) -> Number:
        """Return the number of upserts from which the edges are derived: the changed ones, or all in a rebuild."""

    def stored_rows(self, table: str) -> int:
        """Return the number of rows of a table to which the run adds, or 0 where it writes the table again."""

    def edges_since(self) -> int:
        """Estimate how many of the stored edge intervals reach the first epoch of the run: these are read."""

    def changed_rows(self, table: str) -> Number:
        """Return the number of rows that the run writes into `edges` or `motif_edges`."""

    def first_change(self) -> int | None:
        """Return the first epoch at which an edge changes or may change, or None when no edge does."""

    def proposal_count(self) -> int | None:
        """Return how many candidates the delta query would propose, if they are counted or known from earlier runs."""

    def cost_corrections(self) -> Mapping[str, float]:
        """Return by which factor the estimates of the plans for triangles were wrong in the last runs."""

    def has_graph_cache(self) -> bool:
        """Tell whether the parent's run has recorded a graph cache; its files may be missing by now."""

    def has_checkpoint(self) -> bool:
        """Tell whether there is a truss checkpoint, which is used where no graph cache can be used."""

    def published_epochs(self) -> Collection[int]:
        """Return the epochs that are published at the parent of the run."""


class PlanChoice(ABC):
    """The choice of a strategy for one stage."""

    NAME: ClassVar[str]
    FACTS: ClassVar[type[Facts]]

    @classmethod
    @abstractmethod
    def choose(cls, scope: Scope, config: Config, numbers: Numbers) -> Self | None:
        """Make the choice from the numbers. Return None where there is nothing to choose."""

    @property
    @abstractmethod
    def strategy(self) -> str:
        """Return the strategy that follows from the numbers as they are known now."""

    @property
    @abstractmethod
    def possible_strategies(self) -> frozenset[str]:
        """Return all strategies that are possible while the numbers are estimates."""

    @abstractmethod
    def describe(self, label: Label) -> str:
        """Describe the choice for a person."""

    @classmethod
    @abstractmethod
    def strategy_of(cls, facts: Facts) -> str:
        """Return the strategy that a run has taken, from the facts of its stage."""

    @property
    def is_open(self) -> bool:
        return len(self.possible_strategies) > 1
