"""Parquet is held to the rules of text: what each of its types becomes, and that every format gives the same rows."""

from __future__ import annotations

import csv
import datetime
import json
import random
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altneu.pipeline import landing
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing.file_reader import read_blocks
from altneu.pipeline.landing.row_schema import BrokenFileError, RowSchema
from tests import seeds
from tests.unit.test_reading_both_ways import NUMBERS, WORDS

BIG = 1 << 63


def values_of(tmp_path: Path, column: pa.Array, type_: str) -> list[Any]:
    """What a column becomes: the value of each row, or the reason for which it has none."""
    table = pa.table({"src": pa.array(range(len(column))), "dst": column})
    pq.write_table(table, tmp_path / "x.parquet")
    found: dict[int, Any] = {}
    for block in read_blocks(tmp_path / "x.parquet", RowSchema({"src": "long", "dst": type_}, frozenset({"dst"}))):
        found |= {row["line"]: row["dst"] for row in block.rows.to_pylist()}
        found |= {line: reason for line, reason, _ in block.malformed_rows}
    assert sorted(found) == list(range(1, len(column) + 1))
    return [found[line] for line in sorted(found)]


def no(value: object, what: str) -> str:
    return f"dst is {str(value)!r}, not {what}"


INTEGER, NUMBER, TRUTH = "an integer", "a number", "true or false"
TEXT = ["1", " 2\t", "", "0x10", "+3", "1.0", None, "1_0"]
AS_LONG = [1, 2, None, no("0x10", INTEGER), 3, no("1.0", INTEGER), None, no("1_0", INTEGER)]
UUID = uuid.UUID(int=7)
CASES = [
    *[(pa.array([-1, 0, 1, None], type_), "long", [-1, 0, 1, None]) for type_ in (pa.int8(), pa.int16(), pa.int32())],
    *[(pa.array([0, 255, None], type_), "long", [0, 255, None]) for type_ in (pa.uint8(), pa.uint16(), pa.uint32())],
    (pa.array([1, BIG - 1, BIG], pa.uint64()), "long", [1, BIG - 1, no(BIG, INTEGER)]),
    *[
        (pa.array([1.0, 1.5, float("nan"), None], type_), "long", [1, no(1.5, INTEGER), no("nan", INTEGER), None])
        for type_ in (pa.float16(), pa.float32(), pa.float64())
    ],
    (pa.array([2.0**53, -(2.0**53) + 1, 1e300]), "long", [no(2.0**53, INTEGER), 1 - 2**53, no("1e+300", INTEGER)]),
    (pa.array([Decimal("7.00"), Decimal("7.50"), None]), "long", [7, no("7.50", INTEGER), None]),
    (pa.array([Decimal(BIG - 1), Decimal(BIG), Decimal(0)]), "long", [BIG - 1, no(BIG, INTEGER), 0]),
    (pa.array([Decimal("0E-10"), Decimal("3")], pa.decimal128(20, 10)), "long", [0, 3]),
    (pa.array([Decimal("0.1"), Decimal("123456789012345678.9")]), "double", [0.1, 123456789012345678.9]),
    (pa.array([Decimal("1E-7")], pa.decimal256(50, 20)), "double", [1e-7]),
    (pa.array([Decimal("1.50"), None]), "string", ["1.50", None]),
    (pa.array([2**53 + 1, None]), "double", [float(2**53 + 1), None]),
    (pa.array([1.5, float("inf")], pa.float32()), "double", [1.5, float("inf")]),
    (pa.array([0, 1, 2, None]), "boolean", [False, True, no(2, TRUTH), None]),
    (pa.array([True, False, None]), "boolean", [True, False, None]),
    (pa.array([True, None]), "string", ["true", None]),
    (pa.array([5, None]), "string", ["5", None]),
    (pa.nulls(2), "double", [None, None]),
    (pa.array(["1e3", "nan", "0x1p3", " .5"]), "double", [1000.0, float("nan"), no("0x1p3", NUMBER), 0.5]),
    (pa.array(["TRUE", "0", "yes"]), "boolean", [True, False, no("yes", TRUTH)]),
    (pa.array([" a ", "\ta b", "  ", ""]), "string", ["a", "a b", None, None]),
    (pa.array([b"a", b"\xff", None]), "string", ["a", "dst is not UTF-8", None]),
    (pa.array([b" 12", b"x", b"\xfe"]), "long", [12, no("x", INTEGER), "dst is not UTF-8"]),
    (pa.array([datetime.date(2024, 2, 29)]), "string", ["2024-02-29"]),
    *[
        (column, "long", AS_LONG)
        for column in (
            pa.array(TEXT),
            pa.array(TEXT, pa.large_string()),
            pa.array(TEXT, pa.string_view()),
            pa.array(TEXT).dictionary_encode(),
            pa.array(TEXT).cast(pa.binary()),
        )
    ],
    *([(pa.array([UUID.bytes, None], pa.uuid()), "string", [str(UUID), None])] if hasattr(pa, "uuid") else []),
]


@pytest.mark.parametrize(
    ("column", "type_", "expected"),
    CASES,
    ids=[f"{column.type} as {type_}, {n}" for n, (column, type_, _) in enumerate(CASES)],
)
def test_what_a_value_of_parquet_becomes(column: pa.Array, type_: str, expected: list[Any], tmp_path: Path) -> None:
    assert repr(values_of(tmp_path, column, type_)) == repr(expected)


def test_any_column_may_be_left_out_and_bytes_be_landed(tmp_path: Path) -> None:
    """By `altneu land`, whose sample shows all columns."""
    skipped = [column for column, _, _ in CASES if len(column) == 2] + [pa.array([[1], [2]]), pa.array([b"\xff", b""])]
    texts = pa.array([b"a", b"\xff"])
    names = [f"c{n}" for n in range(len(skipped))]
    pq.write_table(pa.table([texts, pa.array([b"b", b"c"]), *skipped], ["src", "dst", *names]), tmp_path / "x.parquet")
    home = Home.open(tmp_path / "home", create=True).declare_settings(
        vertices={"ids": "string"}, ingest={"max_bad_share": 0.5}
    )
    options = landing.LandOptions(("src", "dst", *("_" for _ in skipped)), epoch=1)
    report = landing.land(home, [tmp_path / "x.parquet"], options)
    assert (report.rows, [row[1:3] for row in report.rejected]) == (1, [(2, "src is not UTF-8")])


REFUSED = [
    (pa.array([[1]]), "long", r"column dst is list<.*>, which cannot be read as long: .*CAST\(dst AS BIGINT\)"),
    (pa.array([{"a": 1}]), "string", r"column dst is struct<.*CAST\(dst AS VARCHAR\)"),
    (pa.array([True]), "long", "column dst is bool, which cannot be read as long"),
    (pa.array([1.0]), "boolean", "column dst is double, which cannot be read as boolean"),
    (pa.array([b"1234"], pa.binary(4)), "string", "column dst is fixed_size_binary"),
    (pa.array([1], pa.duration("s")), "long", "column dst is duration"),
    (pa.array([datetime.date(2024, 1, 1)]), "long", r"column dst is date32\[day\], which"),
]


@pytest.mark.parametrize(("column", "type_", "says"), REFUSED, ids=[str(case[0].type) for case in REFUSED])
def test_a_type_that_cannot_be_meant_is_named_and_one_left_out_is_not(
    column: pa.Array, type_: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(BrokenFileError, match=says):
        values_of(tmp_path, column, type_)
    pq.write_table(pa.table({"from": ["1"], "x": column, "to": [2]}), tmp_path / "y.parquet")
    layout = RowSchema({"src": "long", "dst": "long"}, names=("src", "_", "dst"))
    (block,) = read_blocks(tmp_path / "y.parquet", layout)
    assert block.rows.to_pylist() == [{"src": 1, "dst": 2, "line": 1}] and not block.malformed_rows
    with pytest.raises(BrokenFileError, match="it has 3 columns"):
        list(read_blocks(tmp_path / "y.parquet", RowSchema({"src": "long", "dst": "long"}, names=("src", "dst"))))


def test_fields_of_json_are_renamed_and_left_out(tmp_path: Path) -> None:
    rows = ['{"a": 1, "b": " x ", "c": {"d": []}}', '{"a": 2, "b": "y"}', '{"a": 3, "hue": 1}', '{"b": "z", "c": 1}']
    (tmp_path / "x.jsonl").write_text("\n".join(rows))
    layout = RowSchema(
        {"src": "long", "name": "string"}, frozenset({"name"}), ("src", "name", "_"), fields=("a", "b", "c")
    )
    for beside in ("", "no object\n"):
        (tmp_path / "x.jsonl").write_text("\n".join(rows[:2]) + "\n" + beside + "\n".join(rows[2:]))
        blocks = list(read_blocks(tmp_path / "x.jsonl", layout))
        good = [(row["src"], row["name"]) for block in blocks for row in block.rows.to_pylist()]
        assert good == [(1, "x"), (2, "y")]
        reasons = [reason for block in blocks for _, reason, _ in block.malformed_rows]
        assert reasons == ["not JSON"] * bool(beside) + ["unknown field hue", "src is empty"]


FORMATS = ["csv", "json text", "parquet text", "large", "view", "dictionary", "bytes"]
TYPES = {"src": "string", "dst": "long", "weight": "double", "on": "boolean", "kind": "string"}


def write_texts(path: Path, form: str, names: list[str], table: list[list[str | None]]) -> Path:
    """The same texts in one of the formats."""
    if form == "csv":
        path = path.with_suffix(".csv")
        with path.open("w", newline="") as stream:
            csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([names, *table])
    elif form == "json text":
        path = path.with_suffix(".jsonl")
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in table))
    else:
        path = path.with_suffix(".parquet")
        types = {"large": pa.large_string(), "view": pa.string_view(), "bytes": pa.binary()}
        columns = [pa.array(column, pa.string()) for column in zip(*table, strict=True)]
        if form == "dictionary":
            columns = [column.dictionary_encode() for column in columns]
        pq.write_table(pa.table([column.cast(types.get(form, column.type)) for column in columns], names), path)
    return path


@pytest.mark.parametrize("cases", [40, pytest.param(1500, marks=pytest.mark.slow)])
def test_the_same_texts_are_the_same_rows_in_every_format(cases: int, tmp_path: Path) -> None:
    rng = random.Random(seeds.one())
    layout = RowSchema(TYPES, frozenset(TYPES) - {"src", "dst"})
    plain = {"long": ["1", "-7"], "double": ["0.5", "1e3"], "boolean": ["true", "0"], "string": ["a", "b c"]}
    for _ in range(cases):
        table: list[list[str | None]] = []
        for _ in range(rng.randrange(1, 12)):
            row: list[str | None] = [rng.choice(plain[type_]) for type_ in TYPES.values()]
            for _ in range(rng.choice([0, 0, 1, 1, 2])):
                row[rng.randrange(len(row))] = rng.choice([*NUMBERS, *WORDS, None, "a\nb", "\r\n"])
            table.append(row)
        outcomes = {}
        for form in FORMATS:
            rows: list[Any] = []
            for block in read_blocks(write_texts(tmp_path / "x", form, list(TYPES), table), layout):
                found = [(row.pop("line"), repr(row)) for row in block.rows.to_pylist()]
                rows += sorted(found + [(line, reason) for line, reason, _ in block.malformed_rows])
            outcomes[form] = [row for _, row in sorted(rows)]
        for form in FORMATS:
            assert outcomes[form] == outcomes["csv"], (form, table)
