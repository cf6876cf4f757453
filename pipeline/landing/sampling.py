"""Sample the first rows of a raw file as text: where they begin, their separator, and the names of the columns.

The options decide first, then the file's ending, then the content. If the content can be read in two ways, and the
wrong one would make wrong edges, the file is refused, with both readings and the option that decides between them:

- Lines that begin with `#` or `%` before the first row are comments if a header follows them, if they are the known
  lines of SNAP, KONECT or Matrix Market, or if no row can begin like this, since the first column holds numbers.
- The separator is the one that cuts most of the lines into as many fields as there are columns.
- The first line is a header if it has the names of columns, or text above numbers. Above text it may be either.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import UsageError
from .csv_reader import guess_separator, parse_separator
from .field_types import is_value
from .file_reader import open_stream
from .options import HELP, LandOptions
from .parquet import to_raw_column
from .record_boundaries import join_lines, split_record
from .row_schema import COMMENTS, BrokenFileError, skip_bom
from .sources import Source

ROWS = 10_000  # the number of rows that are sampled in each file
SEPARATORS = (",", "\t", ";", "|", " ")
SEPARATOR_WORDS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars", " ": "blanks"}

_BY_ENDING = {".csv": (",", ";"), ".tsv": ("\t",), ".tab": ("\t",)}
_ENDS = {"src", "dst", "source", "target", "from", "to"}  # the names of the two ends of an edge in headers
_KNOWN_COMMENTS = re.compile(
    r"#\s*((un)?directed graph|nodes:\s*\d|fromnodeid\b|edges:\s*\d)|%%matrixmarket\s|%\s*(sym|asym|bip)\b",
    re.IGNORECASE,
)
_MATRIX = re.compile(r"%%MatrixMarket\s+(\w+)\s+(\w+)\s+(\w+)\s+(\S+)", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d(-\d\d)?([T ]|$)")


@dataclass
class Sample:
    """The first rows of a file as text, without its header.

    `names` are the file's own names of its columns, if it has any. `separator` is None if the file is not delimited
    text. `header` is None if the first line, which is in `rows`, may be one. `comments` is the number of lines before
    the header or the first row.
    """

    source: Source
    rows: list[list[str]]
    names: tuple[str, ...] | None = None
    separator: str | None = None
    header: bool | None = False
    comment: tuple[str, ...] = ()
    comments: int = 0
    banner: str = ""  # the first line of a Matrix Market file

    def require_decided_header(self) -> bool:
        """Return whether the file has a header. Raise `UsageError` if its first line may be either a header or a
        row."""
        if self.header is None:
            shown = (self.separator or ",").join(self.rows[0])[:200]
            raise UsageError(
                f"{self.source.name}: its first line, {shown!r}, is either a header or the first edge. "
                "Nothing was landed.",
                "--header for the first, --no-header for the second",
            )
        return self.header


def take_sample(source: Source, options: LandOptions, types: Mapping[str, str]) -> Sample:
    """Read the first rows of a file. Raise `UsageError` if it cannot be read.

    `types` are the types of the columns that the home knows.
    """
    take = {"text": _sample_text, "json": _sample_json, "parquet": _sample_parquet}[source.format]
    try:
        return take(source, options, types)
    except (OSError, ValueError, pa.ArrowException, BrokenFileError) as error:
        raise UsageError(f"{source.name} cannot be read: {error}. Nothing was landed.", "give a whole file") from None


def _sample_parquet(source: Source, options: LandOptions, types: Mapping[str, str]) -> Sample:
    file = pq.ParquetFile(source.path)
    batch = next(file.iter_batches(ROWS), None)
    columns = [_write_column(column) for column in batch.columns] if batch else []
    return Sample(source, [list(row) for row in zip(*columns, strict=True)], tuple(file.schema_arrow.names))


def _write_column(column: pa.Array) -> list[str]:
    return ["" if value is None else _write_cell(value) for value in to_raw_column(column).to_pylist()]


def _sample_json(source: Source, options: LandOptions, types: Mapping[str, str]) -> Sample:
    objects: list[dict[str, object]] = []
    for line in _read_lines(source):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            objects.append(row)
    if not objects:
        raise UsageError(
            f"{source.name}: no row could be read: no line is a JSON object. Nothing was landed.",
            f"jq -c . {source.name} | altneu land - …   (one object per line)",
        )
    names = tuple(dict.fromkeys(name for row in objects for name in row))
    rows = [["" if row.get(name) is None else _write_cell(row[name]) for name in names] for row in objects]
    return Sample(source, rows, names)


def _write_cell(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (bool, int, float, list, dict)):
        return json.dumps(value, default=str)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _read_lines(source: Source) -> list[str]:
    """Return the first lines that are not empty."""
    with open_stream(source.path) as stream:
        skip_bom(stream)
        text = (raw.decode("utf-8", "replace").strip("\r\n") for raw in stream)
        return list(itertools.islice((line for line in text if line.strip()), ROWS))


# -- Delimited text ----------------------------------------------------------------------------------------------


def _sample_text(source: Source, options: LandOptions, types: Mapping[str, str]) -> Sample:
    lines = _read_lines(source)
    if not lines:
        raise UsageError(f"{source.name}: no row could be read: it is empty. Nothing was landed.", HELP)
    if options.comment is None and (banner := _MATRIX.match(lines[0])):
        return _sample_matrix(source, lines, banner)
    marks = COMMENTS if options.comment is None else tuple(filter(None, [options.comment]))
    if options.comment is None and (known := _find_known_marks(lines)):
        marks = known
    marked = list(itertools.takewhile(lambda line: line.startswith(marks), lines))
    body = lines[len(marked) :]
    if marks == COMMENTS and marked and not _are_comments(source, marked, body, options, types):
        marked, marks, body = [], (), lines
    if not body:
        return Sample(source, [], None, parse_separator(options.separator) or ",", comment=marks, comments=len(marked))
    separator, rows = _cut_into_rows(source, body, options)
    header = has_header(rows, options, types, source.name)
    names = tuple(rows[0]) if header else None
    if not header and not marked and options.comment is None:
        marks = ()
    return Sample(source, rows[1:] if header else rows, names, separator, header, marks, len(marked))


def _find_known_marks(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the marks of the comments of SNAP, KONECT and similar files, if the first lines are such comments."""
    marked = itertools.takewhile(lambda line: line.startswith(COMMENTS), lines)
    return tuple(sorted({line[0] for line in marked if _KNOWN_COMMENTS.match(line)}))


def _are_comments(
    source: Source, marked: list[str], body: list[str], options: LandOptions, types: Mapping[str, str]
) -> bool:
    """Tell whether lines that are marked as comments are comments: no row can begin so, or a header follows.

    Raise `UsageError` if the last of them may be the header itself.
    """
    first_type = types.get(options.columns[0], "string") if options.columns else types.get("src", "string")
    if first_type != "string":
        return True
    if not body:
        return False
    separator, rows = _cut_into_rows(source, body, options)
    if not has_header(rows, options, types, source.name):
        return False
    if len(split_line(marked[-1], separator)) == len(rows[0]) and not _has_known_names(rows[0], options, types):
        raise UsageError(
            f"{source.name}: its header is either {marked[-1][:200]!r} or {body[0][:200]!r}. Nothing was landed.",
            f"--comment '{marked[-1][0]}' with --no-header for the first, with --header for the second",
        )
    return True


def _sample_matrix(source: Source, lines: list[str], banner: re.Match[str]) -> Sample:
    """Sample a Matrix Market file.

    The line of its size stands in the place of a header, and is not a row either.
    """
    kind, form, value, _ = (word.lower() for word in banner.groups())
    if (kind, form) != ("matrix", "coordinate"):
        raise UsageError(
            f"{source.name} is a Matrix Market file of the kind {kind} {form}, which lists no edges. "
            "Nothing was landed.",
            "write it as coordinates: %%MatrixMarket matrix coordinate …",
        )
    marked = list(itertools.takewhile(lambda line: line.startswith("%"), lines))
    rows = [split_line(line, " ") for line in lines[len(marked) + 1 :]]
    values = {"pattern": (), "complex": ("real", "imaginary")}.get(value, ("weight",))
    return Sample(source, rows, ("src", "dst", *values), " ", True, ("%",), len(marked), banner[0].strip())


def _cut_into_rows(source: Source, lines: list[str], options: LandOptions) -> tuple[str, list[list[str]]]:
    """Find the separator, and cut lines into records, whose quoted fields may go on in the next line."""
    separator = parse_separator(options.separator) or find_separator(source, lines, options.columns)
    return separator, [split_line(record, separator) for record in join_lines(lines, separator)]


def split_line(line: str, separator: str) -> list[str]:
    """Split a line into its fields; if its quotes are malformed, split it at every separator."""
    try:
        return split_record(line, separator)
    except ValueError:
        return line.split(separator)


def find_separator(source: Source, lines: Sequence[str], columns: Sequence[str]) -> str:
    """Return the separator of the fields of some lines. Raise `UsageError` if two separators fit equally well."""
    by_ending = _BY_ENDING.get(source.ending, ())
    order = [*by_ending, *(separator for separator in SEPARATORS if separator not in by_ending)]
    if not columns:
        named = (separator for separator in order if {"src", "dst"} <= set(split_line(lines[0], separator)))
        cut = (separator for separator in order if len(split_line(lines[0], separator)) > 1)
        return next(itertools.chain(named, cut), " ")
    seen = lines[:1000]
    fitting = {s: sum(len(split_line(line, s)) == len(columns) for line in seen) for s in order}
    usual = [separator for separator in order if 2 * fitting[separator] > len(seen)]
    usual = [separator for separator in usual if separator in by_ending] or usual
    best = [separator for separator in usual if fitting[separator] == max(fitting[other] for other in usual)]
    visible = [separator for separator in best if separator != " "]
    if len(visible) > 1:
        readings = [f"{split_line(seen[0], separator)} by {SEPARATOR_WORDS[separator]}" for separator in visible]
        raise UsageError(
            f"{source.name}: its first line is either {' or '.join(readings)}. Nothing was landed.",
            " or ".join("--sep tab" if separator == "\t" else f"--sep '{separator}'" for separator in visible),
        )
    return next(iter(visible or best), guess_separator(lines[0]))


# -- The header --------------------------------------------------------------------------------------------------


def has_header(rows: list[list[str]], options: LandOptions, types: Mapping[str, str], name: str) -> bool | None:
    """Return whether the first of some rows is a header, or None if it may be either.

    Raise `UsageError` if --header is given but the first line looks like a row.
    """
    if options.header is False:
        return False
    first = rows[0]
    below = [[row[index] for row in rows[1:] if index < len(row) and row[index]] for index in range(len(first))]
    kinds = {index: kind for index, cells in enumerate(below) if (kind := _find_kind(cells))}
    if options.header:
        known = {
            index: "number" for index, column in enumerate(options.columns) if types.get(column) in ("long", "double")
        }
        expected = {index: kind for index, kind in (known | kinds).items() if index < len(first)}
        if expected and all(_is_of_kind(first[index], kind) for index, kind in expected.items()):
            raise UsageError(
                f"--header: the first line of {name} looks like a row: {', '.join(first)!r}. Nothing was landed.",
                "leave --header out",
            )
        return True
    if _has_known_names(first, options, types) or (not options.columns and {"src", "dst"} <= set(first)):
        return True
    lengths = Counter(map(len, rows[1:]))
    if lengths and len(first) != lengths.most_common(1)[0][0]:
        return False
    typed = {index: kind for index, kind in kinds.items() if first[index]}
    if any(_is_of_kind(first[index], kind) for index, kind in typed.items()):
        return False
    if typed:
        return True
    undecided = (
        types.get("src", "string") == "string"
        and len(rows) > 1
        and not _is_like_the_rows(first, rows[1:], options.columns)
    )
    return None if undecided else False


def _has_known_names(cells: Iterable[str], options: LandOptions, types: Mapping[str, str]) -> bool:
    known = {name.lower() for name in (*options.columns, *types)} | _ENDS
    return all(cell.lower() in known for cell in cells)


def _find_kind(cells: Sequence[str]) -> str | None:
    """Return the kind of more than half of some cells, if it is more specific than text."""
    kinds = ("number", "truth", "time")
    return next((kind for kind in kinds if 2 * sum(_is_of_kind(cell, kind) for cell in cells) > len(cells)), None)


def _is_of_kind(cell: str, kind: str) -> bool:
    if kind == "time":
        return _TIME.match(cell) is not None
    return is_value(cell, "double" if kind == "number" else "boolean")


def _is_like_the_rows(first: list[str], rows: list[list[str]], columns: Sequence[str]) -> bool:
    """Tell whether a line of text is like the rows below: one of its fields occurs again, or has the form of one of
    them."""
    others = [row for row in rows if row != first]  # a header may be repeated
    ends = {at for at, name in enumerate(columns) if name in ("src", "dst")}
    vertices = {row[at] for row in others for at in ends if at < len(row)}
    for at, cell in enumerate(first):
        column = vertices if at in ends else {row[at] for row in others if at < len(row)}
        if cell and (cell in column or (_form_of(cell) and _form_of(cell) in map(_form_of, column))):
            return True
    return False


def _form_of(cell: str) -> str | None:
    """Return the form of a cell that has digits or signs, which few headers have; None for any other cell.

    >>> _form_of("u17"), _form_of("ann@x.org"), _form_of("New York")
    ('u9', 'a@a.a', None)
    """
    if re.search(r"[^\w\s]", cell):
        return re.sub(r"\w+", "a", cell)
    return re.sub(r"\d+", "9", cell) if re.search(r"\d", cell) else None
