"""The choice between the two plans of `triangles`, by estimated cost. No Spark: `altneu plan` asks as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NAMES = {"delta": "delta query", "bulk": "enumeration of all"}


@dataclass(frozen=True)
class Choice:
    """Which plan counts a change: the wanted one, or with "auto" the one that is estimated to cost less.

    `index`, `delta`: edge intervals before and of the change; `proposals`: of the delta query, None until they are
    counted (a scan of the index): until then ten for each changed edge.
    """

    wanted: str
    index: int
    delta: int
    proposals: int | None = None

    def seconds(self) -> dict[str, float]:
        """What either plan costs, about: measured on one machine of two cores, so trust the ratio."""
        edges = self.index + self.delta
        proposals = 10 * self.delta if self.proposals is None else self.proposals
        return {
            "delta": 1.2 + 0.35e-6 * self.index + 3e-6 * self.delta + 1e-6 * proposals,
            "bulk": 0.5 + 2e-6 * edges + 1.6e-9 * edges**1.5,
        }

    @property
    def plan(self) -> str:
        """`delta` or `bulk`."""
        estimate = self.seconds()
        return self.wanted if self.wanted in estimate else min(estimate, key=lambda name: estimate[name])

    def words(self) -> str:
        """The choice and its reason, for a person."""
        estimate = self.seconds()
        other = "bulk" if self.plan == "delta" else "delta"
        why = "by cost" if self.wanted == "auto" else "as [triangles] plan says"
        return f"{NAMES[self.plan]}, {why}: about {estimate[self.plan]:.1f} s ({NAMES[other]}: {estimate[other]:.1f} s)"

    def facts(self) -> dict[str, Any]:
        """What is recorded of it: the plan, the reason in words, proposals if counted, estimates in seconds."""
        estimate = {name: round(value, 2) for name, value in self.seconds().items()}
        return {"plan": self.plan, "chosen": self.words(), "proposals": self.proposals, "estimate": estimate}
