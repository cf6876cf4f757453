"""The extension of prefixes by attributes: count, propose, validate; all rules of a delta query in one pass.

Law      A step extends every prefix by the values that ALL atoms that touch it allow. The atom that offers a prefix
         the fewest records proposes (`count` puts that choice into a column), the others validate. So at most Σ
         min(count) candidates arise.
Shapes   Prefixes: the rule, one column for each variable (null until it is bound), the stamp of the change with which
         it began (`_at_…`), the join of the times so far, the product of the diffs. An `AtomLookup` is a lookup in one
         atom; a `Case` has the lookups of one rule with one proposer. Turn k answers the k-th lookup of all cases by
         one join.
Index    The records of all relations of a turn, under a hash of the kind of lookup and of the values that are known:
         relations of any number and types meet in one join. Hashes may collide, so the values are compared, too.
Cost     A turn is one equi-join, and `count` is one for each rival proposer: two exchanges each. With `broadcast` the
         prefixes go to all executors and no relation is exchanged. Nothing is collected or cached, but with a `limit`:
         then every turn that lists anything is counted before (`candidate_limit`).
Errors   `TooManyCandidates` of the limit. `delta_query` checks the query.
Source   Seed 4 (count, propose, validate of dogsdogsdogs), law 8 of the design.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.algebra.candidate_limit import CANDIDATES, CandidateLimit
from altneu.algorithms.algebra.collection import DIFF
from altneu.algorithms.algebra.time_lattice import Lattice, is_possible, literal_time

RULE, CASE, COUNT = "_rule", "_case", "_count"
SALTS = 64  # the number of rows of the index among which prefixes without a lookup in a turn are spread


@dataclass(frozen=True)
class View:
    """A relation as some atoms see it: a column for each of their variables, by place, with its type; stamp, diff."""

    rows: DataFrame
    names: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True)
class AtomLookup:
    """A lookup in an atom: the records of its view that agree with the prefix at the places of `key`.

    variables: those of the atom, by place. takes: the places whose values are new to the prefix; an atom that becomes
    whole also brings its variables that no other atom has. is_fully_bound: the atom is then fully bound, so its triples
    are joined; otherwise the lookup finds the values of all times. or_equal: the lookup also sees the triples with the
    same stamp as the prefix's own change. grows: it may find many records, since one atom alone has given the values of
    `key`; what several atoms have given together is found rarely.
    """

    view: int
    variables: tuple[str, ...]
    key: tuple[int, ...]
    takes: tuple[int, ...]
    is_fully_bound: bool
    or_equal: bool
    grows: bool = True

    @property
    def taken_variables(self) -> set[str]:
        return {self.variables[place] for place in self.takes}

    @property
    def used_places(self) -> tuple[int, ...]:
        """Return the places that matter."""
        return tuple(sorted({*self.key, *self.takes}))

    @property
    def lookup_kind(self) -> tuple[int, tuple[int, ...], tuple[int, ...], bool]:
        """Return a key that is equal for lookups that the same rows of an index answer."""
        return self.view, self.key, self.used_places, self.is_fully_bound


@dataclass(frozen=True)
class Case:
    """The lookups of one rule's prefixes in a step when one of its atoms proposes: that atom first, then the others.

    bound: the variables that have values before the step.
    """

    rule: int
    asks: tuple[AtomLookup, ...]
    bound: frozenset[str] = frozenset()

    def bound_after(self, turns: int) -> frozenset[str]:
        """Return the variables that have values after some turns."""
        return self.bound.union(*[ask.taken_variables for ask in self.asks[:turns]])


Step = Sequence[Case]
"""The cases of all rules, at least one each. A prefix takes the case of its rule whose first lookup offers it least."""


class BoundTest(NamedTuple):
    """A condition on variables, to be applied as soon as all of them have values."""

    variables: frozenset[str]
    condition: Column

    def applies(self, before: frozenset[str] | None, now: frozenset[str]) -> bool:
        """Tell whether it can be applied now, and could not before; None: to nothing yet."""
        return self.variables <= now and (before is None or not self.variables <= before)


@dataclass(frozen=True)
class Extension:
    """The part of a delta query that stays the same from step to step.

    `stamp` has the columns of a total order of all triples, the most significant one first. A prefix that breaks one of
    the `tests` is left out in the turn that binds its variables.
    """

    views: Sequence[View]
    time: Lattice
    stamp: Sequence[str]
    broadcast: bool = False
    limit: CandidateLimit | None = None
    tests: Sequence[BoundTest] = ()

    def extend(self, prefixes: DataFrame, step: Step) -> DataFrame:
        """Return the prefixes after all turns of a step."""
        chosen = self.count(prefixes, step).where(F.col(COUNT) > 0)
        for turn in range(max(len(case.asks) for case in step)):
            asks = {i: case.asks[turn] for i, case in enumerate(step) if turn < len(case.asks)}
            admitted = self.admit(chosen, asks)
            answered = self.answer_lookups(admitted, CASE, asks, answers_all=len(asks) == len(step))
            bound = {i: (case.bound_after(turn), case.bound_after(turn + 1)) for i, case in enumerate(step)}
            chosen = self.drop_unfit(answered, CASE, bound)
        return chosen.drop(CASE)

    def drop_unfit(
        self, prefixes: DataFrame, by: str, bound: Mapping[int, tuple[frozenset[str] | None, frozenset[str]]]
    ) -> DataFrame:
        """Return the prefixes without those that break a test; `bound` has the variables that had values before and
        those that have values now, for each value of the column `by`.
        """
        for test in self.tests:
            now = [i for i, variables in bound.items() if test.applies(*variables)]
            if now:
                condition = test.condition if len(now) == len(bound) else ~F.col(by).isin(now) | test.condition
                prefixes = prefixes.where(condition)
        return prefixes

    @property
    def broadcasts(self) -> bool:
        """Tell whether the prefixes go to all executors: they are few, as far as they have been counted."""
        return self.broadcast and (self.limit is None or self.limit.candidates <= self.limit.max_broadcast)

    def admit(self, prefixes: DataFrame, asks: dict[int, AtomLookup]) -> DataFrame:
        """Return the prefixes of a turn that the limit admits: what their lookups find has been counted."""
        taking = {i: ask for i, ask in asks.items() if ask.takes and ask.grows}
        if self.limit is None or not taking:
            return prefixes.drop(COUNT)
        if not self.limit.must_count:
            self.limit.skip()
            return prefixes.drop(COUNT)
        if COUNT in prefixes.columns:
            counted = prefixes.withColumnRenamed(COUNT, CANDIDATES)
        else:
            counted = self.count_prefix_records(prefixes, CASE, [taking]).withColumn(
                CANDIDATES, F.coalesce("_n_0", F.lit(1))
            )
            counted = counted.drop("_n_0")
        return self.limit.admit(counted, _known_values(taking))

    def count(self, prefixes: DataFrame, step: Step) -> DataFrame:
        """Return the prefixes with the columns `_case`, the case whose proposer offers least, and `_count`, its number
        of records.

        `_count` is 1 where a rule has only one case: then nothing is counted.
        """
        cases: dict[int, list[int]] = {}
        for i, case in enumerate(step):
            cases.setdefault(case.rule, []).append(i)
        only = {rule: F.lit(mine[0]) for rule, mine in cases.items() if not self.must_count(step, mine)}
        # the k-th proposer of every rule that has several proposers
        rivals = [
            {rule: mine[k] for rule, mine in cases.items() if rule not in only and len(mine) > k}
            for k in range(max(map(len, cases.values())))
        ]
        rivals = [places for places in rivals if places]
        if not rivals:
            return prefixes.withColumns({CASE: _choose_by_value(RULE, only), COUNT: F.lit(1)})
        proposers = [{rule: step[i].asks[0] for rule, i in places.items()} for places in rivals]
        counted = self.count_prefix_records(prefixes, RULE, proposers)
        numbers = [F.col(f"_n_{k}") for k in range(len(proposers))]
        least = F.least(*numbers) if len(numbers) > 1 else numbers[0]
        mine = [
            F.when(number == least, _choose_by_value(RULE, {rule: F.lit(i) for rule, i in places.items()}))
            for number, places in zip(numbers, rivals, strict=True)
        ]
        choice = F.coalesce(*mine, *([_choose_by_value(RULE, only)] if only else []))
        chosen = counted.withColumns({CASE: choice, COUNT: F.coalesce(least, F.lit(1))})
        return chosen.drop(*[f"_n_{k}" for k in range(len(proposers))])

    def must_count(self, step: Step, mine: Sequence[int]) -> bool:
        """Tell whether the records that the proposers of a rule offer are counted."""
        asks = step[mine[0]].asks
        may_explode = self.limit is not None and self.limit.must_count and bool(asks) and bool(asks[0].takes)
        return len(mine) > 1 or may_explode

    def count_prefix_records(self, prefixes: DataFrame, by: str, turns: Sequence[dict[int, AtomLookup]]) -> DataFrame:
        """Return the prefixes with a column `_n_k` for each turn: how many records its lookup finds, or null where the
        value of the column `by` has none.
        """
        index = _Index(self, [ask for asks in turns for ask in asks.values()])
        sizes = index.index_rows().select("_key")
        if self.broadcasts:
            wanted = prefixes.select(F.explode(F.array(*[index.lookup_key(by, asks) for asks in turns])).alias("_key"))
            sizes = sizes.join(F.broadcast(wanted.distinct()), "_key")
        sizes = sizes.groupBy("_key").agg(F.count("*").alias("_n"))
        for k, asks in enumerate(turns):
            sizes_by_key = sizes.select(F.col("_key").alias("_found"), F.col("_n").alias("_size"))
            asking = prefixes.withColumn("_asked", index.lookup_key(by, asks))
            sizes_by_key = F.broadcast(sizes_by_key) if self.broadcasts else sizes_by_key
            counted = asking.join(sizes_by_key, F.col("_asked") == F.col("_found"), "left")
            number = F.when(F.col(by).isin(*asks), F.coalesce("_size", F.lit(0)))
            prefixes = counted.withColumn(f"_n_{k}", number).drop("_asked", "_found", "_size")
        return prefixes

    def answer_lookups(
        self, prefixes: DataFrame, by: str, asks: dict[int, AtomLookup], *, answers_all: bool = False
    ) -> DataFrame:
        """Return the prefixes after one turn: each is joined with the records that its lookup finds.

        `asks` has the lookup for each value of the column `by`; prefixes with other values stay as they are. With
        `answers_all` there are none.
        """
        index = _Index(self, list(asks.values()))
        fields = {(i, p): index.field_name(ask.view, p) for i, ask in asks.items() for p in ask.used_places}
        known: dict[str, Column] = {}
        for name in index.fields:
            given = {i: asks[i].variables[p] for (i, p), f in fields.items() if f == name and p in asks[i].key}
            known[f"_want{name}"] = _choose_by_value(by, {i: F.col(v) for i, v in given.items()})
        tag = _choose_by_value(by, {i: F.lit(index.tags[ask.lookup_kind]) for i, ask in asks.items()})
        equals = [i for i, ask in asks.items() if ask.or_equal or not ask.is_fully_bound]
        asking = prefixes.withColumns(
            {
                "_asked": index.lookup_key(by, asks),
                "_tag": F.coalesce(tag, F.lit(NOTHING)),
                "_or_equal": F.col(by).isin(*equals) | tag.isNull(),
                **known,
            }
        )
        records = index.index_rows(with_nothing=not answers_all)
        # The comparisons have a form that does not become part of the join's key, which is one long.
        agree = [F.col("_tag") - F.col("_kind") == 0]
        agree += [F.col(f"_want{name}").isNull() | (F.col(f"_want{name}") == F.col(name)) for name in index.fields]
        theirs, prefix_times = [F.col(f"_r_{c}") for c in self.stamp], [F.col(f"_at_{c}") for c in self.stamp]
        agree.append(before_in_order(theirs, prefix_times, F.col("_or_equal")))
        left, right = (records, F.broadcast(asking)) if self.broadcasts else (asking, records)
        both = left.join(right, (F.col("_asked") == F.col("_key")) & functools.reduce(and_, agree))
        times = self.time.columns
        later = self.time.join_columns([F.col(c) for c in times], [F.col(f"_r_{c}") for c in times])
        moved = dict(zip(times, later, strict=True)) | {DIFF: F.col(DIFF) * F.col(f"_r_{DIFF}")}
        fits = is_possible(self.time, later)
        both = both if fits is None else both.where(fits)
        new: dict[str, dict[str, list[int]]] = {}  # variable → field → values of `by`
        for i, ask in asks.items():
            for place in ask.takes:
                new.setdefault(ask.variables[place], {}).setdefault(fields[i, place], []).append(i)
        for variable, values in new.items():
            moved[variable] = F.col(variable)
            for field, cases in values.items():
                moved[variable] = F.when(F.col(by).isin(cases), F.col(field)).otherwise(moved[variable])
        return both.withColumns(moved).select(*prefixes.columns)


NOTHING = -1  # the kind of the rows that match the prefixes without a lookup


class _Index:
    """The records in which some lookups search: `_key`, `_kind`, the fields (values by place and type), and `_r_…`, the
    stamp and diff.
    """

    def __init__(self, extension: Extension, asks: Sequence[AtomLookup]) -> None:
        self.views, self.stamp, self.time = extension.views, extension.stamp, extension.time
        self.tags = {kind: tag for tag, kind in enumerate(dict.fromkeys(ask.lookup_kind for ask in asks))}
        self.fields = {
            self.field_name(ask.view, p): self.views[ask.view].types[p] for ask in asks for p in ask.used_places
        }

    def field_name(self, view: int, place: int) -> str:
        types = list(dict.fromkeys(t for v in self.views for t in v.types))
        return f"_f{place}_{types.index(self.views[view].types[place])}"

    def lookup_key(self, by: str, asks: dict[int, AtomLookup]) -> Column:
        """Return the key under which prefixes look; for those without a lookup, a key that is spread evenly."""
        questions = {
            i: _hash_values(self.tags[ask.lookup_kind], [F.col(ask.variables[p]) for p in ask.key])
            for i, ask in asks.items()
        }
        variables = dict.fromkeys(v for ask in asks.values() for v in ask.variables)
        salt = F.pmod(F.xxhash64(*[F.col(v) for v in variables]), F.lit(SALTS))
        return F.coalesce(_choose_by_value(by, questions), _hash_values(NOTHING, [salt]))

    def index_rows(self, *, with_nothing: bool = False) -> DataFrame:
        """Return the index. Lookups in whole records of a view share its scan, others if they use the same columns."""
        shared: dict[tuple[int, tuple[int, ...], bool], list[tuple[Column, Column]]] = {}
        for (number, key, used, whole), tag in self.tags.items():
            values = [F.col(self.views[number].names[p]) for p in key]
            places = self._whole_places(number) if whole else used
            shared.setdefault((number, places, whole), []).append(self._index_entry(tag, values))
        parts = []
        for (number, used, whole), entries in shared.items():
            view = self.views[number]
            source = view.rows if whole else view.rows.select(*[view.names[p] for p in used]).distinct()
            columns = {self.field_name(number, p): F.col(view.names[p]) for p in used}
            values = [*self._value_columns(columns), *self._triple_columns(own=whole)]
            parts.append(source.select(*values, *_spread_entries(entries)))
        if with_nothing:
            values = [*self._value_columns({}), *self._triple_columns(own=False)]
            salts = parts[0].sparkSession.range(SALTS)
            parts.append(salts.select(*values, *self._index_entry(NOTHING, [F.col("id")])))
        return functools.reduce(DataFrame.unionByName, parts)

    def _whole_places(self, view: int) -> tuple[int, ...]:
        """Return the places that matter to the lookups in whole records of a view."""
        places = [used for number, _, used, whole in self.tags if number == view and whole]
        return tuple(sorted(set().union(*places)))

    @staticmethod
    def _index_entry(tag: int, key: Sequence[Column]) -> tuple[Column, Column]:
        return _hash_values(tag, key).alias("_key"), F.lit(tag).alias("_kind")

    def _value_columns(self, columns: dict[str, Column]) -> list[Column]:
        return [columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in self.fields.items()]

    def _triple_columns(self, *, own: bool) -> list[Column]:
        """Return the stamp and diff of a record, or those that change nothing: the least time, and 1."""
        least = dict(zip(self.time.columns, literal_time(self.time, self.time.minimum()), strict=True))
        least[DIFF] = F.lit(1).cast("bigint")
        names = list(dict.fromkeys([*self.stamp, *self.time.columns, DIFF]))
        return [(F.col(c) if own else least.get(c, F.lit(0).cast("bigint"))).alias(f"_r_{c}") for c in names]


def _spread_entries(entries: Sequence[tuple[Column, Column]]) -> Sequence[Column]:
    """Return the columns that make a row for each entry; a single one needs no generator, which is slow."""
    return entries[0] if len(entries) == 1 else [F.inline(F.array(*[F.struct(*entry) for entry in entries]))]


def _known_values(asks: dict[int, AtomLookup]) -> Column:
    """Return the values that the lookups of some cases know, as a struct with nulls for the variables of others."""
    known: dict[str, list[int]] = {}
    for case, ask in asks.items():
        for place in ask.key:
            known.setdefault(ask.variables[place], []).append(case)
    return F.struct(*[F.when(F.col(CASE).isin(cases), F.col(name)).alias(name) for name, cases in known.items()])


def before_in_order(a: Sequence[Column], b: Sequence[Column], or_equal: Column | bool) -> Column:
    """Tell whether a is before b in the lexicographic order of their coordinates; `or_equal` also admits a = b."""
    test = F.lit(or_equal) if isinstance(or_equal, bool) else or_equal
    for x, y in reversed(list(zip(a, b, strict=True))):
        test = (x < y) | ((x == y) & test)
    return test


def _choose_by_value(by: str, values: dict[int, Column]) -> Column:
    """Return the value for the number in the column `by`, or null if there is none."""
    return F.coalesce(*[F.when(F.col(by) == i, value) for i, value in values.items()]) if values else F.lit(None)


def _hash_values(tag: int, values: Iterable[Column]) -> Column:
    return F.xxhash64(F.lit(tag), *values)
