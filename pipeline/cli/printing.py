"""How commands print: results to `out`, progress to `err`, errors to `failure`; lists, tables and files of rows.

A table is at most as wide as the terminal (or `COLUMNS`); rows that do not fit are printed one field per line, so that
no heading and no value is cut. Tables and messages show no control characters (see `terminal`); JSON, CSV and Parquet
have the values as they are. A file is written whole or not at all; pipes and devices are written into.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from textwrap import indent
from typing import IO, TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as ProgressDisplay

from ..errors import UsageError
from ..formatting import escape_controls, group_neighbours
from ..home.whole_files import is_stream, open_whole_file, require_writable

if TYPE_CHECKING:
    import pyarrow as pa

    from ..state.ledger import Ledger


class _Lines(Console):
    """A console for lines that people read: control characters are escaped. Styles (`[green]`) need `markup`."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True)

    def print(self, *objects: Any, **options: Any) -> None:
        shown = (escape_controls(item, keep="\n") if isinstance(item, str) else item for item in objects)
        super().print(*shown, **{"markup": False} | options)


out, err = _Lines(), _Lines(stderr=True)
failure = _Lines(stderr=True)  # it prints with --quiet, too


def renew_consoles() -> None:
    """Let the consoles look at the terminal and the environment again, in a process that has got others."""
    for console in (out, err, failure):
        quiet = console.quiet
        console.__init__(stderr=console.stderr)  # type: ignore[misc]
        console.quiet = quiet


Row = Mapping[str, Any]
CHUNK = 1 << 16  # the number of rows of a Parquet file that are in memory at once


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


class Document(StrEnum):
    """The formats of a result that is not a list of rows."""

    table = "table"
    json = "json"


STANDARD_OUTPUT = Path("-")  # the value of --output that means standard output
MAX_SILENT_SECONDS = 5.0  # seconds without a line after which a stage says that it goes on
_ENDINGS = {".csv": Format.csv, ".json": Format.json, ".parquet": Format.parquet, ".txt": Format.table}
_NUMBER = re.compile(r"[-+]?[\d,.]*")
_ASCII_FALLBACKS = {"█": "#", "░": ".", "…": "...", "→": "->", "–": "-", "✓": "ok", "✗": "x", "·": "-"}


def make_streams_printable() -> None:
    """Let streams of a narrow encoding (`LANG=C`) print replacements for what they cannot encode, instead of
    failing."""
    codecs.register_error("altneu", _ascii_fallback)
    for stream in (sys.stdout, sys.stderr):  # in a test they may be of any type
        if "utf" not in (stream.encoding or "utf").lower() and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="altneu")


def _ascii_fallback(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    known = "".join(_ASCII_FALLBACKS.get(char) or char.encode("ascii", "backslashreplace").decode() for char in text)
    return known, error.end


class Progress:
    """One line per stage on standard error: what the stage does, then its seconds and its result.

    A stage that reports nothing for `MAX_SILENT_SECONDS` seconds prints that it goes on, and how long it has taken; on
    a terminal, a line with a bar shows this all the time. If `expected` has the seconds of the stages in the last
    `learned` runs, the line also says how long the rest will take, or that the stage takes longer than in those runs.
    """

    def __init__(self, expected: Mapping[str, float] | None = None, learned: int = 0) -> None:
        self.started = time.time()
        self.expected, self.learned = dict(expected or {}), learned
        self._total = sum(self.expected.values())
        line = SpinnerColumn(), BarColumn(20), TextColumn("{task.description}", markup=False)
        self.display = ProgressDisplay(*line, console=err, transient=True, disable=not err.is_interactive)
        self._task = self.display.add_task("", total=self._total or None)
        self._stage, self._text, self._said, self._going = "", "", self.started, False
        self._end = threading.Event()
        threading.Thread(target=self._refresh_line, daemon=True).start()

    def __call__(self, stage: str, text: str) -> None:
        self._said = time.time()
        if text.startswith("done"):
            self.pause_display()
            self.expected.pop(stage, None)
            result = escape(f"{text[5:]}; {self._describe_remaining()}" if self._describe_remaining() else text[5:])
            line = f"  [green]✓[/] {stage:<10} {time.time() - self.started:6.1f} s  [dim]{result}[/]"
            err.print(line, markup=True)
            return
        if not text or stage != self._stage or not self._going:
            self.started, self._stage, self._going = time.time(), stage, True
        self._text = f"{stage}: {text}" if text else stage
        if not self.display.disable:
            self._update_display()
            self.display.start()
        elif text:
            err.print(f"    {self._text}", markup=False)

    def _remaining_seconds(self) -> float:
        """Return the seconds that are expected for the stages which are not done, without those that have passed."""
        passed = time.time() - self.started if self._going else 0.0
        others = sum(seconds for stage, seconds in self.expected.items() if stage != self._stage)
        return others + max(self.expected.get(self._stage, 0.0) - passed, 0.0)

    def _describe_remaining(self) -> str:
        """Describe how long the rest takes; return an empty text if that is unknown or too short to mention."""
        rest, mine = self._remaining_seconds(), self.expected.get(self._stage)
        runs = f"the last {self.learned} runs" if self.learned > 1 else "the last run"
        if self._going and mine is not None and time.time() - self.started > mine + MAX_SILENT_SECONDS:
            more = f", and about {rest:,.0f} s for what follows" if rest >= 5 else ""
            return f"longer than the {mine:,.0f} s of {runs}{more}"
        return f"about {rest:,.0f} s left, as {runs} took" if rest >= 5 else ""

    def _describe_current(self) -> str:
        """Describe what is going on in one line."""
        left = self._describe_remaining()
        return f"{self._text}, {time.time() - self.started:.0f} s" + (f"; {left}" if left else "")

    def _update_display(self) -> None:
        text, done = escape_controls(self._describe_current()), self._total - self._remaining_seconds()
        self.display.update(self._task, description=text, completed=done)

    def _refresh_line(self) -> None:
        while not self._end.wait(MAX_SILENT_SECONDS / 5):
            self.report_current()

    def report_current(self) -> None:
        """Show that the stage goes on: by the bar on a terminal, else by a line after each `MAX_SILENT_SECONDS` seconds
        of silence."""
        if not self._going:
            return
        if not self.display.disable:
            self._update_display()
        elif time.time() - self._said >= MAX_SILENT_SECONDS:
            err.print(f"    {self._describe_current()}", markup=False)
            self._said = time.time()

    def pause_display(self) -> None:
        """Print nothing until the next call, while the user is asked a question."""
        self._going = False
        self.display.stop()

    def close_display(self) -> None:
        self._end.set()
        self.pause_display()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_display()


@contextmanager
def show_progress(stage: str) -> Iterator[Callable[[str], None]]:
    """Show that a command works, and how far it is: the block gets the function that takes a text for each step."""
    with Progress() as progress:
        progress(stage, "")
        yield partial(progress, stage)


def format_moment(iso: str | None) -> str:
    """Format an instant of the database in the reader's time zone, to the minute, with UTC beside it; None is
    `never`."""
    if iso is None:
        return "never"
    utc = datetime.fromisoformat(iso).astimezone(UTC)
    here = utc.astimezone()
    if not here.utcoffset():
        return f"{utc:%Y-%m-%d %H:%M} UTC"
    return f"{here:%Y-%m-%d %H:%M %Z} ({utc:{'%H:%M' if here.date() == utc.date() else '%Y-%m-%d %H:%M'}} UTC)"


def line_width() -> int | None:
    """Return how many columns a line may have, or None if there is no limit (a pipe or a file)."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_rows(rows: Iterable[Row], columns: Sequence[str] = (), file: IO[str] | None = None) -> None:
    """Print rows as a table with a heading, or one field per line where the table would be too wide."""
    listed = list(rows)
    names = list(columns or (listed[0] if listed else ()))
    numeric = [
        bool(listed) and all(isinstance(row[name], (int, float, type(None))) for row in listed) for name in names
    ]
    cells = [[_format_cell(row[name]) for name in names] for row in listed]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    limit = None if file else line_width()
    if limit is not None and sum(widths) + 2 * len(widths) - 2 > limit:
        longest = max(map(len, names))
        for row in cells:
            print(
                *(f"{name.ljust(longest)}  {cell}".rstrip() for name, cell in zip(names, row, strict=True)),
                "",
                sep="\n",
            )
        return
    for line in (names, *cells):
        padded = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(line, widths, numeric, strict=True))
        print("  ".join(padded).rstrip(), file=file)


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape_controls(str(value))


def output_format(format: Format | None, output: Path | None) -> Format:
    """Return the format of an output: the requested one, the one of the file's ending, or CSV for a pipe.

    Raises:
        UsageError: The place cannot be written, or the format does not fit it. Nothing has been computed yet.
    """
    ending = output.suffix.lower() if output else ""
    known = _ENDINGS.get(ending)
    if output is None:
        if format is Format.parquet:
            raise UsageError("parquet needs a file.", "add --output FILE.parquet   (- is standard output)")
        return format or Format.table
    if output == STANDARD_OUTPUT and format is Format.parquet and sys.stdout.isatty():
        raise UsageError("a terminal cannot show parquet.", "add --output FILE.parquet, or a pipe behind the command")
    if output == STANDARD_OUTPUT or (is_stream(output) and known is None):
        return format or Format.csv
    if output.is_dir():
        raise UsageError(f"--output {output} is a folder.", f"--output {output / 'rows'}.{format or 'csv'}")
    if format is None and known is None:
        raise UsageError(
            f"--output {output}: the ending {ending!r} is not that of a format."
            if ending
            else f"--output {output} has no ending that names a format.",
            f"add --format csv, json or parquet, or name the file {output.name or 'edges'}.csv",
        )
    if format is not None and known is not None and known is not format:
        raise UsageError(f"--output {output} ends like {known}, but --format is {format}.", "leave --format out")
    require_writable(output, "--output")
    return format or known or Format.table


def write_rows(
    rows: Iterable[Row],
    columns: Sequence[str],
    format: Format,
    output: Path | None,
    schema: pa.Schema | None = None,
    table: pa.Table | None = None,
) -> int:
    """Write rows one after the other to standard output or to a file, and return their number.

    Only the format `table` holds all rows in memory.

    Args:
        output: The file; None or `STANDARD_OUTPUT` for standard output.
        schema: The schema of a Parquet file (default: that of the first rows).
        table: The same rows as columns in memory, if they are there: a Parquet file is written from them.
    """
    counted = _Counted(rows)
    if output is None or (output == STANDARD_OUTPUT and format is not Format.parquet):
        _write_format(counted, columns, format, sys.stdout)
        return counted.number
    with _open_output(output) as stream:
        if format is Format.parquet and table is not None:
            import pyarrow.parquet as pq

            pq.write_table(table, stream)
            counted.number = table.num_rows
        elif format is Format.parquet:
            _write_parquet(counted, columns, stream, schema)
        else:
            text = TextIOWrapper(stream, encoding="utf-8", newline="")
            _write_format(counted, columns, format, text)
            text.flush()
            text.detach()
    return counted.number


@contextmanager
def _open_output(output: Path) -> Iterator[IO[bytes]]:
    if output != STANDARD_OUTPUT:
        with open_whole_file(output) as stream:
            yield stream
        return
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def tell_written(number: int, output: Path) -> None:
    """Print how many rows were written: to standard error if the rows went into a pipe or to standard output."""
    streams = output == STANDARD_OUTPUT or is_stream(output)
    (err if streams else out).print(f"{number:,} row(s) written to {output}", markup=False)


class _Counted:
    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows, self.number = rows, 0

    def __iter__(self) -> Iterator[Row]:
        for row in self.rows:
            self.number += 1
            yield row


def _write_format(rows: Iterable[Row], columns: Sequence[str], format: Format, stream: IO[str]) -> None:
    if format is Format.json:
        before = "[\n"
        for row in rows:
            stream.write(before + indent(json.dumps(dict(row), indent=1, default=str), " "))
            before = ",\n"
        stream.write("[]\n" if before == "[\n" else "\n]\n")
    elif format is Format.csv:
        writer = csv.DictWriter(stream, list(columns))
        writer.writeheader()
        writer.writerows(rows)
    else:
        print_rows(rows, columns, None if stream is sys.stdout else stream)


def _write_parquet(rows: Iterable[Row], columns: Sequence[str], stream: IO[bytes], schema: pa.Schema | None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = iter(rows)
    first = list(islice(source, CHUNK))
    form = schema or (pa.Table.from_pylist(first).schema if first else pa.schema((n, pa.string()) for n in columns))
    with pq.ParquetWriter(stream, form) as writer:
        for chunk in chain([first], iter(lambda: list(islice(source, CHUNK)), [])):
            writer.write_table(pa.Table.from_pylist(chunk, schema=form))


def abbreviate_labels(labels: Iterable[str]) -> str:
    """Join labels by commas; leave out the middle of a long list."""
    shown = list(labels)
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "…", *shown[-3:]])


def format_ranges(numbers: list[int]) -> str:
    """Format numbers as ranges: [1, 2, 3, 7] becomes "1…3, 7"."""
    spans = group_neighbours(numbers)
    return ", ".join(str(low) if low == high else f"{low}…{high}" for low, high in spans)


def print_totals(ledger: Ledger, revision: int | None = None) -> None:
    from ..reading import views

    for row in views.select_totals(ledger, revision=revision):
        out.print(
            f"at {row['label']}: {row['vertices']:,} vertices, {row['edges']:,} edges, "
            f"{row['triangles']:,} triangles, greatest trussness {row['max_trussness']}"
            + "".join(f", {count:,} {name}" for name, count in row["motifs"].items())
        )
