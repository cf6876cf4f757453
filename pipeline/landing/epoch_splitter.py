"""Split raw event files by epoch: each epoch gets a file of rows in a private folder.

The files are read as `format_inference` has detected. Malformed rows are collected, with their reasons, to be reported
and kept.
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
from ..formatting import make_stem
from .field_types import is_value
from .file_reader import read_blocks
from .format_inference import RawFormat
from .repeated_headers import HARMLESS, reject_repeated_headers
from .row_schema import BrokenFileError
from .time_forms import Times

Rejected = list[tuple[str, int, str, str]]  # file, line, reason, text


@dataclass
class SplitResult:
    """The rows that were written per epoch, and those that were rejected.

    `comments` is the number of comment lines before the rows of all files.
    """

    rows: Counter[int] = field(default_factory=Counter)
    rejected: Rejected = field(default_factory=list)
    comments: int = 0

    def serious_rejections(self) -> Rejected:
        return [row for row in self.rejected if row[2] not in HARMLESS]


def split_by_epoch(form: RawFormat, epoch: int | None, into: Path, progress: Callable[[str], None]) -> SplitResult:
    """Write the rows of the files to `into/<label>/<number>-<file>.csv`, and return what was written and rejected.

    Args:
        epoch: The epoch of all rows, or None if the time column decides.
        into: The private folder.
        progress: A function that gets a line for each file.

    Raises:
        AltneuError: A file is broken as a whole.
    """
    result = SplitResult()
    for number, (source, layout) in enumerate(form.layouts.items()):
        progress(f"reading {source.label}")
        name = f"{number:03d}-{make_stem(source.label)}.csv"
        try:
            for block in read_blocks(source.path, layout):
                result.comments += block.comments
                block = reject_repeated_headers(block, layout) if source.format == "text" else block
                result.rejected += [(source.label, line, reason, text) for line, reason, text in block.malformed_rows]
                rows, epochs = _assign_epochs(block.rows, form, source.label, epoch, result.rejected)
                _write_epoch_files(rows, epochs, form, into, name, result.rows)
        except BrokenFileError as error:
            raise AltneuError(
                f"{source.name}: {error}. Nothing was landed.", "fix the file and land it again"
            ) from None
    return result


def widen_types(form: RawFormat, rejected: Rejected) -> dict[str, str]:
    """Return new types for integer columns that have turned out to hold other numbers beyond the first rows."""
    out = {}
    for name in (name for name, type_ in form.values.items() if type_ == "long"):
        start, end = f"{name} is '", "', not an integer"
        cells = [r[len(start) : -len(end)] for _, _, r, _ in rejected if r.startswith(start) and r.endswith(end)]
        if cells and any(is_value(cell, "double") for cell in cells):
            out[name] = "double"
    return out


def write_rejected(path: Path, rejected: Rejected) -> None:
    """Write the rows that could not be read, one JSON object per line."""
    with path.open("w") as stream:
        for name, line, reason, text in rejected:
            stream.write(json.dumps({"file": name, "line": line, "reason": reason, "text": text}) + "\n")


def _assign_epochs(
    rows: pa.Table, form: RawFormat, file: str, epoch: int | None, rejected: Rejected
) -> tuple[pa.Table, Times]:
    """Return the rows with `seq` but without time and line, and the epoch of each row."""
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
    rows: pa.Table, epochs: Times, form: RawFormat, into: Path, name: str, written: Counter[int]
) -> None:
    order = np.argsort(epochs, kind="stable")
    rows, epochs = rows.take(pa.array(order)), epochs[order]
    cuts = np.flatnonzero(np.diff(epochs)) + 1
    for start, end in zip([0, *cuts], [*cuts, len(epochs)], strict=True):
        if start == end:
            continue
        folder = into / form.home.schedule.format_label(int(epochs[start]))
        folder.mkdir(exist_ok=True)
        target = folder / name
        options = pacsv.WriteOptions(include_header=not target.exists(), quoting_style="needed")
        with target.open("ab") as stream:
            pacsv.write_csv(rows.slice(int(start), int(end - start)), stream, options)
        written[int(epochs[start])] += int(end - start)
