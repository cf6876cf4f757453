"""The same small graph in every format and encoding, as a file and through a pipe, in one file and in several: `land`
makes the same rows of all of them. A generator writes them with Python's own means; what landed is read by Python's
`csv` as well as by the product's reader (`landed_rows`)."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import random
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altneu.pipeline import landing
from altneu.pipeline.home.home import Home
from tests import seeds
from tests.unit.test_land_inputs import by_text, landed_rows

Row = dict[str, Any]
NAMES = ("src", "dst", "w")
INTEGERS = [dict(zip(NAMES, row, strict=True)) for row in [(1, 2, 7), (2, 3, -8), (10, 1, 0), (3, 10, 9)]]
PLAIN = [("ann", "bob", "ü"), ("bob", "cat", "x"), ("dan", "ann", "#y"), ("#e", "bob", "%z")]
HARD = [*PLAIN, ("a,b", 'say "hi"', "1;2|3"), ("Paris, France", "two words", "#"), ("ann", "bob", "")]
TEXTS = [dict(zip(NAMES, row, strict=True)) for row in PLAIN]
HARD_TEXTS = [dict(zip(NAMES, row, strict=True)) for row in HARD]


@dataclass(frozen=True)
class Text:
    """How delimited text is written."""

    separator: str
    quoted: bool
    bom: bool
    end: str
    header: bool
    last_end: bool = True

    def write(self, rows: list[Row], order: tuple[str, ...]) -> bytes:
        stream = io.StringIO()
        writer = csv.writer(
            stream,
            delimiter=self.separator,
            lineterminator=self.end,
            quoting=csv.QUOTE_ALL if self.quoted else csv.QUOTE_MINIMAL,
        )
        writer.writerows([order] if self.header else [])
        writer.writerows([row[name] for name in order] for row in rows)
        text = stream.getvalue() if self.last_end else stream.getvalue().removesuffix(self.end)
        return (b"\xef\xbb\xbf" if self.bom else b"") + text.encode()


def list_text_forms() -> list[Text]:
    return [
        Text(separator, quoted, bom, end, header, last_end=bom)
        for separator, quoted, bom, end, header in itertools.product(
            ",;\t| ", (False, True), (False, True), ("\n", "\r\n"), (False, True)
        )
        if not (quoted and separator == " ")  # quotes do not count in text separated by blanks
    ]


def write_json(rows: list[Row], rng: random.Random) -> bytes:
    lines = []
    for row in rows:
        items = [(name, value) for name, value in row.items() if value != "" or rng.random() < 0.5]
        rng.shuffle(items)
        lines.append(json.dumps(dict(items), ensure_ascii=rng.random() < 0.5))
    return ("\n".join(lines) + "\n").encode()


def write_parquet(rows: list[Row], order: tuple[str, ...], type_: pa.DataType) -> bytes:
    columns = {name: pa.array([row[name] for row in rows]) for name in order}
    is_coded = pa.types.is_dictionary(type_)
    stream = io.BytesIO()
    pq.write_table(
        pa.table({n: c.dictionary_encode() if is_coded else c.cast(type_) for n, c in columns.items()}), stream
    )
    return stream.getvalue()


def land(folder: Path, files: list[Path], columns: tuple[str, ...] = (), ids: str = "integer", **options: Any) -> Path:
    """Land some files into a new home; its folder."""
    home = folder / "home"
    landing.land(Home.draft_home(home), files, landing.LandOptions(columns, epoch=1, ids=ids, **options))
    return home


def expect(home: Path, rows: list[Row]) -> None:
    wanted = [tuple(None if row[name] == "" else row[name] for name in NAMES) for row in rows]
    assert by_text(landed_rows(home, NAMES)) == by_text(wanted)


def name_of(form: Text) -> str:
    signs = f"{form.separator!r} {form.end!r}"
    return f"{signs} {'quoted ' * form.quoted}{'bom ' * form.bom}{'header' if form.header else ''}"


@pytest.mark.parametrize("form", list_text_forms(), ids=name_of)
def test_delimited_text(form: Text, tmp_path: Path) -> None:
    ending = {"\t": ".tsv", " ": ".txt", "|": ".txt"}.get(form.separator, ".csv")
    columns = () if form.header else NAMES
    (tmp_path / f"a{ending}").write_bytes(form.write(INTEGERS, NAMES))
    expect(land(tmp_path, [tmp_path / f"a{ending}"], columns), INTEGERS)
    rows = HARD_TEXTS if form.quoted else TEXTS
    options = {} if form.header else {"header": False}
    (tmp_path / f"b{ending}.gz").write_bytes(gzip.compress(form.write(rows, NAMES)))
    (tmp_path / "names").mkdir()
    expect(land(tmp_path / "names", [tmp_path / f"b{ending}.gz"], columns, "string", **options), rows)


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".json", ".jsonl.gz", ".json.gz", ""])
def test_json_lines(ending: str, tmp_path: Path) -> None:
    rng = random.Random(seeds.one())
    for number, ids in enumerate(["integer", "string"]):
        rows = INTEGERS if ids == "integer" else HARD_TEXTS
        content = write_json(rows, rng)
        file = tmp_path / f"{number}" / f"a{ending}"
        file.parent.mkdir()
        file.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
        expect(land(file.parent, [file], ids=ids), rows)


INTEGER_TYPES = [
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.float64(),
    pa.decimal128(20, 0),
    pa.dictionary(pa.int8(), pa.int64()),
]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()]


@pytest.mark.parametrize("type_", [*INTEGER_TYPES, *TEXT_TYPES], ids=str)
def test_parquet_of_several_types(type_: pa.DataType, tmp_path: Path) -> None:
    is_text = type_ in TEXT_TYPES
    rows = HARD_TEXTS if is_text else INTEGERS
    order = ("w", "dst", "src")
    (tmp_path / "a.parquet").write_bytes(write_parquet(rows, order, type_))
    home = land(tmp_path, [tmp_path / "a.parquet"], ids="string" if is_text else "integer")
    assert landed_rows(home, NAMES) == [tuple(None if row[name] == "" else row[name] for name in NAMES) for row in rows]


def test_several_files_of_all_formats_in_any_order(tmp_path: Path) -> None:
    """Each file has some of the rows, its columns in an order of its own, and another format."""
    rng = random.Random(seeds.one())
    forms = list(list_text_forms())
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows = [{"src": rng.randrange(50), "dst": rng.randrange(50), "w": n} for n in range(rng.randrange(6, 30))]
        files = []
        for part in range(rng.randrange(2, 5)):
            some = rows[part::4] if part else rows[::4]
            order = tuple(rng.sample(NAMES, 3))
            form = rng.choice([each for each in forms if each.header])
            name, content = rng.choice(
                [
                    ("a.jsonl", write_json(some, rng)),
                    ("a.parquet", write_parquet(some, order, pa.int32())),
                    ("a.txt", form.write(some, order)),
                    ("a.txt", form.write(some, order)),
                ]
            )
            files.append(folder / f"{part}-{name}")
            files[-1].write_bytes(content)
        home = land(folder, files)
        expect(home, [row for at, row in enumerate(rows) if at % 4 < len(files)])


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl", "parquet"])
def test_a_named_pipe_gives_all_of_its_rows(kind: str, tmp_path: Path) -> None:
    """More rows than are looked at first, and a pipe whose name says nothing of its format."""
    rows = [{"src": n, "dst": n + 1, "w": n % 7} for n in range(25_000)]
    text = Text(",", False, False, "\n", header=True).write(rows, NAMES)
    content = {
        "csv": text,
        "csv.gz": gzip.compress(text),
        "jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "parquet": write_parquet(rows, NAMES, pa.int64()),
    }[kind]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    home = land(tmp_path, [pipe])
    writer.join()
    expect(home, rows)
    assert not (home / "landing" / "_work").exists() or not list((home / "landing" / "_work").glob("*/*"))


@pytest.mark.parametrize(
    "way",
    ["- < pipe", "<()", *(pytest.param(way, marks=pytest.mark.slow) for way in ("/dev/stdin", "/dev/stdin of a file"))],
)
def test_what_a_shell_gives_is_read_whole(way: str, tmp_path: Path) -> None:
    rows = [{"src": n, "dst": n + 1, "w": n % 7} for n in range(12_000)]
    (tmp_path / "a.csv").write_bytes(Text(",", False, False, "\n", header=False).write(rows, NAMES))
    altneu = f"'{sys.executable}' -m altneu.pipeline.cli --home home land"
    options = "--columns src,dst,w --epoch 1"
    script = {
        "- < pipe": f"cat a.csv | {altneu} - {options}",
        "/dev/stdin": f"cat a.csv | {altneu} /dev/stdin {options}",
        "<()": f"{altneu} <(cat a.csv) {options}",
        "/dev/stdin of a file": f"{altneu} /dev/stdin {options} < a.csv",
    }[way]
    repository = str(Path(landing.__file__).parents[3])
    environment = os.environ | {"PYTHONPATH": repository}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "landed 12,000 rows" in done.stdout
    expect(tmp_path / "home", rows)
