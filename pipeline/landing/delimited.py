"""Delimited text, by Arrow and by Python: its separator, its header, its rows."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from .layout import ARROW, BLOCK, BOM, FileBroken, Layout, beside_newlines, skip_bom
from .values import kind_of, scalar

_ARROWS_OWN = r"^[ \t]*[-+]?(0[xX]|[nN][aA][nN]\()"


class Delimited:
    """CSV, or any text with a separator; `separator` " " stands for any run of spaces and tabs."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.separator = " " if layout.separator == r"\s+" else layout.separator
        self.comments = 0  # lines that `start` has skipped
        self.names: list[str] = list(layout.names or ())

    def start(self, stream: IO[bytes]) -> tuple[int, bytes]:
        """Skip leading comments and read the header; return (lines consumed, the first data line)."""
        consumed = 0
        header = self.layout.header
        skip_bom(stream)
        for raw in stream:
            text = raw.decode("utf-8", "replace").strip("\r\n")
            comment = text.startswith(self.layout.comment)
            if comment or not text.strip(" \t"):
                self.comments += comment
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
            self.check_names(first.decode("utf-8", "replace").strip("\r\n"))
            return consumed, first
        if header and not self.names:
            raise FileBroken("the file is empty: not even a header")
        return consumed, b""

    def check_names(self, first_row: str = "") -> None:
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
        return {n: scalar(found.get(n) or None, type_, n) for n, type_ in self.layout.types.items()}


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
