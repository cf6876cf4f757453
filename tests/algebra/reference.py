"""The slow and obvious side of every comparison: collections as Python dicts, operators on their contents.

Nothing here imports an operator. `recompute` applies a function on contents at every time that matters (all
input times and their joins), and takes differences one time after the other. A mismatch prints the rows of
one side only.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.time_lattice import (
    EPOCH,
    EPOCH_REVISION,
    REVISION,
    ROUND,
    AltNeu,
    Lattice,
    Lexicographic,
    Product,
    Time,
)

Triple = tuple[tuple, Time, int]
Contents = Counter

LATTICES: dict[str, Lattice] = {
    "epoch": EPOCH,
    "epoch×revision": EPOCH_REVISION,
    "epoch×revision×round": Product(EPOCH, REVISION, ROUND),
    "altneu(epoch×revision)": AltNeu(EPOCH_REVISION),
    "epoch×altneu(revision)": Product(EPOCH, AltNeu(REVISION)),
    "(epoch×revision, index)": Lexicographic(EPOCH_REVISION, "relation", top=2),
}


def random_time(rng: random.Random, lattice: Lattice, high: int = 3) -> Time:
    tops = {"neu": 1, "relation": 2}
    return tuple(rng.randint(0, tops.get(name, high)) for name in lattice.columns)


def random_triples(
    rng: random.Random, lattice: Lattice, domains: Sequence[int], most: int = 7, high: int = 3
) -> list[Triple]:
    """Few records, few times, diffs of both signs and sizes: cancellation, ties and incomparable times are
    common."""
    diffs = (1, 1, 1, 1, -1, -1, 2, -3)
    return [
        (tuple(rng.randrange(d) for d in domains), random_time(rng, lattice, high), rng.choice(diffs))
        for _ in range(rng.randint(0, most))
    ]


def random_sets(
    rng: random.Random,
    lattice: Lattice,
    records: Iterable[tuple],
    most: int = 3,
    high: int = 3,
    present: float = 0.6,
) -> list[Triple]:
    """Triples whose multiplicity is 0 or 1 at every time: an indicator per record, drawn at grid times,
    differenced."""
    triples: list[Triple] = []
    for record in records:
        times = [random_time(rng, lattice, high) for _ in range(rng.randint(0, most))]
        states = {t: rng.random() < present for t in closure(times, lattice)}
        here = {t: Counter({record: 1}) if states[t] else Counter() for t in states}
        triples += [(d, t, n) for (d, t), n in differences(here, lattice).items()]
    rng.shuffle(triples)
    return triples


def closure(times: Iterable[Time], lattice: Lattice) -> list[Time]:
    """The times and all their joins, in an order that extends the lattice's."""
    found = set(times)
    while more := {lattice.join(a, b) for a in found for b in found} - found:
        found |= more
    return sorted(found, key=lambda t: (sum(lattice.less_equal(s, t) for s in found), t))


def contents(triples: Iterable[Triple], lattice: Lattice, time: Time) -> Contents:
    """Every record with its multiplicity at a time; zeros are absent."""
    sums: Contents = Counter()
    for data, at, diff in triples:
        if lattice.less_equal(at, time):
            sums[data] += diff
    return Counter({data: n for data, n in sums.items() if n})


def differences(at: dict[Time, Contents], lattice: Lattice) -> Contents:
    """The diffs whose sums are the given contents: at each time, what the earlier diffs do not explain."""
    diffs: Contents = Counter()
    for time in closure(at, lattice):
        explained = contents(((d, t, n) for (d, t), n in diffs.items()), lattice, time)
        for data in set(explained) | set(at[time]):
            if missing := at[time][data] - explained[data]:
                diffs[data, time] += missing
    return diffs


def recompute(inputs: Sequence[list[Triple]], lattice: Lattice, function: Callable[..., Contents]) -> Contents:
    """The only right answer of an operator: function(contents…) at every time, differenced."""
    times = closure({t for triples in inputs for _, t, _ in triples}, lattice)
    results = {t: function(*[contents(i, lattice, t) for i in inputs]) for t in times}
    return differences({t: Counter({d: n for d, n in c.items() if n}) for t, c in results.items()}, lattice)


def frame(spark: SparkSession, cases: Sequence[list[Triple]], names: Sequence[str], lattice: Lattice) -> Collection:
    """Many cases in one collection: the number of the case is the first data column."""
    columns = ["case", *names, *lattice.columns, "diff"]
    rows = [(i, *data, *time, diff) for i, triples in enumerate(cases) for data, time, diff in triples]
    return Collection(spark.createDataFrame(rows, ", ".join(f"`{c}` long" for c in columns)), lattice)


def collected(collection: Collection, raw: bool = False) -> Contents:
    """The diffs of a collection as the reference writes them; `raw` demands that they come consolidated."""
    data, times = collection.data, list(collection.time.columns)
    got: Contents = Counter()
    rows = [tuple(row) for row in collection.df.select(*data, *times, "diff").collect()]
    for row in rows:
        got[row[: len(data)], row[len(data) : -1]] += row[-1]
    assert not raw or (len(rows) == len(got) and all(got.values())), "the output was to be consolidated"
    return Counter({row: n for row, n in got.items() if n})


def unite_labelled(outputs: Mapping[str, Collection]) -> Collection:
    """The results of several operators as one collection, for one job: a label, then the data, filled up with nulls."""
    width = max(len(each.data) for each in outputs.values())
    frames, time = [], next(iter(outputs.values())).time
    for label, each in outputs.items():
        filled = [F.col(f"`{name}`") for name in each.data] + [F.lit(None)] * (width - len(each.data))
        data = [column.cast("long").alias(f"data{i}") for i, column in enumerate(filled)]
        frames.append(each.df.select(F.lit(label).alias("label"), *data, *time.columns, "diff"))
    return Collection(reduce(DataFrame.unionByName, frames), time)


def label_rows(wanted: Mapping[str, Contents]) -> Contents:
    """What `unite_labelled` gives of results that are as wanted."""
    width = max(len(data) for each in wanted.values() for data, _ in each)
    return Counter(
        {
            ((label, *data, *[None] * (width - len(data))), time): diff
            for label, each in wanted.items()
            for (data, time), diff in each.items()
        }
    )


def expected(inputs: Sequence[Sequence[list[Triple]]], lattice: Lattice, function: Callable[..., Contents]) -> Contents:
    """`recompute` for every case; inputs[i][case] are the triples of input i."""
    want: Contents = Counter()
    for case, triples in enumerate(zip(*inputs, strict=True)):
        for (data, time), diff in recompute(triples, lattice, function).items():
            want[(case, *data), time] = diff
    return want


def mismatch(got: Contents, want: Contents) -> list[str]:
    """The rows that only one side has (or has with another diff); empty when the two agree."""
    lines = []
    for row in sorted(set(got) | set(want), key=repr):
        if got[row] != want[row]:
            lines.append(f"{row}: got {got[row]}, want {want[row]}")
    return lines


def assert_same(got: Contents, want: Contents, seed: int) -> None:
    assert want, f"seed {seed}: the reference is empty, so the case shows nothing"
    wrong = mismatch(got, want)
    assert not wrong, f"seed {seed}: {len(wrong)} rows differ, of {len(want)}:\n" + "\n".join(wrong[:20])


def plan(frame: DataFrame) -> str:
    """The physical plan as text; nothing runs."""
    return frame._jdf.queryExecution().executedPlan().toString()


def exchanges(frame: DataFrame) -> int:
    """How often rows are shuffled."""
    return plan(frame).count("Exchange hashpartitioning") + plan(frame).count("Exchange SinglePartition")


def no_python(frame: DataFrame) -> bool:
    """Whether no operator of the plan runs Python."""
    return not any(word in plan(frame) for word in ("Python", "Pandas", "Arrow"))
