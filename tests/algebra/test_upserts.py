"""Upserts: law 1, replacement and confluence, against values looked up epoch by epoch; the way back; state machines."""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.time_lattice import EPOCH, EPOCH_REVISION, FOREVER
from altneu.algorithms.algebra.upserts import (
    distinct_changes,
    net_intervals,
    state_machine,
    to_timelines,
    to_triples,
    to_upserts,
    upsert_lives,
    winning_upserts,
)
from tests import seeds
from tests.algebra.reference import collected, exchanges, no_python

SEED, CASES, EPOCHS, FAR = seeds.one(31), 80, 6, 20
KEY, VALUE = ["case", "k"], ["v", "w"]
SCHEMA = "case long, k long, v long, w string, op string, seq long, epoch long, line long"
Row = tuple


def signed_difference(new: DataFrame, old: DataFrame, key: list[str]) -> DataFrame:
    """Return pointwise new minus old of two sets of disjoint intervals: key, `epoch`, `until`, `diff` (+1 or -1),
    maximal.
    """
    plus = new.select(*key, "epoch", "until", F.lit(1).cast("bigint").alias("diff"))
    minus = old.select(*key, "epoch", "until", F.lit(-1).cast("bigint").alias("diff"))
    return net_intervals(plus.unionByName(minus), key)


def replacement(
    new: DataFrame,
    old: DataFrame,
    key: list[str],
    value: list[str],
    revision: int,
    live_for: int | None = None,
) -> Collection:
    """Return the diffs that turn the collection of the rows `old` into that of `new`, stamped with `revision`.

    Both hold ALL upserts of the touched keys (a rerun of an epoch replaces its batch in `new`). Equal rows give no
    diffs.
    """
    columns = [*key, *value, "op", "seq", "epoch"]
    tagged = [rows.select(*columns, F.lit(sign).alias("_sign")) for rows, sign in ((new, 1), (old, -1))]
    lines = to_timelines(tagged[0].unionByName(tagged[1]), key, value, live_for, by=["_sign"])
    spans = net_intervals(lines.withColumnRenamed("_sign", "diff"), [*key, *value])
    return Collection.from_intervals(spans.withColumn("revision", F.lit(revision).cast("bigint")), EPOCH_REVISION)


def random_rows(rng: random.Random, case: int) -> list[Row]:
    """Few keys and values, so that no-ops, ties in seq, deletes of the absent and null values are common."""
    rows = []
    for line in range(rng.randint(1, 9)):
        op = rng.choice(["upsert", "upsert", "delete"])
        v, w = rng.choice([(1, "a"), (1, "b"), (2, None), (None, "a")]) if op == "upsert" else (None, None)
        rows.append((case, rng.randrange(2), v, w, op, rng.randrange(2), rng.randrange(EPOCHS), line))
    return rows


def rows_of(seed: int, cases: int = CASES) -> list[Row]:
    rng = random.Random(seed)
    return [row for case in range(cases) for row in random_rows(rng, case)]


def rank(row: Row) -> tuple:
    """Law 1 within an epoch: seq, then a value over a delete, then the greatest value with nulls least."""
    _, _, v, w, op, seq, _, line = row
    return seq, op == "upsert", v is not None, v or 0, w is not None, w or "", line


def values(rows: list[Row], live_for: int | None, where: bool) -> dict[tuple, list[tuple | None]]:
    """Per key, the value (or None) at each epoch 0 … FAR-1, looked up from scratch at each."""
    table = {}
    for key in {r[:2] for r in rows}:
        best = {}
        for row in (r for r in rows if r[:2] == key):
            if row[6] not in best or rank(row) > rank(best[row[6]]):
                best[row[6]] = row
        held: list[tuple | None] = []
        for epoch in range(FAR):
            last = best.get(max((e for e in best if e <= epoch), default=None))
            gone = last is None or last[4] == "delete" or (where and last[2] != 1)
            old = last is not None and live_for is not None and epoch >= last[6] + live_for
            held.append(None if gone or old else last[2:4])
        table[key] = held
    return table


def intervals(table: dict[tuple, list]) -> Counter:
    """Maximal runs of a value; a run that reaches FAR never ends."""
    found: Counter = Counter()
    for key, held in table.items():
        epoch = 0
        for value, run in groupby(held):
            start, epoch = epoch, epoch + len(list(run))
            if value is not None:
                found[(*key, *value, start, FOREVER if epoch == FAR else epoch)] += 1
    return found


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA)


def bag(df: DataFrame) -> Counter:
    return Counter(tuple(row) for row in df.collect())


@pytest.mark.law(1)
def test_law_1_the_last_value_of_a_key_is_there_until_it_ends(spark) -> None:
    """Kept until deleted, in windows, and with a filter."""
    rows = rows_of(SEED)
    upserts, kinds = frame(spark, rows), [(None, False), (1, False), (3, True)]
    lines = [
        to_timelines(upserts, KEY, VALUE, live_for, "v = 1" if where else None).withColumn("kind", F.lit(kind))
        for kind, (live_for, where) in enumerate(kinds)
    ]
    want = [intervals(values(rows, live_for, where)) for live_for, where in kinds]
    assert all(want), f"seed {SEED}"
    got = bag(lines[0].unionByName(lines[1]).unionByName(lines[2]))
    assert got == Counter({(*row, kind): n for kind, each in enumerate(want) for row, n in each.items()}), (
        f"seed {SEED}"
    )


@pytest.mark.law(1)
def test_one_winner_keeps_all_its_columns(spark) -> None:
    rows = rows_of(SEED)
    best: dict = {}
    for row in rows:
        slot = (*row[:2], row[6])
        if slot not in best or rank(row) > rank(best[slot]):
            best[slot] = row
    got = winning_upserts(frame(spark, rows), KEY, VALUE).select(*[c.split()[0] for c in SCHEMA.split(", ")])
    # Ties in everything the law compares fall to the greatest line, so a retry picks the same row.
    assert bag(got) == Counter(best.values()), f"seed {SEED}"


def test_versions_share_one_shuffle_and_give_the_signed_difference(spark) -> None:
    old, new = rows_of(SEED), rows_of(SEED + 1)
    tagged = frame(spark, old).withColumn("diff", F.lit(-1)).unionByName(frame(spark, new).withColumn("diff", F.lit(1)))
    net = distinct_changes(upsert_lives(tagged, KEY, VALUE, 2, by=["diff"]).withColumnRenamed("diff", "version"), KEY)
    assert exchanges(net) == 1 and no_python(net)
    want: Counter = Counter()
    tables = values(new, 2, False), values(old, 2, False)
    for key in set(tables[0]) | set(tables[1]):
        now, then = ([v is not None for v in t.get(key, [None] * FAR)] for t in tables)
        epoch = 0
        for diff, run in groupby(a - b for a, b in zip(now, then, strict=True)):
            start, epoch = epoch, epoch + len(list(run))
            if diff:
                want[(*key, start, FOREVER if epoch == FAR else epoch, diff)] += 1
    assert bag(net) == want, f"seed {SEED}"
    lines = to_timelines(tagged, KEY, VALUE, 2, by=["diff"]).withColumnRenamed("diff", "version")
    assert bag(distinct_changes(lines, KEY)) == want  # which of them are one life does not matter
    sides = [distinct_changes(lines.where(f"version = {sign}"), KEY) for sign in (1, -1)]
    assert bag(signed_difference(*sides, KEY)) == want


def test_union_and_net_of_overlapping_intervals(spark) -> None:
    rng = random.Random(SEED)
    rows = []
    for case in range(CASES):
        for _ in range(rng.randint(1, 6)):
            start = rng.randrange(8)
            until = rng.choice([start, start + 1, start + 3, FOREVER])
            rows.append((case, start, until, rng.choice([1, 1, -1, 2])))
    df = spark.createDataFrame(rows, "case long, epoch long, until long, diff long")
    union: Counter = Counter()
    net: Counter = Counter()
    for case in range(CASES):
        level = [sum(d for c, a, b, d in rows if c == case and a <= e < b) for e in range(FAR)]
        cover = [any(c == case and a <= e < b for c, a, b, _ in rows) for e in range(FAR)]
        for line, out in ((level, net), (cover, union)):
            epoch = 0
            for value, run in groupby(line):
                start, epoch = epoch, epoch + len(list(run))
                if value:
                    until = FOREVER if epoch == FAR else epoch
                    out[(case, start, until, value) if out is net else (case, start, until)] += 1
    one = df.withColumn("version", F.lit(1))
    assert bag(distinct_changes(one, ["case"]).drop("diff")) == union, f"seed {SEED}"
    assert bag(net_intervals(df, ["case"])) == net, f"seed {SEED}"


def test_upserts_to_triples_and_back(spark) -> None:
    rows = rows_of(SEED)
    triples = to_triples(frame(spark, rows), KEY, VALUE, live_for=3)
    back = to_triples(to_upserts(triples, KEY, VALUE), KEY, VALUE)
    assert collected(triples) and collected(back) == collected(triples), f"seed {SEED}"


def test_two_values_for_a_key_are_reported_as_a_conflict(spark) -> None:
    c = Collection(spark.createDataFrame([(1, 5, 0, 1), (1, 6, 2, 1)], "k long, v long, epoch long, diff long"), EPOCH)
    ops = {r["epoch"]: r["op"] for r in to_upserts(c, ["k"], ["v"]).collect()}
    assert ops == {0: "upsert", 2: "conflict"}


@pytest.mark.law(2)
def test_replacement_publishes_the_difference_and_nothing_twice(spark) -> None:
    old = rows_of(SEED)
    new = [r for r in old if r[6] != 3] + [(*r[:6], 3, r[7]) for r in rows_of(SEED + 1) if r[6] == 3]
    a, b = frame(spark, old), frame(spark, new)
    assert not collected(replacement(a, a, KEY, VALUE, revision=2))
    change = collected(replacement(b, a, KEY, VALUE, revision=2, live_for=2), raw=True)
    before, after = (collected(to_triples(x, KEY, VALUE, live_for=2)) for x in (a, b))
    want = Counter(
        {(data, (*t, 2)): n for data, t in set(before) | set(after) if (n := after[data, t] - before[data, t])}
    )
    assert want and change == want, f"seed {SEED}"


@pytest.mark.slow  # tests/laws/test_published_state.py has it of the whole pipeline
def test_confluence_batches_in_any_order_give_one_state(spark) -> None:
    """Each epoch's batch arrives as a revision of its own, in random order; the sum over revisions is the same."""
    rows = [r for r in rows_of(SEED, 40) if r[6] < 4]
    whole = collected(to_triples(frame(spark, rows), KEY, VALUE))
    for order in ([2, 0, 3, 1],):
        total: Counter = Counter()
        for revision in range(len(order)):
            before = frame(spark, [r for r in rows if r[6] in order[:revision]])
            after = frame(spark, [r for r in rows if r[6] in order[: revision + 1]])
            for (data, (e, _)), n in collected(replacement(after, before, KEY, VALUE, revision)).items():
                total[data, (e,)] += n
        assert Counter({k: n for k, n in total.items() if n}) == whole, f"order {order}"


def test_state_machine_equals_a_loop(spark) -> None:
    """A complex event: the pattern a, b, c in a row, started again by any a; the key holds how far it is."""
    rng = random.Random(SEED)
    events = [
        (case, epoch, seq, rng.choice("abc"))
        for case in range(CASES)
        for epoch in sorted(rng.sample(range(EPOCHS), 4))
        for seq in range(rng.randint(1, 2))
    ]
    df = spark.createDataFrame(events, "case long, epoch long, seq long, s string")

    def step(state, symbol):
        return (
            F.when(symbol == "a", "a")
            .when(F.concat(state, symbol) == "abc", "abc")
            .when((state == "a") & (symbol == "b"), "ab")
            .otherwise("")
        )

    def emit(state):
        return F.when(state == "", F.expr("cast(array() as array<string>)")).otherwise(F.array(state, F.upper(state)))

    got = collected(
        state_machine(df, ["case"], F.col("s"), order=["seq"], start=F.lit(""), step=step, emit=emit), raw=True
    )
    want: Counter = Counter()
    for case in range(CASES):
        state, held = "", set()
        mine = sorted(e for e in events if e[0] == case)
        for epoch, group in groupby(mine, key=lambda e: e[1]):
            for *_, s in group:
                state = "a" if s == "a" else "abc" if state + s == "abc" else "ab" if state + s == "ab" else ""
            now = {state, state.upper()} - {""}
            want.update({((case, v), (epoch,)): 1 for v in now - held})
            want.update({((case, v), (epoch,)): -1 for v in held - now})
            held = now
    assert got == want, f"seed {SEED}"


def test_one_shuffle_each(spark) -> None:
    rows = frame(spark, rows_of(SEED, 3))
    for df in (winning_upserts(rows, KEY, VALUE), to_timelines(rows, KEY, VALUE, 3), to_triples(rows, KEY, VALUE).df):
        assert exchanges(df) == 1 and no_python(df)
    lines = to_timelines(rows, KEY, VALUE)
    for df in (
        distinct_changes(lines.withColumn("version", F.lit(1)), KEY),
        signed_difference(lines, lines.where("epoch > 2"), KEY),
    ):
        assert exchanges(df) <= 2 and no_python(df)


def test_errors_name_the_columns(spark) -> None:
    with pytest.raises(ValueError, match="lack the columns seq"):
        winning_upserts(frame(spark, rows_of(SEED, 1)).drop("seq"), KEY, VALUE)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        to_timelines(frame(spark, rows_of(SEED, 1)), KEY, VALUE, live_for=0)
