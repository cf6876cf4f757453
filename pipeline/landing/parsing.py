"""Files of rows → typed Arrow tables with line numbers, and the malformed rows with their reasons.

`read(path, layout)` yields `Block`s: nothing is lost, every input line is in `good`, in `bad`, or before the header. A
block of bytes goes through Arrow's parsers at their speed. One that they refuse is halved, and again, until a few lines
are left to be read one by one, to say which is wrong and why. Both ways follow the same rules, so that a row means the
same whatever stands near it:

- Comments (`#`, `%`) and empty lines may stand before the header, or before the first row of a file without one. After
  that every line is a row. JSON has no comments.
- Blanks and tabs around a field of delimited text do not count, quoted or not. Quotes count only around a whole field,
  and not in text separated by blanks; a field holds no line break. What is then empty is no value.
- An integer is a sign and ASCII digits, within 64 bits; a number may have a fraction and an exponent, or be nan or inf.
  In JSON 1.0 is an integer, too, and an object has each field once.

Memory: one block (16 MiB of text). A broken file (truncated gzip, a missing column, no Parquet) is `FileBroken`: it has
no good rows one could trust.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..home.s3 import S3
from ..state import files
from .delimited import Delimited
from .json_lines import JsonLines
from .layout import ARROW, BLOCK, FileBroken, Layout

SMALL = 32 << 10  # bytes that are read line by line when Arrow refuses them


@dataclass
class Block:
    good: pa.Table  # the layout's columns and `line` (int64, 1 = the file's first line)
    bad: list[tuple[int, str, str]] = field(default_factory=list)  # line, reason, text
    comments: int = 0  # lines before the header that are comments: those of a file are in its first block


def read(path: Path | str, layout: Layout, s3: S3 | None = None) -> Iterator[Block]:
    """All rows of a .csv, .csv.gz, .txt, .txt.gz, .tsv, .jsonl, .jsonl.gz or .parquet file, a path or a URI. Raises
    `FileBroken`. `s3`: see `files.opened`."""
    name = str(path).removesuffix(".gz")
    try:
        if name.endswith(".parquet"):
            yield from _parquet(path, layout, s3)
        elif name.endswith((".jsonl", ".ndjson")):
            yield from _lines(path, layout, JsonLines(layout), s3)
        else:
            yield from _lines(path, layout, Delimited(layout), s3)
    except (EOFError, gzip.BadGzipFile, OSError, pa.ArrowInvalid) as error:
        if isinstance(error, FileNotFoundError):
            raise FileBroken("the file is gone") from None
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile) and files.local(str(path)) is None:
            raise FileBroken(f"the store does not give it: {files.told(error)}", again=True) from None
        reason = "the gzip stream is truncated" if isinstance(error, EOFError) else str(error)
        raise FileBroken(reason) from None


def opened(path: Path | str, s3: S3 | None = None) -> IO[bytes]:
    """A file's content, unpacked."""
    stream = files.opened(str(path), s3)
    return cast(IO[bytes], _Unpacked(stream)) if str(path).endswith(".gz") else stream


class _Unpacked(gzip.GzipFile):
    """A packed stream, which is closed with its reader."""

    def __init__(self, packed: IO[bytes]) -> None:
        super().__init__(fileobj=packed)
        self._packed = packed

    def close(self) -> None:
        super().close()
        self._packed.close()


def _lines(path: Path | str, layout: Layout, form: JsonLines | Delimited, s3: S3 | None) -> Iterator[Block]:
    with opened(path, s3) as stream:
        line, rest = form.start(stream)
        if form.comments:
            yield Block(_slowly(b"", 0, layout, form).good, comments=form.comments)
        while chunk := stream.read(BLOCK):
            block, cut, tail = (rest + chunk).rpartition(b"\n")
            if cut:
                yield from _blocks(block + b"\n", line, layout, form)
                line += block.count(b"\n") + 1
            rest = tail
        if rest:
            yield from _blocks(rest if rest.endswith(b"\n") else rest + b"\n", line, layout, form)


def _blocks(block: bytes, before: int, layout: Layout, form: JsonLines | Delimited) -> Iterator[Block]:
    """The block at once, or in halves where Arrow refuses it: one malformed line slows down `SMALL` bytes, not all."""
    lines = block.count(b"\n")
    try:
        table = _complete(form.fast(block), layout)
        if table.num_rows == lines and not _nulls(table, layout).any():
            yield Block(table.append_column("line", pa.array(np.arange(before + 1, before + lines + 1))))
            return
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError):
        pass
    middle = block.find(b"\n", len(block) // 2) + 1
    if len(block) <= SMALL or middle == len(block):
        yield _slowly(block, before, layout, form)
    else:
        yield from _blocks(block[:middle], before, layout, form)
        yield from _blocks(block[middle:], before + block.count(b"\n", 0, middle), layout, form)


def _slowly(block: bytes, before: int, layout: Layout, form: JsonLines | Delimited) -> Block:
    """Line by line: the same rows, and a reason for each that is not one."""
    rows: list[dict[str, Any]] = []
    bad: list[tuple[int, str, str]] = []
    for number, raw in enumerate(block.split(b"\n")[:-1], before + 1):
        raw = raw.removesuffix(b"\r")
        try:
            text = raw.decode()
            if not text.strip(" \t"):
                raise ValueError("empty line")
            if "\r" in text:
                raise ValueError("a carriage return within the line")
            row = form.row(text)
            for name in layout.types:
                if row[name] in (None, "") and name not in layout.optional:
                    raise ValueError(f"{name} is empty")
            rows.append({**row, "line": number})
        except UnicodeDecodeError:
            bad.append((number, "not UTF-8", raw.decode("utf-8", "backslashreplace")[:500]))
        except ValueError as error:
            bad.append((number, str(error), text[:500]))
    schema = pa.schema([(n, ARROW[t]) for n, t in layout.types.items()] + [("line", pa.int64())])
    return Block(pa.Table.from_pylist(rows, schema), bad)


def _parquet(path: Path | str, layout: Layout, s3: S3 | None) -> Iterator[Block]:
    remote = files.local(str(path)) is None
    file = pq.ParquetFile(files.random_access(str(path), s3) if remote else path)
    form = Delimited(layout)
    form.names = file.schema_arrow.names
    form.check_names()
    before = 0
    for batch in file.iter_batches(1 << 20):
        table = pa.Table.from_batches([batch])
        lines = pa.array(np.arange(before + 1, before + table.num_rows + 1))
        before += table.num_rows
        bad: list[tuple[int, str, str]] = []
        try:
            table = _complete(table, layout)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FileBroken(f"a column has another type than declared: {error}") from None
        nulls = _nulls(table, layout)
        if nulls.any():
            for index in nulls.nonzero()[0]:
                row = {name: table[name][int(index)].as_py() for name in layout.types}
                empty = next(n for n in layout.types if row[n] in (None, "") and n not in layout.optional)
                bad.append((lines[int(index)].as_py(), f"{empty} is empty", json.dumps(row, default=str)[:500]))
        yield Block(table.append_column("line", lines).filter(pa.array(~nulls)), bad)


def _complete(table: pa.Table, layout: Layout) -> pa.Table:
    """The layout's columns in its order and types; optional ones that are not there as nulls."""
    columns = []
    for name, type_ in layout.types.items():
        if name in table.column_names:
            columns.append(table[name].cast(ARROW[type_]))
        elif name in layout.optional:
            columns.append(pa.nulls(table.num_rows, ARROW[type_]))
        else:
            raise pa.ArrowInvalid(f"no {name}")
    return pa.table(columns, names=list(layout.types))


def _nulls(table: pa.Table, layout: Layout) -> Any:
    """Which rows lack a required value (NumPy mask)."""
    mask = np.zeros(table.num_rows, dtype=bool)
    for name in layout.types:
        if name not in layout.optional:
            column = table[name]
            if column.type == pa.string():
                column = pc.if_else(pc.equal(column, ""), None, column)
            if column.null_count:
                mask |= column.is_null().to_numpy(zero_copy_only=False)
    return mask
