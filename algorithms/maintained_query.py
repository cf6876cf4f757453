"""Compiled queries, maintained: from the changes of their relations to the changes of their result.

Law      With Q the query, `core_changes(query, before, delta)` is the core of Q(before + delta) minus that of
         Q(before), at every epoch, and `core_from_scratch(query, relations)` is the core of Q(relations).
         `result_changes` is the same for the last step, from the state before and the changed core. An interval meets
         an interval in their intersection: rows of several relations are joined as they are at the epoch of the result.
Shapes   Relations are DataFrames of signed validity intervals: their columns, and `_epoch`, `_until`, `_diff`. Results
         are collections over epochs (`epoch`, `diff`), consolidated. The state of a last step has its keys, and a row
         for each `measure`, whose amount is in `diff`: so it is a sum, and a run appends to it.
Cost     Changes: one rule for each atom whose relation has changed, with at most Σ min(count) candidates in each step
         (law 8); with `broadcast` no relation is exchanged. From scratch: Spark's own joins, which have no such bound.
         With a `limit` what a join would list is counted before it lists anything.
         The last step reads the state of the touched keys only: sums, or for `min`, `max` and ranks all rows of the
         groups, of which ranks make a row for each epoch at which their group changes.
Errors   The job fails where an expression does (an overflow). `TooManyCandidates`, whose hub has columns of relations.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.algebra import incremental
from altneu.algorithms.algebra.candidate_limit import CANDIDATES, CandidateLimit, TooManyCandidates
from altneu.algorithms.algebra.collection import DIFF, Collection
from altneu.algorithms.algebra.delta_query import query_changes
from altneu.algorithms.algebra.incremental import Change
from altneu.algorithms.algebra.query import Atom, Query
from altneu.algorithms.algebra.reduce import MULTIPLICITY
from altneu.algorithms.algebra.time_lattice import EPOCH, FOREVER, VALIDITY
from altneu.algorithms.sql_query import CompiledQuery, Core, Measure, QueryAtom
from altneu.algorithms.sql_text import quote_identifier

EPOCH_COLUMN, UNTIL_COLUMN, DIFF_COLUMN = "_epoch", "_until", "_diff"
MEASURE = "measure"
Relations = Mapping[str, DataFrame]


def core_changes(
    query: CompiledQuery,
    before: Relations,
    delta: Relations,
    *,
    broadcast: bool = False,
    limit: CandidateLimit | None = None,
) -> Collection:
    """Return how the core changes when the deltas are added; a relation without a delta stays as it is."""
    changed = [core for core in query.cores if any(atom.relation in delta for atom in core.atoms)]
    return _add_up([_changes_of(query, core, before, delta, broadcast, limit) for core in changed])


def _add_up(parts: Sequence[Collection]) -> Collection:
    return parts[0].concat(*parts[1:]).consolidate()


def _changes_of(
    query: CompiledQuery,
    core: Core,
    before: Relations,
    delta: Relations,
    broadcast: bool,
    limit: CandidateLimit | None,
) -> Collection:
    views = _shared_views(core)
    names = {key: f"r{place}" for place, key in enumerate(views)}
    old = {names[key]: _view_rows(atom, before[atom.relation]) for key, atom in views.items()}
    new = {names[key]: _view_rows(atom, delta[atom.relation]) for key, atom in views.items() if atom.relation in delta}
    atoms = [
        Atom(names[_view_key(atom)], _spread_terms(atom, views[_view_key(atom)], f"unused{place}"))
        for place, atom in enumerate(core.atoms)
    ]
    head = dict.fromkeys(term for atom in core.atoms for term in atom.terms)
    joined = Query(tuple(atoms), core.less_than, core.different, tuple(head))
    try:
        changes = query_changes(joined, old, new, broadcast=broadcast, limit=limit, conditions=core.conditions)
    except TooManyCandidates as error:
        raise _name_hub(core, error) from None
    return _select_outputs(query, core, changes.df)


def _name_hub(core: Core, error: TooManyCandidates) -> TooManyCandidates:
    """Return an error whose hub has a column of a relation in the place of each variable."""
    named: dict[str, str] = {}
    for atom in core.atoms:
        for term, column in zip(atom.terms, atom.columns, strict=True):
            named.setdefault(term, f"{atom.relation}.{column}")
    hub = {named[term]: value for term, value in error.hub.items()}
    return TooManyCandidates(error.candidates, error.max_candidates, hub, error.of_hub)


def core_from_scratch(query: CompiledQuery, relations: Relations, limit: CandidateLimit | None = None) -> Collection:
    """Return the core of the query on the relations as they are, by Spark's joins of intervals.

    With a `limit` the pairs of rows that the joins list, whatever their times are, are counted before: this EXECUTES.
    A hub of degree d is d² pairs, which later conditions may drop again.

    Raises:
        TooManyCandidates: a join would list more than the limit.
    """
    if limit is not None and limit.must_count_all:
        for core in query.cores:
            try:
                _count_joins(core, relations, limit)
            except TooManyCandidates as error:
                raise _name_hub(core, error) from None
    return _add_up([_join_from_scratch(query, core, relations) for core in query.cores])


def joins_whole_keys(query: CompiledQuery, keys: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether a row meets at most one row of another atom at a time, because joins are of two sets by their keys.

    `keys` has the key of each relation, empty where it is no set.
    """
    return all(len(core.atoms) < 2 or _joins_two_by_keys(core, keys) for core in query.cores)


def _joins_two_by_keys(core: Core, keys: Mapping[str, Sequence[str]]) -> bool:
    one, *others = core.atoms
    shared = set(one.terms) & set(others[0].terms)
    joined = [
        {name for name, term in zip(atom.columns, atom.terms, strict=True) if term in shared} for atom in core.atoms
    ]
    of = [set(keys[atom.relation]) for atom in core.atoms]
    return len(others) == 1 and all(key and key <= names for key, names in zip(of, joined, strict=True))


def _count_joins(core: Core, relations: Relations, limit: CandidateLimit) -> None:
    """Count the pairs that each join of a core lists, from the counts by what the later ones join on."""
    first, *others = _list_growing_atoms(core)
    counts = _count_atom_rows(first, relations, first.terms)
    for place, atom in enumerate(others):
        later = {term for each in others[place + 1 :] for term in each.terms}
        shared = [term for term in dict.fromkeys(atom.terms) if term in counts.columns]
        sizes = _count_atom_rows(atom, relations, [term for term in atom.terms if term in later or term in shared])
        pairs = counts.withColumnRenamed(CANDIDATES, "_left").join(sizes, shared)
        pairs = pairs.withColumn(CANDIDATES, F.col("_left") * F.col(CANDIDATES))
        kept = [name for name in pairs.columns if name in later]
        by_hub = pairs.groupBy(*shared).agg(F.sum(CANDIDATES).alias(CANDIDATES))
        limit.require_few(by_hub, F.struct(*shared))
        counts = pairs.groupBy(*kept).agg(F.sum(CANDIDATES).alias(CANDIDATES))


def _list_growing_atoms(core: Core) -> list[QueryAtom]:
    """Return the first atom and those that meet one of them, without those that meet several together: these hardly
    make the rows more (see `AtomLookup.grows`).
    """
    growing, left = [core.atoms[0]], list(core.atoms[1:])
    reached = set(core.atoms[0].terms)
    while atom := next((each for each in left if set(each.terms) & reached), None):
        left.remove(atom)
        if any(set(atom.terms) & reached <= set(each.terms) for each in growing):
            growing.append(atom)
            reached |= set(atom.terms)
    return growing


def _count_atom_rows(atom: QueryAtom, relations: Relations, terms: Sequence[str]) -> DataFrame:
    rows = _atom_rows(atom, relations[atom.relation])
    return rows.groupBy(*dict.fromkeys(terms)).agg(F.count("*").cast("double").alias(CANDIDATES))


def _join_from_scratch(query: CompiledQuery, core: Core, relations: Relations) -> Collection:
    first, *left = core.atoms
    rows = _atom_rows(first, relations[first.relation])
    while left:
        atom = next(each for each in left if set(each.terms) & set(rows.columns))
        left.remove(atom)
        rows = _join_intervals(rows, _atom_rows(atom, relations[atom.relation]))
        rows = _apply_comparisons(core, rows)
    passing = functools.reduce(DataFrame.where, core.conditions, _apply_comparisons(core, rows))
    return _select_outputs(query, core, passing)


def state_changes(query: CompiledQuery, core: Collection) -> Collection:
    """Return the changed core as changes of the state: a row for each key and measure, with its amount in `diff`.

    Where a least or greatest value or a rank is asked for, the state is the core itself.
    """
    if query.keeps_rows:
        return core
    amounts = [
        F.struct(F.lit(place).cast("bigint").alias(MEASURE), _weigh_row(measure).alias(DIFF))
        for place, measure in enumerate(query.sums.values())
    ]
    rows = core.df.select(*query.keys, *EPOCH.columns, F.inline(F.array(*amounts)))
    return Collection(rows, EPOCH).consolidate()


def result_changes(query: CompiledQuery, state: Change, *, broadcast: bool = False) -> Collection:
    """Return how the result changes, from the change of the state."""
    if query.ranking is not None:
        order = query.ranking.order
        descending, most = [name for name, down in order.items() if down], query.ranking.max_rank
        ranked = incremental.top(state, query.keys, list(order), descending, most, broadcast=broadcast)
        return select_result(query, ranked.delta)
    if query.keeps_rows:
        aggregates = {name: _aggregate(measure) for name, measure in query.sums.items()}
        return select_result(query, incremental.reduce(state, query.keys, aggregates, broadcast=broadcast).delta)
    sums = {
        name: F.when(F.col(MEASURE) == place, F.col(DIFF)).otherwise(F.lit(0)) for place, name in enumerate(query.sums)
    }
    return select_result(query, incremental.running_sums(state, query.keys, sums, broadcast=broadcast).delta)


def select_result(query: CompiledQuery, rows: Collection) -> Collection:
    """Return the rows of the result: HAVING and SELECT on the groups, or on the core where nothing is grouped."""
    df = rows.df if query.having is None else rows.df.where(query.having)
    columns = [F.expr(text).cast(query.types[name]).alias(name) for name, text in query.select.items()]
    return Collection(df.select(*columns, *EPOCH.columns, DIFF), EPOCH).consolidate()


def state_columns(query: CompiledQuery) -> dict[str, str]:
    """Return the data columns of the state with their types."""
    if query.keeps_rows:
        return dict(query.core_types)
    return {name: query.core_types[name] for name in query.keys} | {MEASURE: "bigint"}


def _aggregate(measure: Measure) -> Column:
    """Return a measure as an aggregate over the rows of a group, for `reduce`."""
    if measure.extreme is not None and measure.amount is not None:
        return F.min(measure.amount) if measure.extreme == "min" else F.max(measure.amount)
    times = F.col(MULTIPLICITY)
    amount = times if measure.amount is None else F.col(measure.amount) * times
    return F.sum(
        amount
        if measure.counted_column is None
        else F.when(F.col(measure.counted_column).isNull(), 0).otherwise(amount)
    )


def _weigh_row(measure: Measure) -> Column:
    amount = F.col(DIFF) if measure.amount is None else F.col(measure.amount) * F.col(DIFF)
    return (
        amount
        if measure.counted_column is None
        else F.when(F.col(measure.counted_column).isNull(), F.lit(0)).otherwise(amount)
    )


def _view_key(atom: QueryAtom) -> tuple[object, ...]:
    """Return a key that is equal for atoms that see the same rows."""
    return atom.relation, atom.where, atom.window


def _shared_views(core: Core) -> dict[tuple[object, ...], QueryAtom]:
    """Return an atom for each view, with the columns of all atoms that see the same rows: so it is scanned once."""
    views: dict[tuple[object, ...], QueryAtom] = {}
    for atom in core.atoms:
        known = views.setdefault(_view_key(atom), atom)
        columns = dict.fromkeys((*known.columns, *atom.columns))
        views[_view_key(atom)] = replace(known, columns=tuple(columns))
    return views


def _spread_terms(atom: QueryAtom, view: QueryAtom, unused: str) -> tuple[str, ...]:
    """Return the variables of an atom by the columns of its view; those of other atoms' columns begin with `unused`."""
    own = dict(zip(atom.columns, atom.terms, strict=True))
    return tuple(own.get(column, f"{unused}_{place}") for place, column in enumerate(view.columns))


def _view_rows(atom: QueryAtom, rows: DataFrame) -> Collection:
    """Return the rows of a relation as an atom sees them, with the columns by place."""
    columns = [F.col(quote_identifier(name)).alias(f"c{place}") for place, name in enumerate(atom.columns)]
    rows = rows if atom.where is None else rows.where(atom.where)
    start, end = F.col(EPOCH_COLUMN), F.col(UNTIL_COLUMN)
    if atom.window is not None:
        least, last = atom.window
        end = end if last == FOREVER else F.least(end, start + F.lit(last).cast("bigint"))
        start = start + F.lit(least).cast("bigint")
    times = [start.alias("epoch"), end.alias("until"), F.col(DIFF_COLUMN).alias(DIFF)]
    return Collection(rows.select(*columns, *times).where("epoch < until"), VALIDITY)


def _atom_rows(atom: QueryAtom, rows: DataFrame) -> DataFrame:
    """Return the rows of an atom, with a column for each variable, and `epoch`, `until`, `diff`."""
    seen = _view_rows(atom, rows).df
    places: dict[str, int] = {}
    for place, term in enumerate(atom.terms):
        if places.setdefault(term, place) != place:
            seen = seen.where(F.col(f"c{place}") == F.col(f"c{places[term]}"))
    return seen.select(*[F.col(f"c{place}").alias(term) for term, place in places.items()], "epoch", "until", DIFF)


def _join_intervals(left: DataFrame, right: DataFrame) -> DataFrame:
    """Join rows on the variables that both have, at the epochs of both."""
    times = ("epoch", "until", DIFF)
    shared = [name for name in right.columns if name in left.columns and name not in times]
    other = right.withColumnsRenamed({name: f"_{name}" for name in (*shared, *times)})
    same = [F.col(name) == F.col(f"_{name}") for name in shared]
    meet = F.greatest("epoch", "_epoch") < F.least("until", "_until")
    both = left.join(other, functools.reduce(and_, same) & meet)
    now = {
        "epoch": F.greatest("epoch", "_epoch"),
        "until": F.least("until", "_until"),
        DIFF: F.col(DIFF) * F.col("_diff"),
    }
    return both.withColumns(now).drop(*[f"_{name}" for name in (*shared, *times)])


def _apply_comparisons(core: Core, rows: DataFrame) -> DataFrame:
    """Leave out the rows that break a comparison of two variables that they have."""
    for pairs, less in ((core.less_than, True), (core.different, False)):
        for x, y in pairs:
            if {x, y} <= set(rows.columns):
                rows = rows.where(F.col(x) < F.col(y) if less else F.col(x) != F.col(y))
    return rows


def _select_outputs(query: CompiledQuery, core: Core, rows: DataFrame) -> Collection:
    """Return joined intervals as the core's triples, with the outputs and the sign."""
    outputs = core.outputs.items()
    columns = [F.expr(text).cast(query.core_types[name]).alias(name) for name, text in outputs]
    signed = (F.col(DIFF) * core.sign).alias(DIFF)
    return Collection.from_intervals(rows.select(*columns, "epoch", "until", signed), EPOCH)
