"""What a proof of a maintained graph says: by how much each table must change at every epoch, and what is wrong.

`compile_kernels.proof` makes it in the task that maintains the trussness; whoever has the tables compares. Collections:
edges (a, b), degrees (vertex, times its degree), triangle_counts (vertex, times its triangles), trussness (a, b, k).
Plain data; importing this loads neither Spark nor kernels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from algorithms.fingerprint import Fingerprint

COLLECTIONS = ("edges", "degrees", "triangle_counts", "trussness")
SHOWN = 20  # wrong edges that are kept
Prints = dict[str, Fingerprint]  # by collection


class UnprovedEdge(NamedTuple):
    """An edge whose trussness k is not proved."""

    a: int
    b: int
    k: int
    why: str


@dataclass
class GraphCounts:
    """Of a graph, or of what changes in it. trusses: k → edges of that trussness."""

    edges: int = 0
    vertices: int = 0
    wedges: int = 0
    triangles: int = 0
    trusses: dict[int, int] = field(default_factory=dict)


class ProvedState(NamedTuple):
    """Of a graph as it is."""

    prints: Prints
    counts: GraphCounts

    def to_json(self) -> str:
        return json.dumps({"prints": {k: asdict(v) for k, v in self.prints.items()}, "counts": asdict(self.counts)})

    @classmethod
    def from_json(cls, text: str) -> ProvedState:
        said = json.loads(text)
        return cls(_fingerprints_from_json(said["prints"]), _counts_from_json(said["counts"]))


@dataclass
class ProvedEpoch:
    """What is proved of an epoch: by how much each collection changes, and how many edges were looked at."""

    epoch: int
    prints: Prints
    counts: GraphCounts
    looked_at: int


@dataclass
class ProofScope:
    """What a proof covers besides what changes: one of so many parts of the vertices, of 0 parts nothing. Which one is
    up to the graph, where it knows which came last; else the `which`-th."""

    parts: int = 0
    which: int = 0


@dataclass
class Proof:
    """base, counts: the state before the first epoch, empty where it is as it was proved before; part: at the last
    epoch, of the vertices `between` two ids; asked: with the part that it was.

    wrong: how many edges are not proved; shown: the first of them.
    """

    base: Prints
    counts: GraphCounts
    steps: list[ProvedEpoch]
    part: Prints
    looked_at: int
    wrong: int
    shown: list[UnprovedEdge]
    asked: ProofScope
    between: tuple[int, int] = (0, 0)

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Proof:
        """
        >>> one = ProvedEpoch(5, {"edges": Fingerprint(1, 2)}, GraphCounts(1, 2, 0, 0, {2: 1}), 1)
        >>> proof = Proof(one.prints, one.counts, [one], {}, 1, 1, [UnprovedEdge(1, 2, 3, "too low")], ProofScope(8, 3))
        >>> Proof.from_json(proof.to_json()) == proof
        True
        """
        said = json.loads(text)
        if "between" not in said:  # of an earlier version, whose parts were of other vertices
            said |= {"asked": {}, "part": {}, "between": (0, 0)}
        steps = [
            ProvedEpoch(
                step["epoch"],
                _fingerprints_from_json(step["prints"]),
                _counts_from_json(step["counts"]),
                step["looked_at"],
            )
            for step in said["steps"]
        ]
        plain = {name: said[name] for name in ("looked_at", "wrong")}
        return cls(
            base=_fingerprints_from_json(said["base"]),
            counts=_counts_from_json(said["counts"]),
            steps=steps,
            part=_fingerprints_from_json(said["part"]),
            shown=[UnprovedEdge(*row) for row in said["shown"]],
            asked=ProofScope(**said["asked"]),
            between=tuple(said["between"]),
            **plain,
        )


def add_counts(counts: GraphCounts, change: GraphCounts, times: int = 1) -> GraphCounts:
    """The counts after a change, or with times = -1 before it."""
    ks = {*counts.trusses, *change.trusses}
    trusses = {k: counts.trusses.get(k, 0) + times * change.trusses.get(k, 0) for k in ks}
    names = ("edges", "vertices", "wedges", "triangles")
    sums: Mapping[str, int] = {name: getattr(counts, name) + times * getattr(change, name) for name in names}
    return GraphCounts(**sums, trusses={k: n for k, n in sorted(trusses.items()) if n})


def _fingerprints_from_json(said: Mapping[str, Mapping[str, int]]) -> Prints:
    return {name: Fingerprint(**each) for name, each in said.items()}


def _counts_from_json(said: Mapping[str, Any]) -> GraphCounts:
    return GraphCounts(**{**said, "trusses": {int(k): n for k, n in said["trusses"].items()}})
