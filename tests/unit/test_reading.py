"""Every input line ends as a good row, a bad row with its reason, or a comment; a broken file says so."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altneu.pipeline.landing import file_reader as reading
from altneu.pipeline.landing.file_reader import read_blocks
from altneu.pipeline.landing.row_schema import BrokenFileError, RowSchema
from tests import seeds

LANDED = RowSchema({"src": "long", "dst": "long", "op": "string", "seq": "long"}, frozenset({"op", "seq"}))


def rows(path: Path, layout: RowSchema = LANDED) -> tuple[list[dict], list[tuple[int, str, str]]]:
    good, bad = [], []
    for block in read_blocks(path, layout):
        good += block.rows.to_pylist()
        bad += block.malformed_rows
    return good, bad


def write(tmp_path: Path, text: str | bytes, name: str = "x.csv") -> Path:
    path = tmp_path / name
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    text = "# a comment\nsrc,dst,op\n1,2,upsert\n\n3,x,upsert\n4,5,delete\n7,8\n# another\n9,10,\n"
    good, bad = rows(write(tmp_path, text))
    assert [(r["src"], r["dst"], r["op"], r["line"]) for r in good] == [
        (1, 2, "upsert", 3),
        (4, 5, "delete", 6),
        (9, 10, None, 9),
    ]
    assert bad == [
        (4, "empty line", ""),
        (5, "dst is 'x', not an integer", "3,x,upsert"),
        (7, "2 fields instead of 3", "7,8"),
        (8, "1 fields instead of 3", "# another"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_a_single_row_with_and_without_its_line_end(tmp_path: Path, end: str, last: bool) -> None:
    good, bad = rows(write(tmp_path, f"src,dst{end}1,2{end if last else ''}"))
    assert [(r["src"], r["dst"], r["line"]) for r in good] == [(1, 2, 2)]
    assert bad == []


def test_block_borders_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast and the slow way, and any size of block, give the same rows."""
    seed = seeds.one()
    rng = random.Random(seed)
    lines = [rng.choice(["%d,%d", "%d,%d", "%d,%d", "%dx,%d", "", "# %d,%d", "%d;%d"]) for _ in range(400)]
    text = "src,dst\n" + "".join((line % (i, i + 1) if "%" in line else line) + "\n" for i, line in enumerate(lines))
    path = write(tmp_path, text)
    whole = rows(path)
    for size in (7, 64, 1000, reading.BLOCK):
        for small in (0, 100, 10**6):  # how far a refused block is halved
            monkeypatch.setattr(reading, "BLOCK", size)
            monkeypatch.setattr(reading, "SMALL", small)
            assert rows(path) == whole, (seed, size, small)
    assert len(whole[0]) + len(whole[1]) == 400


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("src,op\n1,upsert\n", "column dst is missing"),
        ("src,dst,colour\n1,2,red\n", "column colour is unknown"),
        ("src,dst,dst\n1,2,3\n", "column dst is there twice"),
        ("", "does not even have a header"),
    ],
)
def test_a_broken_header_breaks_the_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BrokenFileError, match=says):
        rows(write(tmp_path, text))


def test_a_truncated_gzip_breaks_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "src,dst\n" + "".join(f"{i},{i + 1}\n" for i in range(10_000)), "x.csv.gz")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(BrokenFileError, match="truncated"):
        rows(path)
    not_gzip = tmp_path / "y.csv.gz"
    not_gzip.write_bytes(b"src,dst\n1,2\n")
    with pytest.raises(BrokenFileError, match=r"[Nn]ot a gzipped file"):
        rows(not_gzip)


def test_a_header_that_wraps(tmp_path: Path) -> None:
    """The published header of a CAIDA graph: one comment line lacks its mark."""
    raw = RowSchema({"src": "long", "dst": "long"}, names=("src", "dst", "_"), separator="\t", header=False)
    good, bad = rows(
        write(tmp_path, "# Relationships:\t\n   -1 (a is a customer of b)\n# 1 provider\n1\t2\t-1\n", "x.txt"), raw
    )
    assert [(r["src"], r["dst"]) for r in good] == [(1, 2)]
    assert [(line, reason) for line, reason, _ in bad] == [(2, "1 fields instead of 3"), (3, "1 fields instead of 3")]


def test_whitespace_commas_and_tabs_are_guessed(tmp_path: Path) -> None:
    raw = RowSchema({"src": "long", "dst": "long"}, names=("src", "dst"), header=False)
    for text in ("1 2\n3   4\n", "1\t2\n3\t4\n", "1,2\n3,4\n", "% matrix\n1 2\n3 4\n"):
        good, bad = rows(write(tmp_path, text, "x.txt"), raw)
        assert [(r["src"], r["dst"]) for r in good] == [(1, 2), (3, 4)], text
        assert not bad


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        json.dumps({"src": 1, "dst": 2}),
        json.dumps({"src": "3", "dst": 4, "op": "delete"}),
        "{broken",
        json.dumps([1, 2]),
        json.dumps({"src": 1.5, "dst": 2}),
        json.dumps({"src": 1, "dst": 2, "hue": 3}),
        json.dumps({"src": 1}),
    ]
    good, bad = rows(write(tmp_path, "\n".join(lines), "x.jsonl"))
    assert [(r["src"], r["dst"], r["op"]) for r in good] == [(1, 2, None), (3, 4, "delete")]
    assert [(line, reason) for line, reason, _ in bad] == [
        (3, "not JSON"),
        (4, "not a JSON object"),
        (5, "src is '1.5', not an integer"),
        (6, "unknown field hue"),
        (7, "dst is empty"),
    ]


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"src": pa.array([1, None, 3], pa.int32()), "dst": [2, 2, 4]}), tmp_path / "x.parquet")
    good, bad = rows(tmp_path / "x.parquet")
    assert [(r["src"], r["dst"], r["line"]) for r in good] == [(1, 2, 1), (3, 4, 3)]
    assert [(line, reason) for line, reason, _ in bad] == [(2, "src is empty")]
    (tmp_path / "y.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(BrokenFileError):
        rows(tmp_path / "y.parquet")
    pq.write_table(pa.table({"src": ["a"], "dst": [2]}), tmp_path / "z.parquet")
    good, bad = rows(tmp_path / "z.parquet")
    assert not good and bad == [(1, "src is 'a', not an integer", '{"src": "a", "dst": 2}')]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    good, bad = rows(write(tmp_path, b"src,dst\n1,2\n\xff\xfe,3\n"))
    assert len(good) == 1
    assert [(line, reason) for line, reason, _ in bad] == [(3, "not UTF-8")]


def test_numbers_beyond_64_bits(tmp_path: Path) -> None:
    good, bad = rows(write(tmp_path, f"src,dst\n{2**63 - 1},-5\n{2**63},1\n"))
    assert [(r["src"], r["dst"]) for r in good] == [(2**63 - 1, -5)]
    assert [line for line, _, _ in bad] == [3]
