"""Copies of Avro files with some values changed. The schema, field ids, metadata and all other values stay the same.

    copied(content, {("data_file", "file_path"): str.upper})

The key of a change is the path of fields to its values (through unions and arrays). The change gets each value, a text,
bytes or a number, in the order of the file. Source: the Avro specification, "Object Container Files" and "Binary
Encoding".
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

MAGIC, SYNC = b"Obj\x01", 16
Change = Callable[[Any], Any]
Copier = Callable[[bytes, int, bytearray], int]  # bytes of the file, begin of a value, the copy → end of the value


class NotAvro(ValueError):
    """The bytes are not an Avro file that can be copied."""


def rewrite_values(content: bytes, changes: dict[tuple[str, ...], Change]) -> bytes:
    """Return an Avro file with some values changed. Raises `NotAvro`."""
    try:
        return _rewrite_file(content, changes)
    except (IndexError, KeyError, UnicodeDecodeError, zlib.error) as error:
        raise NotAvro(f"the file is truncated or damaged: {error!r}") from None


def _rewrite_file(content: bytes, changes: dict[tuple[str, ...], Change]) -> bytes:
    if not content.startswith(MAGIC):
        raise NotAvro("the file does not begin like an Avro file")
    header: dict[str, bytes] = {}
    at = len(MAGIC)
    while count := (block := _read_long(content, at))[0]:
        at = _read_long(content, block[1])[1] if count < 0 else block[1]
        for _ in range(abs(count)):
            key, at = _read_bytes(content, at)
            header[key.decode()], at = _read_bytes(content, at)
    at = block[1] + SYNC
    sync, codec = content[at - SYNC : at], header.get("avro.codec", b"null").decode()
    if codec not in ("null", "deflate"):
        raise NotAvro(f"the file is compressed by {codec}")
    record = _make_copier(json.loads(header["avro.schema"]), (), changes, {})
    out = bytearray(content[:at])
    while at < len(content):
        rows, at = _read_long(content, at)
        packed, at = _read_bytes(content, at)
        data = zlib.decompress(packed, -zlib.MAX_WBITS) if codec == "deflate" else packed
        new, position = bytearray(), 0
        for _ in range(rows):
            position = record(data, position, new)
        if position != len(data) or content[at : at + SYNC] != sync:
            raise NotAvro("a block of the file does not end where it should")
        at += SYNC
        _put_long(out, rows)
        _put_bytes(out, _deflate(bytes(new)) if codec == "deflate" else bytes(new))
        out += sync
    return bytes(out)


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _make_copier(
    schema: Any, path: tuple[str, ...], changes: dict[tuple[str, ...], Change], named: dict[str, Any]
) -> Copier:
    """Make the function that copies one value of a schema, at the path of fields `path`."""
    if isinstance(schema, list):
        return _copy_union([_make_copier(each, path, changes, named) for each in schema])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, (dict, list)):
        return _make_copier(kind, path, changes, named)
    if kind in named:  # a type that was defined before, and is used by its name
        return _make_copier(named[kind], path, changes, named)
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = schema
    change = changes.get(path)
    match kind:
        case "null":
            return lambda data, at, out: at
        case "boolean":
            return _copy_fixed(1)
        case "float":
            return _copy_fixed(4)
        case "double":
            return _copy_fixed(8)
        case "fixed":
            return _copy_fixed(schema["size"])
        case "int" | "long" | "enum":
            return _copy_number(change)
        case "string":
            return _copy_text(change)
        case "bytes":
            return _copy_binary(change)
        case "record":
            return _copy_record([_make_copier(f["type"], (*path, f["name"]), changes, named) for f in schema["fields"]])
        case "array":
            return _copy_blocks([_make_copier(schema["items"], path, changes, named)])
        case "map":
            return _copy_blocks([_copy_text(None), _make_copier(schema["values"], path, changes, named)])
    raise NotAvro(f"the schema has the unknown type {kind!r}")


def _copy_fixed(size: int) -> Copier:
    def copy_value(data: bytes, at: int, out: bytearray) -> int:
        out += data[at : at + size]
        return at + size

    return copy_value


def _copy_number(change: Change | None) -> Copier:
    def copy_value(data: bytes, at: int, out: bytearray) -> int:
        value, end = _read_long(data, at)
        _put_long(out, change(value) if change else value)
        return end

    return copy_value


def _copy_text(change: Change | None) -> Copier:
    def copy_value(data: bytes, at: int, out: bytearray) -> int:
        value, end = _read_bytes(data, at)
        _put_bytes(out, change(value.decode()).encode() if change else value)
        return end

    return copy_value


def _copy_binary(change: Change | None) -> Copier:
    def copy_value(data: bytes, at: int, out: bytearray) -> int:
        value, end = _read_bytes(data, at)
        _put_bytes(out, change(value) if change else value)
        return end

    return copy_value


def _copy_union(branches: list[Copier]) -> Copier:
    def copy_value(data: bytes, at: int, out: bytearray) -> int:
        branch, at = _read_long(data, at)
        _put_long(out, branch)
        return branches[branch](data, at, out)

    return copy_value


def _copy_record(fields: list[Copier]) -> Copier:
    def copy_value(data: bytes, at: int, out: bytearray) -> int:
        for field in fields:
            at = field(data, at, out)
        return at

    return copy_value


def _copy_blocks(parts: list[Copier]) -> Copier:
    """Make the function that copies the blocks of an array or a map, without the optional sizes of blocks in bytes."""

    def copy_value(data: bytes, at: int, out: bytearray) -> int:
        while True:
            count, at = _read_long(data, at)
            if count < 0:
                count, at = -count, _read_long(data, at)[1]
            _put_long(out, count)
            if not count:
                return at
            for _ in range(count):
                for part in parts:
                    at = part(data, at, out)

    return copy_value


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    """Read a number (zigzag, seven bits in each byte). Return it and the position where it ends."""
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _put_long(out: bytearray, number: int) -> None:
    value = (number << 1) ^ (number >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    if not 0 <= size <= len(data) - at:
        raise NotAvro("the file is truncated")
    return data[at : at + size], at + size


def _put_bytes(out: bytearray, content: bytes) -> None:
    _put_long(out, len(content))
    out += content
