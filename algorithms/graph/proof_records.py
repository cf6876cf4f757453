"""The record of a proof of a maintained graph: by how much each table must change at every epoch, and which edges are
wrong.

`kernels.incremental_prover` makes it in the task that maintains the trussness; the code that reads the tables compares.
Collections: edges (a, b), degrees (vertex, as often as its degree), triangle_counts (vertex, as often as its
triangles), trussness (a, b, k). These are plain data; importing this module loads neither Spark nor kernels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from altneu.algorithms.fingerprint import Fingerprint

COLLECTIONS = ("edges", "degrees", "triangle_counts", "trussness")
MAX_LISTED_EDGES = 20  # the number of wrong edges that a proof lists
Prints = dict[str, Fingerprint]  # by collection


class UnprovedEdge(NamedTuple):
    """An edge whose trussness k is not proved; epoch: that of the batch after which it shows, None if of no batch."""

    a: int
    b: int
    k: int
    why: str
    epoch: int | None = None


@dataclass
class GraphCounts:
    """Counts of a graph, or of the changes to it. trusses: k → the number of edges of that trussness."""

    edges: int = 0
    vertices: int = 0
    wedges: int = 0
    triangles: int = 0
    trusses: dict[int, int] = field(default_factory=dict)


class ProvedState(NamedTuple):
    """The fingerprints and counts of a graph as it is."""

    prints: Prints
    counts: GraphCounts

    def to_json(self) -> str:
        return json.dumps({"prints": {k: asdict(v) for k, v in self.prints.items()}, "counts": asdict(self.counts)})

    @classmethod
    def from_json(cls, text: str) -> ProvedState:
        record = json.loads(text)
        return cls(_fingerprints_from_json(record["prints"]), _counts_from_json(record["counts"]))


@dataclass
class ProvedEpoch:
    """The proved changes of an epoch: the fingerprint of those of each collection, their counts, how many edges were
    read, and how many of them are not proved.
    """

    epoch: int
    prints: Prints
    counts: GraphCounts
    looked_at: int
    wrong: int = 0


@dataclass
class ProofScope:
    """The part of a graph that a proof covers besides the changes: one of `parts` parts of the vertices; 0 parts: none.

    The graph decides which one, if it knows which was last; otherwise it is the `which`-th.
    """

    parts: int = 0
    which: int = 0


@dataclass
class Proof:
    """The proof of a run.

    base, counts: the state before the first epoch, empty if it is the state that was proved before; steps: the proved
    epochs; part: the fingerprints at the last epoch of the vertices `between` two ids; looked_at: how many edges were
    read; wrong: how many edges are not proved; listed_edges: the first of them; scope: with the part that was proved.
    In JSON the last two are `shown` and `asked`.
    """

    base: Prints
    counts: GraphCounts
    steps: list[ProvedEpoch]
    part: Prints
    looked_at: int
    wrong: int
    listed_edges: list[UnprovedEdge]
    scope: ProofScope
    between: tuple[int, int] = (0, 0)

    def to_json(self) -> str:
        record = asdict(self)
        record |= {"shown": record.pop("listed_edges"), "asked": record.pop("scope")}
        return json.dumps(record, default=str)

    @classmethod
    def from_json(cls, text: str) -> Proof:
        """Return the proof of a JSON text.

        >>> one = ProvedEpoch(5, {"edges": Fingerprint(1, 2)}, GraphCounts(1, 2, 0, 0, {2: 1}), 1)
        >>> proof = Proof(one.prints, one.counts, [one], {}, 1, 1, [UnprovedEdge(1, 2, 3, "too low")], ProofScope(8, 3))
        >>> Proof.from_json(proof.to_json()) == proof
        True
        >>> record = json.loads(proof.to_json())
        >>> record["asked"], record["shown"]
        ({'parts': 8, 'which': 3}, [[1, 2, 3, 'too low', None]])
        """
        record = json.loads(text)
        if "between" not in record:  # from an earlier version, which divided the vertices into other parts
            record |= {"asked": {}, "part": {}, "between": (0, 0)}
        steps = [
            ProvedEpoch(
                step["epoch"],
                _fingerprints_from_json(step["prints"]),
                _counts_from_json(step["counts"]),
                step["looked_at"],
                step.get("wrong", 0),
            )
            for step in record["steps"]
        ]
        plain = {name: record[name] for name in ("looked_at", "wrong")}
        return cls(
            base=_fingerprints_from_json(record["base"]),
            counts=_counts_from_json(record["counts"]),
            steps=steps,
            part=_fingerprints_from_json(record["part"]),
            listed_edges=[UnprovedEdge(*row) for row in record["shown"]],
            scope=ProofScope(**record["asked"]),
            between=tuple(record["between"]),
            **plain,
        )


def add_counts(counts: GraphCounts, change: GraphCounts, times: int = 1) -> GraphCounts:
    """Return the counts after a change, or with times = -1 before it."""
    ks = {*counts.trusses, *change.trusses}
    trusses = {k: counts.trusses.get(k, 0) + times * change.trusses.get(k, 0) for k in ks}
    names = ("edges", "vertices", "wedges", "triangles")
    sums: Mapping[str, int] = {name: getattr(counts, name) + times * getattr(change, name) for name in names}
    return GraphCounts(**sums, trusses={k: n for k, n in sorted(trusses.items()) if n})


def _fingerprints_from_json(record: Mapping[str, Mapping[str, int]]) -> Prints:
    return {name: Fingerprint(**sums) for name, sums in record.items()}


def _counts_from_json(record: Mapping[str, Any]) -> GraphCounts:
    return GraphCounts(**{**record, "trusses": {int(k): n for k, n in record["trusses"].items()}})
