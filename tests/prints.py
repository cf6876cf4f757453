"""For tests of fingerprints: runs that record them and do no more, and damage that nothing else shows."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.run.context import Run
from pipeline.run.proving import fingerprints
from pipeline.state.facts import AuditFacts


def stage(run: Run) -> AuditFacts:
    """In place of the audit, whose recomputations have tests of their own: its fingerprints alone."""
    run.ledger.put_fingerprints(run.run_id, fingerprints(run)[1])
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
