"""Delta queries: any natural join of relations as one rule per relation, each a chain of extensions.

Law      The result has `(x1 … xn, t1 ∨ … ∨ tm, d1 * … * dm)` for every choice of one triple (ti, di) per atom
         that agrees on the variables. Rule i claims the choices whose LAST triple is atom i's, in a total
         order of (time, atom index). Every choice has exactly one last triple, so it is claimed once, for
         partial orders too, inside `iterate` too: ties break on the triples' own (initial) times, the output
         goes to their join.
Shapes   A `Query` (see `query`) has atoms (relation name, variables), constraints a < b and a != b. Relations are
         collections whose data columns correspond to the variables by position. Result: the variables as data, in order
         of appearance.
Plan     Per rule the attribute order is greedy: next the variable that most atoms constrain, then the one
         with the least given `fanout`. Each step is count → propose → validate over the pairs that ever
         existed, then the joins with the histories of the atoms that became fully bound, which keep what
         comes before in the order.
Cost     Candidates per step: at most Σ min(count) (law 8), counts taken over every pair that ever existed. A
         record of h triples costs h rows, so compact old histories. `explain` shows the rules without running
         anything.
Errors   ValueError for atoms that do not fit their relation, unknown names, or unconnected variables.
Sets     Relations are meant to be sets at every time (`as_sets` makes them so, `check_sets` gives the rows that break
         it): then every result has multiplicity 1. Of bags it is the bilinear join, multiplicities multiplied.
Algebra  A semiring of diffs; as_sets needs the order that distinct needs.
Source   Seed 4 (delta queries, (T, relation index), count/propose/validate); design §2 for the total order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce as fold

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from algorithms.collection import DIFF, Collection, common_since
from algorithms.extend import Extender, extend
from algorithms.query import Atom, Query
from algorithms.reduce import distinct, threshold
from algorithms.times import Lattice, Lexicographic, Product


@dataclass(frozen=True)
class Rule:
    """One rule: the atom whose changes it starts from, and the order in which it binds the other
    variables."""

    atom: int
    order: tuple[str, ...]


def rules(query: Query, fanout: Mapping[str, float] | None = None) -> list[Rule]:
    """One rule per atom; `fanout` estimates, per variable, how many values an extension by it offers."""
    found = []
    for i, atom in enumerate(query.atoms):
        bound, order = list(atom.variables), []
        while len(bound) < len(query.variables):
            choices = []
            for v in query.variables:
                tied = [a for a in query.atoms if v in a.variables and set(a.variables) & set(bound)]
                if v not in bound and tied:
                    choices.append((-len(tied), (fanout or {}).get(v, 0.0), query.variables.index(v), v))
            if not choices:
                free = [v for v in query.variables if v not in bound]
                raise ValueError(f"the variables {free} are not connected to {list(atom.variables)}")
            order.append(min(choices)[-1])
            bound.append(order[-1])
        found.append(Rule(i, tuple(order)))
    return found


def explain(query: Query, fanout: Mapping[str, float] | None = None) -> list[str]:
    """The rules as formulas: `dR0 ⋈ R1 ⋈ …`, earlier relations new, later ones old.

    >>> explain(Query.parse("e(a,b), e(a,c), e(b,c)"))[0]
    'de(a,b) → c: e(a,c) old, e(b,c) old'
    """
    lines = []
    for rule in rules(query, fanout):
        bound, line = set(query.atoms[rule.atom].variables), f"d{_show(query.atoms[rule.atom])}"
        for v in rule.order:
            parts = [
                f"{_show(a)} {'new' if j < rule.atom else 'old'}"
                for j, a in enumerate(query.atoms)
                if j != rule.atom and v in a.variables and set(a.variables) & bound
            ]
            bound.add(v)
            line += f" → {v}: {', '.join(parts)}"
        lines.append(line)
    return lines


def delta_query(
    query: Query,
    relations: Mapping[str, Collection],
    order: Sequence[str] | None = None,
    only: Column | None = None,
    fanout: Mapping[str, float] | None = None,
) -> Collection:
    """The collection of the query's results.

    `order` arranges the time columns for the tie-break, most significant first; default: as in the lattice,
    reversed (revision before epoch). With `only`, a condition on triples such as `F.col("revision") == 7`,
    the rules start from those changes alone: right when they come last in that order, that is when nothing
    later is in the relations.
    """
    time = _check(query, relations)
    ties = list(order or total_order(time))
    if sorted(ties) != sorted(time.columns):
        raise ValueError(f"the order {ties} must name every time column of {time.columns}")
    parts = [_run(query, relations, rule, time, ties, only) for rule in rules(query, fanout)]
    return parts[0].concat(*parts[1:])


def total_order(time: Lattice) -> list[str]:
    """The time columns as a total order that extends the lattice's: a product's last part counts most.

    >>> from algorithms.times import EPOCH_REVISION, AltNeu
    >>> total_order(EPOCH_REVISION), total_order(AltNeu(EPOCH_REVISION))
    (['revision', 'epoch'], ['revision', 'epoch', 'neu'])
    """
    if isinstance(time, Product):
        return [c for part in reversed(time.parts) for c in total_order(part)]
    return [*total_order(time.inner), time.name] if isinstance(time, Lexicographic) else list(time.columns)


def as_sets(relations: Mapping[str, Collection]) -> dict[str, Collection]:
    """The relations as sets: distinct at every time."""
    return {name: distinct(r) for name, r in relations.items()}


def check_sets(relation: Collection) -> Collection:
    """The records, with the times, where a relation is no set: empty (in contents) if all multiplicities are
    0 or 1."""
    return threshold(relation, lambda m: ((m != 0) & (m != 1)).cast("bigint")).consolidate()


def _run(
    query: Query,
    relations: Mapping[str, Collection],
    rule: Rule,
    time: Lattice,
    ties: Sequence[str],
    only: Column | None,
) -> Collection:
    """One rule. Prefix rows: bound variables, `_at_…` (the delta's own time), the joined time, the multiplied
    diff."""
    start = _bind(relations[query.atoms[rule.atom].relation], query.atoms[rule.atom])
    changes = start.df if only is None else start.df.where(only)
    prefix = changes.withColumns({f"_at_{c}": F.col(c) for c in time.columns})
    bound = list(query.atoms[rule.atom].variables)
    prefix = _ordered(query, prefix, bound, set())
    joined = {rule.atom}
    # Atoms over the same variables as the delta bind nothing new, but their history counts.
    prefix = _histories(query, relations, rule, time, ties, prefix, bound, joined)
    for v in rule.order:
        touching = [(j, a) for j, a in enumerate(query.atoms) if v in a.variables and set(a.variables) & set(bound)]
        extenders = []
        for _, a in touching:
            key = tuple(x for x in a.variables if x in bound)
            pairs = _bind(relations[a.relation], a).df.select(*key, v).distinct()
            extenders.append(Extender(pairs, key, v))
        before = set(bound)
        prefix = extend(prefix, extenders)
        bound.append(v)
        prefix = _ordered(query, prefix, bound, before)
        prefix = _histories(query, relations, rule, time, ties, prefix, bound, joined)
    since = common_since(*relations.values())
    return Collection(prefix.select(*query.variables, *time.columns, DIFF), time, since)


def _histories(
    query: Query,
    relations: Mapping[str, Collection],
    rule: Rule,
    time: Lattice,
    ties: Sequence[str],
    prefix: DataFrame,
    bound: Sequence[str],
    joined: set[int],
) -> DataFrame:
    """Join the prefix with the triples of every atom that is now fully bound, keeping those before the
    delta."""
    for j, atom in enumerate(query.atoms):
        if j in joined or not set(atom.variables) <= set(bound):
            continue
        joined.add(j)
        history = _bind(relations[atom.relation], atom).df
        away = history.select([F.col(c).alias(f"_r_{c}") for c in history.columns])
        same = fold(Column.__and__, [F.col(v) == F.col(f"_r_{v}") for v in atom.variables])
        earlier = before_in_order(
            [F.col(f"_r_{c}") for c in ties], [F.col(f"_at_{c}") for c in ties], or_equal=j < rule.atom
        )
        both = prefix.join(away, same & earlier)
        names = time.columns
        later = time.join_columns([F.col(c) for c in names], [F.col(f"_r_{c}") for c in names])
        moved = dict(zip(names, later, strict=True)) | {DIFF: F.col(DIFF) * F.col(f"_r_{DIFF}")}
        prefix = both.withColumns(moved).drop(*away.columns)
    return prefix


def before_in_order(a: Sequence[Column], b: Sequence[Column], or_equal: bool) -> Column:
    """a before b in the lexicographic order of their coordinates; `or_equal` also admits a = b."""
    test = F.lit(or_equal)
    for x, y in reversed(list(zip(a, b, strict=True))):
        test = (x < y) | ((x == y) & test)
    return test


def _ordered(query: Query, prefix: DataFrame, bound: Sequence[str], before: set[str]) -> DataFrame:
    """Apply the constraints whose two variables have just become bound."""
    tests = [(pair, F.col(pair[0]) < F.col(pair[1])) for pair in query.less_than]
    tests += [(pair, F.col(pair[0]) != F.col(pair[1])) for pair in query.different]
    for pair, test in tests:
        if set(pair) <= set(bound) and not set(pair) <= before:
            prefix = prefix.where(test)
    return prefix


def _bind(relation: Collection, atom: Atom) -> Collection:
    """The relation with its data columns named by the atom's variables."""
    return relation.rename(dict(zip(relation.data, atom.variables, strict=True)))


def _show(atom: Atom) -> str:
    return f"{atom.relation}({','.join(atom.variables)})"


def _check(query: Query, relations: Mapping[str, Collection]) -> Lattice:
    for atom in query.atoms:
        if atom.relation not in relations:
            raise ValueError(f"{_show(atom)}: no relation {atom.relation}; there are {sorted(relations)}")
        data = relations[atom.relation].data
        if len(data) != len(atom.variables) or len(set(atom.variables)) != len(atom.variables):
            raise ValueError(f"{_show(atom)} needs one variable, each different, per data column {data}")
    alien = {v for pair in (*query.less_than, *query.different) for v in pair} - set(query.variables)
    if alien:
        raise ValueError(f"constraints on unknown variables {sorted(alien)}")
    times = {r.time.columns for r in relations.values()}
    if len(times) != 1:
        raise ValueError(f"the relations have different times: {sorted(times)}")
    time = next(iter(relations.values())).time
    taken = {c.lower() for c in (*time.columns, DIFF)}
    for v in query.variables:
        if v.lower() in taken:
            raise ValueError(f"the variable {v}{query.place(v)} is named like a time, diff or another: rename it")
        taken.add(v.lower())
    return time
