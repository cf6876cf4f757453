"""The reader of delimited text, by Arrow and by Python: its separator, its header and its rows."""

from __future__ import annotations

import io
import re
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ..errors import UsageError
from .field_types import infer_type, parse_scalar
from .record_boundaries import Records, cut_records, is_record, split_record
from .row_schema import (
    ARROW,
    BLOCK,
    BOM,
    BrokenFileError,
    RowSchema,
    beside_newlines,
    require_known_columns,
    skip_bom,
    trim_texts,
)

_ARROWS_OWN = r"^[ \t]*[-+]?(0[xX]|[nN][aA][nN]\()"
_REPLACEMENT_BYTES = b"\x1f\x1e\x1d\x1c\x01\x02"  # bytes that can replace a separator that Arrow does not accept


class Delimited:
    """CSV, or any text with a separator; the separator " " stands for any run of spaces and tabs."""

    def __init__(self, layout: RowSchema) -> None:
        self.layout = layout
        self.separator = parse_separator(layout.separator)
        self.comments = 0  # the number of comment lines that `start` has skipped
        self.names: list[str] = list(layout.names or ())

    def start(self, stream: IO[bytes]) -> tuple[int, bytes]:
        """Skip leading comments, read the header, and return the number of lines consumed and the first data line."""
        consumed = 0
        skip_bom(stream)
        for raw in stream:
            text = raw.decode("utf-8", "replace").strip("\r\n")
            is_comment = text.startswith(self.layout.comment)
            if is_comment or not text.strip(" \t"):
                self.comments += is_comment
                consumed += 1
                continue
            if self.separator is None:
                self.separator = guess_separator(text)
            if not self.layout.header:
                return consumed, raw
            header = self._read_header(raw, stream)
            first = stream.readline()
            self._check_header(header, first)
            return consumed + max(header.count(b"\n"), 1), first
        if self.layout.header and not self.names:
            raise BrokenFileError("the file is empty: it does not even have a header")
        return consumed, b""

    def _read_header(self, header: bytes, stream: IO[bytes]) -> bytes:
        """Return the whole header, whose names may hold line breaks within quotes."""
        while not is_record(header.removesuffix(b"\n") + b"\n", self._resolve_separator()):
            line = stream.readline()
            header += line
            if not line or len(header) > BLOCK:
                raise BrokenFileError("the header has a quote that is not closed")
        return header

    def _check_header(self, header: bytes, first: bytes) -> None:
        if not self.names:
            try:
                self.names = self.split_fields(header.decode().strip("\r\n"))
            except UnicodeDecodeError:
                raise BrokenFileError("its header is not UTF-8 text: write the file as UTF-8") from None
            except ValueError as error:
                raise BrokenFileError(f"the header cannot be read: {error}") from None

        def guess_types() -> dict[str, str]:
            try:
                cells = self.split_fields(first.decode("utf-8", "replace").strip("\r\n"))
            except ValueError:
                cells = []
            return {name: infer_type([cell]) for name, cell in zip(self.names, cells, strict=False)}

        require_known_columns(self.names, self.layout, guess_types)

    def _resolve_separator(self) -> str:
        return self.separator or ","

    def cut_records(self, text: bytes, line: int) -> Records:
        """Take the whole records at the beginning of a text whose first line has the number `line`."""
        return cut_records(text, line, self._resolve_separator())

    def split_fields(self, text: str) -> list[str]:
        return split_record(text, self._resolve_separator())

    def parse_with_arrow(self, records: Records) -> pa.Table:
        block = records.text
        self._refuse_ambiguous_for_arrow(records)
        if self._resolve_separator() == " ":
            block = re.sub(rb"[ \t]+", b" ", block.replace(b"\r\n", b"\n"))
            if b" " in beside_newlines(block):
                block = block.replace(b" \n", b"\n").replace(b"\n ", b"\n").removeprefix(b" ")
        types = {name: self.layout.types[name] for name in self.names if name in self.layout.types}
        table = self._parse_columns(block, types)
        hexadecimal = (
            b"x" in block or b"X" in block
        )  # a search for two bytes at once would take a hundred times as long
        numeric = [
            name
            for name, type_ in types.items()
            if (type_ in ("long", "double") and hexadecimal)
            or (type_ == "double" and pc.any(pc.is_nan(table[name])).as_py())
        ]
        if numeric:
            for column in self._parse_columns(block, dict.fromkeys(numeric, "string")).columns:
                if pc.any(pc.match_substring_regex(column, _ARROWS_OWN)).as_py():
                    raise pa.ArrowInvalid("Arrow takes 0x10 for 16 and nan(1) for nan")
        return trim_texts(table) if b" " in block or b"\t" in block else table

    def _list_included_columns(self) -> list[str]:
        return [name if name != "_" else f"_{i}" for i, name in enumerate(self.names)]

    def _parse_columns(self, block: bytes, types: dict[str, str]) -> pa.Table:
        """Parse the columns of a block that `types` names."""
        if block.startswith(BOM):
            raise pa.ArrowInvalid("Arrow skips a byte order mark at the start of any block")
        block, separator = self._with_short_separator(block)
        return pacsv.read_csv(
            io.BytesIO(block),
            pacsv.ReadOptions(
                use_threads=False,
                column_names=self._list_included_columns(),
                block_size=len(block) + 1,
            ),
            pacsv.ParseOptions(
                delimiter=separator,
                ignore_empty_lines=False,
                quote_char=False if separator == " " else '"',
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

    def _with_short_separator(self, block: bytes) -> tuple[bytes, str]:
        """Replace a separator of several bytes, which Arrow does not accept, by one byte."""
        separator = self._resolve_separator()
        if len(separator.encode()) == 1:
            return block, separator
        if b'"' in block:
            raise pa.ArrowInvalid("the separator may stand within quotes, too")
        spare = next((byte for byte in _REPLACEMENT_BYTES if byte not in block), None)
        if spare is None:
            raise pa.ArrowInvalid("no byte is left for the separator")
        return block.replace(separator.encode(), bytes([spare])), chr(spare)

    def _refuse_ambiguous_for_arrow(self, records: Records) -> None:
        block = records.text
        if len(records.faulty):
            raise pa.ArrowInvalid("Arrow takes text after a closing quote")
        if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
            raise pa.ArrowInvalid("Arrow ends a line at a carriage return, too")
        if "_" in self.names and not block.isascii():
            try:
                block.decode()  # Arrow looks only at the columns that are read
            except UnicodeDecodeError:
                raise pa.ArrowInvalid("not UTF-8") from None

    def parse_row(self, text: str) -> dict[str, Any]:
        fields = self.split_fields(text)
        if len(fields) != len(self.names):
            raise ValueError(f"{len(fields)} fields instead of {len(self.names)}")
        cells = dict(zip(self.names, fields, strict=True))
        return {n: parse_scalar(cells.get(n) or None, type_, n) for n, type_ in self.layout.types.items()}


def parse_separator(text: str | None) -> str | None:
    r"""Return the separator that a user means. Raise `UsageError` if it cannot be one.

    >>> [parse_separator(text) for text in ("tab", r"\t", r"\s+", "  ", "::")]
    ['\t', '\t', ' ', ' ', '::']
    """
    if text is None:
        return None
    if text == "" or set(text) & set('"\r\n\0') or text != text.encode("utf-8", "replace").decode():
        raise UsageError(f"--sep {text!r}: it cannot separate the fields of a line.", "altneu land --help")
    if text != "\t" and not text.strip(" \t"):
        return " "
    return {"tab": "\t", r"\t": "\t", r"\s": " ", r"\s+": " "}.get(text, text)


def guess_separator(line: str) -> str:
    """Return the separator by the first line: a comma, a tab, a semicolon, or any run of blanks.

    A line of one field says none of them, and is read as one with commas, which may be quoted.

    >>> guess_separator("src dst"), guess_separator("a;b"), guess_separator('"id"'), guess_separator("id")
    (' ', ';', ',', ',')
    """
    text = line.strip(" \t\r\n")
    blank = "," if text.startswith('"') or " " not in text else " "
    return next((separator for separator in (",", "\t", ";") if separator in text), blank)
