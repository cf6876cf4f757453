"""Law 11: the fingerprint of a revision depends on its contents alone."""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from algorithms.fingerprint import Fingerprint
from algorithms.times import FOREVER
from pipeline.storage import few
from pipeline.storage.prints import ALWAYS, TIME, of_tables
from pipeline.storage.warehouse import INTERVALS, MOTIFS, TABLES, Warehouse
from tests import homes, seeds

_P = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_ALL = (1 << 64) - 1
VALUES = '[values]\nk = "long"\nmy-weight = "double"\nnote = "string"\nseen = "boolean"\n'
MOTIF = '[motifs]\nsquare = "a-b, b-c, c-d, d-a"\n'
Prints = dict[str, dict[int, Fingerprint]]


def _rotated(x: int, by: int) -> int:
    x &= _ALL
    return (x << by | x >> 64 - by) & _ALL


def xxhash64(data: bytes, seed: int) -> int:
    """XXH64 as it is written down, of any number of bytes."""
    p1, p2, p3, p4, p5 = _P
    at, h = 0, seed + p5
    if len(data) >= 32:
        v = [seed + p1 + p2, seed + p2, seed, seed - p1]
        while at + 32 <= len(data):
            words = struct.unpack_from("<4Q", data, at)
            v = [_rotated(each + word * p2, 31) * p1 for each, word in zip(v, words, strict=True)]
            at += 32
        h = sum(_rotated(each, by) for each, by in zip(v, (1, 7, 12, 18), strict=True))
        for each in v:
            h = (h ^ _rotated(each * p2, 31) * p1) * p1 + p4
    h += len(data)
    while at + 8 <= len(data):
        (word,) = struct.unpack_from("<Q", data, at)
        h = _rotated(h & _ALL ^ _rotated(word * p2, 31) * p1 & _ALL, 27) * p1 + p4
        at += 8
    if at + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, at)
        h = _rotated(h & _ALL ^ word * p1 & _ALL, 23) * p2 + p3
        at += 4
    for byte in data[at:]:
        h = _rotated(h & _ALL ^ byte * p5 & _ALL, 11) * p1
    h &= _ALL
    h = (h ^ h >> 33) * p2 & _ALL
    h = (h ^ h >> 29) * p3 & _ALL
    return h ^ h >> 32


def _bytes(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<i", value)
    if isinstance(value, int):
        return struct.pack("<q", value)
    return struct.pack("<d", value) if isinstance(value, float) else str(value).encode()


def reference(table: str, columns: list[str], rows: list[tuple[Any, ...]]) -> dict[int, Fingerprint]:
    """The contract of `of_tables`, row by row."""
    sums: dict[int, Fingerprint] = defaultdict(Fingerprint)
    for values in rows:
        row = dict(zip(columns, values, strict=True))
        parts = [row[column] for column in ALWAYS.get(table, ())]
        for column in sorted(set(columns) - set(TIME) - set(ALWAYS.get(table, ()))):
            parts += [] if row[column] is None else [column, row[column]]
        pair = []
        for before in ([], [1]):
            h = 42
            for part in (*before, *parts):
                h = xxhash64(_bytes(part), h)
            pair.append(h)
        once = Fingerprint(pair[0] * row["diff"] % (1 << 64), pair[1] * row["diff"] % (1 << 64))
        sums[row["epoch"]] += once
        if table in INTERVALS and row["until"] != FOREVER:
            sums[row["until"]] -= once
    return {epoch: each for epoch, each in sorted(sums.items()) if each}


def drawn(rng: random.Random, table: str, column: str, type_: str) -> Any:
    if column == "until":
        return rng.choice([FOREVER, rng.randrange(4, 8)])
    if column == "epoch":
        return rng.randrange(4)
    if column == "diff":
        return rng.choice([-1, 1, 2**40] if "count" in table or table == "degrees" else [-1, 1])
    if column not in ALWAYS.get(table, ()) and column != "revision" and rng.random() < 0.3:
        return None
    if type_ == "bigint":
        return rng.choice([rng.randrange(5), rng.randrange(-(2**63), 2**63)])
    if type_ == "boolean":
        return rng.random() < 0.5
    if type_ == "double":
        return rng.choice([0.0, 1.5, -1e300, rng.random()])
    return "".join(rng.choices("aä€ b,\n😀", k=rng.choice([0, 1, 5, 40])))


def test_of_tables_is_what_it_says(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of all types, with nulls, intervals, diffs that cancel and diffs that are counts."""
    rng = random.Random(seeds.one())
    home, _ = homes.make(tmp_path / "home", VALUES + MOTIF)
    warehouse = Warehouse(spark, home)
    rows, frames, types = {}, {}, {}
    for table in [*TABLES, *MOTIFS]:
        types[table] = dict(field.rsplit(" ", 1) for field in warehouse.columns(table).split(", "))
        types[table] = {name.strip("`"): type_ for name, type_ in types[table].items()}
        drawings = types[table].items()
        some = [tuple(drawn(rng, table, *each) for each in drawings) for _ in range(rng.choice([0, 1, 60]))]
        at = list(types[table]).index("diff")
        rows[table] = some + [(*row[:at], -row[at], *row[at + 1 :]) for row in some[::3]]
        rng.shuffle(rows[table])
        frames[table] = few.frame(spark, types[table], rows[table])
    found = of_tables(frames.__getitem__, warehouse, rows)
    assert found == {table: reference(table, list(types[table]), some) for table, some in rows.items()}
    half = {table: some[: len(some) // 2] for table, some in rows.items()}
    parts: Prints = of_tables(lambda table: few.frame(spark, types[table], half[table]), warehouse, rows)
    rest = of_tables(lambda table: few.frame(spark, types[table], rows[table][len(half[table]) :]), warehouse, rows)
    for table in rows:
        sums: Counter[Any] = Counter()
        for each in (parts[table], rest[table]):
            for epoch, one in each.items():
                sums[epoch] = sums[epoch] + one if epoch in sums else one
        assert {epoch: one for epoch, one in sums.items() if one} == found[table], table
    assert of_tables(frames.__getitem__, warehouse, []) == {}


def test_similar_rows_differ(spark: SparkSession, tmp_path: Path) -> None:
    """A null here is no null there, and no empty text; a column that is declared later changes nothing where it is
    null."""

    def one(**values: str | None) -> Fingerprint:
        declared = "".join(f'{name} = "string"\n' for name in values)
        home, _ = homes.make(tmp_path / "home", f"[values]\n{declared}")
        names = ["src", "dst", *values, "op", "seq", "file", "line", "epoch", "revision", "diff"]
        types = {name: "string" if name in (*values, "op", "file") else "bigint" for name in names}
        row = [1, 2, *values.values(), "upsert", 0, "f", 1, 0, 1, 1]
        return of_tables(lambda table: few.frame(spark, types, [row]), Warehouse(spark, home), ["upserts"])["upserts"][
            0
        ]

    pairs = [("a", None), (None, "a"), (None, None), ("", None), (None, ""), ("", ""), ("y", None), ("ya", None)]
    assert len({one(x=x, y=y) for x, y in pairs}) == len(pairs)
    assert one(x="a") == one(x="a", y=None) == one(y=None, x="a")
