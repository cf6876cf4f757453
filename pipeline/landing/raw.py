"""Raw event files → epochs of the landing.

A folder appears whole or not at all: files are written aside and renamed into place; an interrupted `land` is finished
or undone by typing it again.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from ..config import TYPES, Home
from ..errors import AltneuError, UsageError
from ..reading import ARROW, FileBroken, Layout, read
from .folder import layout
from .times import micros


@dataclass
class LandReport:
    """What `land` did."""

    epochs: list[int] = field(default_factory=list)
    rows: int = 0
    rejected: list[tuple[str, int, str, str]] = field(default_factory=list)  # file, line, reason, text
    rejected_file: Path | None = None


def land(
    home: Home,
    files: list[Path],
    columns: list[str],
    *,
    separator: str | None = None,
    header: bool = False,
    time_column: str | None = None,
    time_format: str | None = None,
    epoch: int | None = None,
    append: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> LandReport:
    """Split raw event files into epoch folders, or take them as one epoch; see `altneu land --help`.

    The time column (seconds since 1970 UTC, or text in `time_format`) decides the epoch and becomes `seq`, in
    microseconds, so that within an epoch the later event wins. Other columns are values and must be declared.
    Rows that cannot be read are kept in `landing/_rejected/` and told.
    """
    types = _raw_types(home, columns, time_column, time_format)
    names = None if header else tuple(columns)
    form = Layout(
        types, frozenset(types) - {"src", "dst", time_column or "src"}, names or tuple(columns), separator, header
    )
    report = LandReport()
    incoming = home.landing / "_incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    try:
        for number, file in enumerate(files):
            progress(f"reading {file.name}")
            _split(home, file, number, form, time_column, time_format, epoch, incoming, report)
        if not report.rows:
            first = f"; the first: line {report.rejected[0][1]}: {report.rejected[0][2]}" if report.rejected else ""
            raise AltneuError(
                f"{', '.join(map(str, files))}: no row could be read "
                f"({len(report.rejected)} rejected{first}). Nothing was landed.",
                "altneu land --help",
            )
        limit = home.config.max_bad_share * (report.rows + len(report.rejected))
        serious = [row for row in report.rejected if row[2] != "empty line"]
        if len(serious) > limit:
            _, line, reason, text = serious[0]
            raise AltneuError(
                f"{serious[0][0]}: {len(serious)} of {report.rows + len(serious)} rows cannot be read, more than "
                f"[ingest] max_bad_share = {home.config.max_bad_share:g} allows; the first: line {line}: {reason}: "
                f"{text[:80]!r}. Nothing was landed.",
                "check --columns, --sep and --header",
            )
        report.epochs = sorted(int(folder.name) for folder in incoming.iterdir())
        if report.rejected:
            report.rejected_file = _keep_rejected(home, files[0], report.rejected)
        for each in report.epochs:
            _place(home, incoming / str(each), home.schedule.label(each), append)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return report


def guess_types(
    files: list[Path], names: list[str], values: list[str], separator: str | None, header: bool
) -> dict[str, str]:
    """The types of undeclared value columns, from the first rows of the first file: long, double or string."""
    types = {name: "string" for name in names if name != "_"}
    form = Layout(types, frozenset(types), tuple(names), separator, header)
    try:
        rows = next(read(files[0], form)).good.slice(0, 10_000)
    except (FileBroken, StopIteration):
        return dict.fromkeys(values, "string")
    found = {}
    for name in values:
        for type_ in ("long", "double", "string"):
            try:
                rows[name].cast(ARROW[type_])
            except pa.ArrowInvalid:
                continue
            found[name] = type_
            break
    return found


def _raw_types(home: Home, columns: list[str], time_column: str | None, time_format: str | None) -> dict[str, str]:
    types = dict(layout(home).types)
    for name in ("src", "dst"):
        if name not in columns:
            raise UsageError(f"--columns {','.join(columns)}: {name} is missing.", "--columns src,dst,...")
    if time_column and time_column not in columns:
        raise UsageError(f"--time {time_column}: no such column in --columns {','.join(columns)}.")
    out = {}
    for name in columns:
        if name == time_column:
            out[name] = "string" if time_format else "double"
        elif name in types:
            out[name] = types[name]
        elif name != "_":
            raise UsageError(
                f"column {name} is not declared as a value.",
                f'add to {home.path / "altneu.toml"}: [values] {name} = "long" (one of {", ".join(TYPES)}), '
                "or name it _ to leave it out",
            )
    return out


def _split(
    home: Home,
    file: Path,
    number: int,
    form: Layout,
    time_column: str | None,
    time_format: str | None,
    epoch: int | None,
    incoming: Path,
    report: LandReport,
) -> None:
    """Append the rows of one raw file to `incoming/<epoch>/<file>.csv`."""
    stem = f"{number:03d}-{file.name.split('.')[0]}.csv"
    try:
        for block in read(file, form):
            report.rejected += [(file.name, line, reason, text) for line, reason, text in block.bad]
            rows = block.good.drop_columns(["line"])
            if time_column is None:
                assert epoch is not None
                of = np.full(rows.num_rows, epoch, np.int64)
            else:
                since, broken = micros(rows[time_column], time_format)
                if broken.any():
                    lines = block.good["line"].to_numpy()[broken]
                    texts = [str(value) for value in rows[time_column].filter(pa.array(broken)).to_pylist()]
                    reason = f"{time_column} is no time" + (f" of the form {time_format}" if time_format else "")
                    report.rejected += [(file.name, int(n), reason, t) for n, t in zip(lines, texts, strict=True)]
                    rows, since = rows.filter(pa.array(~broken)), since[~broken]
                assert home.schedule.seconds is not None
                of = since // (home.schedule.seconds * 1_000_000)
                rows = rows.drop_columns([time_column])
                if "seq" not in rows.column_names:
                    rows = rows.append_column("seq", pa.array(since))
            report.rows += rows.num_rows
            order = np.argsort(of, kind="stable")
            rows, of = rows.take(pa.array(order)), of[order]
            cuts = np.flatnonzero(np.diff(of)) + 1
            for start, end in zip([0, *cuts], [*cuts, len(of)], strict=True):
                if start == end:
                    continue
                folder = incoming / str(int(of[start]))
                folder.mkdir(exist_ok=True)
                target = folder / stem
                options = pacsv.WriteOptions(include_header=not target.exists(), quoting_style="needed")
                with target.open("ab") as stream:
                    pacsv.write_csv(rows.slice(int(start), int(end - start)), stream, options)
    except FileBroken as error:
        raise AltneuError(f"{file}: {error}. Nothing was landed.", "mend the file and land it again") from None


def _keep_rejected(home: Home, file: Path, rejected: list[tuple[str, int, str, str]]) -> Path:
    folder = home.landing / "_rejected"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{file.name.split('.')[0]}-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
    with target.open("w") as stream:
        for name, line, reason, text in rejected:
            stream.write(json.dumps({"file": name, "line": line, "reason": reason, "text": text}) + "\n")
    return target


def _place(home: Home, incoming: Path, label: str, append: bool) -> None:
    """Move a finished folder into place."""
    target = home.landing / f"epoch={label}"
    if append and target.is_dir():
        taken = {file.name for file in target.iterdir()}
        for file in incoming.iterdir():
            name = file.name
            for number in range(1, 1_000_000):
                if name not in taken:
                    break
                name = f"{number:03d}-{file.name.split('-', 1)[1]}"
            file.rename(target / name)
        return
    if target.exists():
        old = home.landing / "_incoming" / f"_old-{label}"
        target.rename(old)
        incoming.rename(target)
        shutil.rmtree(old)
    else:
        incoming.rename(target)
