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
BOM = b"\xef\xbb\xbf"
_WORDS = {"long": "an integer", "double": "a number", "boolean": "true or false"}
_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_ARROWS_OWN = r"^[ \t]*[-+]?(0[xX]|[nN][aA][nN]\()"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE | re.ASCII)


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


def opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path) if path.name.endswith(".gz") else path.open("rb"))


class _Literal(str):
    """A number of a JSON text, as it was written."""


class _JsonLines:
    """One JSON object a line."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.schema = pa.schema([(name, ARROW[type_]) for name, type_ in layout.types.items()])
        self.decoder = json.JSONDecoder(
            object_pairs_hook=_once, parse_int=_Literal, parse_float=_Literal, parse_constant=_no_constant
        )

    def start(self, stream: IO[bytes]) -> tuple[int, bytes]:
        _skip_bom(stream)
        return 0, b""

    def fast(self, block: bytes) -> pa.Table:
        if beside_newlines(block) != b"{}":
            raise pa.ArrowInvalid("a line is not one object")  # Arrow cares for objects alone, not for lines
        options = pajson.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="error")
        table = pajson.read_json(
            io.BytesIO(block), pajson.ReadOptions(use_threads=False, block_size=BLOCK * 2), options
        )
        numbers = [column for column in table.columns if column.type == pa.float64()]
        if not all(pc.all(pc.is_finite(column)).as_py() in (True, None) for column in numbers):
            raise pa.ArrowInvalid("Arrow takes NaN and Infinity for JSON")
        return table

    def row(self, text: str) -> dict[str, Any]:
        try:
            row = self.decoder.decode(text.strip(" \t"))
        except _Twice as error:
            raise ValueError(f"field {error} is there twice") from None
        except (ValueError, RecursionError):
            raise ValueError("not JSON") from None
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        unknown = sorted(set(row) - set(self.layout.types))
        if unknown:
            raise ValueError(f"unknown field {', '.join(unknown)}")
        return {name: _scalar(row.get(name), type_, name) for name, type_ in self.layout.types.items()}


class _Twice(Exception):
    """A field stands twice in an object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return found


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _skip_bom(stream: Any) -> None:
    if stream.peek(len(BOM))[: len(BOM)] == BOM:
        stream.read(len(BOM))


def beside_newlines(block: bytes) -> bytes:
    """The bytes that begin and end the lines of a block, each once.

    >>> beside_newlines(b"{..}" + bytes([10]) + b"{.}" + bytes([10]))
    b'{}'
    """
    codes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    beside = np.concatenate([codes[:1], codes[ends[:-1] + 1], codes[ends - 1]])
    return bytes(np.flatnonzero(np.bincount(beside)).astype(np.uint8))


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
        _skip_bom(stream)
        for raw in stream:
            text = raw.decode("utf-8", "replace").strip("\r\n")
            if text.startswith(COMMENTS) or not text.strip(" \t"):
                consumed += 1
                continue
            if self.separator is None:
                self.separator = guess_separator(text)
            if not header:
                return consumed, raw
            consumed += 1
            if not self.names:
                self.names = [name.strip(" \t") for name in self.split(text)]
            first = stream.readline()
            self._check_names(first.decode("utf-8", "replace").strip("\r\n"))
            return consumed, first
        if header and not self.names:
            raise FileBroken("the file is empty: not even a header")
        return consumed, b""

    def _check_names(self, first_row: str = "") -> None:
        shown = ", ".join(self.names)
        missing = [name for name in self.layout.types if name not in self.names and name not in self.layout.optional]
        if missing:
            raise FileBroken(f"column {', '.join(missing)} is missing; the header has: {shown}")
        unknown = [name for name in self.names if name not in self.layout.types and name != "_"]
        if unknown:
            cells = dict(zip(self.names, self.split(first_row), strict=False))
            types = ", ".join(f'{json.dumps(n, ensure_ascii=False)} = "{kind_of([cells.get(n, "")])}"' for n in unknown)
            raise FileBroken(
                f"column {', '.join(unknown)} is unknown; the header has: {shown}. "
                f"Declare it in altneu.toml, by its first row: [values] {types}"
            )
        twice = sorted({name for name in self.names if self.names.count(name) > 1 and name != "_"})
        if twice:
            raise FileBroken(f"column {', '.join(twice)} is there twice")

    def split(self, text: str) -> list[str]:
        return split(text, self.separator or ",")

    def fast(self, block: bytes) -> pa.Table:
        separator = self.separator or ","
        self._refuse_what_arrow_reads_otherwise(block)
        if separator == " ":
            block = re.sub(rb"[ \t]+", b" ", block.replace(b"\r\n", b"\n"))
            if b" " in beside_newlines(block):
                block = block.replace(b" \n", b"\n").replace(b"\n ", b"\n").removeprefix(b" ")
        types = {name: self.layout.types[name] for name in self.names if name in self.layout.types}
        table = self._parsed(block, types)
        if b'"' in block:
            skipped = dict.fromkeys((name for name in self._columns() if name not in types), "string")
            texts = [*table.columns, *(self._parsed(block, skipped).columns if skipped else ())]
            last = [column[-1].as_py() for column in texts if column.type == pa.string() and len(column)]
            if any(text and "\n" in text for text in last):
                raise pa.ArrowInvalid("Arrow takes a quote for closed at the end of its block")
        hexadecimal = b"x" in block or b"X" in block  # Python looks for two bytes at a hundredth of the speed
        numeric = [
            name
            for name, type_ in types.items()
            if (type_ in ("long", "double") and hexadecimal)
            or (type_ == "double" and pc.any(pc.is_nan(table[name])).as_py())
        ]
        if numeric:
            for column in self._parsed(block, dict.fromkeys(numeric, "string")).columns:
                if pc.any(pc.match_substring_regex(column, _ARROWS_OWN)).as_py():
                    raise pa.ArrowInvalid("Arrow takes 0x10 for 16 and nan(1) for nan")
        return self._trimmed(table) if b" " in block or b"\t" in block else table

    def _columns(self) -> list[str]:
        return [name if name != "_" else f"_{i}" for i, name in enumerate(self.names)]

    def _parsed(self, block: bytes, types: dict[str, str]) -> pa.Table:
        """Some of the columns of a block."""
        if block.startswith(BOM):
            raise pa.ArrowInvalid("Arrow skips it at the start of any block")
        separator = self.separator or ","
        return pacsv.read_csv(
            io.BytesIO(block),
            pacsv.ReadOptions(
                use_threads=False,
                column_names=self._columns(),
                block_size=BLOCK * 2,
            ),
            pacsv.ParseOptions(
                delimiter=separator, ignore_empty_lines=False, quote_char=False if separator == " " else '"'
            ),
            pacsv.ConvertOptions(
                column_types={name: ARROW[type_] for name, type_ in types.items()},
                include_columns=list(types),
                null_values=[""],
                strings_can_be_null=True,
                true_values=["true", "True", "1"],
                false_values=["false", "False", "0"],
            ),
        )

    def _refuse_what_arrow_reads_otherwise(self, block: bytes) -> None:
        if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
            raise pa.ArrowInvalid("Arrow ends a line at a carriage return, too")
        if "_" in self.names and not block.isascii():
            try:
                block.decode()  # Arrow looks at the columns that are read, alone
            except UnicodeDecodeError:
                raise pa.ArrowInvalid("not UTF-8") from None

    def _trimmed(self, table: pa.Table) -> pa.Table:
        for at, column in enumerate(table.columns):
            if column.type == pa.string():
                trimmed = pc.ascii_trim(column, " \t")
                if pc.sum(pc.binary_length(trimmed)) != pc.sum(pc.binary_length(column)):
                    filled = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
                    table = table.set_column(at, table.column_names[at], filled)
        return table

    def row(self, text: str) -> dict[str, Any]:
        fields = self.split(text)
        if len(fields) != len(self.names):
            raise ValueError(f"{len(fields)} fields instead of {len(self.names)}")
        found = dict(zip(self.names, fields, strict=True))
        return {n: _scalar(found.get(n) or None, type_, n) for n, type_ in self.layout.types.items()}


def guess_separator(line: str) -> str:
    """The separator by the first line: a comma, a tab, a semicolon, or any run of blanks."""
    return next((s for s in (",", "\t", ";") if s in line), " ")


def split(line: str, separator: str) -> list[str]:
    """The fields of a line of delimited text, without the blanks around them. Raises `ValueError`.

    >>> split('a ,"b, c" ', ","), split(" 1  2", " ")
    (['a', 'b, c'], ['1', '2'])
    """
    if separator == " ":
        return [cell for cell in re.split(r"[ \t]+", line) if cell]
    try:
        reader = csv.reader([line + "\n", ""], delimiter=separator)
        cells = next(reader, [])
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if reader.line_num > 1:
        raise ValueError("a quote is not closed")
    return [cell.strip(" \t") for cell in cells]


def is_value(text: str, type_: str) -> bool:
    """Whether a field of text has a type.

    >>> [is_value(text, "long") for text in ("1", "-1", "1_000", "1.0")], is_value("1e3", "double")
    ([True, True, False, False], True)
    """
    try:
        return _scalar(text, type_, "") is not None
    except ValueError:
        return False


def kind_of(cells: list[str]) -> str:
    """The narrowest type that all of the cells have; empty ones say nothing.

    >>> kind_of(["1", "", "2"]), kind_of(["1", "2.5"]), kind_of(["true"]), kind_of(["1", "x"]), kind_of([""])
    ('long', 'double', 'boolean', 'string', 'string')
    """
    filled = [cell for cell in cells if cell]
    types = ("long", "double", "boolean") if filled else ()
    return next((type_ for type_ in types if all(is_value(cell, type_) for cell in filled)), "string")


def _lines(path: Path, layout: Layout, form: _JsonLines | _Delimited) -> Iterator[Block]:
    with opened(path) as stream:
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


def _slowly(block: bytes, before: int, layout: Layout, form: _JsonLines | _Delimited) -> Block:
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


def _scalar(value: Any, type_: str, name: str) -> Any:
    """One field, as text or as JSON gave it, in its type; `ValueError` says which column and what stands there."""
    if value is None:
        return None
    try:
        if type_ == "string":
            return _string(value)
        if type_ == "boolean":
            return _TRUTH[str(value).lower()]
        if not isinstance(value, str):
            raise ValueError
        if not (_NUMBER if type_ == "double" else _INTEGER).fullmatch(value):
            if type_ == "double" or not isinstance(value, _Literal):
                raise ValueError
            return _whole(value)
        if type_ == "double":
            return float(value)
        number = int(value)
        if not -(1 << 63) <= number < 1 << 63:
            raise ValueError
        return number
    except (ValueError, KeyError):
        raise ValueError(f"{name} is {str(value)[:80]!r}, not {_WORDS.get(type_, 'text')}") from None


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, str):
        raise ValueError
    value.encode()  # a lone half of a surrogate pair is a ValueError
    return str(value)


def _whole(literal: str) -> int:
    """The integer that a number of a JSON text with a fraction or an exponent is, such as 1.0 or 1e3."""
    number = float(literal)
    if not abs(number) < 1 << 53 or number != int(number):
        raise ValueError
    return int(number)


def _parquet(path: Path, layout: Layout) -> Iterator[Block]:
    file = pq.ParquetFile(path)
    form = _Delimited(layout)
    form.names = file.schema_arrow.names
    form._check_names()
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
