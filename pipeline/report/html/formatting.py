"""The formatting of the reports: states with their symbols, numbers for people, and plans as sentences."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...state.stage_results import Cost, EdgesFacts, FailedFacts, TrianglesFacts, TrussFacts, display_fields, from_json


@dataclass(frozen=True)
class StateWords:
    """The presentation of a state: CSS class, symbol, name and meaning."""

    mark: str
    symbol: str
    short: str
    meaning: str
    attention: bool = False


STATES = {
    "good": StateWords("g", "✓", "correct", "Published; proved, or equal to a full recomputation."),
    "unaudited": StateWords(
        "u", "○", "not checked", "Published; neither proved nor compared with a full recomputation as it is now."
    ),
    "warning": StateWords("w", "!", "with warnings", "Published; a check warned.", True),
    "wrong": StateWords("d", "≠", "wrong", "Published, but a critical check failed: do not use it.", True),
    "failed": StateWords("f", "✕", "failed", "The newest run failed; what was published before is unchanged.", True),
    "running": StateWords("r", "…", "not finished", "A run has started, and has not published."),
    "empty": StateWords("e", "·", "nothing published", "Nothing is published for this epoch."),
}


def format_number(value: float | int | None) -> str:
    """Format a number as `12,345`, or `1.5` if it is not whole, or as a dash if it is None."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}"
    return f"{int(value):,}"


def format_signed(value: int | None) -> str:
    """Format a change as `+12`, `−3` (with a minus sign), or `±0`."""
    if value is None:
        return "–"
    return f"+{value:,}" if value > 0 else f"−{-value:,}" if value < 0 else "±0"


def count_noun(count: int, one: str, many: str | None = None) -> str:
    return one if abs(count) == 1 else many or one + "s"


def pluralize(count: int, one: str, many: str | None = None) -> str:
    return f"{format_number(count)} {count_noun(count, one, many)}"


def join_words(parts: Iterable[str]) -> str:
    """Join words as in `a, b and c`."""
    *head, last = list(parts) or [""]
    return f"{', '.join(head)} and {last}" if head else last


def format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


KINDS = {
    "run": "run",
    "rebuild": "rebuild",
    "reload": "rebuild from the landing",
    "rollback": "rollback",
    "compact": "compaction",
}


def format_size(count: float) -> str:
    """Format a size in units of a thousand: `512 B`, `1.5 kB`, `230 MB`."""
    units = ["TB", "GB", "MB", "kB", "B"]
    while count >= 999.5 and units[1:]:
        count /= 1000
        units.pop()
    return f"{count:.1f} {units[-1]}" if count < 9.95 and units[-1] != "B" else f"{count:.0f} {units[-1]}"


def format_share(value: float) -> str:
    return "less than 0.1 %" if 0 < value < 0.001 else f"{100 * value:.1f} %"


def format_observed(text: str) -> str:
    """Format what a check has observed.

    Earlier versions have stored observations of volumes that end in the distance from the middle of the band. This
    number means nothing to a reader and is left out.

    >>> format_observed("rows 90, usual rows 1200 to 4000, rows surprise -1.34")
    '90 rows; 1,200 to 4,000 are usual'
    >>> format_observed("edges 900, edges surprise 1.7"), format_observed("3 of 10 rows")
    ('900 edges: not as usual', '3 of 10 rows')
    """
    matched = re.fullmatch(r"(rows|edges|triangles) (\d+)(?:, usual rows (\d+) to (\d+))?, \1 surprise \S+", text)
    if matched is None:
        return text
    what, count, low, high = matched.groups()
    usual = f"; {int(low):,} to {int(high):,} are usual" if low else ": not as usual"
    return f"{int(count):,} {what}{usual}"


def vertex_page(vertex: Any, label: str, revision: int) -> str:
    """Return the file name of a vertex's page. It has a digest where the vertex's name cannot be a file name.

    >>> vertex_page(41, "2004-05-15", 7), vertex_page("a/b", "3", 7)
    ('vertex=41.epoch=2004-05-15.revision=7.html', 'vertex=c14cddc033f64b9d.epoch=3.revision=7.html')
    """
    text = str(vertex)
    plain = re.fullmatch(r"[A-Za-z0-9_-]{1,60}", text)
    name = text if plain else hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"vertex={name}.epoch={label}.revision={revision}.html"


def spell_out(name: str) -> str:
    """Replace underscores by blanks: `max_trussness` becomes `max trussness`."""
    return str(name).replace("_", " ")


_METHODS = {
    "peel": "full peel",
    "descend": "h-index descent (deletions)",
    "lift": "lift rounds (insertions)",
    "mixed": "descent, then lift rounds",
    "none": "nothing to do",
    "parts": "in partitions that exchange messages",
    "region": "by the region that the change reaches",
}


def plan_sentences(stage: dict[str, Any]) -> list[str]:
    """Describe what a stage has recorded in short phrases: its choices first, then its numbers."""
    facts, phrases = from_json(stage["stage"], stage["facts"]), []
    match facts:
        case FailedFacts(error=error):
            phrases.append(f"failed: {error}")
        case TrussFacts(methods=methods) if methods:
            phrases += [
                f"{_METHODS.get(name, spell_out(name))}: {pluralize(n, 'epoch')}" for name, n in methods.items()
            ]
        case TrianglesFacts(chosen=str(chosen)):
            phrases.append(chosen)
        case EdgesFacts(broadcast=bool(broadcast)):
            sent = "changes sent to every task, the index stays where it is"
            phrases.append(sent if broadcast else "changes shuffled to the index")
    for field, _, value in display_fields(facts, "page"):
        phrases.append(f"{spell_out(field)} {format_number(value) if isinstance(value, int) else value}")
    return phrases


def cost_sentences(stage: dict[str, Any]) -> list[str]:
    """Describe what a stage has written and its memory in short phrases; there are none if nothing was measured."""
    cost, phrases = from_json(stage["stage"], stage["facts"]).cost or Cost(), []
    if cost.rows:
        phrases.append(
            f"wrote {pluralize(cost.rows, 'row')}, {format_size(cost.bytes or 0)} in "
            f"{pluralize(cost.files or 0, 'file')}"
        )
    peaks = [("Java", cost.jvm), ("Python workers", cost.workers), ("Python", cost.python)]
    memory = [f"{name} {format_size(peak)}" for name, peak in peaks if peak]
    if memory:
        phrases.append(f"memory at most: {', '.join(memory)}")
    return phrases
