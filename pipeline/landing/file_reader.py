"""Read files of rows as typed Arrow tables with line numbers, and the malformed rows with their reasons.

`read_blocks(path, layout)` yields `Block`s: nothing is lost, every line of the file belongs to a record that is in
`good` or in `bad`, or stands before the first record and is a comment (these are counted), an empty line or the header.
A block of records goes through Arrow's parsers at their speed. A block that they refuse is halved, and again, until a
few records are left, which are read one by one to say which is wrong and why. Both ways follow the same rules, so that
a row means the same whatever stands near it, and in any format:

- Comments and empty lines may stand before the header, or before the first row of a file without one. After that every
  line belongs to a row. JSON has no comments.
- Blanks and tabs around a text do not count, quoted or not. A text that is empty then is no value.
- Quotes count only around a whole field of delimited text, and not in text separated by blanks. A line break within
  quotes belongs to the field (RFC 4180); a row has the number of its first line. Where quotes are not closed, or text
  follows them, each line of the record is malformed; an unclosed quote reaches to the end of the file.
- An integer is a sign and ASCII digits, within 64 bits; a number may have a fraction and an exponent, or be nan or inf.
  In JSON and Parquet 1.0 is an integer, too; an object of JSON has each field once. Texts in Parquet are held to the
  same rules (`parquet`).

It holds one block (16 MiB of text) in memory, and a record of at most that size. A file that cannot be read (damaged
gzip, a missing column, no Parquet, another encoding, no permission) is a `BrokenFileError`: none of its rows can be
trusted.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..home.s3_config import S3
from ..state import filesystem
from .csv_reader import Delimited
from .json_lines import JsonLines
from .parquet import read_parquet
from .record_boundaries import QuoteError, Records
from .row_schema import ARROW, BLOCK, Block, BrokenFileError, RowSchema

LONGEST = BLOCK  # the greatest number of bytes of a record
SMALL = 32 << 10  # bytes that are read line by line when Arrow refuses them


def read_blocks(path: Path | str, layout: RowSchema, s3: S3 | None = None) -> Iterator[Block]:
    """Yield all rows of a .csv, .csv.gz, .txt, .txt.gz, .tsv, .jsonl, .jsonl.gz or .parquet file.

    Args:
        path: A path or a URI.
        s3: The access to an object store, see `filesystem.open_stream`.

    Raises:
        BrokenFileError: The file cannot be read as a whole.
    """
    name = str(path).removesuffix(".gz")
    try:
        if name.endswith(".parquet"):
            yield from read_parquet(path, layout, s3)
        elif name.endswith((".jsonl", ".ndjson", ".json")):
            yield from _read_text(path, layout, JsonLines(layout), s3)
        else:
            yield from _read_text(path, layout, Delimited(layout), s3)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        if isinstance(error, FileNotFoundError):
            raise BrokenFileError("the file does not exist any more") from None
        if (
            isinstance(error, OSError)
            and not isinstance(error, gzip.BadGzipFile)
            and filesystem.local_path(str(path)) is None
        ):
            raise BrokenFileError(
                f"the object store does not return it: {filesystem.format_store_error(error)}", transient=True
            ) from None
        reason = error.strerror if isinstance(error, OSError) else None
        raise BrokenFileError(f"it cannot be read: {reason or (str(error).splitlines() or [repr(error)])[0]}") from None


def open_stream(path: Path | str, s3: S3 | None = None) -> IO[bytes]:
    """Open the content of a file, unpacked.

    Any damage of a packed file raises `gzip.BadGzipFile`, which is an `OSError`.
    """
    stream = filesystem.open_stream(str(path), s3)
    return cast(IO[bytes], io.BufferedReader(_UnpackedStream(stream), 1 << 17)) if str(path).endswith(".gz") else stream


class _UnpackedStream(io.RawIOBase):
    """The content of a packed stream, which is closed with its reader."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed, self._content = packed, gzip.GzipFile(fileobj=packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._content.read1(len(buffer))
        except EOFError:
            raise gzip.BadGzipFile("the gzip stream is truncated") from None
        except zlib.error as error:
            raise gzip.BadGzipFile(f"the gzip stream is damaged: {error}") from None
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        super().close()
        self._content.close()
        self._packed.close()


def _read_text(path: Path | str, layout: RowSchema, form: JsonLines | Delimited, s3: S3 | None) -> Iterator[Block]:
    with open_stream(path, s3) as stream:
        lines, rest = form.start(stream)
        if form.comments:
            yield Block(_read_slowly(Records(b"", 1), layout, form).rows, comments=form.comments)
        while chunk := stream.read(BLOCK):
            text = rest + chunk
            records = form.cut_records(text, lines + 1)
            yield from _read_records(records, layout, form)
            lines += records.line_count
            rest = text[len(records.text) :]
            if len(rest) > LONGEST:
                raise BrokenFileError(
                    f"line {lines + 1} begins a record of more than {LONGEST >> 20} MiB: "
                    "is a line break or a closing quote missing?"
                )
        if rest:
            yield from _read_end(rest if rest.endswith(b"\n") else rest + b"\n", lines + 1, layout, form)


def _read_end(text: bytes, line: int, layout: RowSchema, form: JsonLines | Delimited) -> Iterator[Block]:
    """Yield the last records of a file. After a quote that is not closed, the rest of the file is one faulty record."""
    records = form.cut_records(text, line)
    yield from _read_records(records, layout, form)
    rest = text[len(records.text) :]
    if rest:
        ends = np.flatnonzero(np.frombuffer(rest, np.uint8) == ord("\n"))
        start = line + records.line_count
        yield _read_slowly(Records(rest, start, ends[:-1], np.zeros(1, np.int64)), layout, form)


def _read_records(records: Records, layout: RowSchema, form: JsonLines | Delimited) -> Iterator[Block]:
    """Yield the records at once, or in halves where Arrow refuses them: a malformed line slows down `SMALL` bytes."""
    if not records.text:
        return
    try:
        table = _complete_columns(form.parse_with_arrow(records), layout)
        if table.num_rows == records.count_records() and not _find_missing_values(table, layout).any():
            yield Block(table.append_column("line", pa.array(records.number_records())))
            return
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError):
        pass
    halves = records.halve() if len(records.text) > SMALL else None
    if halves is None:
        yield _read_slowly(records, layout, form)
    else:
        for half in halves:
            yield from _read_records(half, layout, form)


def _read_slowly(records: Records, layout: RowSchema, form: JsonLines | Delimited) -> Block:
    """Read record by record: the same rows, and a reason for each record that is not a row."""
    rows: list[dict[str, Any]] = []
    bad: list[tuple[int, str, str]] = []
    for number, raw in records.list_records():
        text = raw.decode("utf-8", "backslashreplace")
        try:
            row = _read_row(text, layout, form)
            if not _is_utf8(raw):
                raise ValueError("not UTF-8")
            rows.append({**row, "line": number})
        except QuoteError as error:
            bad += _reject_lines(number, str(error), text)
        except ValueError as error:
            bad.append((number, str(error) if _is_utf8(raw) else "not UTF-8", text[:500]))
    schema = pa.schema([(n, ARROW[t]) for n, t in layout.types.items()] + [("line", pa.int64())])
    return Block(pa.Table.from_pylist(rows, schema), bad)


def _read_row(text: str, layout: RowSchema, form: JsonLines | Delimited) -> dict[str, Any]:
    if not text.strip(" \t"):
        raise ValueError("empty line")
    row = form.parse_row(text)
    for name in layout.types:
        if row[name] is None and name not in layout.optional:
            raise ValueError(f"{name} is empty")
    return row


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _reject_lines(line: int, reason: str, record: str) -> Iterator[tuple[int, str, str]]:
    """Yield every line of a record whose quotes are wrong: it is not known whether it is one row or many."""
    lines = record.split("\n")
    if len(lines) > 1:
        reason = f"{reason}; the record begins in line {line}"
    for number, text in enumerate(lines, line):
        yield number, reason, text.removesuffix("\r")[:500]


def _complete_columns(table: pa.Table, layout: RowSchema) -> pa.Table:
    """Return the layout's columns in its order and types; missing optional columns are nulls."""
    columns = []
    for name, type_ in layout.types.items():
        if name in table.column_names:
            columns.append(table[name].cast(ARROW[type_]))
        elif name in layout.optional:
            columns.append(pa.nulls(table.num_rows, ARROW[type_]))
        else:
            raise pa.ArrowInvalid(f"no {name}")
    return pa.table(columns, names=list(layout.types))


def _find_missing_values(table: pa.Table, layout: RowSchema) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that lack a required value."""
    mask = np.zeros(table.num_rows, dtype=bool)
    for name in layout.types:
        if name not in layout.optional:
            column = table[name]
            if column.null_count:
                mask |= column.is_null().to_numpy(zero_copy_only=False)
    return mask
