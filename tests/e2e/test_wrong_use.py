"""Wrong input of every kind: the exit code, a message that names the input, and nothing that was published moves.

One row a mistake. Rows of `FAST` are answered before Spark starts, which is a part of what they test; `WITH_SPARK` has
the others. A new command or option gets its rows here.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from altneu.pipeline import cli
from altneu.pipeline.cli.command_line import app
from altneu.pipeline.cli.status import fold_months
from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.reading.query_model import COMMON_OPTIONS, FLAGS, NAMES, VIEWS
from altneu.pipeline.storage import session as sparks
from tests.canonical import History
from tests.e2e.conftest import Altneu, Outcome
from tests.home_helpers import make
from tests.ledger_only import LedgerOnly
from tests.report.seed import DAY, Seed

DAYS = 6


class Wrong(NamedTuple):
    command: str  # {home}, {tmp}: the home, a folder next to it
    code: int
    says: str  # in what the terminal shows, boxes and line ends left out
    home: str = "published"


def _ignored() -> list[Wrong]:
    """Every option with every view that has no use for it."""
    values = {
        "as_of": "2004-07-02",
        "revision": "1",
        "since_revision": "1",
        "all_epochs": "",
        "k": "4",
        "vertices": "7",
        "edge": "7 8",
    }
    words = {"": "", "FROM TO": "2004-07-01 2004-07-03", "[FROM [TO]]": "2004-07-02", "NAME": "pairs"}
    rows = []
    for view in VIEWS:
        given = f"{words[view.epoch_arguments]} {'--since-revision 1' if 'since_revision' in view.options else ''}"
        takes = {option for each in VIEWS if each.name == view.name for option in each.options if option != "as_of"}
        for option, value in values.items():
            fits = option in view.options or (option == "since_revision" and option in takes)
            if not fits:
                flag = FLAGS[option]
                rows.append(Wrong(f"show {view.name} {given} {flag} {value}", 2, f"{flag} cannot be combined with"))
    return rows


FAST = [
    # no home, or no place for one
    Wrong("status", 2, "is not an altneu home", "none"),
    Wrong("show totals", 2, "altneu init", "none"),
    Wrong("plan", 2, "is not an altneu home", "none"),
    Wrong("run 1", 2, "is not an altneu home", "none"),
    Wrong("relocate", 2, "is not an altneu home", "none"),
    Wrong("move {home}", 2, "is not an altneu home", "none"),
    Wrong("status", 2, "is a file", "file"),
    Wrong("init", 2, "is a file", "file"),
    Wrong("demo", 2, "is a file", "file"),
    Wrong("land {home} --columns src,dst --epoch 1", 2, "is a file", "file"),
    Wrong("connect", 2, "is a file", "file"),
    # nothing landed, nothing published
    Wrong("plan", 0, "nothing is landed", "empty"),
    Wrong("status", 0, "nothing is landed", "empty"),
    Wrong("backfill --all", 0, "nothing is landed", "empty"),
    Wrong("run 1", 2, "epoch 1 is not landed", "empty"),
    Wrong("show totals", 1, "nothing is published yet", "empty"),
    Wrong("show edges", 1, "nothing is published yet", "empty"),
    Wrong("show quarantine", 1, "nothing is published yet", "empty"),
    Wrong("explain edge 1 2", 1, "nothing is published yet", "empty"),
    Wrong("audit", 1, "nothing is published yet", "empty"),
    Wrong("repair", 1, "nothing is published yet", "empty"),
    Wrong("tables", 1, "nothing is published yet", "empty"),
    Wrong("report --json", 1, "nothing is published yet", "empty"),
    *(
        Wrong(
            command, 1, "nothing is published: revision 2 is empty, because it is a rollback to revision 0", "emptied"
        )
        for command in ("show totals", "show edges", "explain edge 1 2", "audit", "report --json", "compact --dry-run")
    ),
    Wrong("report 1", 2, "never landed and run", "empty"),
    # held runs: `held` has one, of 2004-07-07, and a second one that revision 2 has overtaken
    Wrong("publish", 2, "no run is held", "empty"),
    Wrong("publish", 2, "no run is held", "published"),
    Wrong("discard", 2, "no run is held", "published"),
    Wrong("publish run0001", 2, "run run0001 is not held: it is published, as revision 1"),
    Wrong("discard run0001", 2, "run run0001 is not held: it is published, as revision 1"),
    Wrong("publish nobody", 2, "there is no run 'nobody'"),
    Wrong("publish", 2, "2 runs are held: say which one (run0002, run0004)", "held"),
    Wrong("publish run0002", 1, "revision 2 was published meanwhile (by run run0003)", "held"),
    Wrong("publish run0002", 1, "altneu run 2004-07-07 --hold (computes it again)", "held"),
    Wrong("publish run0004", 2, "differ from those that held run run0004 was computed with", "held"),
    Wrong("status", 0, "run run0002 on revision 1 (2004-07-07); overtaken by revision 2", "held"),
    Wrong("status", 0, "run run0004 on revision 2 (2004-07-09); kept until", "held"),
    Wrong("diff", 2, "no run is held"),
    Wrong("diff", 2, "2 runs are held: say which one", "held"),
    Wrong("diff nobody", 2, "there is no run 'nobody'"),
    Wrong("diff 1", 2, "1: name one run, or two revisions"),
    Wrong("diff 1 2 3", 2, "1 2 3: name one run, or two revisions"),
    Wrong("diff 1 run0002", 2, "two revisions have to be two numbers"),
    Wrong("diff 1 9", 1, "revision 9 was not published"),
    Wrong("diff 1 2 --format csv", 2, "a file of rows needs --rows"),
    Wrong("diff 1 2 --output {tmp}/rows.csv", 2, "a file of rows needs --rows"),
    Wrong("diff 1 2 --rows edges --page", 2, "--page shows first rows of both"),
    Wrong("diff 1 2 --page --format json", 2, "--page writes a page"),
    Wrong("diff 1 2 --rows triangles", 2, "'triangles' is not one of"),
    Wrong("diff 1 2 --rows edges --format parquet", 2, "parquet needs a file"),
    Wrong("diff --other {tmp}/nowhere", 2, "is not an altneu home"),
    Wrong("diff 1 2 --other {tmp}/nowhere", 2, "name no run or revision"),
    Wrong("rebuild --dry-run --hold", 2, "--dry-run computes nothing: it cannot be combined with --hold", "published"),
    Wrong("run 2004-07-01 --hold --held", 2, "No such option"),
    Wrong("rebuild", 2, "nothing is published", "empty"),
    Wrong("rebuild --dry-run", 2, "nothing is published", "empty"),
    Wrong("rollback 1", 1, "revision 1 was not published", "empty"),
    Wrong("compact --dry-run", 1, "nothing is published yet", "empty"),
    # what is landed: neither the landing nor the settings move
    Wrong("land nofile.csv --columns src,dst --epoch 1", 2, "nofile.csv: no such file", "empty"),
    Wrong("land {home} --columns src,dst --epoch 1", 2, "is a folder, not a file", "empty"),
    Wrong("land {home}.csv --columns src,dst,ts", 2, "either --time COLUMN (with --every) or --epoch E", "empty"),
    Wrong("land {home}.csv --columns src,dst,ts --time ts", 2, "add --every 1d", "empty"),
    Wrong("land {home}.csv --columns src,dst,ts --time when --every 1d", 2, "--time when: no such column", "empty"),
    Wrong("land {home}.csv --columns src,dst,ts --time ts --every 1x", 2, "--every 1x", "empty"),
    Wrong("land {home}.csv --columns src,dst,ts --time ts --every 1d --epoch 1", 2, "give either --time", "empty"),
    Wrong("land {home}.csv --columns src,dst,ts --time ts --every 1d --time-unit s", 1, "outside the years", "empty"),
    Wrong("land {home}.csv --columns src --epoch 1", 2, "dst is missing", "empty"),
    Wrong("land {home}.csv --columns src,src,ts --epoch 1", 2, "dst is missing", "empty"),
    Wrong("land {home}.csv --columns src,dst --epoch 1", 1, "3 fields instead of 2", "empty"),
    Wrong("land {home}.csv --columns src,dst,w,x --epoch 1", 1, "3 fields instead of 4", "empty"),
    Wrong("land {home}.csv --columns src,dst,b --epoch 1", 2, "column b: the name is reserved", "empty"),
    Wrong("land {home}.csv --columns src,dst,a.b --epoch 1", 2, "give it another name: --columns src,dst,a_b", "empty"),
    Wrong("land {home}.csv --columns src,dst,ts --epoch tomorrow", 2, "'tomorrow' is not an integer", "empty"),
    Wrong("land {home}-names.csv --columns src,dst --epoch 1", 1, 'ids = "string"', "empty"),
    # unknown words
    Wrong("shwo totals", 2, "Did you mean 'show'"),
    Wrong("show", 2, "Missing argument"),
    Wrong("show edgs", 2, "'edgs' is not one of"),
    Wrong("show edges --as_of 2004-07-01", 2, "No such option"),
    Wrong("status --format csv", 2, "'csv' is not one of"),
    Wrong("status --format parquet", 2, "'parquet' is not one of"),
    Wrong("plan --format csv", 2, "'csv' is not one of"),
    Wrong("explain edge 1 2 --format parquet", 2, "'parquet' is not one of"),
    Wrong("show totals --format xml", 2, "'xml' is not one of"),
    Wrong("--log-format yaml status", 2, "'yaml' is not one of"),
    # options that are not for this view
    *_ignored(),
    Wrong("show changes", 2, "needs two epochs, or --since-revision R"),
    Wrong("show changes 2004-07-01", 2, "changes takes FROM TO"),
    Wrong("show changes 2004-07-01 2004-07-02 2004-07-03", 2, "changes takes FROM TO"),
    Wrong("show edges 2004-07-01", 2, "edges takes no epochs as words"),
    Wrong("show edges 2004-07-02", 2, "altneu show edges --as-of 2004-07-02"),
    Wrong("show totals 2004-07-01 2004-07-02", 2, "totals takes no epochs as words"),
    Wrong("show quarantine 1 2 3", 2, "quarantine takes [FROM [TO]]"),
    Wrong("show changes 2004-07-03 2004-07-01", 2, "altneu show changes 2004-07-01 2004-07-03"),
    Wrong("show changes 2004-07-03 2004-07-01 --k 4", 2, "is backwards"),
    Wrong("show triangles 2004-07-03 2004-07-01", 2, "altneu show triangles 2004-07-01 2004-07-03"),
    Wrong("show checks 2004-07-03 2004-07-01", 2, "altneu show checks 2004-07-01 2004-07-03"),
    Wrong("show vertices --top 3 --limit 2", 2, "--top and --limit do not go together"),
    Wrong("show edges --vertex 1 --edge 1 2", 2, "--vertex and --edge do not go together"),
    Wrong("show edges --edge 1 1", 2, "two different ends"),
    Wrong("show edges --top 0", 2, "--top 0: it must be at least 1"),
    Wrong("show edges --limit -1", 2, "--limit -1: it must be at least 1"),
    Wrong("show communities --k 1", 2, "--k 1: it must be at least 2"),
    Wrong("show changes --since-revision -1", 2, "--since-revision -1: it must be at least 0"),
    Wrong("show changes --since-revision 99", 2, "--since-revision 99 is after revision 2"),
    Wrong("show query", 2, "NAME"),
    Wrong("show query pairs", 2, "has no query 'pairs'"),
    Wrong("queries --format xml", 2, "'xml' is not one of"),
    Wrong("certify 99", 1, "revision 99 was not published; the newest is 2"),
    Wrong("show totals --published-at tomorrow", 2, "'tomorrow' is not a moment"),
    Wrong("show totals --published-at 2000-01-01 --revision 1", 2, "--revision and --published-at do not go together"),
    Wrong("show totals --published-at 2000-01-01", 1, "nothing was published at 2000-01-01T00:00:00"),
    Wrong("show totals --revision 0", 2, "--revision 0: it must be at least 1"),
    Wrong("show edges --sort weight", 2, "--sort weight: edges has no such column; it has src, dst, trussness"),
    Wrong("show totals --sort -weight", 2, "--sort weight: totals has no such column"),
    Wrong("show totals --top 2 --sort -edges", 2, "leave the minus out"),
    Wrong("show totals --engine duckdb", 2, "--engine cannot be combined with totals"),
    Wrong("show edges --engine sparks", 2, "'sparks' is not one of"),
    Wrong("explain edge 1 2 --engine sparks", 2, "'sparks' is not one of"),
    Wrong("show totals --where 'weight > 3'", 2, "there is no column 'weight'"),
    Wrong("show totals --where 'edges >'", 2, "--where 'edges >' cannot be read"),
    Wrong("show totals --where '1); DROP TABLE rows; --'", 2, "cannot be read"),
    # epochs and revisions
    Wrong("show totals --as-of yesterday", 2, "neither an integer nor a date"),
    Wrong("show totals --as-of 2004-07-02T05", 2, "it lies in the interval 2004-07-02"),
    Wrong("show totals --as-of 2005-01-01", 2, "after the frontier 2004-07-06"),
    Wrong("show edges --as-of 2005-01-01", 2, "after the frontier 2004-07-06"),
    Wrong("show trusses --as-of 2005-01-01", 2, "after the frontier 2004-07-06"),
    Wrong("show changes 2004-07-01 2005-01-01", 2, "after the frontier 2004-07-06"),
    Wrong("show query pairs", 2, "revision 2 has no query 'pairs'; it has none"),
    Wrong("queries --revision 77", 1, "revision 77 was not published; the newest is 2"),
    Wrong("tables --revision 77", 1, "revision 77 was not published; the newest is 2"),
    Wrong("tables --revision 0", 2, "--revision 0: it has to be at least 1"),
    Wrong("tables --format xml", 2, "'xml' is not one of"),
    Wrong("show totals --revision 77", 1, "revision 77 was not published; the newest is 2"),
    Wrong(
        "show quarantine 2005-01-01", 2, "never published. The nearest epochs are 2004-07-04, 2004-07-05, 2004-07-06"
    ),
    Wrong("show checks 2005-01-01", 2, "never published"),
    Wrong("plan 2004-07-05 2004-07-01", 2, "the first epoch is after the last"),
    Wrong("backfill", 2, "give FROM and TO, or --all"),
    Wrong("backfill 2004-07-01", 2, "give FROM and TO, or --all"),
    Wrong("backfill 2004-07-01 2004-07-03 --all", 2, "give FROM and TO, or --all"),
    Wrong("run", 2, "Missing argument"),
    Wrong("run 2004-12-24", 2, "epoch 2004-12-24 is not landed"),
    Wrong("run 2004-07-01", 2, "--remove"),
    Wrong("audit 2005-01-01", 2, "after the frontier"),
    Wrong("audit --sample -1", 2, "--sample"),
    Wrong("audit --shadow --third-party", 2, "--third-party cannot be combined with --shadow"),
    Wrong("report 2005-01-01", 2, "never landed and run. The nearest epochs are 2004-07-04, 2004-07-05, 2004-07-06"),
    Wrong("report 2004-07-01 --all", 2, "give either an epoch or --all"),
    Wrong("report --json --data-docs", 2, "--json writes no pages"),
    Wrong("report --all --revision 1", 2, "--revision is for the page of one epoch: it cannot be combined with --all"),
    Wrong("report 2004-07-01 --data-docs --revision 1", 2, "it cannot be combined with --data-docs"),
    Wrong("report 2004-07-01 --revision 99", 1, "revision 99 was not published"),
    Wrong("report 2005-01-01 --revision 1", 2, "never published at revision 1. The nearest epochs are "),
    Wrong("report --revision 0", 1, "nothing is published"),
    Wrong("rollback 2", 2, "revision 2 is the newest already"),
    Wrong("rollback 2 --dry-run", 2, "revision 2 is the newest already"),
    Wrong("rollback 1 2", 2, "unexpected extra argument"),
    Wrong("rollback seven", 2, "Invalid value for 'revision'"),
    Wrong("rollback 77", 1, "revision 77 was not published"),
    Wrong("rollback 77 --dry-run", 1, "revision 77 was not published"),
    Wrong("status --last 0", 2, "--last"),
    Wrong("status --since tomorrow", 2, "neither an integer nor a date"),
    Wrong("status --all --failed", 2, "--all cannot be combined with"),
    Wrong("compact --grace -1", 2, "--grace"),
    Wrong("explain edge 1", 2, "edge takes 2 different vertices, not 1"),
    Wrong("explain edge 1 1", 2, "edge takes 2 different vertices"),
    Wrong("explain triangle 1 2", 2, "triangle takes 3 different vertices"),
    Wrong("explain vertex 1 2", 2, "vertex takes one vertex"),
    Wrong("explain cat 1", 2, "'cat' is not one of"),
    Wrong("explain edge 1 2 --as-of 2005-01-01", 2, "after the frontier"),
    # places to write to
    Wrong("show totals --format parquet", 2, "parquet needs a file"),
    Wrong("show edges --format parquet", 2, "parquet needs a file"),
    Wrong("show edges --output {tmp}/nowhere/e.csv", 2, "there is no folder"),
    Wrong("show totals --output {tmp}/nowhere/e.csv", 2, "mkdir -p"),
    Wrong("show totals --output {tmp}", 2, "is a folder"),
    Wrong("show totals --output {tmp}/e.xlsx", 2, "the ending '.xlsx' is not that of a format"),
    Wrong("show totals --output {tmp}/e", 2, "has no ending that names a format"),
    Wrong("show totals --format csv --output {tmp}/e.parquet", 2, "ends like parquet, but --format is csv"),
    Wrong("status --home {home}/within", 2, "is a file", "file"),
    Wrong("init --home {home}/a/b", 2, "is a file", "file"),
    # the folders of published epochs are gone
    Wrong("plan", 0, "--remove"),
    Wrong("rebuild --from-landing", 2, "not in the landing any more"),
]


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One set for all rows: none of them may change it."""
    folder = tmp_path_factory.mktemp("homes")
    found = {name: folder / name for name in ("none", "empty", "published", "emptied", "held", "file")}
    found["file"].write_text("a file")
    Seed(found["empty"], "")
    (folder / "empty.csv").write_text("1,2,1084579200000\n1,3,1084579200000\n")
    (folder / "empty-names.csv").write_text("ada,bob\nbob,cy\n")
    seed = Seed(found["published"])
    seed.good_days(DAYS - 1)
    seed.run({DAY + DAYS - 1: (3, 1)}, {DAY + DAYS - 1: {"edges": 2, "truss2": 2}})
    seed = Seed(found["held"])
    seed.good_days(2)
    seed.hold(DAY + 6)
    seed.run({DAY + 7: (3, 0)})
    seed.hold(DAY + 8)
    seed = Seed(found["emptied"])
    seed.good_days(2)
    seed.rollback(0)
    return found


Call = Callable[[Path, str], Outcome]


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command in this process, where Spark cannot be started."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(sparks, "session_for", refused)
    monkeypatch.setattr(sparks, "start_session", refused)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run(home: Path, command: str) -> Outcome:
        code = 0
        try:
            cli.main(["--home", str(home), *shlex.split(command.format(home=home, tmp=tmp_path))])
        except SystemExit as ended:
            code = int(ended.code or 0)
        shown = capsys.readouterr()
        return Outcome(code, shown.out, shown.err)

    return run


def state_of(home: Path) -> dict[str, str]:
    """What must not move: settings, landing, tables, and the rows of the database."""
    found = {}
    for path in sorted(home.rglob("*")) if home.is_dir() else []:
        inside = path.relative_to(home)
        if path.is_file() and path.name != "lock" and inside.parts[0] in ("altneu.toml", "landing", "warehouse"):
            found[str(inside)] = hashlib.sha256(path.read_bytes()).hexdigest()
    if (home / "altneu.db").exists():
        with sqlite3.connect(home / "altneu.db") as database:
            for table in ("ledger", "runs", "batches", "totals", "stages", "checks"):
                found[table] = repr(database.execute(f"SELECT * FROM {table}").fetchall())
    return found


def flat(outcome: Outcome) -> str:
    return re.sub(r"[│╭╮╰╯─\s]+", " ", outcome.out + outcome.err)


@pytest.mark.parametrize("wrong", FAST, ids=lambda wrong: f"{wrong.home}: {wrong.command}")
def test_wrong_use(wrong: Wrong, homes: dict[str, Path], call: Call) -> None:
    home = homes[wrong.home]
    before = state_of(home)
    found = call(home, wrong.command)
    assert (found.code, wrong.says in flat(found)) == (wrong.code, True), flat(found)
    assert "Traceback" not in found.err
    assert state_of(home) == before


def test_every_view_and_option_has_its_rows() -> None:
    """The table of views names what the command takes, and nothing else."""
    assert {option for view in VIEWS for option in (*view.options, *COMMON_OPTIONS)} == set(FLAGS)
    tested = " ".join(wrong.command for wrong in FAST)
    assert [flag for flag in FLAGS.values() if flag not in tested] == []
    assert [name for name in NAMES if f"show {name}" not in tested] == []
    assert [
        command.callback.__name__
        for command in app.registered_commands
        if command.callback
        and command.callback.__name__ not in tested
        and command.callback.__name__ not in ("airflow", "dags", "doctor", "setup")  # they take no input, or a port
    ] == []


def unprivileged(home: Path, *arguments: str, **environment: str) -> Outcome:
    """A command in a process that may write only what its permissions say, also when root runs the tests."""
    line = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home), *arguments]
    if os.geteuid() == 0:
        drop = "-dac_override,-dac_read_search"
        line = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}", "--", *line]
    found = subprocess.run(line, env=os.environ | environment, capture_output=True, check=False, timeout=120)
    return Outcome(found.returncode, found.stdout.decode(), found.stderr.decode())


READ_ONLY = [
    Wrong("status", 0, "revision 2"),
    Wrong("show totals", 0, "2004-07-06"),
    Wrong("plan", 0, "1 missing"),
    Wrong("report", 1, "permission denied"),
    Wrong("show totals --output {home}/t.csv", 2, "cannot be written"),
    Wrong("land {home}/altneu.toml --columns src,dst --epoch 2004-07-01", 1, "permission denied"),
]


@pytest.mark.needs("unprivileged start")
def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    """What reads, answers; what writes, says which place cannot be written, in one line."""
    seed = Seed(tmp_path / "home")
    seed.good_days(DAYS - 1)
    seed.run({DAY + DAYS - 1: (3, 1)}, {DAY + DAYS - 1: {"edges": 2, "truss2": 2}})
    home = seed.home.path
    (home / "landing" / "epoch=2004-07-09").mkdir(parents=True)
    file = home / "landing" / "epoch=2004-07-09" / "rows.csv"
    file.write_text("src,dst\n1,2\n")
    (file.parent / "_SUCCESS").touch()
    before = state_of(home)
    places = [home, *home.rglob("*")]
    for place in places:
        place.chmod(0o500 if place.is_dir() else 0o400)
    try:
        for wrong in READ_ONLY:
            found = unprivileged(home, *shlex.split(wrong.command.format(home=home)))
            assert (found.code, wrong.says in flat(found)) == (wrong.code, True), (wrong.command, flat(found))
            assert "Traceback" not in found.err
    finally:
        for place in places:
            place.chmod(0o700)
    assert state_of(home) == before


def test_a_terminal_without_our_letters(tmp_path: Path) -> None:
    seed = Seed(tmp_path / "home", "")
    (seed.home.landing / "epoch=1").mkdir(parents=True)
    (seed.home.landing / "epoch=1" / "rows.csv").write_text("src,dst\n1,2\n")
    (seed.home.landing / "epoch=1" / "_SUCCESS").touch()
    seed.run({1: (1, 0)}, error="größer → kleiner …")
    plain = unprivileged(seed.home.path, "status", PYTHONIOENCODING="ascii", LANG="C", LC_ALL="C")
    assert (plain.code, "gr\\xf6\\xdfer -> kleiner ..." in plain.out) == (0, True), plain


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_heading_is_cut(columns: int, homes: dict[str, Path], call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = call(homes["published"], "show totals --all-epochs").out
    assert all(len(line) <= columns for line in shown.splitlines())
    assert all(name in shown for name in ("label", "max_trussness", "transitivity"))
    assert shown.count("max_trussness") == (1 if columns == 200 else DAYS)


def test_what_status_lists(homes: dict[str, Path], call: Call) -> None:
    home = homes["published"]
    assert [line.split()[0] for line in call(home, "status --last 2").out.splitlines()[-2:]] == [
        "2004-07-05",
        "2004-07-06",
    ]
    since = call(home, "status --since 2004-07-04").out
    assert "2004-07-04" in since and "2004-07-03" not in since
    assert json.loads(call(home, "status --failed --format json").out)["epochs"] == []


def test_long_histories_are_folded() -> None:
    """A month in which all is well is one line; one in which something is not is listed day by day."""
    good = {"state": "published", "rows": 5, "revision": 1, "audited": True, "audit": "equal", "error": None}
    days = [{**good, "epoch": n, "label": f"2004-{6 + n // 30:02}-{n % 30 + 1:02}"} for n in range(90)]
    days[40] |= {"state": "failed", "error": "why"}
    lines = fold_months(days)
    assert lines[0] == {
        "epoch": "2004-06",
        "state": "30 published",
        "rows": "150",
        "revision": "1",
        "audited": "30 equal",
    }
    assert [line["epoch"] for line in lines[1:]] == [*(day["label"] for day in days[30:60]), "2004-08"]
    hundreds = fold_months([{**good, "epoch": n, "label": str(n)} for n in range(95, 205)])
    assert [line["epoch"] for line in hundreds] == ["0…", "100…", "200…"]


def test_options_of_every_command(homes: dict[str, Path], call: Call) -> None:
    """`--home`, `-q` and `-v` after the command mean what they mean before it."""
    assert "revision 2" in call(homes["empty"], f"status --home {homes['published']}").out
    assert call(homes["none"], "status -q").err.startswith("altneu: ")
    assert "Traceback" in call(homes["none"], "status -v").err
    version = call(homes["none"], "--version")
    assert (version.code, version.out.split()[0]) == (0, "altneu")


def test_a_dry_run_says_and_does_nothing(tmp_path: Path, call: Call) -> None:
    seed = Seed(tmp_path / "home")
    seed.good_days(3)
    seed.run({DAY + 3: (3, 0)}, {DAY + 3: {"edges": 2, "truss2": 2}})
    with sqlite3.connect(seed.home.path / "altneu.db") as database:
        database.execute("""UPDATE ledger SET snapshots = '{"edges": "1"}'""")
    before = state_of(seed.home.path)
    said = {
        "rollback 1 --dry-run": "would publish revision 1 again as revision 3 epochs 1 rolled back: 2004-07-04",
        "rollback 0 --dry-run": "4 rolled back",
        "rebuild --dry-run": "would publish 4 epoch(s) again as revision 3, from the rows as stored",
        "compact --dry-run": "revisions 1…2 can be read afterwards; none expired",
    }
    for command, says in said.items():
        found = call(seed.home.path, command)
        assert (found.code, says in flat(found)) == (0, True), (command, flat(found))
    assert state_of(seed.home.path) == before


def test_a_home_below_the_users_own_folder(homes: dict[str, Path], call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(homes["published"].parent))
    assert "revision 2" in call(Path("~/published"), "status").out


def test_init_makes_a_home_that_can_be_filled_by_hand(tmp_path: Path, call: Call) -> None:
    home = tmp_path / "new"
    assert call(home, "init").code == 0
    assert "# live_for = 30" in (home / "altneu.toml").read_text()
    (home / "altneu.toml").write_text("[epochs]\n")
    again = call(home, "init")
    assert (again.code, "nothing was changed" in again.out) == (0, True)
    assert (home / "altneu.toml").read_text() == "[epochs]\n"
    (home / "landing" / "epoch=1").mkdir()
    (home / "landing" / "epoch=1" / "by-hand.csv").write_text("src,dst\n1,2\n")
    (home / "landing" / "epoch=1" / "_SUCCESS").touch()
    assert "1 missing" in call(home, "plan").out


K4 = "src,dst\n" + "".join(f"{a},{b}\n" for a in range(1, 5) for b in range(a + 1, 5))
WITH_SPARK = [
    Wrong("show edges --where 'weight > 1'", 2, "--where 'weight > 1' cannot be read"),
    Wrong("show edges --where 'trussness >'", 2, "The columns are src, dst, trussness"),
    Wrong("show edges --where trussness", 2, "cannot be read"),
    Wrong("show edges --where 'trussness / (src - src) > 1'", 2, "Division by zero"),
    Wrong("show vertices --vertex ada", 2, "the vertices of this home are integers"),
    Wrong("show edges --edge 1 ada", 2, "the vertices of this home are integers"),
    Wrong("explain vertex ada", 2, "the vertices of this home are integers"),
]


def land_two(path: Path) -> Home:
    """Land a K4, and with it again one edge many times and a malformed row."""
    home, _ = make(path)
    for epoch, text in (("1", K4), ("2", K4 + "4,5\n" * 30 + "5,x\n")):
        (home.landing / f"epoch={epoch}").mkdir(parents=True)
        (home.landing / f"epoch={epoch}" / "rows.csv").write_text(text)
        (home.landing / f"epoch={epoch}" / "_SUCCESS").touch()
    return home


def test_small_questions(ledger_only: LedgerOnly, typed: Altneu, tmp_path: Path) -> None:
    home = land_two(tmp_path / "home")
    assert typed("backfill", "--all").code == 0
    assert_small_questions(typed, tmp_path)
    graph = Graph(home.path)
    assert "revision 1, frontier 2: 5 vertices, 7 edges, 4 triangles, greatest trussness 4" in repr(graph)
    with pytest.raises(UsageError, match="is backwards"):
        graph.arrow.changes(2, 1)


def test_wrong_use_of_real_tables(altneu: Altneu, tmp_path: Path, spark: SparkSession, numbers: History) -> None:
    """What only Spark can tell, what programs ask it for a few rows of, and a file that is lost."""
    home, _ = numbers.copy(tmp_path / "home")
    assert_wrong_use(altneu, home.path)
    graph = Graph(home.path, spark)
    assert [row.vertex for row in graph.vertices(vertex=[2, 5]).collect()] == [2, 5]
    assert [(row.vertex, row.degree) for row in graph.vertices(top=1).collect()] == [(4, 5)]
    assert [row.k for row in graph.trusses().collect()] == [4, 3, 2]
    with pytest.raises(UsageError, match="is backwards"):
        graph.changes(2, 1)
    assert_lost_file(altneu, home.path, tmp_path)


@pytest.mark.slow
def test_an_error_of_a_condition_is_one_line(tmp_path: Path, numbers: History) -> None:
    home, _ = numbers.copy(tmp_path / "home")
    line = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home.path), "show", "edges"]
    line += ["--engine", "spark", "--where", "trussness / (src - src) > 1"]
    found = subprocess.run(
        line, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}, capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert "java" not in found.stderr and "ERROR" not in found.stderr
    assert found.stderr.splitlines()[-1].endswith(
        "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."
    )


def test_wrong_use_and_small_questions(altneu: Altneu, tmp_path: Path, spark: SparkSession) -> None:
    """All of that in one home of a real run, whose checks are read by Spark, too."""
    home = land_two(tmp_path / "home")
    assert altneu("backfill", "--all").code == 0
    assert_wrong_use(altneu, home.path)
    assert_small_questions(altneu, tmp_path)
    graph = Graph(home.path, spark)
    assert [row.vertex for row in graph.vertices(vertex=[2, 5]).collect()] == [2, 5]
    assert [row.degree for row in graph.vertices(top=1).collect()] == [4]
    assert [row.k for row in graph.trusses().collect()] == [4, 3, 2]
    assert [row.line for row in graph.quarantine().collect()] == [38]
    assert graph.checks().where("result = 'fails'").count() == 0 < graph.checks(2).count()
    assert_lost_file(altneu, home.path, tmp_path)


def assert_wrong_use(altneu: Altneu, home: Path) -> None:
    before = state_of(home)
    for wrong in WITH_SPARK:
        found = altneu(*shlex.split(wrong.command))
        assert (found.code, wrong.says in flat(found)) == (wrong.code, True), (wrong.command, flat(found))
    assert state_of(home) == before


def assert_small_questions(altneu: Altneu, folder: Path) -> None:
    """Assert what a home of `land_two` answers: a few rows, and files by their ending, in the same order, and whole."""

    def read(*arguments: str) -> list[dict[str, object]]:
        found = altneu("show", *arguments, "--format", "json")
        assert found.code == 0, found.err
        return list(json.loads(found.out))

    assert [row["vertex"] for row in read("vertices", "--top", "2", "--sort", "vertex")] == [5, 4]
    assert [row["degree"] for row in read("vertices", "--top", "2")] == [4, 3]
    assert [row["vertex"] for row in read("vertices", "--sort", "-vertex", "--limit", "3")] == [5, 4, 3]
    assert [row["vertex"] for row in read("vertices", "--vertex", "2", "--vertex", "5")] == [2, 5]
    assert read("edges", "--edge", "3", "1") == [{"src": 1, "dst": 3, "trussness": 4}]
    assert {(row["src"], row["dst"]) for row in read("edges", "--vertex", "5")} == {(4, 5)}
    assert len(read("triangles", "--edge", "1", "2")) == 2 and len(read("support", "--vertex", "5")) == 1
    assert read("edges", "--where", "trussness < 4 AND src > 3") == [{"src": 4, "dst": 5, "trussness": 2}]
    assert [row["line"] for row in read("quarantine")] == [38] and read("quarantine", "1") == []
    assert "'x', not an integer" in altneu("show", "quarantine", "2", "--limit", "1").out
    cut = altneu("show", "changes", "--since-revision", "0", "--limit", "2")
    assert cut.out.count("\n") == 3
    for ending in ("csv", "json", "parquet"):
        assert altneu("show", "edges", "--output", folder / f"e.{ending}").code == 0
    listed = json.loads((folder / "e.json").read_text())
    assert listed == read("edges") == pq.read_table(folder / "e.parquet").to_pylist()
    with (folder / "e.csv").open() as stream:
        assert [{k: int(v) for k, v in row.items()} for row in csv.DictReader(stream)] == listed


def assert_lost_file(altneu: Altneu, home: Path, folder: Path) -> None:
    assert "files, none is missing" in altneu("doctor").out
    lost = next((home / "warehouse").rglob("trussness/data/**/*.parquet"))
    lost.rename(folder / "lost")
    told = altneu("doctor")
    assert (told.code, lost.name in told.out, "altneu rebuild" in told.out) == (1, True, True)
    gone = altneu("show", "edges")
    assert (gone.code, lost.name in gone.err, "next:" in gone.err) == (1, True, True)
    assert gone.err.count("\n") < 5, gone.err
