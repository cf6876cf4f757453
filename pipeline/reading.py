"""Files of rows → typed Arrow tables with line numbers, and the malformed rows with their reasons.

`read(path, layout)` yields `Block`s: nothing is lost, every input line is in `good`, in `bad`, or a comment. A block of
bytes goes through Arrow's parsers at their speed. One that they refuse is halved, and halved again, until a few lines
are left to be read one by one, to say which is wrong and why. Memory: one block (16 MiB of text). CSV fields may be
quoted but hold no line breaks. A broken file (truncated gzip, a missing column, no Parquet) is `FileBroken`: it has no
good rows one could trust.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

BLOCK, SMALL = 16 << 20, 32 << 10
COMMENTS = ("#", "%")
ARROW = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
_WORDS = {"long": "an integer", "double": "a number", "boolean": "true or false"}


class FileBroken(Exception):
    """The file as a whole cannot be trusted; the text says why."""


@dataclass(frozen=True)
class Layout:
    """What a row holds: column → type (see `ARROW`); `optional` columns may be missing or null.

    `names`: the file's columns in order when it has no header ("_" is skipped). `separator` None: guessed (CSV).
    """

    types: dict[str, str]
    optional: frozenset[str] = frozenset()
    names: tuple[str, ...] | None = None
    separator: str | None = None
    header: bool = True


@dataclass
class Block:
    good: pa.Table  # the layout's columns and `line` (int64, 1 = the file's first line)
    bad: list[tuple[int, str, str]] = field(default_factory=list)  # line, reason, text


def read(path: Path, layout: Layout) -> Iterator[Block]:
    """All rows of a .csv, .csv.gz, .txt, .txt.gz, .tsv, .jsonl, .jsonl.gz or .parquet file. Raises `FileBroken`."""
    name = path.name.removesuffix(".gz")
    try:
        if name.endswith(".parquet"):
            yield from _parquet(path, layout)
        elif name.endswith((".jsonl", ".ndjson")):
            yield from _lines(path, layout, _JsonLines(layout))
        else:
            yield from _lines(path, layout, _Delimited(layout))
    except (EOFError, gzip.BadGzipFile, OSError, pa.ArrowInvalid) as error:
        if isinstance(error, FileNotFoundError):
            raise FileBroken("the file is gone") from None
        reason = "the gzip stream is truncated" if isinstance(error, EOFError) else str(error)
        raise FileBroken(reason) from None


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path) if path.name.endswith(".gz") else path.open("rb"))


class _JsonLines:
    """One JSON object a line."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.schema = pa.schema([(name, ARROW[type_]) for name, type_ in layout.types.items()])

    def start(self, stream: IO[bytes]) -> tuple[int, bytes]:
        return 0, b""

    def fast(self, block: bytes) -> pa.Table:
        options = pajson.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="error")
        return pajson.read_json(io.BytesIO(block), pajson.ReadOptions(use_threads=False), options)

    def row(self, text: str) -> dict[str, Any]:
        try:
            row = json.loads(text)
        except ValueError:
            raise ValueError("not JSON") from None
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        unknown = sorted(set(row) - set(self.layout.types))
        if unknown:
            raise ValueError(f"unknown field {', '.join(unknown)}")
        return {name: _scalar(row.get(name), type_, name) for name, type_ in self.layout.types.items()}


class _Delimited:
    """CSV, or any text with a separator; `separator` " " stands for any run of spaces and tabs."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.separator = layout.separator
        self.names: list[str] = list(layout.names or ())

    def start(self, stream: IO[bytes]) -> tuple[int, bytes]:
        """Skip leading comments and read the header; return (lines consumed, the first data line)."""
        consumed = 0
        header = self.layout.header
        for raw in stream:
            text = raw.decode("utf-8-sig" if consumed == 0 else "utf-8", "replace").strip("\r\n")
            if text.startswith(COMMENTS) or (header and not text.strip()):
                consumed += 1
                continue
            if self.separator is None:
                self.separator = next((s for s in (",", "\t", ";") if s in text), " ")
            if not header:
                return consumed, raw
            consumed += 1
            header = False
            if not self.names:
                self.names = [name.strip() for name in self.split(text)]
            self._check_names()
        if header and not self.names:
            raise FileBroken("the file is empty: not even a header")
        return consumed, b""

    def _check_names(self) -> None:
        shown = ", ".join(self.names)
        missing = [name for name in self.layout.types if name not in self.names and name not in self.layout.optional]
        if missing:
            raise FileBroken(f"column {', '.join(missing)} is missing; the header has: {shown}")
        unknown = [name for name in self.names if name not in self.layout.types and name != "_"]
        if unknown:
            raise FileBroken(
                f"column {', '.join(unknown)} is unknown; the header has: {shown}. "
                f'Declare it in altneu.toml: [values] {unknown[0]} = "string"'
            )
        twice = sorted({name for name in self.names if self.names.count(name) > 1 and name != "_"})
        if twice:
            raise FileBroken(f"column {', '.join(twice)} is there twice")

    def split(self, text: str) -> list[str]:
        if self.separator == " ":
            return text.split()
        return next(csv.reader([text], delimiter=self.separator or ","), [])

    def fast(self, block: bytes) -> pa.Table:
        separator = self.separator or ","
        if separator == " ":
            block = re.sub(rb"[ \t]+", b" ", block)
        names = [name if name != "_" else f"_{i}" for i, name in enumerate(self.names)]
        table = pacsv.read_csv(
            io.BytesIO(block),
            pacsv.ReadOptions(use_threads=False, column_names=names, block_size=BLOCK * 2),
            pacsv.ParseOptions(delimiter=separator, ignore_empty_lines=False),
            pacsv.ConvertOptions(
                column_types={n: ARROW[self.layout.types[n]] for n in names if n in self.layout.types},
                include_columns=[name for name in names if name in self.layout.types],
                null_values=[""],
                strings_can_be_null=True,
                true_values=["true", "True", "1"],
                false_values=["false", "False", "0"],
            ),
        )
        first = table.column(0)
        if first.type == pa.string() and pc.any(pc.starts_with(first, "#")).as_py():
            raise pa.ArrowInvalid("a comment between the rows")
        return table

    def row(self, text: str) -> dict[str, Any]:
        fields = self.split(text)
        if len(fields) != len(self.names):
            raise ValueError(f"{len(fields)} fields instead of {len(self.names)}")
        found = {name: value.strip() for name, value in zip(self.names, fields, strict=True)}
        return {n: _scalar(found.get(n) or None, type_, n) for n, type_ in self.layout.types.items()}


def _lines(path: Path, layout: Layout, form: _JsonLines | _Delimited) -> Iterator[Block]:
    with _open(path) as stream:
        line, rest = form.start(stream)
        while chunk := stream.read(BLOCK):
            block, cut, tail = (rest + chunk).rpartition(b"\n")
            if cut:
                yield from _blocks(block + b"\n", line, layout, form)
                line += block.count(b"\n") + 1
            rest = tail
        if rest:
            yield from _blocks(rest if rest.endswith(b"\n") else rest + b"\n", line, layout, form)


def _blocks(block: bytes, before: int, layout: Layout, form: _JsonLines | _Delimited) -> Iterator[Block]:
    """The block at once, or in halves where Arrow refuses it: one malformed line slows down `SMALL` bytes, not all."""
    lines = block.count(b"\n")
    try:
        table = _complete(form.fast(block), layout)
        if table.num_rows == lines and not _nulls(table, layout).any():
            yield Block(table.append_column("line", pa.array(range(before + 1, before + lines + 1), pa.int64())))
            return
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError):
        pass
    middle = block.find(b"\n", len(block) // 2) + 1
    if len(block) <= SMALL or middle == len(block):
        yield _slowly(block, before, layout, form)
    else:
        yield from _blocks(block[:middle], before, layout, form)
        yield from _blocks(block[middle:], before + block.count(b"\n", 0, middle), layout, form)


def _slowly(block: bytes, before: int, layout: Layout, form: _JsonLines | _Delimited) -> Block:
    """Line by line: the same rows, and a reason for each that is not one."""
    rows: list[dict[str, Any]] = []
    bad: list[tuple[int, str, str]] = []
    for number, raw in enumerate(block.splitlines() if b"\r" not in block else block.split(b"\n")[:-1], before + 1):
        raw = raw.rstrip(b"\r")
        try:
            text = raw.decode()
            if text.startswith(COMMENTS):
                continue
            if not text.strip():
                raise ValueError("empty line")
            row = form.row(text)
            for name in layout.types:
                if row[name] is None and name not in layout.optional:
                    raise ValueError(f"{name} is empty")
            rows.append({**row, "line": number})
        except UnicodeDecodeError:
            bad.append((number, "not UTF-8", raw.decode("utf-8", "backslashreplace")[:500]))
        except ValueError as error:
            bad.append((number, str(error), text[:500]))
    schema = pa.schema([(n, ARROW[t]) for n, t in layout.types.items()] + [("line", pa.int64())])
    return Block(pa.Table.from_pylist(rows, schema), bad)


def _scalar(value: Any, type_: str, name: str) -> Any:
    """One field, as text or as JSON gave it, in its type; `ValueError` says which column and what stands there."""
    if value is None:
        return None
    try:
        if type_ == "string":
            if isinstance(value, (dict, list)):
                raise ValueError
            return value if isinstance(value, str) else json.dumps(value)
        if type_ == "boolean":
            return {"true": True, "false": False, "1": True, "0": False}[str(value).lower()]
        if isinstance(value, bool):
            raise ValueError
        if type_ == "double":
            return float(value)
        if isinstance(value, float) and value != int(value):
            raise ValueError
        number = int(value)
        if not -(1 << 63) <= number < 1 << 63:
            raise ValueError
        return number
    except (ValueError, KeyError, OverflowError, TypeError):
        raise ValueError(f"{name} is {str(value)[:80]!r}, not {_WORDS.get(type_, 'text')}") from None


def _parquet(path: Path, layout: Layout) -> Iterator[Block]:
    file = pq.ParquetFile(path)
    form = _Delimited(layout)
    form.names = file.schema_arrow.names
    form._check_names()
    before = 0
    for batch in file.iter_batches(1 << 20):
        table = pa.Table.from_batches([batch])
        lines = pa.array(range(before + 1, before + table.num_rows + 1), pa.int64())
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
                empty = next(n for n in layout.types if row[n] is None and n not in layout.optional)
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
        if name not in layout.optional and table[name].null_count:
            mask |= table[name].is_null().to_numpy(zero_copy_only=False)
    return mask
