"""Queries in SQL, maintained over random histories, against DuckDB running the text itself at every epoch.

The relations of a history are made in plain Python: a log, a keyed state and its edges, from batches that come late,
are replaced and taken back. The reference shares neither the compiler nor the plan nor the engine.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import pairwise

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms import maintained_query as maintained
from altneu.algorithms.algebra.candidate_limit import CandidateLimit, TooManyCandidates
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.incremental import Change
from altneu.algorithms.algebra.time_lattice import EPOCH, FOREVER
from altneu.algorithms.spark_conf import configured
from altneu.algorithms.sql_query import CompiledQuery, QueryError, Relation, compile_query
from tests import seeds
from tests.algebra.reference import plan

EPOCHS, VERTICES = 6, 5
LONGS = ("src", "dst", "amount")
RELATIONS = {
    "landed": Relation(
        dict.fromkeys(LONGS, "bigint") | {"op": "string", "seq": "bigint", "epoch": "bigint", "age": "bigint"}
    ),
    "arcs": Relation(dict.fromkeys(LONGS, "bigint"), key=("src", "dst")),
    "edges": Relation({"src": "bigint", "dst": "bigint"}, key=("src", "dst")),
}
QUERIES = {
    "ring": """SELECT a.src AS x, b.src AS y, c.src AS z, a.amount + b.amount AS total FROM landed a
        JOIN landed b ON b.src = a.dst AND a.seq <= b.seq JOIN landed c ON c.src = b.dst AND c.dst = a.src
        WHERE b.amount BETWEEN a.amount - 2 AND a.amount AND a.op = 'upsert'""",
    "pairs": """SELECT src, dst, count(*) AS n, sum(amount) AS s, avg(amount) AS m FROM landed
        GROUP BY src, dst HAVING count(*) >= 2 OR avg(amount) > 2""",
    "velocity": "SELECT src, count(*) AS n, count(amount) AS c FROM landed WHERE age < 2 GROUP BY src",
    "mutual": "SELECT a.src, a.dst FROM arcs a JOIN arcs b ON b.src = a.dst AND b.dst = a.src WHERE a.src < a.dst",
    "triangles": """SELECT ab.src AS a, count(*) AS n FROM edges ab JOIN edges ac ON ac.src = ab.src
        JOIN edges bc ON bc.src = ab.dst AND bc.dst = ac.dst GROUP BY ab.src""",
    "total": "SELECT 'all' AS what, count(*) AS n, sum(amount) AS s FROM arcs WHERE amount > 1 GROUP BY 1",
    "first contact": """SELECT src, min(epoch) AS first, max(seq) AS last, count(amount) AS n, max(op) || '!' AS op
        FROM landed WHERE dst <> 1 GROUP BY src HAVING min(epoch) < 4""",
    "kinds": "SELECT DISTINCT amount, src % 2 = 0 AS even FROM arcs",
    "mixed": """SELECT l.src, e.dst, l.amount / 2 AS half, coalesce(l.amount, 0) AS known FROM landed l
        JOIN edges e USING (src) WHERE l.age BETWEEN 1 AND 2 AND l.dst <> e.dst""",
    "loops": "SELECT src, op FROM landed WHERE src = dst",
    "recommended": """SELECT a.src, b.dst, count(*) AS n FROM arcs a JOIN arcs b ON b.src = a.dst
        WHERE a.src <> b.dst AND NOT EXISTS (SELECT 1 FROM arcs x WHERE x.src = a.src AND x.dst = b.dst)
        GROUP BY a.src, b.dst""",
    "answered": """SELECT l.src, coalesce(b.amount, -1) AS answer, count(b.amount) AS n FROM landed l
        LEFT JOIN arcs b ON b.src = l.dst AND b.dst = l.src AND l.op = 'upsert'
        GROUP BY l.src, coalesce(b.amount, -1)""",
    "ends": "SELECT src AS v, 'from' AS role FROM arcs UNION ALL SELECT dst, 'to' FROM arcs WHERE amount > 0",
    "vertices": "SELECT src AS v FROM edges UNION SELECT dst FROM edges UNION SELECT dst FROM landed WHERE age = 1",
    "partners": """SELECT a.src, a.dst, a.amount AS n FROM landed a JOIN edges e USING (src)
        QUALIFY rank() OVER (PARTITION BY a.src ORDER BY a.amount DESC, a.seq) <= 2""",
    "same amount": "SELECT a.src, b.src AS other FROM arcs a JOIN arcs b ON a.amount = b.amount WHERE a.src <> b.dst",
}
Batches = Mapping[int, list[tuple[int, int, int | None, str, int]]]
Intervals = Counter[tuple[tuple[object, ...], int, int]]


def random_batch(rng: random.Random) -> list[tuple[int, int, int | None, str, int]]:
    def row() -> tuple[int, int, int | None, str, int]:
        amount = None if rng.random() < 0.1 else rng.randrange(4)
        op = "delete" if rng.random() < 0.2 else "upsert"
        return rng.randrange(VERTICES), rng.randrange(VERTICES), amount, op, rng.randrange(3)

    return [row() for _ in range(rng.randrange(7))]


def arcs_of(batches: Batches) -> Intervals:
    """The values in force of each key: the greatest seq of an epoch wins, and a value beats a delete (law 1)."""
    winners: dict[tuple[int, int], dict[int, tuple[object, ...]]] = {}
    for epoch, rows in batches.items():
        for src, dst, amount, op, seq in (row for row in rows if row[0] != row[1]):
            rank = (seq, op == "upsert", amount is not None, amount or 0)
            line = winners.setdefault((src, dst), {})
            if epoch not in line or rank > line[epoch][0]:
                line[epoch] = (rank, amount, op)
    arcs: Intervals = Counter()
    for key, line in winners.items():
        for epoch, until in zip(sorted(line), [*sorted(line)[1:], FOREVER], strict=True):
            if line[epoch][2] == "upsert":
                arcs[((*key, line[epoch][1]), epoch, until)] += 1
    return arcs


def edges_of(arcs: Intervals) -> Intervals:
    """Either direction makes an edge."""
    edges: Intervals = Counter()
    for pair in {(min(row[:2]), max(row[:2])) for row, _, _ in arcs}:
        alive = {e for row, start, end in arcs if {*row[:2]} == {*pair} for e in range(start, min(end, EPOCHS))}
        for epoch in alive:
            edges[(pair, epoch, epoch + 1)] += 1
    return edges


def relations_of(batches: Batches) -> dict[str, Intervals]:
    arcs = arcs_of(batches)
    landed: Intervals = Counter(((*row, epoch), epoch, FOREVER) for epoch, rows in batches.items() for row in rows)
    return {"landed": landed, "arcs": arcs, "edges": edges_of(arcs)}


def as_frames(spark: SparkSession, relations: Mapping[str, Intervals]) -> dict[str, DataFrame]:
    frames = {}
    for name, intervals in relations.items():
        columns = [f"{column} {type_}" for column, type_ in RELATIONS[name].columns.items() if column != "age"]
        rows = [(*row, start, end, n) for (row, start, end), n in intervals.items() if n]
        frames[name] = spark.createDataFrame(rows, ", ".join([*columns, "_epoch long, _until long, _diff long"]))
    return frames


def by_duckdb(text: str, batches: Batches, epoch: int) -> Counter[tuple[object, ...]]:
    rows = [(*row, at) for at, batch in batches.items() for row in batch if at <= epoch]
    types = [pa.string() if name == "op" else pa.int64() for name in (*LONGS, "op", "seq", "epoch")]
    arrays = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(types)]
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("rows", pa.table(arrays, [*LONGS, "op", "seq", "epoch"]))
        query = f"""WITH landed AS (SELECT *, {epoch} - epoch AS age FROM rows),
            last AS (
                SELECT *, row_number() OVER (PARTITION BY src, dst
                    ORDER BY epoch DESC, seq DESC, op = 'delete', amount DESC NULLS LAST) AS place
                FROM rows WHERE src <> dst
            ),
            arcs AS (SELECT src, dst, amount FROM last WHERE place = 1 AND op <> 'delete'),
            edges AS (SELECT DISTINCT least(src, dst) AS src, greatest(src, dst) AS dst FROM arcs),
            ends AS (SELECT src, dst FROM edges UNION SELECT dst, src FROM edges),
            vertices AS (
                SELECT src AS vertex, count(*) AS degree, (
                    SELECT count(*) FROM ends a JOIN ends b ON a.dst = b.src JOIN ends c ON c.src = b.dst
                    WHERE a.src = e.src AND c.dst = e.src AND a.dst < b.dst
                ) AS triangles
                FROM ends e GROUP BY src
            )
            SELECT * FROM ({text}) AS result"""
        return Counter(connection.execute(query).fetchall())


Triples = Counter[tuple[str, str, int]]  # (query, row as JSON, epoch) → diff


def collect(parts: Mapping[str, Collection]) -> Triples:
    """All parts in one Spark job."""
    rows = [
        part.df.select(
            F.lit(name).alias("name"),
            F.to_json(F.struct(*part.data), {"ignoreNullFields": "false"}).alias("row"),
            "epoch",
            "diff",
        )
        for name, part in parts.items()
    ]
    return Counter({tuple(row[:3]): row[3] for row in reduce(DataFrame.union, rows).collect()})


def rows_at(triples: Triples, name: str, epoch: int) -> Counter[tuple[object, ...]]:
    rows: Counter[tuple[object, ...]] = Counter()
    for (query, row, at), diff in triples.items():
        if query == name and at <= epoch:
            rows[tuple(json.loads(row).values())] += diff
    assert all(n >= 0 for n in rows.values())
    return +rows


def as_collection(spark: SparkSession, query: CompiledQuery, name: str, triples: Triples) -> Collection:
    """The stored state of a query."""
    columns = maintained.state_columns(query)
    rows = [(*json.loads(row).values(), at, diff) for (of, row, at), diff in triples.items() if of == name]
    ddl = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
    return Collection(spark.createDataFrame(rows, f"{ddl}, epoch long, diff long"), EPOCH)


def check_history(
    spark: SparkSession, seed: int, runs: int, *, broadcast: bool, names: Iterable[str] = tuple(QUERIES)
) -> None:
    rng, batches = random.Random(seed), dict[int, list[tuple[int, int, int | None, str, int]]]()
    queries = {name: compile_query(QUERIES[name], RELATIONS) for name in names}
    result, states, old = Triples(), Triples(), relations_of({})
    for run in range(runs):
        for epoch in rng.sample(range(EPOCHS), 2):
            batches[epoch] = random_batch(rng)
        new = relations_of(batches)
        delta = {name: Counter({k: new[name][k] - old[name][k] for k in {*new[name], *old[name]}}) for name in new}
        before, changes = as_frames(spark, old), as_frames(spark, delta)
        cores = {
            name: maintained.core_changes(query, before, changes, broadcast=broadcast)
            if run
            else maintained.core_from_scratch(query, changes)
            for name, query in queries.items()
        }
        results = {}
        for name, query in queries.items():
            if query.is_grouped:
                state = Change(as_collection(spark, query, name, states), maintained.state_changes(query, cores[name]))
                results[name], results[f"{name} state"] = maintained.result_changes(query, state), state.delta
            else:
                results[name] = maintained.select_result(query, cores[name])
        found = collect(results)
        result.update({key: n for key, n in found.items() if key[0] in queries})
        states.update(
            {(key[0].removesuffix(" state"), *key[1:]): n for key, n in found.items() if key[0] not in queries}
        )
        for name in queries:
            for epoch in range(EPOCHS):
                assert rows_at(result, name, epoch) == by_duckdb(QUERIES[name], batches, epoch), (
                    seed,
                    run,
                    name,
                    epoch,
                )
        old = new


def test_pairs_are_counted_before_they_are_listed(spark: SparkSession) -> None:
    rng = random.Random(5)
    relations = relations_of({epoch: random_batch(rng) for epoch in range(EPOCHS)})
    query = compile_query(QUERIES["ring"], RELATIONS)
    rows = [row for row, _, _ in relations["landed"]]  # copies of a row are one row with a greater diff
    meets = Counter((a[1], b[0]) for a in rows if a[3] == "upsert" for b in rows if a[1] == b[0])
    pairs, of_hub = meets.total(), max(meets.values())
    frames = as_frames(spark, relations)
    limit = CandidateLimit(pairs, 0, 0, pairs)
    maintained.core_from_scratch(query, frames, limit)
    assert limit.candidates == pairs > 1
    with pytest.raises(TooManyCandidates) as error:
        maintained.core_from_scratch(query, frames, CandidateLimit(pairs - 1, 0, 0, pairs))
    assert (error.value.candidates, error.value.of_hub) == (pairs, of_hub)
    assert meets[(error.value.hub["landed.dst"],) * 2] == of_hub


HUB = """SELECT a.src, b.dst, c.dst AS other FROM arcs a JOIN arcs b ON b.src = a.dst JOIN arcs c ON c.src = a.dst
    WHERE c.dst < b.dst"""


def make_arcs(spark: SparkSession, epoch: int, *ends: tuple[int, int]) -> dict[str, DataFrame]:
    arcs: Intervals = Counter()
    for src, dst in ends:
        arcs[((src, dst, None), epoch, FOREVER)] = 1
    return as_frames(spark, {"arcs": arcs})


def test_a_change_at_a_hub_is_refused_before_its_neighbours_are_listed(spark: SparkSession) -> None:
    query = compile_query(HUB, RELATIONS)
    frames = make_arcs(spark, 0, (1, 2), *((7, v) for v in range(100, 140)))
    change = make_arcs(spark, 1, (3, 7), (5, 1))

    def change_core(most: int) -> Collection:
        limit = CandidateLimit(most, 1000, 2, 41)
        return maintained.core_changes(query, frames, change, broadcast=True, limit=limit)

    with pytest.raises(TooManyCandidates) as first:
        change_core(40)
    assert (first.value.candidates, first.value.of_hub, first.value.hub) == (41, 40, {"arcs.dst": 7})
    with pytest.raises(TooManyCandidates) as second:
        change_core(1600)  # 40 pairs at the hub and one at vertex 1, and then 40 × 40 + 1
    assert (second.value.candidates, second.value.of_hub) == (1601, 40)
    assert change_core(1601).df.count() == 40 * 39 // 2


def test_later_joins_are_counted_from_scratch_as_well(spark: SparkSession) -> None:
    query = compile_query(HUB, RELATIONS)
    frames = make_arcs(spark, 0, (3, 7), *((7, v) for v in range(100, 140)))
    maintained.core_from_scratch(query, frames, CandidateLimit(1600, 0, 0, 41))
    with pytest.raises(TooManyCandidates, match="1,600 candidates, and 1,599 are the most") as error:
        maintained.core_from_scratch(query, frames, CandidateLimit(1599, 0, 0, 41))
    assert error.value.hub == {"arcs.dst": 7}


def make_rows(spark: SparkSession, relation: str, count: int) -> DataFrame:
    names = [name for name in RELATIONS[relation].columns if name != "age"]
    types = RELATIONS[relation].columns
    columns = [(F.col("id") * (place + 2)).cast(types[name]).alias(name) for place, name in enumerate(names)]
    times = {"_epoch": 0, "_until": FOREVER, "_diff": 1}
    return spark.range(0, count, 1, 2).select(
        *columns, *[F.lit(value).cast("bigint").alias(name) for name, value in times.items()]
    )


@pytest.mark.parametrize(
    ("name", "exchanges", "scans"), (("loops", 1, 0), ("mutual", 1, 2), ("triangles", 3, 3), ("ring", 3, 6))
)
def test_few_changes_exchange_no_relation(spark: SparkSession, name: str, exchanges: int, scans: int) -> None:
    """One scan counts, one proposes, one validates: atoms of one relation share them. Sums alone are exchanged."""
    query = compile_query(QUERIES[name], RELATIONS)
    before, delta = ({each: make_rows(spark, each, count) for each in query.relations} for count in (1000, 10))
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):
        lines = plan(maintained.core_changes(query, before, delta, broadcast=True).df).splitlines()
    exchanged = [below for line, below in pairwise(lines) if " Exchange " in line]
    assert all("HashAggregate" in below for below in exchanged) and len(exchanged) == exchanges
    assert sum("Range (0, 1000," in line for line in lines) == scans


@pytest.mark.parametrize(("name", "once"), (("mutual", True), ("kinds", True), ("ring", False), ("triangles", False)))
def test_a_row_meets_one_row_by_a_whole_key(name: str, once: bool) -> None:
    keys = {relation: each.key for relation, each in RELATIONS.items()}
    assert maintained.joins_whole_keys(compile_query(QUERIES[name], RELATIONS), keys) == once
    assert not maintained.joins_whole_keys(compile_query(QUERIES["answered"], RELATIONS), keys)


@pytest.mark.law(3, 4)
def test_maintained_results_are_what_sql_gives_at_every_epoch(spark: SparkSession) -> None:
    check_history(spark, seeds.one(17), 2, broadcast=True, names=("ring", "pairs", "partners"))


@pytest.mark.slow
@pytest.mark.law(3, 4)
@pytest.mark.parametrize("broadcast", (False, True))
@pytest.mark.parametrize("seed", range(6))
def test_many_histories(spark: SparkSession, seed: int, broadcast: bool) -> None:
    check_history(spark, seed, 4, broadcast=broadcast)


REFUSED = {
    "SELECT srx FROM arcs": "line 1, column 8: there is no column srx; arcs has src, dst, amount. Did you mean src?",
    "SELECT src FROM arcs a JOIN arcs b ON a.src = b.dst": "src is of a and of b: write a.src or b.src",
    "SELECT src\nFROM arcz": "line 2, column 6: there is no relation arcz; there are landed, arcs, edges. Did you",
    "SELECT a.src FROM arcs a JOIN arcs b ON b.src > a.dst": "b is joined by no equality",
    "SELECT src FROM (SELECT * FROM arcs)": "a subquery: make it a query of its own",
    "WITH x AS (SELECT src FROM arcs) SELECT src FROM x": "WITH: make it a query of its own",
    "SELECT src FROM arcs ORDER BY src": "a result has no order",
    "SELECT src FROM arcs LIMIT 3": "a result has no order",
    "SELECT src, now() AS t FROM arcs": "another value on the next run",
    "SELECT src, sum(amount / 2) AS s FROM arcs GROUP BY src": "a sum of doubles depends on the order",
    "SELECT src, row_number() OVER (ORDER BY src) AS n FROM arcs": "a window function cannot be maintained",
    "SELECT src FROM arcs QUALIFY row_number() OVER (PARTITION BY src ORDER BY dst) <= 2": "is not supported: QUALIFY",
    "SELECT src FROM arcs QUALIFY rank() OVER (ORDER BY dst) <= 2": "QUALIFY rank() OVER (PARTITION BY",
    "SELECT DISTINCT src FROM arcs QUALIFY rank() OVER (PARTITION BY src ORDER BY dst) < 2": "QUALIFY on groups",
    "SELECT count(*) AS n FROM arcs": "an aggregate without GROUP BY has a row even where nothing has landed",
    "SELECT src, median(dst) AS m FROM arcs GROUP BY src": "median() is not supported: there are count, sum, avg, min",
    "SELECT src, dst FROM arcs GROUP BY src": "arcs.dst is neither grouped by nor within a sum",
    "SELECT a.src FROM arcs a LEFT JOIN arcs b USING (src)": "more than one row of arcs may match b: its key is src",
    "SELECT a.src FROM arcs a RIGHT JOIN arcs b USING (src)": "RIGHT JOIN is not supported",
    "SELECT a.src FROM arcs a WHERE NOT EXISTS (SELECT 1 FROM landed l WHERE l.src = a.src)": "it has no key",
    "SELECT a.src FROM arcs a WHERE EXISTS (SELECT 1 FROM arcs b WHERE b.src = a.dst AND b.dst = a.src)": "a subquery:",
    "SELECT a.src FROM arcs a LEFT JOIN arcs b ON b.src = a.dst AND b.dst = a.src WHERE b.amount > 1": "into ON",
    "SELECT src FROM arcs UNION ALL SELECT src, count(*) AS n FROM arcs GROUP BY src": "has no GROUP BY",
    "SELECT src FROM arcs UNION ALL SELECT op FROM landed": "the parts of a UNION have the types bigint and string",
    "SELECT src FROM landed WHERE age < 7 OR src = 1": "age can only be compared with a whole number",
    "SELECT age FROM landed": "age can only be compared with a whole number",
    "SELECT src + 1 FROM arcs": "needs a name",
    "SELECT src AS epoch FROM arcs": "cannot be called epoch",
    "SELECT 0.5 * amount AS half FROM arcs": "half is of type DECIMAL(21,1): CAST it AS double",
    "SELECT amount / src AS x FROM arcs": "may be 0: divide by nullif(arcs.src, 0)",
    "SELECT src FROM arcs WHERE src = 'alice'": "mixes a number and a text",
    "SELECT src FROM arcs WHERE src": "is a number, where a truth is expected",
    "SELECT src FROM arcs WHERE": "is not expected there",
    "INSERT INTO arcs SELECT * FROM edges": "a query is one SELECT",
    "SELECT src FROM arcs EXCEPT SELECT dst FROM arcs": "a query is one SELECT",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_maintained_is_refused_by_name(text: str) -> None:
    with pytest.raises(QueryError) as error:
        compile_query(text, RELATIONS)
    assert REFUSED[text] in str(error.value)
