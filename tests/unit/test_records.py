"""Records of delimited text against Python's csv module, which shares nothing with the parsers here."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from altneu.pipeline.landing import file_reader, record_boundaries
from altneu.pipeline.landing.file_reader import read_blocks
from altneu.pipeline.landing.row_schema import BrokenFileError, RowSchema
from tests import seeds

TEXTS = RowSchema({"src": "string", "dst": "string", "note": "string"}, frozenset({"dst", "note"}))


def rows_of(path: Path, layout: RowSchema = TEXTS) -> tuple[list[tuple[object, ...]], list[tuple[int, str, str]]]:
    """The good rows with their lines, and the malformed ones."""
    good: list[tuple[object, ...]] = []
    bad: list[tuple[int, str, str]] = []
    for block in read_blocks(path, layout):
        good += [(row.pop("line"), *row.values()) for row in block.rows.to_pylist()]
        bad += block.malformed_rows
    return good, bad


def some_text(rng: random.Random) -> str:
    parts = ["a", "b", " ", ",", '"', "\n", "\r\n", "\t", "é", ";", "1", "#", "::"]
    return "".join(rng.choices(parts, k=rng.choice([0, 1, 1, 2, 3, 8])))


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_what_the_csv_module_writes_is_read(
    separator: str, end: str, quoting: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seeds.one())
    names = list(TEXTS.types)
    for _ in range(12):
        table = [[f"s{n}", some_text(rng), some_text(rng)] for n in range(rng.randrange(1, 60))]
        text = io.StringIO()
        writer = csv.writer(text, delimiter=separator, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
        writer.writerows([names, *table])
        path = tmp_path / "x.csv"
        path.write_bytes(text.getvalue().encode())
        reader = csv.reader(io.StringIO(text.getvalue(), newline=""), delimiter=separator)
        starts = [reader.line_num + 1 for _ in reader]
        expected = [
            (line, *(cell.strip(" \t") or None for cell in row)) for line, row in zip(starts, table, strict=False)
        ]
        monkeypatch.setattr(file_reader, "BLOCK", rng.choice([3, 50, 1 << 20]))
        monkeypatch.setattr(record_boundaries, "WINDOW", rng.choice([1, 20, 1 << 20]))
        assert rows_of(path, RowSchema(TEXTS.types, TEXTS.optional, separator=separator)) == (expected, []), text


@pytest.mark.parametrize("cases", [1500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_records_end_where_the_csv_module_ends_them(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the text: the csv module takes text after a closing quote, and its strict reader refuses it."""
    rng = random.Random(seeds.one())
    for _ in range(cases):
        text = "".join(rng.choices(["a", ",", '"', '"', "\n", " "], k=rng.randrange(1, 25))) + "\n"
        monkeypatch.setattr(record_boundaries, "WINDOW", rng.choice([1, 4, 1 << 20]))
        cut = record_boundaries.cut_records(text.encode(), 1, ",")
        lines = [line + "\n" for line in text.split("\n")[:-1]]
        reader = csv.reader(lines)
        starts, cells = [1], []
        for row in reader:
            cells.append(row or [""])
            starts.append(reader.line_num + 1)
        found = list(cut.list_records())
        whole = len(found)
        if cut.text != text.encode():  # a quote is open at the end, and the csv module takes it for closed
            assert whole == len(cells) - 1, text
            with pytest.raises(record_boundaries.QuoteError):
                record_boundaries.split_record(text[len(cut.text) : -1], ",")
        assert cut.count_records() == whole and cut.number_records().tolist() == starts[:whole], text
        assert [line for line, _ in found] == starts[:whole], text
        for (_, raw), row in zip(found, cells, strict=False):
            try:
                assert record_boundaries.split_record(raw.decode(), ",") == [cell.strip(" ") for cell in row], text
            except record_boundaries.QuoteError:
                with pytest.raises(csv.Error):
                    list(csv.reader([line + "\n" for line in raw.decode().split("\n")], strict=True))
        halves = cut.halve() if cut.text else None
        if halves:
            assert [*halves[0].list_records(), *halves[1].list_records()] == found, text


def test_a_quote_that_is_not_closed_costs_its_lines_and_each_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('src,dst,note\na,b,1\na,b,"open\nc,d,2\ne,f,3\n')
    good, bad = rows_of(path)
    reason = "a quote is not closed; the record begins in line 3"
    assert good == [(2, "a", "b", "1")]
    assert bad == [(3, reason, 'a,b,"open'), (4, reason, "c,d,2"), (5, reason, "e,f,3")]
    path.write_text('src,dst,note\na,b,"open\nc,d,2\ne,f,"x"\ng,h,4\n')  # the next quote ends what is open
    good, bad = rows_of(path)
    assert good == [(5, "g", "h", "4")]
    assert [(line, reason) for line, reason, _ in bad] == [
        (line, "text after a closing quote; the record begins in line 2") for line in (2, 3, 4)
    ]


def test_a_malformed_record_is_one_entry_with_all_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('src,dst,note\na,b,"x\ny","too many"\nc,d,"1\n2\n3"\n')
    assert rows_of(path) == ([(4, "c", "d", "1\n2\n3")], [(2, "4 fields instead of 3", 'a,b,"x\ny","too many"')])


def test_a_record_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quote that is opened far before the end of a file is not looked for in all of it."""
    monkeypatch.setattr(file_reader, "BLOCK", 100)
    monkeypatch.setattr(file_reader, "LONGEST", 300)
    path = tmp_path / "x.csv"
    path.write_text('src,dst,note\na,b,"open\n' + "c,d,2\n" * 100)
    with pytest.raises(BrokenFileError, match=r"line 2 begins a record .* closing quote missing"):
        rows_of(path)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ('src,"dst', "the header has a quote that is not closed"),
        ('src,"dst"x', "the header cannot be read: text after a closing quote"),
        ("src,dst,", "column 3 has no name"),
    ],
)
def test_a_header_with_wrong_quotes_breaks_the_file(header: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{header}\n1,2,3\n")
    with pytest.raises(BrokenFileError, match=says):
        rows_of(path)


def test_names_of_a_header_may_hold_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('src,dst,"a\nnote"\n1,2,3\n')
    layout = RowSchema({"src": "long", "dst": "long", "a\nnote": "long"})
    assert rows_of(path, layout) == ([(3, 1, 2, 3)], [])


@pytest.mark.parametrize("separator", ["::", "§", " | ", "\\|", "||", "ab", "x\u0001", "\u2003"])
@pytest.mark.parametrize("beside", ["", "broken\n"])
def test_a_separator_is_any_text(separator: str, beside: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    cells = [["src", "dst", "note"], ["1", "2", '"3\n4"'], [" 5", f'"6{separator}6"', ""], ["7", "8", "ü"]]
    path.write_text(beside.join(separator.join(row) + "\n" for row in cells))
    good, bad = rows_of(path, RowSchema(TEXTS.types, TEXTS.optional, separator=separator))
    assert [row[1:] for row in good] == [("1", "2", "3\n4"), ("5", f"6{separator}6".strip(), None), ("7", "8", "ü")]
    assert len(bad) == 3 * bool(beside)


def test_the_pattern_for_blanks_stands_for_blanks(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("1 \t2   3\n")
    layout = RowSchema(TEXTS.types, names=("src", "dst", "note"), separator=r"\s+", header=False)
    assert rows_of(path, layout) == ([(1, "1", "2", "3")], [])
