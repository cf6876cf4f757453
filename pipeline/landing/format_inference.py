"""Infer the format of raw files from their first rows: the header, the separator, the columns, their types, the time.

`infer_format` takes the user's options, detects the rest in the data, and refuses options that contradict the data; it
writes nothing. `sampling` looks at one file; this module compares all files of a land: each has a header of its own, in
an order of its own, and all have the same columns. --columns names the columns in the order of the first file that
names its columns, in every format: `_` skips a column, another word renames it. The fields of JSON have no order: if
--columns has all of their names, it renames none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..errors import UsageError
from ..formatting import format_name
from ..home.columns import reserved
from ..home.home import Home
from ..home.settings_file import Entries
from .field_types import infer_type, is_value
from .file_reader import read_blocks
from .local_landing import list_batches
from .options import HELP, LandOptions
from .row_schema import BrokenFileError, RowSchema, relation_schema
from .sampling import SEPARATOR_WORDS, Sample, take_sample
from .sources import Source
from .time_forms import read_form
from .timestamps import UNITS, Clock

__all__ = ["HELP", "LandOptions", "RawFormat", "infer_format"]

SHOWN_ROWS = 3  # the number of rows that are shown of each kind of file


@dataclass(frozen=True)
class RawFormat:
    """How the files are read, and which settings have to be declared for it."""

    home: Home  # with the settings that will be declared
    names: tuple[str, ...]  # the columns in the order of the first file; "_" is skipped
    layouts: dict[Source, RowSchema]
    clock: Clock | None
    values: dict[str, str]
    declared: dict[str, Entries]  # section → its new settings
    remarks: dict[Source, str] = field(default_factory=dict)  # what else was detected in a file

    def column_types(self) -> dict[str, str]:
        return next(iter(self.layouts.values())).types

    def with_types(self, types: dict[str, str], clock: Clock | None) -> RawFormat:
        """Return this format with other types of new value columns, and another unit of the times."""
        values = self.values | types
        declared = self.declared | ({"values": values} if values else {})
        if clock is not None and not clock.text:
            types = types | {clock.column: "long" if clock.unit == "ns" else "double"}
        layouts = {file: replace(layout, types=layout.types | types) for file, layout in self.layouts.items()}
        config = self.home.config.model_copy(update={"values": self.home.config.values | values})
        home = replace(self.home, config=config)
        return replace(self, home=home, values=values, declared=declared, layouts=layouts, clock=clock)

    def describe(self) -> Iterator[str]:
        """Yield a line for all files that are read alike, then their first rows as they are read."""
        alike: dict[str, list[Source]] = {}
        for source, layout in self.layouts.items():
            alike.setdefault(self._describe_layout(source, layout), []).append(source)
        for text, sources in alike.items():
            names = ", ".join(source.name for source in sources[:3]) + (", …" if len(sources) > 3 else "")
            yield f"understood {f'{names} ' if len(alike) > 1 else ''}as {text}"
            yield from (f"  {'  '.join(row)}" for row in read_first_rows(sources[0], self.layouts[sources[0]]))

    def _describe_layout(self, source: Source, layout: RowSchema) -> str:
        """Describe in one line the columns with their types, the separator, the header, the time."""
        time = self.clock.column if self.clock else None
        types = layout.types
        columns = ", ".join(
            name if name == "_" else f"{name} ({'time' if name == time else types[name]})"
            for name in layout.names or types
        )
        parts = [columns]
        if source.format == "text":
            separator = SEPARATOR_WORDS.get(layout.separator or "", repr(layout.separator))
            parts += [f"separated by {separator}", "a header" if layout.header and layout.fields else "no header"]
        return "; ".join(filter(None, [*parts, self.remarks.get(source), str(self.clock or "")]))


def infer_format(home: Home, sources: list[Source], options: LandOptions) -> RawFormat:
    """Infer from options and first rows how to read the files. Raise `UsageError` if they contradict each other."""
    every, epoch_only = _infer_epoch_length(home, options)
    settings: dict[str, Entries] = {"epochs": {"every": every}} if every else {}
    if options.ids and options.ids != home.config.vertices.ids:
        settings["vertices"] = {"ids": _resolve_id_type(home, options.ids)}
    _require_text_for(options, sources)
    planned, _ = home.with_settings(**settings) if settings else (home, "")
    id_type = "long" if planned.config.vertices.ids == "integer" else "string"
    types = {"src": id_type, "dst": id_type, "op": "string", "seq": "long"} | planned.config.values
    samples = [take_sample(source, options, types) for source in sources]
    names = _name_columns(samples, options)
    order = options.columns or names[0]
    _check_names(home, order, options, samples[0])
    columns = _gather_cells(samples, names)
    known = {*types, "_", options.time_column}
    values = {name: infer_type(columns[name]) for name in order if name not in known}
    clock = None
    if not epoch_only:
        assert options.time_column is not None
        clock = _infer_clock(options, columns[options.time_column])
        types[options.time_column] = "string" if clock.text else "long" if clock.unit == "ns" else "double"
    types |= values
    declared = settings | ({"values": values} if values else {})
    final, _ = home.with_settings(**declared) if declared else (home, "")
    used = {name: types[name] for name in order if name != "_"}
    required = frozenset({"src", "dst"} | ({options.time_column} if options.time_column else set()))
    optional = frozenset(used) - required
    layouts = _list_layouts(samples, names, used, optional)
    remarks = {
        sample.source: _describe_surprises(sample, file_columns)
        for sample, file_columns in zip(samples, names, strict=True)
    }
    return RawFormat(final, order, layouts, clock, values, declared, remarks)


def infer_relation_format(home: Home, sources: list[Source], options: LandOptions) -> RawFormat:
    """Infer how to read files with the rows of a declared relation. Raise `UsageError` if they do not fit it."""
    assert options.relation is not None
    _require_text_for(options, sources)
    schema = relation_schema(home, options.relation)
    samples = [take_sample(source, options, schema.types) for source in sources]
    names = _name_columns(samples, options)
    order = options.columns or names[0]
    where = f"--columns {','.join(order)}" if options.columns else f"{samples[0].source.name} has {', '.join(order)}"
    missing = [name for name in home.config.relations[options.relation].key if name not in order]
    unknown = [name for name in order if name not in schema.types and name != "_"]
    if missing or unknown or len({*order} - {"_"}) < len([name for name in order if name != "_"]):
        why = f"{missing[0]} is missing" if missing else f"{unknown[0]} is unknown" if unknown else "one is there twice"
        raise UsageError(
            f"{where}: {why}; {options.relation} has {', '.join(home.config.relations[options.relation].columns)}.",
            f"--columns …   (the file's columns in order; _ skips one), or [relations] {options.relation}",
        )
    used = {name: schema.types[name] for name in order if name != "_"}
    layouts = _list_layouts(samples, names, used, schema.optional & used.keys())
    return RawFormat(home, order, layouts, None, {}, {})


def _list_layouts(
    samples: Sequence[Sample], names: Sequence[tuple[str, ...]], types: dict[str, str], optional: frozenset[str]
) -> dict[Source, RowSchema]:
    """Return how each file is read: its own columns, separator and header, with the same types and optional columns."""
    return {
        sample.source: RowSchema(
            types,
            optional,
            columns,
            sample.separator,
            bool(sample.header),
            sample.comment,
            _list_fields(sample, columns),
        )
        for sample, columns in zip(samples, names, strict=True)
    }


def read_first_rows(source: Source, layout: RowSchema) -> list[list[str]]:
    """Read the first rows of a file as all of its rows will be read, each field with the name of its column.

    Raise `UsageError` for a broken file.
    """
    try:
        for block in read_blocks(source.path, layout):
            if block.rows.num_rows or block.malformed_rows:
                first = block.rows.slice(0, SHOWN_ROWS).drop_columns(["line"]).to_pylist()
                return [[f"{name}={_format_sample_cell(cell)}" for name, cell in row.items()] for row in first]
    except BrokenFileError as error:
        raise UsageError(f"{source.name} cannot be read: {error}. Nothing was landed.", "give a whole file") from None
    return []


def _format_sample_cell(cell: object) -> str:
    text = "" if cell is None else str(cell)
    return text.removesuffix(".0") if isinstance(cell, float) else format_name(text)


def _gather_cells(samples: Iterable[Sample], names: Iterable[tuple[str, ...]]) -> dict[str, list[str]]:
    """Gather the cells of each column from the first rows of all files."""
    cells: dict[str, list[str]] = {}
    for sample, own in zip(samples, names, strict=True):
        for at, name in enumerate(own):
            cells.setdefault(name, []).extend(row[at] for row in sample.rows if at < len(row))
    return cells


def _list_fields(sample: Sample, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the file's own names of its columns; JSON may have further fields that its first rows do not have."""
    if sample.names is None or sample.banner:
        return None
    return (*sample.names, *names[len(sample.names) :])


def _describe_surprises(sample: Sample, names: Sequence[str]) -> str:
    """Say what a reader would not expect of a file: renamed columns, comments, a banner."""
    own = sample.names or names
    renamed = [f"{before} → {name}" for before, name in zip(own, names, strict=False) if name not in (before, "_")]
    lines = f"{sample.comments:,} comment line{'s' if sample.comments > 1 else ''}" if sample.comments else ""
    banner = f"{sample.banner}, and the line of its size" if sample.banner else ""
    return "; ".join(filter(None, [f"renamed {', '.join(renamed)}" if renamed else "", lines, banner]))


def _require_text_for(options: LandOptions, sources: Sequence[Source]) -> None:
    """Raise `UsageError` for an option of delimited text if no file is delimited text."""
    values = {"--sep": options.separator, "--header": options.header, "--comment": options.comment}
    flags = [name for name, value in values.items() if value is not None]
    if flags and not any(source.format == "text" for source in sources):
        raise UsageError(
            f"{flags[0]} is for delimited text, and {sources[0].name} is {sources[0].format}.",
            f"leave {flags[0]} out",
        )


def _infer_epoch_length(home: Home, options: LandOptions) -> tuple[str | None, bool]:
    """Return the length of an epoch that has to be declared, and whether all rows go into one epoch."""
    if (options.time_column is None) == (options.epoch is None):
        raise UsageError("give either --time COLUMN (with --every) or --epoch E.", HELP)
    if options.epoch is not None:
        extra = {"--time-unit": options.time_unit, "--time-format": options.time_format}
        flags = [name for name, value in extra.items() if value]
        if flags:
            raise UsageError(f"{flags[0]} goes with --time, not with --epoch.", HELP)
    if options.time_unit is not None and options.time_unit not in UNITS:
        raise UsageError(f"--time-unit {options.time_unit}: it has to be one of {', '.join(UNITS)}.", HELP)
    every = options.every
    if every is None:
        if options.time_column is not None and home.config.epochs.every is None:
            raise UsageError("--time needs the length of an epoch.", "add --every 1d")
        return None, options.epoch is not None
    if not re.fullmatch(r"[1-9]\d*[dhm]", every):
        raise UsageError(f"--every {every}: it has to be a number and d, h or m (1d, 12h, 7d, 15m).", HELP)
    if home.config.epochs.every not in (None, every):
        raise UsageError(
            f"this home has epochs of {home.config.epochs.every}, not {every}.", f"leave --every {every} out"
        )
    return (every if home.config.epochs.every is None else None), options.epoch is not None


def _resolve_id_type(home: Home, ids: str) -> str:
    if ids not in ("integer", "string"):
        raise UsageError(f'--ids {ids}: it has to be "integer" or "string".', HELP)
    if list_batches(home):
        raise UsageError(
            f'--ids {ids}: this home has [vertices] ids = "{home.config.vertices.ids}", and epochs have landed.',
            "altneu --home ANOTHER land …",
        )
    return ids


# -- Columns -----------------------------------------------------------------------------------------------------


def _name_columns(samples: list[Sample], options: LandOptions) -> list[tuple[str, ...]]:
    """Return the names of the columns of each file, in the file's order. Raise `UsageError` if they are not known."""
    first = next((sample for sample in samples if sample.names is not None), None)
    if first is None and not options.columns:
        cells = samples[0].rows[0] if samples[0].rows else []
        raise UsageError(
            f"{samples[0].source.name}: --columns is missing, and the first line does not name src and dst: "
            f"{', '.join(cells[:8])}",
            "--columns src,dst,…   (the file's columns in order; _ skips one)",
        )
    for sample in samples:
        sample.require_decided_header()
    if first is None or first.names is None:
        return [options.columns] * len(samples)
    columns = options.columns or first.names
    if not _are_fields_by_name(first, options):
        _require_own_order(first, columns)
    return [_name_own_columns(sample, first, columns, options) for sample in samples]


def _are_fields_by_name(sample: Sample, options: LandOptions) -> bool:
    """Tell whether --columns has all fields of a JSON file by their own names, in any order."""
    return sample.source.format == "json" and set(sample.names or ()) <= set(options.columns)


def _require_own_order(sample: Sample, columns: tuple[str, ...]) -> None:
    """Raise `UsageError` for --columns that contradict how a file names its columns."""
    own = sample.names
    assert own is not None
    what = {"text": "header", "json": "fields", "parquet": "columns"}[sample.source.format]
    shown = ",".join(own)
    moved = [name for at, name in enumerate(columns) if name in own and own[at : at + 1] != (name,)]
    if len(set(own)) == len(own) and moved:
        kept = ",".join(name if name in columns else "_" for name in own)
        at = columns.index(moved[0])
        other = own[at] if at < len(own) else "nothing"
        raise UsageError(
            f"{sample.source.name}: its {what} {shown} and --columns {','.join(columns)} contradict each other: "
            f"is {moved[0]} what the file calls {moved[0]}, or what it calls {other}? Nothing was landed.",
            f"--columns {kept} for the first   (for the second, give {other} another name)",
        )
    if len(columns) != len(own):
        filled = ",".join([*columns, *("_" for _ in own)][: len(own)]) if len(columns) < len(own) else "src,dst,…"
        raise UsageError(
            f"{sample.source.name}: its {what} has {len(own)} column(s), {shown}, but --columns has {len(columns)}, "
            f"{','.join(columns)}. Nothing was landed.",
            f"--columns {filled}   (the file's columns in order; _ skips one)",
        )


def _name_own_columns(sample: Sample, first: Sample, columns: tuple[str, ...], options: LandOptions) -> tuple[str, ...]:
    """Name the columns of a file as the first file that names its columns does. Raise `UsageError` if they differ."""
    assert first.names is not None
    if sample.names is None:
        return columns
    if _are_fields_by_name(sample, options):
        return (*sample.names, *(name for name in columns if name not in (*sample.names, "_")))
    if sample.names == first.names:
        return columns
    words = first.names if not _are_fields_by_name(first, options) else columns
    missing = [name for name in words if name not in sample.names]
    unknown = [name for name in sample.names if name not in words]
    if missing or unknown or len(sample.names) != len(words):
        without = f" has no {', '.join(missing)}" if missing else ""
        beyond = f" has {', '.join(unknown)}" if unknown else ""
        between = " and" if without and beyond else ""
        raise UsageError(
            f"{sample.source.name} has other columns than {first.source.name}: "
            f"it{without}{between}{beyond or '' if without or beyond else ' names one twice'}. Nothing was landed.",
            f"altneu land {sample.source.name} --append …   (by itself, after the others)",
        )
    meaning = dict(zip(words, columns, strict=True))
    return tuple(meaning[name] for name in sample.names)


def _check_names(home: Home, names: tuple[str, ...], options: LandOptions, sample: Sample) -> None:
    for name in names:
        if not name.isprintable():
            raise UsageError(
                f"column {format_name(name)}: a name must not have control characters.",
                "give it another name: --columns …",
            )
    where = f"--columns {','.join(names)}" if options.columns else f"{sample.source.name} has {', '.join(names)}"
    for name in ("src", "dst"):
        if name not in names:
            ends = {"source": "src", "from": "src", "target": "dst", "to": "dst"}
            named = [ends.get(column.lower(), column) for column in names]
            advice = ",".join(named) if {"src", "dst"} <= set(named) else "src,dst,…"
            raise UsageError(f"{where}: {name} is missing.", f"--columns {advice}")
    twice = sorted({name for name in names if name != "_" and names.count(name) > 1})
    if twice:
        first = names.index(twice[0])
        left = ",".join("_" if name == twice[0] and at > first else name for at, name in enumerate(names))
        raise UsageError(f"{where}: {twice[0]} is there twice.", f"skip one: --columns {left}")
    if options.time_column is not None and options.time_column not in names:
        raise UsageError(f"--time {options.time_column}: no such column in {where}.", "--time " + names[-1])
    if options.time_column in ("src", "dst", "op"):
        raise UsageError(f"--time {options.time_column}: that column is not a time.", HELP)
    if "" in names:
        raise UsageError(f"{where}: a column has no name.", f"skip it: --columns {_replace_name(names, '', '_')}")
    for name in names:
        why = reserved(name)
        if why and name not in ("src", "dst", "op", "seq", "_", options.time_column):
            renamed = _replace_name(names, name, _find_free_name(name, names))
            raise UsageError(f"column {name}: {why}.", f"give it another name: --columns {renamed}")
        if name.lower() in {other.lower() for other in (*names, *home.config.values) if other != name}:
            renamed = _replace_name(names, name, _find_free_name(f"{name}2", [*names, *home.config.values]))
            raise UsageError(
                f"column {name}: another column differs only in capital letters.",
                f"give it another name: --columns {renamed}",
            )


def _replace_name(names: Sequence[str], name: str, other: str) -> str:
    """Return the value of --columns in which a column has another name."""
    return ",".join(other if own == name else own for own in names)


def _find_free_name(name: str, taken: Sequence[str]) -> str:
    """Return a free name as near as possible to one that cannot be used."""
    plain = re.sub(r"[^\w -]+", "_", name).strip("_- ")[:60] or "column"
    tried = (plain, *(f"{plain}{n}" for n in range(2, 99)))
    return next(other for other in tried if not reserved(other) and other not in taken)


def _infer_clock(options: LandOptions, cells: list[str]) -> Clock:
    """Return the clock that fits the first rows of the time column."""
    assert options.time_column is not None
    given = options.time_unit is not None
    if options.time_format:
        if given:
            raise UsageError("--time-format is for text, --time-unit is for numbers: give one of them.", HELP)
        return Clock(options.time_column, text=True, form=read_form(options.time_format).text, is_given=True)
    filled = [cell for cell in cells if cell]
    numbers = [cell for cell in filled if is_value(cell, "double")]
    iso = sum(bool(re.match(r"\d{4}-\d\d(-\d\d)?([T ]|$)", cell)) for cell in filled)
    if iso > len(numbers):
        if given:
            raise UsageError(
                f"--time-unit {options.time_unit}: {options.time_column} is text, such as {filled[0]!r}.",
                f"leave --time-unit {options.time_unit} out",
            )
        return Clock(options.time_column, text=True)
    if filled and not numbers:
        raise UsageError(
            f"--time {options.time_column}: {filled[0]!r} is neither a number nor an ISO 8601 time. "
            "Nothing was landed.",
            "give its form: --time-format '%d/%m/%Y %H:%M'",
        )
    clock = Clock(options.time_column)
    if given:
        clock.unit, clock.is_given = str(options.time_unit), True
    else:
        clock.observe(numbers)
    return clock
