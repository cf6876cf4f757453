"""One JSON object a line, by Arrow and by Python."""

from __future__ import annotations

import io
import json
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from .layout import ARROW, BLOCK, Layout, beside_newlines, skip_bom
from .values import JsonNumber, scalar


class JsonLines:
    """One JSON object a line."""

    comments = 0

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.schema = pa.schema([(name, ARROW[type_]) for name, type_ in layout.types.items()])
        self.decoder = json.JSONDecoder(
            object_pairs_hook=_once, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=_no_constant
        )

    def start(self, stream: IO[bytes]) -> tuple[int, bytes]:
        skip_bom(stream)
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
        return {name: scalar(row.get(name), type_, name) for name, type_ in self.layout.types.items()}


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
