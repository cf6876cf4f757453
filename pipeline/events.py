"""Events: log records of the logger `altneu`, for machines and for people, with their fields in `record.altneu`.

`log_json_lines` writes every event as JSON. `log_text_lines` writes warnings only, because a command itself prints what
it does. Lines of text contain no control characters.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, TextIO

from .formatting import escape_controls

Facts = dict[str, Any]

log = logging.getLogger("altneu")


def log_event(name: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    log.log(level, "%s", _format_event(name, fields), extra={"altneu": {"event": name, **fields}})


def _format_event(name: str, fields: Facts) -> str:
    """Format an event as one line of text. Nested fields are left out; they are for machines only.

    >>> _format_event("stage failed", {"run": "r7", "stage": "truss", "error": "no space left", "cost": {"rows": 0}})
    'stage failed: run r7, stage truss, error no space left'
    """
    parts = [f"{key} {value}" for key, value in fields.items() if value is not None and not isinstance(value, dict)]
    return f"{name}: {', '.join(parts)}" if parts else name


def log_text_lines(stream: TextIO) -> None:
    """Write warnings of the logger `altneu` to the stream as lines of text from now on.

    Events are left out, because the command itself says what happened.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextLine())
    handler.addFilter(lambda record: not hasattr(record, "altneu"))
    log.handlers = [handler]


def log_json_lines(stream: TextIO) -> None:
    """Write every event, and every warning that libraries log, to the stream as a line of JSON from now on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(handlers=[handler], force=True)
    log.handlers = []
    log.setLevel(logging.INFO)


class TextLine(logging.Formatter):
    """A formatter that writes a record as text for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record), keep="\n")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = getattr(record, "altneu", None) or {"event": record.getMessage()}
        if record.exc_info:
            fields = {**fields, "trace": self.formatException(record.exc_info)}
        return json.dumps({"at": at, "level": record.levelname.lower(), **fields}, default=str)
