"""What raw files hold: a header or not, the separator, columns, their types, the time. Looks at their first rows.

`understand` takes what the user says, finds the rest in the data, and refuses what contradicts the data; it writes
nothing. A first line is a header when it has no value where the rows below have some: text above numbers, or the names
of the columns.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq

from ..errors import UsageError
from ..home.directory import Home
from ..home.file import Entries
from ..home.rules import reserved
from .delimited import guess_separator, parse_separator
from .folder import listing
from .layout import COMMENTS, FileBroken, Layout
from .parsing import opened
from .records import join_lines, split_record
from .times import UNITS, Clock
from .values import is_value, kind_of

ROWS = 10_000  # that are looked at in each file
HELP = "altneu land --help"


@dataclass(frozen=True)
class Options:
    """The options of `altneu land`; see its help. None: found in the data."""

    columns: tuple[str, ...] = ()
    separator: str | None = None
    header: bool | None = None
    time_column: str | None = None
    time_format: str | None = None
    time_unit: str | None = None
    every: str | None = None
    epoch: str | int | None = None
    ids: str | None = None
    append: bool = False
    empty: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Form:
    """How the files are read, and what has to be declared for it. `first`: the first rows as understood."""

    home: Home  # as it will be: with the declared settings
    names: tuple[str, ...]
    layouts: dict[Path, Layout]
    clock: Clock | None
    values: dict[str, str]
    declared: dict[str, Entries]  # section → its new settings
    first: list[list[str]] = field(default_factory=list)

    def types(self) -> dict[str, str]:
        return next(iter(self.layouts.values())).types

    def widened(self, types: dict[str, str], clock: Clock | None) -> Form:
        """The same with other types of new value columns, and another unit of the times."""
        values = self.values | types
        declared = self.declared | ({"values": values} if values else {})
        if clock is not None and not clock.text:
            types = types | {clock.column: "long" if clock.unit == "ns" else "double"}
        layouts = {file: replace(layout, types=layout.types | types) for file, layout in self.layouts.items()}
        config = self.home.config.model_copy(update={"values": self.home.config.values | values})
        home = replace(self.home, config=config)
        return replace(self, home=home, values=values, declared=declared, layouts=layouts, clock=clock)

    def __str__(self) -> str:
        """One line: the columns with their types, the separator, the header, the time."""
        layout = next(iter(self.layouts.values()))
        types = layout.types
        time = self.clock.column if self.clock else None
        named = [name if name == "_" else f"{name} ({'time' if name == time else types[name]})" for name in self.names]
        shown = ", ".join(named)
        words = {",": "commas", "\t": "tabs", ";": "semicolons", " ": "blanks", None: ""}
        separated = words.get(layout.separator, f"{layout.separator!r}")
        headers = sum(layout.header for layout in self.layouts.values())
        with_header = f"{'a header' if headers else 'no header'}" + (
            f" in {headers} of {len(self.layouts)} files" if 0 < headers < len(self.layouts) else ""
        )
        parts = [shown, f"separated by {separated}" if separated else "", with_header if separated else ""]
        return "; ".join(filter(None, [*parts, str(self.clock or "")]))


@dataclass
class _Sample:
    """The first rows of a file as text; `separator` None: not a file of delimited text."""

    file: Path
    separator: str | None
    rows: list[list[str]]
    names: list[str] | None = None  # of a file that names its columns by itself


def understand(home: Home, files: list[Path], options: Options) -> Form:
    """Options and first rows → how to read the files. Raises `UsageError` for what cannot be."""
    every, epoch_only = _every(home, options)
    settings: dict[str, Entries] = {"epochs": {"every": every}} if every else {}
    if options.ids and options.ids != home.config.vertices.ids:
        settings["vertices"] = {"ids": _ids(home, options.ids)}
    samples = [_sample(file, options) for file in files]
    names = _names(samples, options)
    _check_names(home, names, options)
    planned, _ = home.declared(**settings) if settings else (home, "")
    id_type = "long" if planned.config.vertices.ids == "integer" else "string"
    types = {"src": id_type, "dst": id_type, "op": "string", "seq": "long"} | planned.config.values
    headers = {sample.file: _header(sample, names, types, options) for sample in samples}
    bodies = [row for sample in samples for row in sample.rows[headers[sample.file] :]]
    columns = {name: [row[at] for row in bodies if at < len(row)] for at, name in enumerate(names)}
    known = {*types, "_", options.time_column}
    values = {name: kind_of(columns[name]) for name in names if name not in known}
    clock = None
    if not epoch_only:
        assert options.time_column is not None
        clock = _clock(options, columns[options.time_column])
        types[options.time_column] = "string" if clock.text else "long" if clock.unit == "ns" else "double"
    types |= values
    declared = settings | ({"values": values} if values else {})
    final, _ = home.declared(**declared) if declared else (home, "")
    used = {name: types[name] for name in names if name != "_"}
    required = frozenset({"src", "dst"} | ({options.time_column} if options.time_column else set()))
    layouts = {
        sample.file: Layout(used, frozenset(used) - required, names, sample.separator, headers[sample.file])
        for sample in samples
    }
    return Form(final, names, layouts, clock, values, declared, bodies[:3])


def _every(home: Home, options: Options) -> tuple[str | None, bool]:
    """The length of an epoch that has to be declared, and whether all rows go into one epoch."""
    if (options.time_column is None) == (options.epoch is None):
        raise UsageError("say either --time COLUMN (with --every) or --epoch E.", HELP)
    if options.epoch is not None:
        extra = {"--time-unit": options.time_unit, "--time-format": options.time_format}
        given = [name for name, value in extra.items() if value]
        if given:
            raise UsageError(f"{given[0]} goes with --time, not with --epoch.", HELP)
    if options.time_unit is not None and options.time_unit not in UNITS:
        raise UsageError(f"--time-unit {options.time_unit}: one of {', '.join(UNITS)}.", HELP)
    every = options.every
    if every is None:
        if options.time_column is not None and home.config.epochs.every is None:
            raise UsageError("--time needs the length of an epoch.", "add --every 1d")
        return None, options.epoch is not None
    if not re.fullmatch(r"[1-9]\d*[dhm]", every):
        raise UsageError(f"--every {every}: expected a number and d, h or m (1d, 12h, 7d, 15m).", HELP)
    if home.config.epochs.every not in (None, every):
        raise UsageError(
            f"this home has epochs of {home.config.epochs.every}, not {every}.", f"leave --every {every} out"
        )
    return (every if home.config.epochs.every is None else None), options.epoch is not None


def _ids(home: Home, ids: str) -> str:
    if ids not in ("integer", "string"):
        raise UsageError(f'--ids {ids}: "integer" or "string".', HELP)
    if listing(home):
        raise UsageError(
            f'--ids {ids}: this home has [vertices] ids = "{home.config.vertices.ids}", and epochs landed with it.',
            "altneu --home ANOTHER land …",
        )
    return ids


def _sample(file: Path, options: Options) -> _Sample:
    name = file.name.removesuffix(".gz")
    try:
        if name.endswith(".parquet"):
            table = next(pq.ParquetFile(file).iter_batches(ROWS), None)
            names = pq.ParquetFile(file).schema_arrow.names
            rows = [[_text(value) for value in row.values()] for row in table.to_pylist()] if table else []
            return _Sample(file, None, rows, names)
        with opened(file) as stream:
            lines = _text_lines(stream)
            if name.endswith((".jsonl", ".ndjson")):
                return _json_sample(file, lines, options)
            rest = itertools.dropwhile(lambda line: line.startswith(COMMENTS) or not line.strip(), lines)
            text = list(itertools.islice(rest, ROWS))
    except (OSError, EOFError, ValueError, FileBroken) as error:
        raise UsageError(f"{file} cannot be read: {error}. Nothing was landed.", "give a whole file") from None
    if not text:
        raise UsageError(f"{file}: no row could be read: it is empty. Nothing was landed.", HELP)
    separator = parse_separator(options.separator) or guess_separator(text[0])
    records = join_lines(text, separator)
    return _Sample(file, separator, [_cells(record, separator) for record in records if record.strip()])


def _text_lines(stream: Iterable[bytes]) -> Iterator[str]:
    for number, raw in enumerate(stream):
        yield raw.decode("utf-8-sig" if number == 0 else "utf-8", "replace").strip("\r\n")


def _json_sample(file: Path, lines: Iterator[str], options: Options) -> _Sample:
    found: list[dict[str, object]] = []
    for line in itertools.islice(lines, ROWS):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            found.append(row)
    if not found:
        raise UsageError(f"{file}: no row could be read: no line is a JSON object. Nothing was landed.", HELP)
    names = list(dict.fromkeys(name for row in found for name in row))
    order = list(options.columns) or names
    return _Sample(file, None, [[_text(row.get(name)) for name in order] for row in found], names)


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else value.isoformat() if hasattr(value, "isoformat") else json.dumps(value)


def _cells(line: str, separator: str) -> list[str]:
    try:
        return split_record(line, separator)
    except ValueError:
        return line.split(separator)


def _names(samples: list[_Sample], options: Options) -> tuple[str, ...]:
    """The columns in order: as said, else as the file names them."""
    if options.columns:
        return options.columns
    sample = samples[0]
    if sample.names is not None:
        return tuple(sample.names)
    first = [cell.strip() for cell in sample.rows[0]] if options.header is not False and sample.rows else []
    if {"src", "dst"} <= set(first):
        return tuple(first)
    raise UsageError(
        f"{sample.file}: --columns is missing, and the first line names no src and dst: "
        f"{', '.join(sample.rows[0][:8]) if sample.rows else ''}",
        "--columns src,dst,…   (the file's columns in order; _ leaves one out)",
    )


def _check_names(home: Home, names: tuple[str, ...], options: Options) -> None:
    given = f"--columns {','.join(names)}"
    for name in ("src", "dst"):
        if name not in names:
            raise UsageError(f"{given}: {name} is missing.", "--columns src,dst,…")
    twice = sorted({name for name in names if name != "_" and names.count(name) > 1})
    if twice:
        raise UsageError(f"{given}: {twice[0]} is there twice.", "name a column _ to leave it out")
    if options.time_column is not None and options.time_column not in names:
        raise UsageError(f"--time {options.time_column}: no such column in {given}.", "--time " + names[-1])
    if options.time_column in ("src", "dst", "op"):
        raise UsageError(f"--time {options.time_column}: that column is no time.", HELP)
    if "" in names:
        raise UsageError(f"{given}: a column has no name.", "name it _ to leave it out")
    for name in names:
        why = reserved(name)
        if why and name not in ("src", "dst", "op", "seq", "_", options.time_column):
            free = _free(name, names)
            renamed = ",".join(free if other == name else other for other in names)
            raise UsageError(f"column {name}: {why}.", f"call it otherwise: --columns {renamed}")
        if name.lower() in {other.lower() for other in (*names, *home.config.values) if other != name}:
            raise UsageError(f"column {name}: another column differs in its capitals alone.", "call it otherwise")


def _free(name: str, taken: Sequence[str]) -> str:
    """A name as near to one that cannot be taken as there is."""
    plain = re.sub(r"[^\w -]+", "_", name).strip("_- ")[:60] or "column"
    tried = (plain, *(f"{plain}{n}" for n in range(2, 99)))
    return next(other for other in tried if not reserved(other) and other not in taken)


def _header(sample: _Sample, names: tuple[str, ...], types: dict[str, str], options: Options) -> bool:
    """Whether the first line of a file is a header. Raises `UsageError` when --header says so of a row."""
    if sample.separator is None:
        return False
    if options.header is False or not sample.rows:
        return False
    first, rows = sample.rows[0], sample.rows[1:]

    def numeric(cell: str) -> bool:
        return is_value(cell, "double")

    below = {at: [row[at] for row in rows if at < len(row) and row[at]] for at in range(len(first))}
    mostly = [at for at, cells in below.items() if cells and sum(map(numeric, cells)) * 2 > len(cells)]
    typed = [at for at, name in enumerate(names[: len(first)]) if types.get(name, "string") != "string"]
    if options.header:
        if (mostly or typed) and all(numeric(first[at]) for at in {*mostly, *typed}):
            raise UsageError(
                f"--header: the first line of {sample.file} looks like a row: {', '.join(first)!r}. "
                "Nothing was landed.",
                "leave --header out",
            )
        return True
    known = {*names, "source", "target", "from", "to"}
    if all(cell.strip().lower() in {name.lower() for name in known} for cell in first):
        return True
    texts = [at for at in mostly if not numeric(first[at]) and first[at]]
    return bool(texts) and not any(map(numeric, first))


def _clock(options: Options, cells: list[str]) -> Clock:
    """The time column as its first rows show it."""
    assert options.time_column is not None
    given = options.time_unit is not None
    if options.time_format:
        if given:
            raise UsageError("--time-format is for text, --time-unit for numbers: say one of them.", HELP)
        return Clock(options.time_column, text=True, form=options.time_format)
    filled = [cell for cell in cells if cell]
    numbers = [cell for cell in filled if is_value(cell, "double")]
    iso = sum(bool(re.match(r"\d{4}-\d\d(-\d\d)?([T ]|$)", cell)) for cell in filled)
    if iso > len(numbers):
        if given:
            raise UsageError(f"--time-unit {options.time_unit}: {options.time_column} is text, such as {filled[0]!r}.")
        return Clock(options.time_column, text=True)
    if filled and not numbers:
        raise UsageError(
            f"--time {options.time_column}: {filled[0]!r} is neither a number nor an ISO 8601 time. "
            "Nothing was landed.",
            "say its form: --time-format '%d/%m/%Y %H:%M'",
        )
    clock = Clock(options.time_column)
    if given:
        clock.unit, clock.given = str(options.time_unit), True
    else:
        clock.look(numbers)
    return clock
