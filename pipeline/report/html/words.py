"""The words of the reports: states and their symbols, numbers as people read them, plans as sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StateWords:
    """How a state is shown: CSS class, symbol, what it is called, what it means."""

    mark: str
    symbol: str
    short: str
    meaning: str
    attention: bool = False


STATES = {
    "good": StateWords("g", "✓", "equal", "Published, and equal to a full recomputation."),
    "unaudited": StateWords(
        "u", "○", "not compared", "Published; not compared with a full recomputation as it is now."
    ),
    "warning": StateWords("w", "!", "with warnings", "Published; a check warned.", True),
    "wrong": StateWords("d", "≠", "wrong", "Published, but a critical check failed: do not use it.", True),
    "failed": StateWords("f", "✕", "failed", "The newest run failed; what was published before is untouched.", True),
    "running": StateWords("r", "…", "not finished", "A run has started and has not finished, or was interrupted."),
    "empty": StateWords("e", "·", "nothing published", "Nothing is published for this epoch."),
}


def number(value: float | int | None) -> str:
    """`12,345`; `1.5` for what is not whole; a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}"
    return f"{int(value):,}"


def signed(value: int | None) -> str:
    """`+12`, `−3` (a real minus), `±0`."""
    if value is None:
        return "–"
    return f"+{value:,}" if value > 0 else f"−{-value:,}" if value < 0 else "±0"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def listed(parts: Iterable[str]) -> str:
    """`a, b and c`."""
    *head, last = list(parts) or [""]
    return f"{', '.join(head)} and {last}" if head else last


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def moment(iso: str | None) -> str:
    """An instant of the database, to the minute."""
    return f"{iso[:10]} {iso[11:16]} UTC" if iso else "–"


KINDS = {
    "run": "run",
    "rebuild": "rebuild",
    "reload": "rebuild from the landing",
    "rollback": "rollback",
    "compact": "compaction",
}


def size(count: float) -> str:
    """`512 B`, `1.5 kB`, `230 MB`: units of a thousand."""
    units = ["TB", "GB", "MB", "kB", "B"]
    while count >= 999.5 and units[1:]:
        count /= 1000
        units.pop()
    return f"{count:.1f} {units[-1]}" if count < 9.95 and units[-1] != "B" else f"{count:.0f} {units[-1]}"


def share(value: float) -> str:
    return "less than 0.1 %" if 0 < value < 0.001 else f"{100 * value:.1f} %"


def words(name: str) -> str:
    """`max_trussness` → `max trussness`."""
    return str(name).replace("_", " ")


_SKIP = {"quarantine_sample", "top_vertices", "top_edges", "entered_core", "page", "pages", "seconds", "first_epoch"}
_SKIP |= {"snapshots"}
_SAID = {"error", "methods", "broadcast", "cost", "plan", "chosen", "estimate"}  # in words of their own
_METHODS = {
    "peel": "full peel",
    "descend": "h-index descent (deletions)",
    "lift": "lift rounds (insertions)",
    "mixed": "descent, then lift rounds",
    "none": "nothing to do",
}


def plan(facts: dict[str, Any]) -> list[str]:
    """What a stage recorded, as short sentences: its choices first, then its numbers."""
    said = []
    if facts.get("error"):
        said.append(f"failed: {facts['error']}")
    methods = facts.get("methods")
    if isinstance(methods, dict):
        said += [f"{_METHODS.get(name, words(name))}: {plural(n, 'epoch')}" for name, n in methods.items()]
    if "estimate" in facts:
        said.append(facts["chosen"])
    if "broadcast" in facts:
        chosen = "changes sent to every task, the index stays where it is"
        said.append(chosen if facts["broadcast"] else "changes shuffled to the index")
    for key, value in facts.items():
        if (
            key in _SKIP
            or key in ("error", "methods", "broadcast", "cost", "plan", "chosen", "estimate")
            or value is None
        ):
            continue
        if isinstance(value, dict):
            text = ", ".join(f"{words(k)} {v}" for k, v in value.items() if not isinstance(v, (dict, list)))
            if not text:
                continue
        elif isinstance(value, list):
            continue
        elif isinstance(value, bool):
            text = "yes" if value else "no"
        else:
            text = number(value) if isinstance(value, (int, float)) else str(value)
        said.append(f"{words(key)} {text}")
    return said


_PROCESSES = {"jvm": "Java", "workers": "Python workers", "python": "Python"}


def cost(facts: dict[str, Any]) -> list[str]:
    """What a stage has written and the memory that it took, as short sentences; empty where nothing was measured."""
    found, said = facts.get("cost") or {}, []
    if found.get("rows"):
        said.append(f"wrote {plural(found['rows'], 'row')}, {size(found['bytes'])} in {plural(found['files'], 'file')}")
    peaks = [f"{name} {size(found[kind])}" for kind, name in _PROCESSES.items() if found.get(kind)]
    if peaks:
        said.append(f"memory at most: {', '.join(peaks)}")
    return said
