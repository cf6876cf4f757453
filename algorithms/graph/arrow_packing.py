"""Packs: many rows in one value of a column, in Arrow's IPC format, compressed.

Where only Python reads the rows, Spark's own work for each row (sorting, caching, converting) costs more than all that
is done with an edge. To Spark a pack is one row, however many rows it holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from altneu.algorithms.graph.kernels.intervals import Longs

MAX_PACK_ROWS = 1 << 16  # rows of a pack: a small heap has little room for values that are larger than half a megabyte
# The hint by which unpacked rows are joined by a shuffle. Spark estimates their size from that of the packs, and so ten
# million rows look small enough to be brought to the driver.
UNPACKED = "merge"
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


def pack_rows(rows: pa.RecordBatch) -> bytes:
    """Return the pack of these rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_LZ4) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def unpack_rows(packs: pa.Table | pa.RecordBatch, names: Sequence[str]) -> pa.Table:
    """Return the rows of all packs of the column `rows`; `names` are the columns of an empty result.

    >>> one = pa.RecordBatch.from_pydict({"a": [1, 2]})
    >>> unpack_rows(pa.table({"rows": [pack_rows(one), pack_rows(one.slice(1))]}), ["a"])["a"].to_pylist()
    [1, 2, 2]
    """
    tables = [open_pack(each) for each in packs["rows"]]
    return pa.concat_tables(tables) if tables else pa.table({name: np.empty(0, np.int64) for name in names})


def unpack_columns(packs: Iterable[pa.RecordBatch], types: Mapping[str, DTypeLike]) -> list[NDArray[Any]]:
    """Return columns of the rows of all packs, as one array of the given type for each name in `types`.

    `packs` have the columns `n`, the number of rows of a pack, and `rows`, the pack. One pack is read at a time, so
    that no row is in memory twice.

    >>> one = pa.RecordBatch.from_pydict({"a": [1, 2], "b": [3, 4]})
    >>> packs = pa.RecordBatch.from_pydict({"n": [2, 1], "rows": [pack_rows(one), pack_rows(one.slice(1))]})
    >>> unpack_columns([packs], {"b": np.int32})
    [array([3, 4, 4], dtype=int32)]
    """
    waiting = deque(packs)
    columns = [np.empty(sum(sum(batch["n"].to_pylist()) for batch in waiting), of) for of in types.values()]
    position = 0
    while waiting:
        batch = waiting.popleft()
        for n, pack in zip(batch["n"].to_pylist(), batch["rows"], strict=True):
            rows = open_pack(pack)
            for name, column in zip(types, columns, strict=True):
                column[position : position + n] = rows[name].to_numpy()
            position += n
    return columns


def open_pack(pack: pa.Scalar) -> pa.Table:
    """Return the rows of one pack."""
    return pa.ipc.open_stream(pack.as_buffer()).read_all()


def gather_batches(rows: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.RecordBatch]:
    """Merge batches so that each but the last has at least `least` rows. A small pack consists mostly of column names.

    >>> [each.num_rows for each in gather_batches([pa.RecordBatch.from_pydict({"a": [1, 2]})] * 5, 3)]
    [4, 4, 2]
    """
    gathered = list[pa.RecordBatch]()
    for batch in chain(rows, [None]):
        if gathered and (batch is None or sum(each.num_rows for each in gathered) >= least):
            yield from pa.Table.from_batches(gathered).combine_chunks().to_batches()
            gathered = []
        if batch is not None:
            gathered.append(batch)


def pack_by_number(number: Longs, rows: pa.RecordBatch) -> Iterator[tuple[int, int, bytes]]:
    """Yield each number with the count of its rows and their pack; several packs if there are more than `MAX_PACK_ROWS`
    rows.

    >>> rows = pa.RecordBatch.from_pydict({"a": [1, 2, 3]})
    >>> [(number, n) for number, n, _ in pack_by_number(np.array([7, 3, 7]), rows)]
    [(3, 1), (7, 2)]
    >>> list(pack_by_number(np.array([], np.int64), pa.RecordBatch.from_pydict({"a": []})))
    []
    """
    order = np.argsort(number, kind="stable")
    rows = rows.take(pa.array(order))
    numbers, starts = np.unique(number[order], return_index=True)
    ends = np.append(starts, number.size)[1:]
    for value, start, end in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True):
        for at in range(start, end, MAX_PACK_ROWS):
            n = min(MAX_PACK_ROWS, end - at)
            yield value, n, pack_rows(rows.slice(at, n))


def packs_by_number(name: str, number: Longs, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the packs of `pack_by_number` as rows: the number, in a column called `name`, `n` and `rows`."""
    numbers, counts, packs = zip(*pack_by_number(number, rows), strict=True) if number.size else ((), (), ())
    return pa.RecordBatch.from_pydict(
        {name: pa.array(numbers, pa.int32()), "n": pa.array(counts, pa.int64()), "rows": pa.array(packs, pa.binary())}
    )
