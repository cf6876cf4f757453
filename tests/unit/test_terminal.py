"""Names that hold control characters: written out on a terminal, in every format for programs as they are."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from altneu.pipeline import events
from altneu.pipeline.cli import command_line, printing, query
from altneu.pipeline.cli.printing import Format, Progress, failure, write_rows
from altneu.pipeline.errors import UsageError
from altneu.pipeline.formatting import escape_controls

EVIL = [
    "\x1b[31mred\x1b]0;title\x07",
    "a\rb",
    "a\nb",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\x9b2J",
    "\x7f\x00",
    "\u2028",
    "\t",
]
ROWS = [{"src": name, "dst": 1} for name in EVIL]


def assert_harmless(text: str) -> None:
    """What a terminal is given moves nothing, and turns nothing around."""
    for character in text.replace("\n", ""):
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp"), ascii(text)
        assert unicodedata.bidirectional(character) not in (
            "RLO",
            "LRO",
            "RLE",
            "LRE",
            "PDF",
            "RLI",
            "LRI",
            "FSI",
            "PDI",
        )


def test_every_such_character_is_written_out_and_no_other() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        shown = escape_controls(character)
        assert_harmless(shown)
        if shown != character:
            assert "\n" not in shown and shown.encode().decode("unicode_escape") == character
        elif character.isprintable():
            assert shown == character
    for name in ("größe", "日本語", "👩‍👩‍👧", "עברית", "a\\x1b", "[red]b[/]"):
        assert escape_controls(name) == name


def test_tables_write_them_out(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(iter(ROWS), ("src", "dst"), Format.table, None)
    printed = capsys.readouterr().out
    assert_harmless(printed)
    assert len(printed.splitlines()) == len(ROWS) + 1 and "\\x1b[31mred\\x1b]0;title\\x07" in printed


def test_formats_for_programs_have_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(iter(ROWS), ("src", "dst"), Format.json, None)
    assert [row["src"] for row in json.loads(capsys.readouterr().out)] == EVIL
    write_rows(iter(ROWS), ("src", "dst"), Format.csv, tmp_path / "e.csv")
    with (tmp_path / "e.csv").open(newline="") as stream:
        assert [row["src"] for row in csv.DictReader(stream)] == EVIL
    write_rows(iter(ROWS), ("src", "dst"), Format.parquet, tmp_path / "e.parquet")
    assert pq.read_table(tmp_path / "e.parquet")["src"].to_pylist() == EVIL


def test_messages_errors_and_progress_write_them_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in EVIL:
        command_line._print_error(UsageError(f"no vertex is called {name}.", f"altneu show {name}"))
        printing.out.print(f"from {name} [x] to {name}")
        printing.err.print(f"[yellow]from[/] {name}", markup=True)
        with Progress() as progress:
            progress("ingest", f"reading {name}")
            progress("ingest", f"done {name} [x]")
        logging.getLogger("altneu").warning("waiting for %s", name)
    printed = capsys.readouterr()
    assert_harmless(printed.out + printed.err)
    assert printed.out.count("[x]") == len(EVIL) and printed.err.count("[x]") == len(EVIL)
    stream = io.StringIO()
    monkeypatch.setattr(logging.getLogger("altneu"), "handlers", [])
    events.log_text_lines(stream)  # type: ignore[arg-type]
    logging.getLogger("altneu").warning("waiting for %s", EVIL[0])
    assert stream.getvalue() == f"waiting for {escape_controls(EVIL[0])}\n"


def test_a_bar_on_a_terminal_writes_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    terminal = Console(file=stream, force_terminal=True, force_interactive=True, width=100, color_system=None)
    monkeypatch.setattr(printing, "err", terminal)
    with Progress({"truss": 9.0}, 1) as progress:
        progress("truss", f"[b] {EVIL[0]} {EVIL[3]}")
        (task,) = progress.display.tasks
        assert (task.total, task.description[:6]) == (9.0, "truss:")
        assert_harmless(task.description)
    assert "[b] \\x1b[31mred" in stream.getvalue()


def test_explain_writes_them_out(capsys: pytest.CaptureFixture[str]) -> None:
    for name in EVIL:
        row: dict[str, Any] = {"epoch": "1", "op": "upsert", "src": name, "dst": "b", "seq": 0, "file": name, "line": 2}
        row |= {"fate": f"overwritten by {name} line 3", "w": name}
        edge = {"edge": ["b", name], "there": True, "support": 1, "triangles_with": [name], "triangles_not_listed": 0}
        query._print_edge({**edge, "rows": [row]})
    printed = capsys.readouterr().out
    assert_harmless(printed)
    assert len(printed.splitlines()) == 2 * len(EVIL) and not re.search("[\t]", printed)
    assert failure.stderr
