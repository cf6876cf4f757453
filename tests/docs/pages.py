"""The documents, taken apart: links and anchors, blocks of code, and words in backticks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(REPO).as_posix()
    for path in [
        *(
            REPO / name
            for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "infra/airflow/README.md")
        ),
        *(REPO / "docs").rglob("*.md"),
    ]
)
_FENCE = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block of code: its language and what follows it, its text, and the line at which it begins."""

    language: str
    text: str
    line: int


def read(page: str) -> str:
    return (REPO / page).read_text(encoding="utf-8")


def blocks(text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        yield Block(found[2].strip(), found[3], text[: found.start()].count("\n") + 1)


def prose(text: str) -> str:
    """The text without its blocks of code; the lines keep their numbers."""
    return _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)


def quoted(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of everything in backticks outside blocks."""
    plain = prose(text)
    for found in re.finditer(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)", plain):
        yield plain[: found.start()].count("\n") + 1, " ".join(found[1].split())


def links(text: str) -> Iterator[tuple[int, str]]:
    """(line, target) of every link and picture outside blocks and backticks."""
    plain = re.sub(r"`[^`\n]*`", lambda found: "x" * len(found[0]), prose(text))
    for found in re.finditer(r"\]\(([^()\s]+)\)|(?:src|href|srcset)=\"([^\"]+)\"", plain):
        yield plain[: found.start()].count("\n") + 1, found[1] or found[2]


def anchors(text: str) -> set[str]:
    """What a link to the page may name after the #, as GitHub makes it of the headings."""
    seen: dict[str, int] = {}
    out = set(re.findall(r"<a (?:name|id)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", prose(text), re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        out.add(f"{slug}-{number}" if number else slug)
    return out


def table(text: str, heading: str) -> list[list[str]]:
    """The rows of the first table after a heading, without its head; cells without backticks."""
    after = re.split(rf"^#+ {re.escape(heading)}$", text, maxsplit=1, flags=re.M)[1]
    lines = re.search(r"^\|(?:.*\n\|)*.*$", after, re.M)
    assert lines, f"no table under {heading}"
    rows = [line.strip().strip("|").split("|") for line in lines[0].splitlines()]
    return [[cell.strip().replace("`", "") for cell in row] for row in rows[2:]]
