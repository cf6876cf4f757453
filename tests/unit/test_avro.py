"""Avro files by hand: every kind of value is copied as it is, and the named ones are changed."""

from __future__ import annotations

import json
import random
import struct
import zlib
from typing import Any

import pytest

from pipeline.storage.avro_patch import NotAvro, rewrite_values
from tests import seeds

POINT = {"type": "fixed", "name": "point", "size": 3}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "field-id": 7,
    "fields": [
        {"name": "n", "type": "long", "field-id": 1},
        {"name": "s", "type": ["null", "string"], "default": None},
        {"name": "flag", "type": "boolean"},
        {"name": "x", "type": "float"},
        {"name": "y", "type": "double"},
        {"name": "p", "type": POINT},
        {"name": "q", "type": "point"},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["a", "b"]}},
        {"name": "nothing", "type": "null"},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "item", "fields": [{"name": "b", "type": "bytes"}]},
            },
        },
        {"name": "map", "type": {"type": "map", "values": {"type": "long"}}},
    ],
}


def number(value: int) -> bytes:
    """The specification's words: zigzag, then seven bits a byte, the lowest first."""
    zigzag = value * 2 if value >= 0 else -value * 2 - 1
    out = []
    while True:
        zigzag, low = divmod(zigzag, 128)
        out.append(low + (128 if zigzag else 0))
        if not zigzag:
            return bytes(out)


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def row(n: int, s: str | None, items: list[bytes], pairs: dict[str, int], form: str = "whole") -> bytes:
    """`form` of arrays and maps: whole in a block, or in blocks of one that tell their bytes (sized) or not."""

    def blocks(parts: list[bytes]) -> bytes:
        if not parts:
            return number(0)
        if form != "whole":
            heads = [number(-1) + number(len(part)) if form == "sized" else number(1) for part in parts]
            return b"".join(head + part for head, part in zip(heads, parts, strict=True)) + number(0)
        return number(len(parts)) + b"".join(parts) + number(0)

    string = number(0) if s is None else number(1) + text(s.encode())
    plain = b"\x01" + struct.pack("<fd", 1.5, -2.5) + b"abc" + b"\xff\x00\x80" + number(1)
    mapped = [text(key.encode()) + number(value) for key, value in pairs.items()]
    return number(n) + string + plain + blocks([text(item) for item in items]) + blocks(mapped)


def file(rows: list[bytes], codec: str) -> bytes:
    def entry(key: str, value: bytes) -> bytes:
        return text(key.encode()) + text(value)

    sync = bytes(range(16))
    header = number(3) + entry("avro.schema", json.dumps(SCHEMA).encode()) + entry("avro.codec", codec.encode())
    out = b"Obj\x01" + header + entry("partition-spec", b"[]") + number(0) + sync
    for some in (rows[:2], rows[2:]):
        data = b"".join(some)
        if codec == "deflate":
            packer = zlib.compressobj(wbits=-15)
            data = packer.compress(data) + packer.flush()
        out += number(len(some)) + text(data) + sync
    return out


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_every_kind_is_copied_and_the_named_ones_changed(codec: str) -> None:
    seed = seeds.one()
    draw = random.Random(seed)
    numbers = [0, -1, 63, 64, 2**63 - 1, -(2**63), draw.randrange(-(2**40), 2**40)]
    given = [
        (n, draw.choice([None, "", "Größe", "x" * 200]), [b"", b"\x00\xff"][: draw.randrange(3)], {"k": n, "": 1})
        for n in numbers
    ]
    whole, single, sized = (file([row(*each, form) for each in given], codec) for form in ("whole", "single", "sized"))
    assert rewrite_values(whole, {}) == whole, f"seed {seed}"
    assert rewrite_values(single, {}) == single == rewrite_values(sized, {}), f"seed {seed}"
    changed = file([row(n // 2, s and s + "!", items, pairs) for n, s, items, pairs in given], codec)
    changes = {("n",): lambda n: n // 2, ("s",): lambda s: s and s + "!"}
    assert rewrite_values(whole, changes) == changed, f"seed {seed}"


def test_what_is_broken_is_refused() -> None:
    whole = file([row(1, "a", [b"b"], {})] * 3, "deflate")
    for size in (0, 3, 10, len(whole) - 1, len(whole) - 17, len(whole) - 20):
        with pytest.raises(NotAvro):
            rewrite_values(whole[:size], {})
    with pytest.raises(NotAvro, match="compressed by snappy"):
        rewrite_values(file([], "snappy"), {})
