"""The choice between the plans of `triangles`, by estimated cost, and of `motifs`. No Spark: `altneu plan` asks too."""

from __future__ import annotations

from dataclasses import dataclass

BROADCAST_ROWS = 1_000_000  # a side of a join with more rows is shuffled: about 150 bytes a row in every executor
# Up to so many stored rows all of them are looked at: to choose those that a change touches is a query more.
WHOLE_ROWS = 20_000
NAMES = {"resume": "from the kept graph", "delta": "delta query", "bulk": "enumeration of all"}
MOTIF_NAMES = {"joins": "delta query in joins", "delta": "delta query in one task", "bulk": NAMES["bulk"]}


@dataclass(frozen=True)
class TrianglePlanChoice:
    """Which plan counts a change: the wanted one, or with "auto" the one that is estimated to cost less.

    `index`, `delta`: edge intervals before and of the change; `proposals`: of the delta query, None until they are
    counted (a scan of the index): until then ten for each changed edge. `kept`: whether the last run's graph is there.
    """

    wanted: str
    index: int
    delta: int
    proposals: int | None = None
    kept: bool = False

    def estimated_seconds(self) -> dict[str, float]:
        """What each plan costs, about: measured on one machine of two cores, so trust the ratio."""
        edges = self.index + self.delta
        proposals = 10 * self.delta if self.proposals is None else self.proposals
        resume = {"resume": 0.5 + 0.1e-6 * self.index + 15e-6 * self.delta} if self.kept else {}
        return resume | {
            "delta": 1.0 + 0.4e-6 * self.index + 3e-6 * self.delta + 0.65e-6 * proposals,
            "bulk": 0.3 + 0.5e-6 * edges + 0.35e-9 * edges**1.5,
        }

    @property
    def plan(self) -> str:
        """`resume`, `delta` or `bulk`."""
        estimate = self.estimated_seconds()
        return self.wanted if self.wanted in estimate else min(estimate, key=lambda name: estimate[name])

    def describe(self) -> str:
        """The choice and its reason, for a person."""
        estimate = self.estimated_seconds()
        others = ", ".join(f"{NAMES[name]}: {estimate[name]:.1f} s" for name in estimate if name != self.plan)
        why = "as [triangles] plan says" if self.wanted == self.plan else "by cost"
        return f"{NAMES[self.plan]}, {why}: about {estimate[self.plan]:.1f} s ({others})"


@dataclass(frozen=True)
class MotifPlanChoice:
    """Which plan counts the motifs: the wanted one, or with "auto" the delta query while its rules see less than all.

    `stored`, `changed`: intervals of the relations before and of the change; `rules`: how many the largest pattern has,
    one for each of its edges. Beyond `limit` intervals nothing is brought to one task, whatever is wanted.
    """

    wanted: str
    stored: int
    changed: int
    rules: int
    limit: int

    @property
    def plan(self) -> str:
        """`delta` or `bulk`, in one task; or `joins`."""
        if self.stored + self.changed > self.limit:
            return "joins"
        if not self.stored:
            return "bulk"
        auto = "delta" if self.rules * self.changed < self.stored else "bulk"
        return self.wanted if self.wanted in ("delta", "bulk") else auto

    def describe(self) -> str:
        """The choice, for a person."""
        return MOTIF_NAMES[self.plan]
