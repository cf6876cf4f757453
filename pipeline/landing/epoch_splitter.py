"""Raw event files, read as `form` understands them → a file of rows for each epoch, in a private folder.

Malformed rows are collected, with their reasons, to be reported and kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from ..errors import AltneuError
from ..file_names import make_stem
from .field_types import is_value
from .file_reader import read_blocks
from .format_inference import RawFormat
from .repeated_headers import HARMLESS, reject_repeated_headers
from .row_schema import BrokenFileError
from .time_forms import Times

Rejected = list[tuple[str, int, str, str]]  # file, line, reason, text


@dataclass
class SplitResult:
    """What was written: rows per epoch's label; and what was not. `comments`: lines before the rows of all files."""

    rows: Counter[int] = field(default_factory=Counter)
    rejected: Rejected = field(default_factory=list)
    comments: int = 0

    def serious_rejections(self) -> Rejected:
        return [row for row in self.rejected if row[2] not in HARMLESS]


def split_by_epoch(form: RawFormat, epoch: int | None, into: Path, progress: Callable[[str], None]) -> SplitResult:
    """Write the rows of the files to `into/<label>/<file>.csv`. Raises `AltneuError` on a file broken as a whole."""
    found = SplitResult()
    for number, (source, layout) in enumerate(form.layouts.items()):
        progress(f"reading {source.label}")
        name = f"{number:03d}-{make_stem(source.label)}.csv"
        try:
            for block in read_blocks(source.path, layout):
                found.comments += block.comments
                block = reject_repeated_headers(block, layout) if source.format == "text" else block
                found.rejected += [(source.label, line, reason, text) for line, reason, text in block.bad]
                rows, of = _assign_epochs(block.good, form, source.label, epoch, found.rejected)
                _write_epoch_files(rows, of, form, into, name, found.rows)
        except BrokenFileError as error:
            raise AltneuError(
                f"{source.name}: {error}. Nothing was landed.", "fix the file and land it again"
            ) from None
    return found


def widen_types(form: RawFormat, rejected: Rejected) -> dict[str, str]:
    """New integer columns that turned out to hold other numbers beyond the first rows."""
    out = {}
    for name in (name for name, type_ in form.values.items() if type_ == "long"):
        start, end = f"{name} is '", "', not an integer"
        cells = [r[len(start) : -len(end)] for _, _, r, _ in rejected if r.startswith(start) and r.endswith(end)]
        if cells and any(is_value(cell, "double") for cell in cells):
            out[name] = "double"
    return out


def write_rejected(path: Path, rejected: Rejected) -> None:
    """The rows that could not be read, one JSON object a line."""
    with path.open("w") as stream:
        for name, line, reason, text in rejected:
            stream.write(json.dumps({"file": name, "line": line, "reason": reason, "text": text}) + "\n")


def _assign_epochs(
    rows: pa.Table, form: RawFormat, file: str, epoch: int | None, rejected: Rejected
) -> tuple[pa.Table, Times]:
    """The rows with `seq`, without time and line; the epoch of each."""
    if form.clock is None:
        assert epoch is not None
        return rows.drop_columns(["line"]), np.full(rows.num_rows, epoch, np.int64)
    column = form.clock.column
    since, reasons = form.clock.to_microseconds(rows[column])
    fine = np.ones(rows.num_rows, bool)
    for reason, broken in reasons.items():
        if broken.any():
            bad = rows.filter(pa.array(broken & fine))
            texts = zip(bad["line"].to_pylist(), map(str, bad[column].to_pylist()), strict=True)
            rejected += [(file, line, reason, text) for line, text in texts]
            fine &= ~broken
    rows, since = rows.filter(pa.array(fine)).drop_columns(["line", column]), since[fine]
    if "seq" not in rows.column_names:
        rows = rows.append_column("seq", pa.array(since))
    assert form.home.schedule.seconds is not None
    return rows, since // (form.home.schedule.seconds * 1_000_000)


def _write_epoch_files(
    rows: pa.Table, of: Times, form: RawFormat, into: Path, name: str, written: Counter[int]
) -> None:
    order = np.argsort(of, kind="stable")
    rows, of = rows.take(pa.array(order)), of[order]
    cuts = np.flatnonzero(np.diff(of)) + 1
    for start, end in zip([0, *cuts], [*cuts, len(of)], strict=True):
        if start == end:
            continue
        folder = into / form.home.schedule.format_label(int(of[start]))
        folder.mkdir(exist_ok=True)
        target = folder / name
        options = pacsv.WriteOptions(include_header=not target.exists(), quoting_style="needed")
        with target.open("ab") as stream:
            pacsv.write_csv(rows.slice(int(start), int(end - start)), stream, options)
        written[int(of[start])] += int(end - start)
