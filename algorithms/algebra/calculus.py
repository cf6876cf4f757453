"""The derivative and the integral of collections, and operators made of them: as-of joins and low-memory delta joins.

Law      differentiate puts each diff at its alt moment and takes it back at the neu moment, so the contents
         at a time are the changes made at it. integrate drops the neu moment. integrate(differentiate(C)) =
         C, triple by triple. delta_join(R1 … Rn) = R1 ⋈ … ⋈ Rn as n rules dRi ⋈ (others): relations before i
         include the changes of this very moment (alt), relations after i do not yet (delayed to neu), so each
         combination counts once.
Shapes   `along` names the total coordinate that gets the two moments; its part of the product becomes
         `AltNeu`.
CAUTION  Moments on a PARTIAL order are wrong for delta joins: changes at incomparable times see each other in no rule,
         and the combination is lost. `along` therefore names one total coordinate (revision), and other coordinates
         stay plain. Inside `iterate` use `delta_query`, which breaks ties by a total order.
Cost     differentiate doubles the triples; each rule is a chain of Spark joins that starts from the changes.
         Only the relations have to be kept, never a join of two of them.
Errors   ValueError if `along` is no total part of the time, or the relations are not connected by common
         columns.
Algebra  A ring of diffs: the second moment needs negation, the join multiplication.
Source   Seed 1 (differential dataflow meets calculus), whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import DIFF, Collection
from altneu.algorithms.algebra.joins import join
from altneu.algorithms.algebra.time_lattice import AltNeu, Lattice, Product, Total

MOMENT = "neu"


def moments(time: Lattice, along: str | None = None) -> Lattice:
    """Return `time` with alt and neu moments on its total coordinate `along`; by default `time` must be total as a
    whole.
    """
    if isinstance(time, Total) and along in (None, time.name):
        return AltNeu(time, MOMENT)
    parts = time.parts if isinstance(time, Product) else ()
    if not any(isinstance(p, Total) and p.name == along for p in parts):
        raise ValueError(f"`along` must name a total coordinate of {time.columns}, got {along!r}")
    wrapped = [AltNeu(p, MOMENT) if isinstance(p, Total) and p.name == along else p for p in parts]
    return Product(*wrapped)


def differentiate(collection: Collection, along: str | None = None, inner: Lattice | None = None) -> Collection:
    """Return the changes at the moments at which they happen: `(data, alt, diff)` and `(data, neu, -diff)`.

    `inner` overrides the lattice inside; seed 1's whole-time wrap is `inner=AltNeu(collection.time)`. Read CAUTION
    above.
    """
    time = inner or moments(collection.time, along)
    big = F.lit(0).cast("bigint"), F.lit(1).cast("bigint")
    blip = F.array(
        F.struct(big[0].alias(MOMENT), F.col(DIFF).alias(DIFF)),
        F.struct(big[1].alias(MOMENT), (-F.col(DIFF)).alias(DIFF)),
    )
    rest = [*collection.data, *collection.time.columns]
    return Collection(collection.df.select(*rest, F.inline(blip)), time)


def integrate(collection: Collection, outer: Lattice) -> Collection:
    """Collect instantaneous changes into a collection at `outer` times: drop the neu triples and the
    coordinate."""
    return Collection(collection.df.where(F.col(MOMENT) == 0), collection.time).leave(outer)


def as_of_join(
    left: Collection, right: Collection, on: Sequence[str] | None = None, along: str | None = None
) -> Collection:
    """Join each change of `left` with the contents of `right` at that moment, for ever: later changes of `right` do
    nothing.

    This is NOT the maintained join. A retraction of a left record retracts what `right` holds at the retraction, not
    what it held at the insertion: the contents depend on the history, and the result may stay negative. Retract with
    care, or never.
    """
    time = moments(left.time, along)
    blips = differentiate(left, along)
    return integrate(join(blips, right.enter(time), on), left.time)


def delta_join(
    relations: Sequence[Collection],
    along: str | None = None,
    only: Column | None = None,
    inner: Lattice | None = None,
) -> Collection:
    """Return the natural join of relations (matched by column names) as one rule per relation, in alt/neu order.

    With `only`, a condition on triples such as `F.col("revision") == 7`, the rules start from those changes
    alone and return the output's changes at that moment; the relations must then hold nothing later.
    """
    time = inner or moments(relations[0].time, along)
    names = list(dict.fromkeys(c for r in relations for c in r.data))
    alt = [r.enter(time) for r in relations]
    neu = [r.delay({MOMENT: F.lit(1)}) for r in alt]
    rules = []
    for i, relation in enumerate(relations):
        changes = relation if only is None else Collection(relation.df.where(only), relation.time)
        rule = differentiate(changes, along, inner)
        pending = [*alt[:i], *neu[i + 1 :]]
        while pending:
            nearest = max(pending, key=lambda r: len(set(r.data) & set(rule.data)))
            pending = [r for r in pending if r is not nearest]
            rule = join(rule, nearest)
        rules.append(integrate(Collection(rule.df.select(*names, *time.columns, DIFF), time), relation.time))
    return rules[0].concat(*rules[1:])


def rename_edge(edges: Collection, source: str, target: str) -> Collection:
    """Return the relation of edges with its two data columns, in order, renamed to `source` and `target`."""
    names: Mapping[str, str] = dict(zip(edges.data, (source, target), strict=True))
    return edges.rename(names)


def triangles(edges: Collection, along: str | None = None, only: Column | None = None) -> Collection:
    """Return `(a, b, c)` for every three edges (a, b), (a, c), (b, c), by seed 1's three rules.

    d△/dAB := dAB ⋈ AC ⋈ BC     AC and BC without the changes of this moment
    d△/dAC := dAC ⋈ AB ⋈ BC     AB with the changes of this moment, BC without them
    d△/dBC := dBC ⋈ AB ⋈ AC     AB and AC with the changes of this moment
    """
    ab, ac, bc = (rename_edge(edges, *ends) for ends in ("ab", "ac", "bc"))
    return delta_join([ab, ac, bc], along, only)
