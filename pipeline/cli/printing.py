"""How the commands print: results to `out`, progress to `err`, tables, lists, and the formats of rows."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..config import Home
from ..errors import UsageError
from ..ledger import Ledger

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


class Progress:
    """One line a stage on standard error: what it does, then its seconds and what came of it, and how long the rest
    will take where `expected` has the seconds of the stages."""

    def __init__(self, expected: dict[str, float] | None = None) -> None:
        self.started = time.time()
        self.expected = dict(expected or {})
        self.status = err.status("") if err.is_terminal else None

    def __call__(self, stage: str, text: str) -> None:
        if text.startswith("done"):
            if self.status:
                self.status.stop()
            self.expected.pop(stage, None)
            rest = sum(self.expected.values())
            left = f"; about {rest:,.0f} s left" if rest >= 5 else ""
            err.print(f"  [green]✓[/] {stage:<10} {time.time() - self.started:6.1f} s  [dim]{text[5:]}{left}[/]")
        elif not text:
            self.started = time.time()
            if self.status:
                self.status.update(stage)
                self.status.start()
        elif self.status:
            self.status.update(f"{stage}: {text}")
        else:
            err.print(f"    {stage}: {text}")

    def close(self) -> None:
        if self.status:
            self.status.stop()


def emit(rows: list[dict[str, Any]], format: Format, output: Path | None, limit: int | None = None) -> None:
    if format is Format.parquet:
        if output is None:
            raise UsageError("parquet needs a place.", "add --output FILE")
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), output)
        return
    stream = output.open("w") if output else sys.stdout
    if format is Format.json:
        json.dump(rows, stream, indent=1)
        stream.write("\n")
    elif format is Format.csv:
        import csv

        writer = csv.DictWriter(stream, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
    else:
        more = limit is not None and len(rows) > limit
        print_rows(rows[:limit], Console(file=stream, highlight=False))
        if more:
            err.print(f"(the first {limit} rows; all of them with --format csv or json)")
    if output:
        stream.close()


def print_rows(rows: list[dict[str, Any]], console: Console = out) -> None:
    table = Table(box=None, header_style="bold")
    for name in rows[0] if rows else ():
        table.add_column(name, justify="left" if name == "label" else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


def some(labels: Iterable[str]) -> str:
    shown = list(labels)
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "…", *shown[-3:]])


def ranges(numbers: list[int]) -> str:
    """[1, 2, 3, 7] → "1…3, 7"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}…{high}" for low, high in spans)


def print_totals(home: Home, ledger: Ledger) -> None:
    from .. import views

    for row in views.totals(home, ledger):
        out.print(
            f"at {row['label']}: {row['vertices']:,} vertices, {row['edges']:,} edges, "
            f"{row['triangles']:,} triangles, greatest trussness {row['max_trussness']}"
            + "".join(f", {count:,} {name}" for name, count in row["motifs"].items())
        )
