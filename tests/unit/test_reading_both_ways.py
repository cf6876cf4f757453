"""Arrow's parsers and the line-by-line ones agree on every line, whatever stands next to it; no line gets lost."""

from __future__ import annotations

import csv
import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

from altneu.pipeline.landing import file_reader as reading
from altneu.pipeline.landing import record_boundaries
from altneu.pipeline.landing.csv_reader import Delimited
from altneu.pipeline.landing.file_reader import read_blocks
from altneu.pipeline.landing.json_lines import JsonLines
from altneu.pipeline.landing.row_schema import BOM, BrokenFileError, RowSchema
from tests import seeds

INTEGER = RowSchema({"src": "long", "dst": "long", "weight": "double", "kind": "string"}, frozenset({"weight", "kind"}))
NAMES = RowSchema(
    {"src": "string", "dst": "string", "rating": "long", "on": "boolean"}, frozenset({"rating", "on", "dst"})
)
NUMBERS = [
    "0",
    "1",
    "-7",
    "007",
    "+3",
    "1_000",
    "1.0",
    "1.",
    ".5",
    ".",
    "-",
    "1e3",
    "1e",
    "1E-3",
    "1e999",
    "-1e999",
    "1e-999",
    "nan",
    "NaN",
    "-nan",
    "inf",
    "Infinity",
    "-inf",
    "nan(1)",
    "0x10",
    "-0x1F",
    "0X1",
    "1f",
    "1d",
    "1_0.5",
    "١٢",
    "१२",
    "½",
    "12abc",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "123456789012345678901",
    "0.1",
    "123456789.123456789",
    "1,5",
    "true",
    "True",
    "TRUE",
    "false",
    "0b1",
    "1L",
]
WORDS = [
    "a",
    "b c",
    "",
    " ",
    " a ",
    "\ta\t",
    '"a"',
    '" a "',
    '"a,b"',
    '"a""b"',
    'a"b',
    '"a"b',
    '"a',
    '""',
    '"',
    "#x",
    "%x",
]
WORDS += [
    "ü",
    "\u00a0a",
    "a\u2003",
    "\x0ba",
    "\ufeffa",
    "null",
    "NA",
    "a\rb",
    "\x00",
    "'a'",
    "a\x85b",
    "\\N",
    "\ud7ff",
    "𝒳",
]
WORDS += [
    '"a\nb"',
    '"a\r\nb"',
    '"\n"',
    '"a""\n""b"',
    '"a"\t',
    '"a\n',
    'b"',
    '"a\n"b',
    '"1,1\n1,1',
    '"1\n1"',
    '"\r"',
    '" \n\n"',
]


def lines_of_text(rng: random.Random, separator: str) -> list[bytes]:
    out = []
    for _ in range(rng.randrange(1, 8)):
        cells = [rng.choice(["1", "0", "23"]) for _ in range(4)]
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):  # few, or every line were malformed for one or another
            cells[rng.randrange(4)] = rng.choice(rng.choice([NUMBERS, WORDS]))
        if rng.random() < 0.1:
            cells = cells[: rng.randrange(4)] if rng.random() < 0.7 else [*cells, "1"]
        blank = rng.choice(["", "", "", " ", "\t", "  "])
        line = (blank + separator + rng.choice(["", "", " "])).join(cells) + rng.choice(["", "", "", " ", blank])
        if separator == " ":
            line = rng.choice(["", "", " "]) + line
        out.append(line.encode() if rng.random() < 0.97 else line.encode() + b"\xff")
    return out


VALUES = [
    "1",
    "-0",
    "0",
    "1.0",
    "1.5",
    "1e3",
    "1e400",
    "9007199254740993.0",
    "9223372036854775808",
    "01",
    "+1",
    "NaN",
    "1.",
]
VALUES += [
    "Infinity",
    "true",
    "false",
    "null",
    '"1"',
    '" 1 "',
    '"1_0"',
    '"a"',
    '""',
    '"\\ud800"',
    '"\\u0000"',
    "[1]",
    "{}",
]
VALUES += [
    '{"a":1}',
    '"}{"',
    '"a\\nb"',
    "",
    "1,2",
    '"\t"',
    '"ü"',
    "'a'",
    '"\x00"',
    '"true"',
    "-1e999",
    "1" * 400,
    '"1.5"',
]


def lines_of_json(rng: random.Random, names: list[str]) -> list[bytes]:
    def item() -> str:
        fields = [
            f'"{name}":{rng.choice([" ", ""])}{rng.choice(VALUES) if rng.random() < 0.3 else rng.choice(plain)}'
            for name in (rng.sample(names, rng.randrange(len(names) + 1)) if rng.random() < 0.3 else names)
        ]
        if rng.random() < 0.1:
            fields.append(rng.choice(fields or ['"src":1']))
        if rng.random() < 0.05:
            fields.append('"hue":1')
        return "{" + ",".join(fields) + "}"

    plain = ["1", "2", '"a"', "null", "1.5", "true"]
    odd = [
        "",
        " ",
        "{",
        "}",
        "[]",
        "# 1",
        "% 1",
        '{"src":1,',
        '"dst":2}',
        "[" * 3000,
        "1",
        "{}",
        "{}{}",
        "\ufeff{}",
        "\x85",
    ]
    out = []
    for _ in range(rng.randrange(1, 12)):
        line = (
            item()
            if rng.random() < 0.85
            else rng.choice([item() + item(), item() + " ", " " + item(), rng.choice(odd)])
        )
        out.append(line.encode() if rng.random() < 0.97 else line.encode() + b"\xff")
    return out


def outcome(path: Path, layout: RowSchema) -> dict[int, str]:
    """Line → its row, or the reason for which it is none; told apart are also nan, -0.0 and an empty text."""
    found: dict[int, str] = {}
    for block in read_blocks(path, layout):
        for row in block.rows.to_pylist():
            assert row["line"] not in found
            found[row.pop("line")] = repr(row)
        for line, reason, _ in block.malformed_rows:
            assert line not in found
            found[line] = f"malformed: {reason}"
    return found


def find_records(data: bytes, separator: str) -> dict[int, int]:
    """The first line of each record → how many lines it has, by Python's csv module, which takes text after quotes."""
    if not data:
        return {}
    text = data.decode("utf-8", "surrogateescape").removesuffix("\n")
    if separator == "jsonl" or separator == " ":
        return {line: 1 for line in range(1, text.count("\n") + 2)}
    text = re.sub("\r(?!\n|$)", "\x02", text).replace(separator, "\x1f")
    reader = csv.reader((line + "\n" for line in text.split("\n")), delimiter="\x1f")
    found, line = {}, 1
    for _ in reader:
        found[line] = reader.line_num + 1 - line
        line = reader.line_num + 1
    return found


@pytest.mark.parametrize("layout", [INTEGER, NAMES], ids=["integer ids", "names"])
@pytest.mark.parametrize("kind", [",", "\t", " ", "::", "§", "jsonl"])
@pytest.mark.parametrize("cases", [60, pytest.param(3000, marks=pytest.mark.slow)])
def test_both_ways_agree(
    cases: int, kind: str, layout: RowSchema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = seeds.one()
    rng = random.Random(seed)
    for case in range(cases):
        before = 0
        if kind == "jsonl":
            lines, form, name = lines_of_json(rng, list(layout.types)), layout, "x.jsonl"
        else:
            lines, name = lines_of_text(rng, kind), "x.csv"
            header = rng.random() < 0.7
            named = tuple("_" if n in layout.optional and rng.random() < 0.2 else n for n in layout.types)
            form = RowSchema(
                layout.types, layout.optional, None if header and "_" not in named else named, kind, header
            )
            lead = [rng.choice([b"# a comment", b"%", b"", b" "]) for _ in range(rng.choice([0, 0, 1, 2]))]
            names = [f'"{n}"' if rng.random() < 0.1 and kind != " " else n for n in layout.types]
            before = len(lead) + header
            if header:
                lead += [kind.join(names).encode()]
            else:  # a first row that is no comment
                lead += [kind.join("1" * len(names)).encode()]
            lines = lead + lines
        end = rng.choice([b"\n", b"\n", b"\r\n"])
        data = end.join(lines) + rng.choice([b"", end])
        path = tmp_path / name
        path.write_bytes(rng.choice([b"", b"", BOM]) + data)
        with monkeypatch.context() as patch:
            for way in (JsonLines, Delimited):
                patch.setattr(way, "parse_with_arrow", refuse)
            slow = outcome(path, form)
        rest = b"\n".join(data.split(b"\n")[before:])
        for start, count in find_records(rest, kind).items():
            all_lines = set(range(before + start, before + start + count))
            seen = all_lines & set(slow)
            assert seen == {before + start} or (seen == all_lines and "quote" in slow[before + start]), (case, data)
        assert not slow or max(slow) <= before + rest.count(b"\n") + 1
        for block, small in ((reading.BLOCK, 0), (reading.BLOCK, 40), (rng.randrange(1, 60), rng.choice([0, 30]))):
            with monkeypatch.context() as patch:
                patch.setattr(reading, "BLOCK", block)
                patch.setattr(reading, "SMALL", small)
                patch.setattr(record_boundaries, "WINDOW", rng.choice([1, 5, 30, 1 << 20]))
                fast = outcome(path, form)
            different = {
                line: (fast.get(line), slow.get(line)) for line in {*fast, *slow} if fast.get(line) != slow.get(line)
            }
            assert not different, (case, block, small, different, data)


def refuse(self: object, block: bytes) -> pa.Table:
    raise pa.ArrowInvalid("line by line")


BESIDE = ["", "1,x\n", "a,1,1\n"]  # a neighbour that makes Arrow refuse the block
IDS = RowSchema({"src": "string", "dst": "string"})
WHOLE = RowSchema({"src": "long", "dst": "double"})


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize(
    ("layout", "line", "row"),
    [
        (IDS, " a , b", ("a", "b")),
        (IDS, '" a "," b"', ("a", "b")),
        (IDS, "%a,b", ("%a", "b")),
        (IDS, "#python,b", ("#python", "b")),
        (IDS, "a, ", None),
        (IDS, 'a,"', None),
        (WHOLE, " 1 , 2.5", (1, 2.5)),
        (WHOLE, "1_000,1", None),
        (WHOLE, "١٢,1", None),
        (WHOLE, "0x10,1", None),
        (WHOLE, "1,1_0.5", None),
        (WHOLE, "1,nan(1)", None),
        (WHOLE, "1.0,1", None),
    ],
)
def test_a_row_means_the_same_beside_any_other(
    layout: RowSchema, line: str, row: tuple | None, beside: str, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text(f"src,dst\n{beside}{line}\n{beside}")
    blocks = list(read_blocks(tmp_path / "x.csv", layout))
    found = [
        tuple(r[n] for n in ("src", "dst")) for b in blocks for r in b.rows.to_pylist() if r["line"] == 2 + bool(beside)
    ]
    assert found == ([row] if row else [])
    assert sum(b.rows.num_rows + len(b.malformed_rows) for b in blocks) == 1 + 2 * bool(beside)


@pytest.mark.parametrize("beside", ["", "nothing\n"])
@pytest.mark.parametrize(
    ("line", "row"),
    [
        ('{"src": 1, "src": 2, "dst": 3}', None),
        ('{"src": 1, "dst": NaN}', None),
        ('{"src": 1.0, "dst": 2}', (1, 2.0)),
        ('{"src": 9007199254740993.0, "dst": 2}', None),
        ('{"src": 123456789012345678901234567890, "dst": 2}', None),
        ('{"src": 1, "dst": 2}{"src": 3, "dst": 4}', None),
        ("# {}", None),
    ],
)
def test_json_means_the_same_beside_any_other(line: str, row: tuple | None, beside: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(f"{line}\n{beside}")
    blocks = list(read_blocks(tmp_path / "x.jsonl", WHOLE))
    assert [(r["src"], r["dst"]) for b in blocks for r in b.rows.to_pylist()] == ([row] if row else [])
    assert sum(b.rows.num_rows + len(b.malformed_rows) for b in blocks) == 1 + bool(beside)


def test_an_unknown_column_is_told_with_its_type(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("src,dst,my col,größe\n1,2,3,0.5\n")
    with pytest.raises(BrokenFileError, match=r'\[values\] "my col" = "long", "größe" = "double"'):
        list(read_blocks(tmp_path / "x.csv", WHOLE))
