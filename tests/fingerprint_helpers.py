"""For tests of fingerprints: a slow reference of them, runs that record them and do no more, and damage that nothing
else shows."""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.fingerprint import Fingerprint
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages.proof_verification import run_fingerprints
from altneu.pipeline.state.stage_results import AuditFacts
from altneu.pipeline.storage.table_schemas import ALWAYS, INTERVALS, TIME


def stage(run: RunContext) -> AuditFacts:
    """In place of the audit, whose recomputations have tests of their own: its fingerprints alone."""
    run.ledger.outputs.put_fingerprints(run.run_id, run_fingerprints(run)[1])
    return AuditFacts(checks=0, failed=0, critical=0)


def another_number(home: Path, table: str, column: str, seed: int) -> None:
    """Another number in one row of a data file of a table, in a file of the same size."""
    rng = random.Random(seed)
    files = sorted((home / "warehouse" / "graph" / table / "data").rglob("*.parquet"))
    file = rng.choice([each for each in files if pq.read_metadata(each).num_rows])
    rows = pq.ParquetFile(file).read()
    numbers = rows[column].to_pylist()
    at = rng.randrange(len(numbers))
    numbers[at] += 1
    place = rows.column_names.index(column)
    spoilt = rows.set_column(place, rows.schema.field(place), pa.array(numbers, pa.int64()))
    print(f"{file.name}: {column} of row {at} is {numbers[at]}")

    def written(padding: int, more: int) -> bytes:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, spoilt.schema, compression="zstd", store_schema=False) as writer:
            writer.write_table(spoilt)
            writer.add_key_value_metadata({"padding": "x" * padding, "more": "x" * more})
        return bytes(sink.getvalue())

    size = file.stat().st_size
    missing = size - len(written(0, 0))
    assert missing > 0, f"{file} has no room for padding"
    # their lengths are stored in one byte or two
    found = (written(padding, more) for padding in range(max(0, missing - 8), missing + 1) for more in range(3))
    file.write_bytes(next(content for content in found if len(content) == size))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


_P = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_ALL = (1 << 64) - 1


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


@lru_cache(10_000)
def hash_row(*parts: bytes) -> tuple[int, int]:
    """Hash the parts of a row one after the other, from two beginnings."""
    pair = []
    for before in ([], [_bytes(1)]):
        h = 42
        for part in (*before, *parts):
            h = xxhash64(part, h)
        pair.append(h)
    return pair[0], pair[1]


def recompute_fingerprints(
    table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]
) -> dict[int, Fingerprint]:
    """Compute a table's fingerprints by epoch, row by row: the contract of `table_fingerprints`."""
    sums: dict[int, Fingerprint] = defaultdict(Fingerprint)
    for values in rows:
        row = dict(zip(columns, values, strict=True))
        parts = [row[column] for column in ALWAYS.get(table, ())]
        for column in sorted(set(columns) - set(TIME) - set(ALWAYS.get(table, ()))):
            parts += [] if row[column] is None else [column, row[column]]
        first, second = hash_row(*map(_bytes, parts))
        once = Fingerprint(first * row["diff"] % (1 << 64), second * row["diff"] % (1 << 64))
        sums[row["epoch"]] += once
        if table in INTERVALS and row["until"] != FOREVER:
            sums[row["until"]] -= once
    return {epoch: each for epoch, each in sorted(sums.items()) if each}
