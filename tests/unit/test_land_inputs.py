"""One table of inputs: what `land` makes of each file that people have, by the command and by the call, row by row.

An `Input` says which rows land, how many lines are rejected, and the exit code with words of the message. What lands is
read back by the product's reader and by Python's `csv`, which have to agree. Inputs whose files may as well be put into
the landing folder are read there, too, with the same result.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altneu.pipeline import cli, landing
from altneu.pipeline.errors import AltneuError, Exit
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.s3_config import S3
from altneu.pipeline.landing.file_reader import read_blocks
from altneu.pipeline.landing.spark_reader import COMMENTS_NOTED, _count_file, _File, _iterate_blocks, _row_schema_of

Rows = list[tuple[Any, ...]]
Files = Mapping[str, str | bytes]


def packed(text: str) -> bytes:
    return gzip.compress(text.encode())


def parquet(**columns: list[Any] | pa.Array) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


@dataclass(frozen=True)
class Input:
    """Files and options, and what comes of them. `rows` None: refused. `folder`: the same in the landing folder."""

    name: str
    files: Files
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: Rows | None = None
    says: str | tuple[str, ...] = ()
    rejected: int = 0
    comments: int = 0
    exit: int = Exit.OK
    folder: bool = False

    def words(self) -> tuple[str, ...]:
        return (self.says,) if isinstance(self.says, str) else self.says


REFUSED, FAILED = int(Exit.USAGE), int(Exit.FAILED)
NAMES = {"ids": "string"}
TWO = [(1, 2, 7), (3, 4, 8)]
MATRIX = "%%MatrixMarket matrix coordinate real symmetric\n% made by hand\n9 9 2\n1 2 7\n3 4 8\n"
SNAP = "# Directed graph: x\n# Nodes: 4 Edges: 2\n# FromNodeId\tToNodeId\n"

SEVERAL_FILES = [
    Input(
        "each file has a header in its own order",
        {"a.csv": "src,dst,w\n1,2,7\n", "b.csv": "w,src,dst\n8,3,4\n"},
        rows=TWO,
        says=("understood a.csv as src (long), dst (long), w (long)", "understood b.csv as w (long), src"),
        folder=True,
    ),
    Input(
        "JSON beside CSV",
        {"a.csv": "src,dst,w\n1,2,7\n", "b.jsonl": '{"w": 8, "dst": 4, "src": 3}\n'},
        rows=TWO,
        folder=True,
    ),
    Input(
        "Parquet beside JSON",
        {"a.jsonl": '{"src": 1, "dst": 2, "w": 7}\n', "b.parquet": parquet(w=[8], dst=[4], src=[3])},
        rows=TWO,
        folder=True,
    ),
    Input(
        "another separator in the second file",
        {"a.csv": "src,dst,w\n1,2,7\n", "b.tsv": "w\tsrc\tdst\n8\t3\t4\n"},
        rows=TWO,
    ),
    Input(
        "renamed columns in another order",
        {"a.csv": "from,to,weight\n1,2,7\n", "b.csv": "weight,from,to\n8,3,4\n"},
        {"columns": "src,dst,w"},
        rows=TWO,
        says=("renamed from → src, to → dst, weight → w", "renamed weight → w, from → src"),
    ),
    Input(
        "a part without the header",
        {"a.csv": "src,dst,w\n1,2,7\n", "b.csv": "3,4,8\n"},
        rows=TWO,
        says="understood b.csv as src (long), dst (long), w (long); separated by commas; no header",
    ),
    Input(
        "another set of columns",
        {"a.csv": "src,dst,w\n1,2,7\n", "b.csv": "src,dst,x\n3,4,8\n"},
        exit=REFUSED,
        says="b.csv has other columns than a.csv: it has no w and has x",
    ),
    Input(
        "fewer columns in JSON",
        {"a.csv": "src,dst,w\n1,2,7\n", "b.jsonl": '{"src": 3, "dst": 4}\n'},
        exit=REFUSED,
        says="b.jsonl has other columns than a.csv: it has no w",
    ),
    Input(
        "another header than the first, in a home of names",
        {"a.csv": "src,dst\nann,bob\n", "b.csv": "from,to\ncat,dan\n"},
        NAMES,
        exit=REFUSED,
        says="it has no src, dst and has from, to",
    ),
    Input("the same file twice", {"a.csv": "src,dst\n1,2\n", "a.csv ": ""}, exit=REFUSED, says="empty"),
]

COLUMNS = [
    Input(
        "--columns over another order of the same names",
        {"a.csv": "w,src,dst\n7,1,2\n"},
        {"columns": "src,dst,w"},
        exit=REFUSED,
        says=("contradict each other: is src what the file calls src, or what it calls w?", "--columns w,src,dst"),
    ),
    Input(
        "--columns over a Parquet file's other order",
        {"a.parquet": parquet(w=[7], src=[1], dst=[2])},
        {"columns": "src,dst,w"},
        exit=REFUSED,
        says=("contradict each other", "--columns w,src,dst"),
    ),
    Input(
        "--columns that ends differ alone",
        {"a.csv": "dst,src,w\n2,1,7\n"},
        {"columns": "src,dst,w"},
        exit=REFUSED,
        says="contradict",
    ),
    Input(
        "fewer --columns than the header has",
        {"a.csv": "src,dst,w,t\n1,2,7,9\n"},
        {"columns": "src,dst,w"},
        exit=REFUSED,
        says=("4 column(s), src,dst,w,t", "--columns src,dst,w,_"),
    ),
    *(
        Input(
            f"--columns leaves out and renames in {name}",
            {name: content},
            {"columns": "src,dst,_,w"},
            rows=TWO,
            says="src=1  dst=2  w=7",
        )
        for name, content in {
            "a.csv": "from,to,x,weight\n1,2,no,7\n3,4,no,8\n",
            "b.csv": "1,2,no,7\n3,4,no,8\n",
            "c.jsonl": '{"from":1,"to":2,"x":"no","weight":7}\n{"weight":8,"from":3,"to":4}\n',
            "d.json": '{"from":1,"to":2,"x":[1],"weight":7}\n{"from":3,"to":4,"weight":8}\n',
            "e.parquet": parquet(**{"from": [1, 3], "to": [2, 4], "x": [None, "no"], "weight": [7, 8]}),
            "f.tsv": "from\tto\tx\tweight\n1\t2\ta, b\t7\n3\t4\tc\t8\n",
        }.items()
    ),
    Input(
        "fields of JSON by their own words, in any order",
        {"a.jsonl": '{"w":7,"dst":2,"src":1}\n{"src":3,"dst":4}\n'},
        {"columns": "src,dst,w"},
        rows=[(1, 2, 7), (3, 4, None)],
    ),
    Input(
        "no header with src and dst",
        {"a.csv": "source,target,w\n1,2,7\n"},
        exit=REFUSED,
        says=("a.csv has source, target, w: src is missing", "--columns src,dst,w"),
    ),
    Input("a column without a name", {"a.csv": ",src,dst\n0,1,2\n"}, exit=REFUSED, says="a column has no name"),
    Input(
        "--header for a file of JSON",
        {"a.jsonl": '{"src":1,"dst":2}\n'},
        {"header": True},
        exit=REFUSED,
        says="--header is for delimited text",
    ),
]

COMMENTS = [
    Input(
        "names that begin with # are rows",
        {"a.csv": "#ai,#ml\n#ml,#db\n%41,#db\n"},
        NAMES | {"columns": "src,dst"},
        rows=[("#ai", "#ml"), ("#ml", "#db"), ("%41", "#db")],
    ),
    Input(
        "a value that begins with # in front of integers",
        {"a.csv": "#ai,1,2\n#ml,3,4\n"},
        {"columns": "tag,src,dst"},
        rows=[("#ai", 1, 2), ("#ml", 3, 4)],
    ),
    Input(
        "--comment says what is one",
        {"a.csv": "# mine, all mine\nann,bob\nbob,cat\n%a,#b\n"},
        NAMES | {"columns": "src,dst", "comment": "#"},
        rows=[("ann", "bob"), ("bob", "cat"), ("%a", "#b")],
        comments=1,
        says="1 line(s) before the rows are comments",
    ),
    Input(
        "--comment of more than one character",
        {"a.csv": "// x\n//y\n1,2\n"},
        {"columns": "src,dst", "comment": "//"},
        rows=[(1, 2)],
        comments=2,
    ),
    Input(
        "--comment '': no line is one",
        {"a.csv": "#ai,#ml\nsource,target\nann,bob\n" + "ann,cat\n" * 9},
        NAMES | {"columns": "src,dst", "comment": "", "header": False},
        rows=[("#ai", "#ml"), ("source", "target"), ("ann", "bob"), *[("ann", "cat")] * 9],
    ),
    Input(
        "SNAP, of integers",
        {"a.txt": SNAP + "1\t2\n3\t4\n"},
        {"columns": "src,dst"},
        rows=[(1, 2), (3, 4)],
        comments=3,
        says="3 comment lines",
    ),
    Input(
        "SNAP, of names, and of a row that begins with %",
        {"a.txt": SNAP + "%1\t#2\n%3\t#2\n"},
        NAMES | {"columns": "src,dst"},
        rows=[("%1", "#2"), ("%3", "#2")],
        comments=3,
        says="3 comment lines",
    ),
    Input(
        "KONECT",
        {"out.x": "% sym unweighted\n% 2 4 4\n1 2\n3 4\n"},
        NAMES | {"columns": "src,dst"},
        rows=[("1", "2"), ("3", "4")],
        comments=2,
    ),
    Input(
        "comments before a header",
        {"a.csv": "# mine\n% also\n\nsrc,dst\n1,2\n"},
        rows=[(1, 2)],
        comments=2,
        says="2 line(s) before the rows are comments",
        folder=True,
    ),
    Input(
        "a comment below the header is a rejected line",
        {"a.csv": "src,dst\n" + "1,2\n" * 200 + "# end\n"},
        rows=[(1, 2)] * 200,
        rejected=1,
        says="1 line(s) could not be read",
        folder=True,
    ),
    Input(
        "comments before integers without a header",
        {"a.txt": "#x\n%y\n1 2\n"},
        {"columns": "src,dst"},
        rows=[(1, 2)],
        comments=2,
    ),
    Input(
        "a header that is marked as a comment, or the next line",
        {"a.csv": "# von,nach\nich,du\nalt,neu\n"},
        NAMES | {"columns": "src,dst", "header": True},
        exit=REFUSED,
        says=("its header is either '# von,nach' or 'ich,du'", "--comment '#'"),
    ),
    Input("nothing but comments", {"a.csv": "# x\n"}, {"columns": "src,dst"}, exit=FAILED, says="no row could be read"),
]

FORMATS = [
    *(
        Input(
            f"JSON lines in {name}",
            {name: '\n{"src":1,"dst":2,"w":7}\n{"src":3,"dst":4,"w":8}\n'},
            rows=rows,
            rejected=1,
        )
        for name, rows in {"a.json": TWO, "a": TWO, "a.log": TWO, "a.JSONL": TWO}.items()
    ),
    Input(
        "a JSON array",
        {"a.json": '[{"src":1,"dst":2},\n {"src":3,"dst":4}]\n'},
        exit=REFUSED,
        says=("a.json is one JSON array", "jq -c '.[]'"),
    ),
    Input(
        "a JSON object of many lines",
        {"a.json": '{\n "src": 1,\n "dst": 2\n}\n'},
        exit=REFUSED,
        says=("no line is a JSON object", "jq -c ."),
    ),
    Input("gzip without its ending", {"a.csv": packed("src,dst,w\n1,2,7\n3,4,8\n")}, rows=TWO),
    Input("Parquet without its ending", {"a": parquet(src=[1, 3], dst=[2, 4], w=[7, 8])}, rows=TWO),
    Input("a capital ending", {"A.CSV.GZ": packed("src,dst,w\n1,2,7\n3,4,8\n")}, rows=TWO),
    Input("UTF-16", {"a.csv": "src,dst\n1,2\n".encode("utf-16")}, exit=REFUSED, says=("a.csv is UTF-16", "iconv")),
    Input("bzip2", {"a.csv": b"BZh91AY&SY\x00"}, exit=REFUSED, says="packed by bzip2"),
    Input("xz", {"a.csv.xz": b"\xfd7zXZ\x00\x00"}, exit=REFUSED, says="packed by xz"),
    Input(
        "a name that is like bzip2's first bytes",
        {"a.csv": "BZhang,BZhou\nBZhou,BZhang\n"},
        NAMES | {"columns": "src,dst"},
        rows=[("BZhang", "BZhou"), ("BZhou", "BZhang")],
    ),
    Input("a zip", {"a.csv.zip": b"PK\x03\x04rest"}, exit=REFUSED, says="zip"),
    Input("an empty file", {"a.csv": ""}, {"columns": "src,dst"}, exit=REFUSED, says="it is empty"),
    Input(
        "Parquet with columns of other types that are left out",
        {
            "a.parquet": parquet(
                src=[1, 3], dst=[2, 4], d=pa.array([None, 1], pa.decimal128(5, 2)), b=[b"\xff", b""], w=[7, 8]
            )
        },
        {"columns": "src,dst,_,_,w"},
        rows=TWO,
    ),
]

FIRST_ROWS: list[tuple[str, str, Rows]] = [
    ("a vertex occurs again", "src,dst", [("ann", "bob"), ("cat", "ann"), ("dan", "eve")]),
    ("it is formed as the others", "src,dst", [("u1", "u2"), ("u3", "u4"), ("u5", "u6")]),
    ("it has a sign", "src,dst", [("a@x", "b@x"), ("c@x", "d@x")]),
    ("a value occurs again", "src,dst,kind", [("a", "b", "likes"), ("c", "d", "likes")]),
    ("it is alone", "src,dst", [("von", "nach")]),
]

GUESSES = [
    Input(
        "a .tsv with a comma within a field",
        {"a.tsv": "Paris, France\tLyon\nLyon\tRome, Italy\n"},
        NAMES | {"columns": "src,dst"},
        rows=[("Paris, France", "Lyon"), ("Lyon", "Rome, Italy")],
    ),
    Input(
        "a .csv of semicolons with decimal commas",
        {"a.csv": "1;2;0,5\n3;4;1,5\n"},
        {"columns": "src,dst,w"},
        rows=[(1, 2, "0,5"), (3, 4, "1,5")],
        says="semicolons",
    ),
    Input(
        "text with blanks and decimal commas",
        {"a.txt": "1 2 0,5\n3 4 1,5\n"},
        {"columns": "src,dst,w"},
        rows=[(1, 2, "0,5"), (3, 4, "1,5")],
        says="separated by blanks",
    ),
    Input("vertical bars", {"a.txt": "1|2|7\n3|4|8\n"}, {"columns": "src,dst,w"}, rows=TWO, says="vertical bars"),
    Input("a comma and a blank", {"a.txt": "1, 2\n3, 4\n"}, {"columns": "src,dst"}, rows=[(1, 2), (3, 4)]),
    Input(
        "two separators that fit alike",
        {"a.txt": "a,b\tc\nd,e\tf\n"},
        NAMES | {"columns": "src,dst"},
        exit=REFUSED,
        says=("['a', 'b\\tc'] by commas or ['a,b', 'c'] by tabs", "--sep ',' or --sep tab"),
    ),
    Input(
        "Matrix Market", {"a.mtx": MATRIX}, {"columns": "src,dst,w"}, rows=TWO, comments=2, says="the line of its size"
    ),
    Input(
        "Matrix Market in a text file, of names",
        {"a.txt": MATRIX},
        NAMES | {"columns": "src,dst,_"},
        rows=[("1", "2"), ("3", "4")],
        comments=2,
    ),
    Input(
        "Matrix Market names its columns",
        {"a.mtx": MATRIX.replace("real", "pattern").replace(" 7", "").replace(" 8", "")},
        rows=[(1, 2), (3, 4)],
        comments=2,
    ),
    Input(
        "Matrix Market of the kind array",
        {"a.mtx": "%%MatrixMarket matrix array real general\n1 1\n5\n"},
        exit=REFUSED,
        says="matrix array",
    ),
    *(
        Input(
            f"a header in the middle, {ids} ids",
            {"a.csv": "src,dst\n1,2\nsrc,dst\n3,4\n"},
            {"ids": ids},
            rows=[(1, 2), (3, 4)] if ids == "integer" else [("1", "2"), ("3", "4")],
            rejected=1,
            says="the header again",
            folder=True,
        )
        for ids in ("integer", "string")
    ),
    Input(
        "another header in the middle, of names",
        {"a.csv": "von,nach,_\na,b,x\nvon,nach,_\nc,d,y\n"},
        NAMES | {"columns": "src,dst,_", "header": True},
        rows=[("a", "b"), ("c", "d")],
        rejected=1,
    ),
    Input(
        "a first line of names that may be a header",
        {"a.csv": "von,nach\nich,du\nalt,neu\n"},
        NAMES | {"columns": "src,dst"},
        exit=REFUSED,
        says=("'von,nach', is either a header or the first edge", "--header for the first, --no-header for the second"),
    ),
    *(
        Input(
            f"--{'header' if header else 'no-header'} decides",
            {"a.csv": "von,nach\nich,du\nalt,neu\n"},
            NAMES | {"columns": "src,dst", "header": header},
            rows=[("von", "nach"), ("ich", "du"), ("alt", "neu")][header:],
        )
        for header in (True, False)
    ),
    *(
        Input(
            f"a first line is a row: {why}",
            {"a.csv": "\n".join(map(",".join, rows)) + "\n"},
            NAMES | {"columns": columns},
            rows=rows,
        )
        for why, columns, rows in FIRST_ROWS
    ),
    Input(
        "a first line of another length is no header",
        {"a.txt": "-1 means customer\n" + "1\t2\t0\n" * 200},
        {"columns": "src,dst,_"},
        rows=[(1, 2)] * 200,
        rejected=1,
    ),
]

NAMES_OF_FILES = [
    Input(
        "a file whose name is no UTF-8", {"\udce9\udcff.csv": "src,dst\n1,2\n"}, rows=[(1, 2)], says="\\xe9\\xff.csv"
    ),
    Input(
        "a file whose name has controls", {"a\x1b[31m\n.csv": "src,dst\n1,2\n"}, rows=[(1, 2)], says="a\\x1b[31m\\n.csv"
    ),
    Input("a name of a URI's signs", {"a%41?#=&.csv": "src,dst\n1,2\n"}, rows=[(1, 2)]),
    Input("the longest name", {"ü" * 125 + ".csv": "src,dst\n1,2\n"}, rows=[(1, 2)]),
    Input(
        "a column that is no UTF-8", {"a.csv": "1,2,3\n"}, {"columns": "src,dst,w\udcff"}, exit=REFUSED, says="w\\xff"
    ),
    Input(
        "a column with a control",
        {"a.csv": "1,2,3\n"},
        {"columns": "src,dst,w\x1b"},
        exit=REFUSED,
        says="column w\\x1b: a name must not have control characters",
    ),
    Input(
        "a time column with a control",
        {"a.csv": "1,2,3\n"},
        {"columns": "src,dst,t\x1b", "time_column": "t\x1b", "every": "1d"},
        exit=REFUSED,
        says="t\\x1b",
    ),
]

TABLE = [*SEVERAL_FILES, *COLUMNS, *COMMENTS, *FORMATS, *GUESSES, *NAMES_OF_FILES]
FLAGS = {"time_column": "--time", "time_format": "--time-format", "separator": "--sep"}


@dataclass(frozen=True)
class Outcome:
    exit: int
    text: str
    report: landing.LandReport | None = None


def call(home: Path, files: list[Path], options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Outcome:
    """Land by the Python call; what it says is what the command would print."""
    said: list[str] = []

    def confirm(form: landing.RawFormat) -> bool:
        said.extend(form.describe())
        return True

    columns = tuple(filter(None, options.pop("columns", "").split(",")))
    try:
        report = landing.land(
            Home.draft_home(home), files, landing.LandOptions(columns, **options), said.append, confirm
        )
    except AltneuError as error:
        return Outcome(error.exit, f"{error.what} {error.next}")
    said += [reason for _, _, reason, _ in report.rejected]
    return Outcome(0, "\n".join(said), report)


def command(home: Path, files: list[Path], options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Outcome:
    arguments: list[str] = []
    for name, value in options.items():
        flag = FLAGS.get(name, f"--{name}")
        arguments += [flag if value else f"--no-{name}"] if isinstance(value, bool) else [flag, str(value)]
    with pytest.raises(SystemExit) as ended:
        cli.main(["--home", str(home), "land", *map(str, files), *arguments])
    shown = capsys.readouterr()
    return Outcome(int(ended.value.code or 0), shown.out + shown.err)


def landed_rows(home: Path, names: Sequence[str] = ()) -> Rows:
    """Read what has landed by the product's reader; Python's csv module has to read the same. `names`: the columns of a
    row, else those of the landed file in its order."""
    opened = Home.open(home)
    rows: Rows = []
    for batch in landing.list_batches(opened).values():
        for file in batch.files:
            with Path(file.location).open(newline="") as stream:
                plain = list(csv.DictReader(stream))
            own = [] if not plain else list(names) or list(plain[0])
            landed: Rows = []
            for block in read_blocks(file.location, _row_schema_of(opened)):
                assert not block.malformed_rows
                landed += list(zip(*(block.rows[name].to_pylist() for name in own), strict=True))
            for row, texts in zip(landed, plain, strict=True):
                for cell, text in zip(row, (texts[name] for name in own), strict=True):
                    assert (text or None) == cell if cell is None else type(cell)(text) == cell
            rows += landed
    return rows


def write_files(folder: Path, files: Files) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return [folder / name for name in files]


def by_text(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("way", [call, command])
@pytest.mark.parametrize("given", TABLE, ids=[each.name for each in TABLE])
def test_what_lands_is_what_was_in_the_files(
    given: Input,
    way: Callable[..., Outcome],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "home"
    files = write_files(tmp_path / "raw", given.files)
    monkeypatch.chdir(tmp_path / "raw")
    options = dict(given.options)
    if "time_column" not in options:
        options["epoch"] = 1
    outcome = way(home, [Path(file.name) for file in files], options, capsys)
    assert outcome.exit == given.exit, outcome.text
    for words in given.words():
        if way is command or not words.endswith(("are comments", "could not be read")):
            assert words in outcome.text
    assert outcome.text.isprintable() or set(filter(lambda sign: not sign.isprintable(), outcome.text)) <= {"\n"}
    if given.rows is None:
        assert not home.exists()
        return
    assert by_text(landed_rows(home)) == by_text(given.rows)
    if outcome.report:
        assert len(outcome.report.rejected) == given.rejected
        assert outcome.report.comments == given.comments
        assert (outcome.report.rejected_file is not None) == bool(given.rejected)
    assert not list((home / "landing" / "_work").glob("*/inputs"))


@pytest.mark.parametrize("given", [each for each in TABLE if each.folder], ids=lambda each: each.name)
def test_the_landing_folder_reads_the_same(given: Input, tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home", create=True).declare_settings(values={"w": "long"})
    if given.options.get("ids") == "string":
        home = home.declare_settings(vertices={"ids": "string"})
    folder = home.landing / "epoch=1"
    folder.parent.mkdir()
    rows: Rows = []
    bad = 0
    for file in write_files(folder, given.files):
        listed = _File(1, str(file), file.name, _row_schema_of(home), S3.from_environment())
        for good, malformed in _iterate_blocks(listed):
            names = ["src", "dst", "w"][: len((given.rows or [()])[0])]
            rows += list(zip(*(good[name].to_pylist() for name in names), strict=True))
            bad += sum(reason != COMMENTS_NOTED for _, reason, _ in malformed)
        (count,) = (table.to_pylist()[0] for table in _count_file(listed))
        assert count["serious"] == 0 or "1 line(s) could not be read" in given.says
    assert (by_text(rows), bad) == (by_text(given.rows or []), given.rejected)
