"""What a decision of a run is: a rule over numbers, and the ways that are open while they are estimates.

The numbers are estimates with bounds before a run (`forecast.EstimatedCounts`), counts inside it
(`run_context.ActualCounts`). `way` is what the rule makes of them, `may` every way that their bounds leave open: the
run goes one of these, and `taken` reads from the facts of the stage which one it was. `decisions` has those that there
are. Nothing here loads Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, Self

from ..home.settings import Config
from ..state.records import LANDED, Revision, RunKind
from ..state.stage_results import Facts

Label = Callable[[int], str]  # epoch → what a person reads


class Strategy(StrEnum):
    """What a stage may do."""

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
    STATE = "state"


@dataclass(frozen=True)
class Scope:
    """What a run covers: known before it begins, and the same for its preview."""

    parent: Revision
    epochs: tuple[int, ...]  # whose batches it replaces
    kind: RunKind = RunKind.RUN

    @property
    def revision(self) -> int:
        return self.parent.revision + 1

    @property
    def frontier(self) -> int | None:
        """The greatest epoch whose state is final once the run is published."""
        return max([*self.epochs, *([] if self.parent.frontier is None else [self.parent.frontier])], default=None)

    def appends_to(self, table: str) -> bool:
        """Does the run add to a table? A rebuild makes all but the landed rows again, a reload those as well."""
        return self.kind is RunKind.RUN or (self.kind is RunKind.REBUILD and table in LANDED)


@dataclass(frozen=True)
class Number:
    """A count, or an estimate that lies between two bounds."""

    value: int
    least: int
    most: int | None  # None: without a bound

    @classmethod
    def exact(cls, value: int) -> Self:
        return cls(value, value, value)

    def __add__(self, other: Number) -> Number:
        most = None if self.most is None or other.most is None else self.most + other.most
        return Number(self.value + other.value, self.least + other.least, most)

    def is_at_most(self, limit: int) -> bool:
        """Is it so whatever the number turns out to be?"""
        return self.most is not None and self.most <= limit


class Numbers(Protocol):
    """What the rules ask for."""

    def changed_upserts(self) -> Number:
        """Rows of `upserts` from which the edges are made: the changed ones, or of a rebuild all."""

    def stored_rows(self, table: str) -> int:
        """Rows of a table that the run adds to; 0 where it makes the table again."""

    def changed_rows(self, table: str) -> Number:
        """Rows that the run writes into `edges` or `motif_edges`."""

    def first_change(self) -> int | None:
        """The first epoch at which an edge changes, or may change; None: none does."""

    def proposal_count(self) -> int | None:
        """Return how many candidates the delta query would propose, if they are counted or known from earlier runs."""

    def has_graph_cache(self) -> bool:
        """Whether the run before has left its graph; its files may have gone since."""

    def has_checkpoint(self) -> bool:
        """Tell whether the truss checkpoint is there, which is used where no graph cache can be."""

    def published_epochs(self) -> Collection[int]:
        """The epochs that are published in what the run builds on."""


class PlanChoice(ABC):
    """One decision of a stage."""

    NAME: ClassVar[str]
    FACTS: ClassVar[type[Facts]]

    @classmethod
    @abstractmethod
    def choose(cls, scope: Scope, config: Config, numbers: Numbers) -> Self | None:
        """The decision, or None where there is none to take."""

    @property
    @abstractmethod
    def strategy(self) -> str:
        """What the numbers, as they are known, say."""

    @property
    @abstractmethod
    def possible_strategies(self) -> frozenset[str]:
        """All ways that are open while the numbers are estimates."""

    @abstractmethod
    def describe(self, label: Label) -> str:
        """The choice, for a person."""

    @classmethod
    @abstractmethod
    def strategy_of(cls, facts: Facts) -> str:
        """Which way a run went."""

    @property
    def is_open(self) -> bool:
        return len(self.possible_strategies) > 1
