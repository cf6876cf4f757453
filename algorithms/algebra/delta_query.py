"""Delta queries: any natural join of relations as one rule per relation, each of them a chain of extensions.

Law      The result has `(x1 … xn, t1 ∨ … ∨ tm, d1 * … * dm)` for every choice of one triple (ti, di) per atom
         that agrees on the variables. Rule i claims the choices whose LAST triple is atom i's, in a total
         order of (time, atom index). Every choice has exactly one last triple, so it is claimed once, for
         partial orders and inside `iterate`, too: ties break on the triples' own (initial) times, and the output
         goes to their join. Triples of a delta come after all others, whatever their times are.
Shapes   A `Query` (see `query`) has atoms (relation name, variables and constants), constraints a < b and a != b, and a
         head. Relations are collections whose data columns correspond to the terms by position. Result: the variables
         of the head as data, or all in order of appearance.
Plan     Per rule the attribute order is greedy: next the variable that most atoms constrain, then the one with the
         least given `fanout`. All rules go through their steps together, distinguished by a column (`extend`): so a
         triangle has 8 exchanges and a 4-clique 20, whatever the number of rules.
Cost     Candidates per step: at most Σ min(count) (law 8), where counts are over the triples of all times. A record of
         h triples costs h rows, so compact old histories. `explain` shows the rules without running anything.
Errors   ValueError for atoms that do not fit their relation, unknown names, or unconnected variables.
         `TooManyCandidates` of a `limit`.
Sets     Relations are meant to be sets at every time (`as_sets` makes them sets, `check_sets` returns the rows that are
         none): then every choice has multiplicity 1, and a projection counts the choices. For bags the result is the
         bilinear join, with multiplicities multiplied. A null is equal to, less than or different from nothing.
Algebra  A semiring of diffs; as_sets needs the order that distinct needs.
Source   Seed 4 (delta queries, (T, relation index), count/propose/validate); design §2 for the total order.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import and_
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.algebra.candidate_limit import CandidateLimit
from altneu.algorithms.algebra.collection import DIFF, Collection, common_since
from altneu.algorithms.algebra.prefix_extension import RULE, AtomLookup, BoundTest, Case, Extension, View
from altneu.algorithms.algebra.query import Constant, Query, Term
from altneu.algorithms.algebra.reduce import distinct, threshold
from altneu.algorithms.algebra.time_lattice import Interval, Lattice, Lexicographic, Product

NEU = "_neu"
Conditions = Mapping[str, Sequence[str]]
"""Conditions on the variables of a query, in Spark SQL, each with the variables that it names."""


@dataclass(frozen=True)
class Rule:
    """A rule: the atom from whose changes it starts, and the order in which it binds the other variables."""

    atom: int
    order: tuple[str, ...]


def rules(query: Query, fanout: Mapping[str, float] | None = None) -> list[Rule]:
    """Return one rule per atom; `fanout` estimates, per variable, how many values an extension by it offers."""
    _require_connected(query)
    plans, joined = [], _joined_variables(query)
    for i, atom in enumerate(query.atoms):
        bound, order = list(atom.variables), []
        while not set(joined) <= set(bound):
            choices = []
            for v in joined:
                tied = [a for a in query.atoms if v in a.variables and set(a.variables) & set(bound)]
                if v not in bound and tied:
                    choices.append((-len(tied), (fanout or {}).get(v, 0.0), query.variables.index(v), v))
            order.append(min(choices)[-1])
            bound.append(order[-1])
        plans.append(Rule(i, tuple(order)))
    return plans


def _joined_variables(query: Query) -> list[str]:
    """Return the variables of several atoms, in order: rules extend by these, and the others come with their atom."""
    occurrences = [v for atom in query.atoms for v in atom.variables]
    return [v for v in query.variables if occurrences.count(v) > 1]


def _require_connected(query: Query) -> None:
    """Raise ValueError where some atoms share no variable with the others: a product is not supported."""
    reached, left = set(query.atoms[0].variables), list(query.atoms[1:])
    while near := [atom for atom in left if reached & set(atom.variables)]:
        reached.update(v for atom in near for v in atom.variables)
        left = [atom for atom in left if atom not in near]
    if left:
        free = list(dict.fromkeys(v for atom in left for v in atom.variables))
        raise ValueError(f"the variables {free} are not connected to {list(query.atoms[0].variables)}")


def explain(query: Query, fanout: Mapping[str, float] | None = None) -> list[str]:
    """Return the rules as formulas: `dR0 ⋈ R1 ⋈ …`, earlier relations new, later ones old.

    >>> explain(Query.from_text("e(a,b), e(a,c), e(b,c)"))[0]
    'de(a,b) → c: e(a,c) old, e(b,c) old'
    """
    lines = []
    for rule in rules(query, fanout):
        bound, line = set(query.atoms[rule.atom].variables), f"d{query.atoms[rule.atom]}"
        for v in rule.order:
            parts = [
                f"{a} {'new' if j < rule.atom else 'old'}"
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
    *,
    broadcast: bool = False,
) -> Collection:
    """Return the collection of the query's results.

    Args:
        query: the query.
        relations: a collection for each relation name.
        order: the time columns for the tie-break, most significant first. None: those of the lattice, reversed
            (revision before epoch).
        only: a condition on triples such as `F.col("revision") == 7`. The rules start from these triples alone: the
            result is what they add to the result of the others.
        fanout: estimates, per variable, how many values an extension by it offers.
        broadcast: exchange no relation; the prefixes of each step must fit into an executor's memory. This is for few
            changes.
    """
    time = _require_same_times(query, relations)
    ties = list(order or total_order(time))
    if sorted(ties) != sorted(time.columns):
        raise ValueError(f"the order {ties} must name every time column of {time.columns}")
    frames = {name: relation.df for name, relation in relations.items()}
    if only is not None:
        late = F.coalesce(only, F.lit(False)).cast("bigint")
        frames = {name: frame.withColumn(NEU, late) for name, frame in frames.items()}
    return _run_rules(
        query,
        relations,
        frames,
        rules(query, fanout),
        time,
        [NEU, *ties] if only is not None else ties,
        broadcast=broadcast,
    )


def query_changes(
    query: Query,
    before: Mapping[str, Collection],
    delta: Mapping[str, Collection],
    fanout: Mapping[str, float] | None = None,
    broadcast: bool = False,
    limit: CandidateLimit | None = None,
    conditions: Conditions = MappingProxyType({}),
) -> Collection:
    """Return what the deltas add to the query's results: those of `before` and `delta` together, minus those of
    `before`.

    A relation without a delta stays as it is. A delta may have any times, late ones too. With a `limit` the joins are
    counted, one after the other, before they list anything: this EXECUTES. Results that do not pass all `conditions`
    are left out, as soon as the variables are bound.
    """
    alien = [name for name in delta if name not in before]
    if alien:
        raise ValueError(f"there are changes of {alien}, which are no relations; the relations are {sorted(before)}")
    time = _require_same_times(query, before)
    frames = {}
    for name, relation in before.items():
        frames[name] = relation.df.withColumn(NEU, F.lit(0).cast("bigint"))
        if name in delta:
            relation.concat(delta[name])  # raises ValueError for other columns and times
            frames[name] = frames[name].unionByName(delta[name].df.withColumn(NEU, F.lit(1).cast("bigint")))
    both = {**before, **{f"{name} delta": changes for name, changes in delta.items()}}
    # A rule that starts from a relation without a delta finds nothing.
    starting = [rule for rule in rules(query, fanout) if query.atoms[rule.atom].relation in delta]
    stamp = [NEU, *total_order(time)]
    return _run_rules(query, both, frames, starting, time, stamp, conditions, broadcast=broadcast, limit=limit)


def total_order(time: Lattice) -> list[str]:
    """Return the time columns as a total order that extends the lattice's: a product's last part counts most.

    >>> from altneu.algorithms.algebra.time_lattice import EPOCH_REVISION, AltNeu
    >>> total_order(EPOCH_REVISION), total_order(AltNeu(EPOCH_REVISION))
    (['revision', 'epoch'], ['revision', 'epoch', 'neu'])
    """
    if isinstance(time, Product):
        return [c for part in reversed(time.parts) for c in total_order(part)]
    if isinstance(time, Interval):
        return []  # the order of a delta's triples is that of their atoms
    return [*total_order(time.inner), time.name] if isinstance(time, Lexicographic) else list(time.columns)


def as_sets(relations: Mapping[str, Collection]) -> dict[str, Collection]:
    """Return the relations as sets: distinct at every time."""
    return {name: distinct(r) for name, r in relations.items()}


def check_sets(relation: Collection) -> Collection:
    """Return the records, with the times, where a relation is no set: none (in contents) if all multiplicities are 0 or
    1.
    """
    return threshold(relation, lambda m: ((m != 0) & (m != 1)).cast("bigint")).consolidate()


def _run_rules(
    query: Query,
    relations: Mapping[str, Collection],
    frames: Mapping[str, DataFrame],
    rules: Sequence[Rule],
    time: Lattice,
    stamp: Sequence[str],
    conditions: Conditions = MappingProxyType({}),
    *,
    broadcast: bool,
    limit: CandidateLimit | None = None,
) -> Collection:
    """Run all rules through their steps together."""
    views, of = _atom_views(query, relations, frames, list(dict.fromkeys([*stamp, *time.columns])))
    types = {v: views[of[i]].types[p] for i, a in enumerate(query.atoms) for p, v in enumerate(a.variables)}
    tests = [*_list_constraints(query), *_list_conditions(conditions)]
    extension = Extension(views, time, stamp, broadcast, limit, tests)
    bound = [frozenset(query.atoms[rule.atom].variables) for rule in rules]
    prefixes = _initial_prefixes(query, rules, views, of, types, time, stamp)
    prefixes = extension.drop_unfit(prefixes, RULE, {i: (None, variables) for i, variables in enumerate(bound)})
    needed = {*query.results}.union(*[test.variables for test in tests])
    plans = [_plan_steps(query, rule, of, needed) for rule in rules]
    for number in range(max(map(len, plans))):
        cases = [(i, steps[number] if number < len(steps) else [()]) for i, steps in enumerate(plans)]
        step = [Case(i, asks, bound[i]) for i, mine in cases for asks in mine]
        if any(case.asks for case in step):
            prefixes = extension.extend(prefixes, step)
        for case in step:  # those of a rule bind the same variables
            bound[case.rule] = case.bound_after(len(case.asks))
    since = common_since(*relations.values())
    return Collection(prefixes.select(*query.results, *time.columns, DIFF), time, since)


def _atom_views(
    query: Query, relations: Mapping[str, Collection], frames: Mapping[str, DataFrame], stamp: Sequence[str]
) -> tuple[list[View], list[int]]:
    """Return the relations as the atoms see them, and the number of the view of each atom: equal views are shared."""
    kinds = _variable_types(query, relations)
    shared = [v for atom in query.atoms for v in atom.variables]
    numbers: dict[tuple[object, ...], int] = {}
    views: list[View] = []
    of: list[int] = []
    for atom in query.atoms:
        data = relations[atom.relation].data
        same = tuple((i, t if isinstance(t, Constant) else atom.terms.index(t)) for i, t in enumerate(atom.terms))
        types = tuple(kinds[v] for v in atom.variables)
        meets = tuple(i for i, v in enumerate(atom.variables) if shared.count(v) > 1)
        number = numbers.setdefault((atom.relation, same, types, meets), len(views))
        of.append(number)
        if number < len(views):
            continue
        names = tuple(f"_v{i}" for i in range(len(types)))
        tests = [
            F.col(data[i]) == (F.lit(t.value) if isinstance(t, Constant) else F.col(data[t])) for i, t in same if t != i
        ]
        tests += [F.col(data[atom.terms.index(atom.variables[i])]).isNotNull() for i in meets]
        rows = frames[atom.relation].where(functools.reduce(and_, tests)) if tests else frames[atom.relation]
        columns = [
            F.col(data[atom.terms.index(v)]).cast(kind).alias(name)
            for v, kind, name in zip(atom.variables, types, names, strict=True)
        ]
        views.append(View(rows.select(*columns, *stamp, DIFF), names, types))
    return views, of


def _variable_types(query: Query, relations: Mapping[str, Collection]) -> dict[str, str]:
    """Return Spark's type of each variable: that of its columns, or one that holds them all.

    Raises:
        ValueError: a constant is of another kind than its column or variable.
    """
    columns: dict[str, list[Column]] = {}
    kinds: dict[str, str] = {}
    types = {name: dict(relation.df.dtypes) for name, relation in relations.items()}
    for atom in query.atoms:
        for name, term in zip(relations[atom.relation].data, atom.terms, strict=True):
            kind = types[atom.relation][name]
            if isinstance(term, Constant):
                _require_comparable(term, kind, f"the column {name} of {atom}")
            else:
                columns.setdefault(term, []).append(F.lit(None).cast(kind))
                kinds.setdefault(term, kind)
                kinds[term] = kind if kinds[term] == kind else ""
    mixed = [v for v, kind in kinds.items() if not kind]
    if mixed:
        nothing = next(iter(relations.values())).df.sparkSession.range(0)
        kinds |= dict(nothing.select(*[F.coalesce(*columns[v]).alias(v) for v in mixed]).dtypes)
    for pair in (*query.less_than, *query.different):
        for constant, variable in (pair, pair[::-1]):
            if isinstance(constant, Constant) and isinstance(variable, str):
                _require_comparable(constant, kinds[variable], f"the variable {variable}")
    return kinds


def _require_comparable(constant: Constant, kind: str, what: str) -> None:
    if isinstance(constant.value, str) != (kind == "string"):
        raise ValueError(f"{what} is of type {kind}, but {constant} is not")


def _initial_prefixes(
    query: Query,
    rules: Sequence[Rule],
    views: Sequence[View],
    of: Sequence[int],
    types: Mapping[str, str],
    time: Lattice,
    stamp: Sequence[str],
) -> DataFrame:
    """Return the changes from which the rules start, as prefixes; each view is scanned once."""
    parts = []
    for number, view in enumerate(views):
        rules_of_number = [
            (i, query.atoms[rule.atom].variables) for i, rule in enumerate(rules) if of[rule.atom] == number
        ]
        starts = []
        for i, names in rules_of_number:
            place = {v: view.names[p] for p, v in enumerate(names)}
            values = [(F.col(place[v]) if v in place else F.lit(None)).cast(types[v]).alias(v) for v in query.variables]
            starts.append(F.struct(F.lit(i).alias(RULE), *values))
        if not starts:
            continue
        changes = view.rows.where(F.col(NEU) == 1) if NEU in stamp else view.rows
        own_times = [F.col(c).alias(f"_at_{c}") for c in stamp]
        parts.append(changes.select(*own_times, *time.columns, DIFF, F.inline(F.array(*starts))))
    return functools.reduce(DataFrame.unionByName, parts)


def _plan_steps(query: Query, rule: Rule, of: Sequence[int], needed: set[str]) -> list[list[tuple[AtomLookup, ...]]]:
    """Return the lookups of a rule's prefixes in each step, by proposer.

    The first step binds nothing: it looks up the atoms that have no other variables than the rule's own. Of the
    variables that no other atom has those are taken that are `needed`.
    """

    joined = set(_joined_variables(query))
    shared = [set(atom.variables) & joined for atom in query.atoms]

    def make_lookup(j: int, new: str | None) -> AtomLookup:
        variables = query.atoms[j].variables
        whole = shared[j] <= {*bound, new}
        key = tuple(p for p, v in enumerate(variables) if v in shared[j] and v in bound and v != new)
        alone = needed - joined if whole else set()
        takes = tuple(p for p, v in enumerate(variables) if v == new or v in alone)
        given = {variables[p] for p in key}
        grows = any(given <= shared[k] <= {*bound, new} for k in range(len(query.atoms)) if k != j)
        return AtomLookup(of[j], variables, key, takes, whole, j < rule.atom, grows)

    bound = list(query.atoms[rule.atom].variables)
    open_atoms = [j for j in range(len(query.atoms)) if j != rule.atom]
    inside = [j for j in open_atoms if shared[j] <= set(bound)]
    steps = [[tuple(make_lookup(j, None) for j in inside)]]
    open_atoms = [j for j in open_atoms if j not in inside]
    for v in rule.order:
        with_v = [j for j in open_atoms if v in query.atoms[j].variables]
        touching = [j for j in with_v if set(query.atoms[j].variables) & set(bound)]
        alone = [j for j in with_v if shared[j] == {v}]
        proposing = {j: make_lookup(j, v) for j in touching}
        bound.append(v)
        judging = {j: make_lookup(j, None) for j in (*touching, *alone)}
        steps.append([(proposing[w], *[judging[j] for j in judging if j != w]) for w in touching])
        open_atoms = [j for j in open_atoms if not shared[j] <= set(bound)]
    return steps


def _list_constraints(query: Query) -> list[BoundTest]:
    tests = []
    for pairs, less in ((query.less_than, True), (query.different, False)):
        for pair in pairs:
            x, y = (_term_value(term) for term in pair)
            variables = frozenset(term for term in pair if isinstance(term, str))
            tests.append(BoundTest(variables, (x < y) if less else (x != y)))
    return tests


def _list_conditions(conditions: Conditions) -> list[BoundTest]:
    return [BoundTest(frozenset(variables), F.expr(condition)) for condition, variables in conditions.items()]


def _term_value(term: Term) -> Column:
    return F.col(term) if isinstance(term, str) else F.lit(term.value)


def _require_same_times(query: Query, relations: Mapping[str, Collection]) -> Lattice:
    for atom in query.atoms:
        if atom.relation not in relations:
            raise ValueError(f"{atom}: there is no relation {atom.relation}; the relations are {sorted(relations)}")
        data = relations[atom.relation].data
        if len(data) != len(atom.terms) or not atom.variables:
            raise ValueError(f"{atom} needs one term for each data column of {data}, and at least one variable")
    named = {v for pair in (*query.less_than, *query.different) for v in pair if isinstance(v, str)}
    alien = {*named, *query.results} - set(query.variables)
    if alien:
        raise ValueError(f"constraints or the head name unknown variables: {sorted(alien)}")
    times = {r.time.columns for r in relations.values()}
    if len(times) != 1:
        raise ValueError(f"the relations have different times: {sorted(times)}")
    time = next(iter(relations.values())).time
    reserved = {c.lower() for c in (*time.columns, DIFF)}
    for v in query.variables:
        if v.lower() in reserved:
            raise ValueError(f"rename the variable {v}{query.position_of(v)}: a time, diff or another has its name")
        reserved.add(v.lower())
    return time
