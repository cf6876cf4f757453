"""Avro files as records in memory, and back with the same schema (its field ids included), metadata and codec.

    file = parse_avro(content)
    for record in file.records: …
    content = format_avro(file)

The same records give the same bytes, so that a repeated copy of a table can be compared with the one before.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import fastavro

SYNC = 16  # the bytes at the end of each block, the same in a whole file


class NotAvro(ValueError):
    """The bytes are not an Avro file that can be read."""


@dataclass(frozen=True)
class AvroFile:
    """The records of an Avro file, its metadata (the schema and the codec among them) and its sync marker."""

    records: list[dict[str, Any]]
    metadata: dict[str, str]
    sync: bytes


def parse_avro(content: bytes) -> AvroFile:
    """Read an Avro file. Raises `NotAvro`."""
    try:
        reader = fastavro.reader(io.BytesIO(content))
        records: list[Any] = list(reader)
    except Exception as error:  # damaged bytes are noticed anywhere in the decoder
        raise NotAvro(f"the file is truncated or damaged: {error!r}") from None
    return AvroFile(records, reader.metadata, content[-SYNC:])


def format_avro(file: AvroFile) -> bytes:
    """Return the content of an Avro file."""
    metadata, out = dict(file.metadata), io.BytesIO()
    schema, codec = json.loads(metadata.pop("avro.schema")), metadata.pop("avro.codec", "null")
    fastavro.writer(out, schema, file.records, codec, metadata=metadata, sync_marker=file.sync)
    return out.getvalue()
