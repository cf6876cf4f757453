"""The reader of Parquet, by the rules of text: a value that does not have the declared type makes its row malformed.

Arrow converts whole columns where the result is the same; the remaining values go one by one through `parse_scalar`, as
a field of JSON does. A column of a type that cannot be read as the declared one breaks the file; a skipped column is
not read. Integers of any width, floats and decimals are numbers, and integers where they have no fraction. Bytes are
text in UTF-8. Strings take numbers, truth values, times and UUIDs as their text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as kinds

from ..home.s3_config import S3
from ..state import filesystem
from .field_types import JsonNumber, parse_scalar
from .row_schema import ARROW, Block, BrokenFileError, RowSchema, require_known_columns, trim_texts

ROWS = 1 << 20  # the number of rows that are read at once
_READ_AS = {
    "long": {"integer", "floating", "decimal", "text", "timestamp"},
    "double": {"integer", "floating", "decimal", "text"},
    "boolean": {"boolean", "integer", "text"},
    "string": {"integer", "floating", "decimal", "text", "timestamp", "time", "boolean", "uuid"},
}
_CASTS = {"long": "BIGINT", "double": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR"}
_PLAIN_TEXTS = {
    "long": r"^-?[0-9]{1,18}$",
    "double": r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$",
    "boolean": "^(true|false|1|0)$",
}  # texts that Arrow's casts and `parse_scalar` read alike


def read_parquet(path: Path | str, layout: RowSchema, s3: S3 | None) -> Iterator[Block]:
    """Yield the rows of a file. Raise `BrokenFileError`, `OSError`, or an error of Arrow."""
    remote = filesystem.local_path(str(path)) is None
    source = filesystem.open_random_access(str(path), s3) if remote else path
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        columns = _choose_columns(file.schema_arrow, layout)
        line = 1
        for batch in file.iter_batches(ROWS, columns=list(columns.values())):
            table = pa.Table.from_batches([batch])
            yield _convert_rows(table, {name: table[column] for name, column in columns.items()}, layout, line)
            line += table.num_rows


def _choose_columns(schema: pa.Schema, layout: RowSchema) -> dict[str, str]:
    """Return the column of the file for each column of the layout. Raise `BrokenFileError` if they do not fit."""
    names = list(layout.names or schema.names)
    if len(names) != len(schema.names):
        raise BrokenFileError(f"it has {len(schema.names)} columns ({', '.join(schema.names)}), not {len(names)}")
    require_known_columns(names, layout, lambda: dict(zip(names, map(_guess_type, schema.types), strict=True)))
    columns = {name: column for name, column in zip(names, schema.names, strict=True) if name != "_"}
    for name, column in columns.items():
        if schema.names.count(column) > 1:
            raise BrokenFileError(f"two of its columns are called {column}")
        type_, declared = schema.field(column).type, layout.types[name]
        if _classify_type(type_) not in ("null", *_READ_AS[declared]):
            raise BrokenFileError(
                f"column {column} is {type_}, which cannot be read as {declared}: "
                f"write it with CAST({column} AS {_CASTS[declared]})"
            )
    return columns


def _guess_type(type_: pa.DataType) -> str:
    guesses = {"integer": "long", "floating": "double", "decimal": "double", "boolean": "boolean"}
    return guesses.get(_classify_type(type_), "string")


def _classify_type(type_: pa.DataType) -> str:
    if kinds.is_dictionary(type_):
        return _classify_type(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return "uuid" if type_.extension_name == "arrow.uuid" else _classify_type(type_.storage_type)
    tests = {
        "null": kinds.is_null,
        "boolean": kinds.is_boolean,
        "integer": kinds.is_integer,
        "floating": kinds.is_floating,
        "decimal": kinds.is_decimal,
        "timestamp": kinds.is_timestamp,
        "time": lambda t: kinds.is_date(t) or kinds.is_time(t),
        "text": lambda t: (
            any(test(t) for test in (kinds.is_string, kinds.is_large_string, kinds.is_string_view))
            or any(test(t) for test in (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view))
        ),
    }
    return next((kind for kind, test in tests.items() if test(type_)), "other")


def _convert_rows(table: pa.Table, columns: dict[str, pa.ChunkedArray], layout: RowSchema, line: int) -> Block:
    """Convert the columns of a table; rows with a value of another type, or without a required value, are malformed."""
    reasons: dict[int, str] = {}
    converted = []
    for name, type_ in layout.types.items():
        if name not in columns:
            converted.append(pa.nulls(table.num_rows, ARROW[type_]))
            continue
        column, wrong = convert_column(columns[name], type_, name)
        reasons = wrong | reasons
        converted.append(column)
    for name, column in zip(layout.types, converted, strict=True):
        if name not in layout.optional and column.null_count:
            empty = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            reasons = {int(row): f"{name} is empty" for row in empty} | reasons
    lines = np.arange(line, line + table.num_rows)
    good = pa.table([*converted, pa.array(lines)], names=[*layout.types, "line"])
    if not reasons:
        return Block(good)
    is_good = np.ones(table.num_rows, bool)
    is_good[list(reasons)] = False
    bad = []
    for row in sorted(reasons):
        text = {name: _show(columns[name], row) for name in layout.types if name in columns}
        bad.append((int(lines[row]), reasons[row], json.dumps(text, default=str)[:500]))
    return Block(good.filter(pa.array(is_good)), bad)


def _show(column: pa.ChunkedArray, row: int) -> Any:
    value = to_raw_column(column)[row].as_py()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def convert_column(column: pa.ChunkedArray, type_: str, name: str) -> tuple[pa.Array, dict[int, str]]:
    """Return a column in a declared type, and the rows whose values do not have that type, with the reasons."""
    wrong: dict[int, str] = {}
    column = to_raw_column(column)
    kind = _classify_type(column.type)
    if kind == "text":
        column, wrong = _decode(column, name)
    if kind == "decimal" and type_ != "string":
        is_plain, plain = _parse_texts(column.cast(pa.string()), type_)
    elif kind == "text" and type_ != "string":
        is_plain, plain = _parse_texts(column, type_)
    else:
        is_plain, plain = _cast_numbers(column, type_, kind)
    rest = np.flatnonzero(pc.and_(column.is_valid(), pc.invert(is_plain)).to_numpy(zero_copy_only=False))
    if not len(rest):
        return plain, wrong
    values: list[Any] = []
    for row, value in zip(rest.tolist(), column.take(pa.array(rest)).to_pylist(), strict=True):
        try:
            values.append(parse_scalar(_to_json(value), type_, name))
        except ValueError as error:
            values.append(None)
            wrong[row] = str(error)
    mask = np.zeros(len(column), bool)
    mask[rest] = True
    return pc.replace_with_mask(plain, pa.array(mask), pa.array(values, ARROW[type_])), wrong


def to_raw_column(column: pa.ChunkedArray) -> pa.Array:
    """Return a column without dictionaries, UUIDs as text, and texts as bytes that are not decoded yet."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # more than 2 GiB of text
        array = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in array.chunks])
    type_ = array.type
    if kinds.is_dictionary(type_):
        return to_raw_column(array.dictionary_decode())
    if isinstance(type_, pa.BaseExtensionType):
        if type_.extension_name == "arrow.uuid":
            return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string()).cast(
                pa.binary()
            )
        return to_raw_column(array.storage)
    return array.cast(pa.large_binary()) if _classify_type(type_) == "text" else array


def _decode(column: pa.Array, name: str) -> tuple[pa.Array, dict[int, str]]:
    """Return bytes as trimmed text, and the rows whose bytes are not UTF-8, which are null then."""
    wrong: dict[int, str] = {}
    try:
        column = column.cast(pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for row, value in enumerate(column.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError:
                texts.append(None)
                wrong[row] = f"{name} is not UTF-8"
        column = pa.array(texts, pa.string())
    return trim_texts(pa.table({name: column}))[name].combine_chunks(), wrong


def _parse_texts(texts: pa.Array, type_: str) -> tuple[pa.Array, pa.Array]:
    """Return which texts are plain values of a type, and these values."""
    is_plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN_TEXTS[type_]), False)
    return is_plain, pc.if_else(is_plain, texts, None).cast(ARROW[type_])


def _cast_numbers(column: pa.Array, type_: str, kind: str) -> tuple[pa.Array, pa.Array]:
    """Return which values Arrow's cast reads as `parse_scalar` would, and these values."""
    if type_ == "long" and kind == "floating":
        column = column.cast(pa.float64())
        is_plain = pc.and_(pc.less(pc.abs(column), float(1 << 53)), pc.equal(pc.floor(column), column))
    elif type_ == "long" and column.type == pa.uint64():
        is_plain = pc.less_equal(column, pa.scalar((1 << 63) - 1, pa.uint64()))
    elif type_ == "boolean" and kind == "integer":
        is_plain = pc.is_in(column, pa.array([0, 1]).cast(column.type))
    else:
        return column.is_valid(), column.cast(ARROW[type_], safe=type_ != "double")
    is_plain = pc.fill_null(is_plain, False)
    return is_plain, pc.if_else(is_plain, column, None).cast(ARROW[type_])


def _to_json(value: Any) -> Any:
    """Return a value of Parquet in the form that a JSON reader returns."""
    if isinstance(value, Decimal):
        return JsonNumber(int(value) if value == value.to_integral_value() else value)
    return JsonNumber(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
