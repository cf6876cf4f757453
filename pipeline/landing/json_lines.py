"""The reader of one JSON object per line, by Arrow and by Python."""

from __future__ import annotations

import io
import json
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from .field_types import JsonNumber, parse_scalar
from .record_boundaries import Records, cut_lines
from .row_schema import ARROW, RowSchema, beside_newlines, skip_bom, trim_texts


class JsonLines:
    """One JSON object per line. `columns` maps each field of the file to its column here; "_" is skipped."""

    comments = 0

    def __init__(self, layout: RowSchema) -> None:
        self.layout = layout
        names = layout.names or tuple(layout.types)
        self.columns = dict(zip(layout.fields, names, strict=True)) if layout.fields else {n: n for n in layout.types}
        self.fields = {column: name for name, column in self.columns.items() if column != "_"}
        self.has_skipped = "_" in self.columns.values()
        self.schema = pa.schema([(self.fields.get(name, name), ARROW[t]) for name, t in layout.types.items()])
        self.decoder = json.JSONDecoder(
            object_pairs_hook=_build_unique_object,
            parse_int=JsonNumber,
            parse_float=JsonNumber,
            parse_constant=_refuse_constant,
        )

    def start(self, stream: IO[bytes]) -> tuple[int, bytes]:
        skip_bom(stream)
        return 0, b""

    def cut_records(self, text: bytes, line: int) -> Records:
        return cut_lines(text, line)

    def parse_with_arrow(self, records: Records) -> pa.Table:
        if beside_newlines(records.text) != b"{}":
            raise pa.ArrowInvalid(
                "a line is not one object"
            )  # Arrow reads objects wherever they begin, and ignores lines
        options = pajson.ParseOptions(
            explicit_schema=self.schema, unexpected_field_behavior="infer" if self.has_skipped else "error"
        )
        size = len(records.text) + 1
        table = pajson.read_json(
            io.BytesIO(records.text), pajson.ReadOptions(use_threads=False, block_size=size), options
        )
        if set(table.column_names) - {*self.columns, *self.schema.names}:
            raise pa.ArrowInvalid("a field is unknown")
        table = table.select(self.schema.names).rename_columns(list(self.layout.types))
        numbers = [column for column in table.columns if column.type == pa.float64()]
        if not all(pc.all(pc.is_finite(column)).as_py() in (True, None) for column in numbers):
            raise pa.ArrowInvalid("Arrow takes NaN and Infinity for JSON")
        return trim_texts(table)

    def parse_row(self, text: str) -> dict[str, Any]:
        try:
            row = self.decoder.decode(text.strip(" \t"))
        except _DuplicateField as error:
            raise ValueError(f"field {error} is there twice") from None
        except (ValueError, RecursionError):
            raise ValueError("not JSON") from None
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        unknown = sorted(set(row) - set(self.columns))
        if unknown:
            raise ValueError(f"unknown field {', '.join(unknown)}")
        return {
            name: parse_scalar(row.get(self.fields.get(name, name)), t, name) for name, t in self.layout.types.items()
        }


class _DuplicateField(Exception):
    """An object has a field twice."""


def _build_unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateField(next(name for name in names if names.count(name) > 1))
    return members


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
