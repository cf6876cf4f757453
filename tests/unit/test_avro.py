"""Avro files as records: what is written again has the same schema, field ids, metadata, codec and values."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import Any

import fastavro
import pytest

from altneu.pipeline.storage.avro_files import NotAvro, format_avro, parse_avro

POINT = {"type": "fixed", "name": "point", "size": 3}
PAIR = {
    "type": "record",
    "name": "k1_v2",
    "fields": [{"name": "key", "type": "int", "field-id": 8}, {"name": "value", "type": "bytes", "field-id": 9}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "field-id": 7,
    "fields": [
        {"name": "n", "type": "long", "field-id": 1},
        {"name": "s", "type": ["null", "string"], "default": None, "doc": "a text"},
        {"name": "x", "type": "double"},
        {"name": "p", "type": POINT},
        {"name": "q", "type": "point"},
        {"name": "bounds", "type": ["null", {"type": "array", "items": PAIR, "logicalType": "map", "element-id": 3}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "moment", "type": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
ROWS = [
    {
        "n": n,
        "s": s,
        "x": -2.5,
        "p": b"abc",
        "q": b"\xff\x00\x80",
        "bounds": bounds,
        "day": datetime.date(1969, 12, 31) if s is None else None,
        "moment": datetime.datetime(2038, 1, 19, 3, 14, 8, 123457, datetime.UTC),
        "price": decimal.Decimal("-12.34"),
    }
    for n, s, bounds in [
        (0, None, None),
        (-1, "", []),
        (2**63 - 1, "Größe", [{"key": 1, "value": b"\x00\xff"}, {"key": -5, "value": b""}]),
        (-(2**63), "x" * 200, [{"key": 2**31 - 1, "value": b"a" * 70}]),
    ]
]


def make_file(codec: str = "deflate", rows: list[dict[str, Any]] = ROWS) -> bytes:
    """A file with a block for each row, and the metadata of a manifest."""
    out = io.BytesIO()
    fastavro.writer(out, SCHEMA, rows, codec, sync_interval=1, metadata={"partition-spec": "[]", "content": "data"})
    return out.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_what_is_written_again_differs_in_the_changed_values_alone(codec: str) -> None:
    file = parse_avro(make_file(codec))
    assert file.records == ROWS
    for record in file.records:
        record["s"] = record["s"] and record["s"] + "!"
    content = format_avro(file)
    assert content == format_avro(file), "it depends on more than the records"
    again = parse_avro(content)
    assert again.records == [row | {"s": row["s"] and f"{row['s']}!"} for row in ROWS]
    schemas = [json.loads(each.metadata["avro.schema"]) for each in (file, again)]
    assert schemas == [SCHEMA, SCHEMA]
    assert again.metadata == file.metadata | {"avro.schema": again.metadata["avro.schema"]}
    assert again.metadata["partition-spec"] == "[]" and again.metadata["avro.codec"] == codec
    assert again.sync == file.sync


def test_a_file_without_rows() -> None:
    assert parse_avro(format_avro(parse_avro(make_file(rows=[])))).records == []


def test_what_is_broken_is_refused() -> None:
    whole, empty = make_file(), make_file(rows=[])
    for size in {*range(0, len(empty), 7), *range(len(empty) + 1, len(whole)), len(empty) - 1}:
        try:
            rows = parse_avro(whole[:size]).records
        except NotAvro:
            continue
        assert 0 < len(rows) < len(ROWS) and whole[:size].endswith(whole[-16:]), f"{size} bytes look like a whole file"
    with pytest.raises(NotAvro, match="none"):
        parse_avro(make_file("null").replace(b"\x08null", b"\x08none", 1))
