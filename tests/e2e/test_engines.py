"""DuckDB answers what Spark answers: every view with every argument, the same rows, types, notes and errors.

Two homes with what makes reading hard: late and replaced batches, a window, a filter, values, motifs, malformed rows,
a rollback whose revisions stay in compacted snapshots, expired revisions, folded epochs, names that change.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.errors import AltneuError, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing.local_landing import seal_folder
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading import engines
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.reading.query_model import COMMON_OPTIONS, FLAGS, VIEWS, Engine, Question
from altneu.pipeline.run import planning
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage import session as spark_session
from tests import home_helpers, seeds
from tests.canonical import History
from tests.e2e.conftest import Altneu
from tests.postgres import DATABASE_KINDS

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")

VALUES = """
[values]
w = "long"
"my col" = "string"
x = "double"
ok = "boolean"
[edges]
live_for = 3
where = "w > 0 AND NOT `my col` IN ('off', 'a{b}')"
[motifs]
two-paths = "a-b, b-c"
loop = "a->b where w > 1, b->c, c->a"
[ingest]
max_bad_share = 0.5
[retention]
epochs = 4
revisions = 3
"""
NAMES = '[vertices]\nids = "string"\n[edges]\nlive_for = 2\n'


def land(home: Home, epoch: int, text: str) -> None:
    folder = home.landing / f"epoch={epoch}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "rows.csv").write_text(text)
    seal_folder(folder, text.count("\n") - 1)


def clique(*vertices: int | str, w: int = 1, also: str = "on") -> str:
    pairs = [(a, b) for place, a in enumerate(vertices) for b in vertices[place + 1 :]]
    return "".join(f"{a},{b},{w},{also},{w / 4},{'true' if w > 1 else 'false'},\n" for a, b in pairs)


HEAD = "src,dst,w,my col,x,ok,op\n"


def answer_question(ledger: Ledger, spark: SparkSession, engine: Engine, question: Question) -> Any:
    """Return what an engine answers, or the error that it raises."""
    graph = Graph.for_ledger(ledger, lambda: spark, engine)
    try:
        answer = graph.ask(question)
        table = answer.to_arrow()
    except AltneuError as error:
        return type(error), error.what, error.next
    assert tuple(table.column_names) == answer.columns == tuple(answer.sql_types())
    return answer.columns, answer.notes, [str(field.type) for field in table.schema], table.to_pylist()


def explained(ledger: Ledger, spark: SparkSession, engine: Engine, *asked: Any, **at: Any) -> Any:
    try:
        return Graph.for_ledger(ledger, lambda: spark, engine).explain(*asked, **at)
    except AltneuError as error:
        return type(error), error.what, error.next


def compare(ledger: Ledger, spark: SparkSession, questions: Iterator[Question]) -> list[Any]:
    found = []
    for question in questions:
        mine, sparks = (answer_question(ledger, spark, engine, question) for engine in (Engine.duckdb, Engine.spark))
        assert mine == sparks, question
        found.append(mine)
    return found


Choose = Callable[[list[Any]], list[Any]]  # of the values of an option those that are asked with


def choose_all(values: list[Any]) -> list[Any]:
    return values


def choose_one(rng: random.Random) -> Choose:
    return lambda values: [rng.choice(values)] if values else []


def questions(edge: tuple[str, str], first: str, last: str, choose: Choose, *, text: bool) -> Iterator[Question]:
    """Ask every view with every option that it takes."""
    arguments: dict[str, list[Any]] = {
        "as_of": [first],
        "all_epochs": [True],
        "k": [2, 3],
        "vertices": [(edge[0],), edge],
        "edge": [edge],
        "where": [f"src = '{edge[0]}'" if text else f"src >= {edge[0]} AND NOT dst IN (2, 3)"],
        "sort": ["-dst", "diff"],
        "top": [2],
        "limit": [3],
    }
    for view in VIEWS:
        if not view.reads or view.name == "query":  # queries of both engines are compared in tests/e2e/test_queries.py
            continue
        since = {"since_revision": 1} if "since_revision" in view.options else {}
        span = (first, last) if "FROM TO" in view.epoch_arguments else ()
        yield (plain := Question(view.name, span=span, **since))
        for option in (*view.options, *COMMON_OPTIONS):
            if option == "where" and not {"src", "dst"} <= set(view.columns):
                continue
            values = arguments.get(option, [])
            may = [value for value in values if option != "sort" or value.removeprefix("-") in view.columns]
            for value in choose(may):
                yield replace(plain, **{option: value})
        if "[FROM [TO]]" in view.epoch_arguments:
            yield replace(plain, span=(last,))
            yield replace(plain, span=(first, last))


def sample_questions(rng: random.Random, every: list[Question]) -> list[Question]:
    """Choose questions that have each view and each option among them."""
    asked, sample = set[str](), list[Question]()
    for view in {question.view: None for question in every}:
        mine = [question for question in every if question.view == view]
        new = [question for question in mine if set(question.given_options()) - asked]
        sample.append(rng.choice(new or mine))
        asked |= set(sample[-1].given_options())
    for option in sorted({option for question in every for option in question.given_options()} - asked):
        sample.append(rng.choice([question for question in every if option in question.given_options()]))
    return sample


@pytest.mark.dear("every view by two engines, maybe first in its process")
def test_every_view_and_every_option_after_a_correction_and_a_rollback(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(seeds.one())
    _, ledger = publish_values_and_roll_back(tmp_path)
    asked = list(questions(("1", "3"), "2", "3", choose_one(rng), text=False))
    compare_questions(ledger, spark, sample_questions(rng, asked), filled=0.6)
    compare_explanations(ledger, spark, [("vertex", 5), ("triangle", 2, 3, 4), ("edge", 1, 99)], [{}])


@pytest.mark.slow
def test_every_view_and_every_value_of_each_option_and_what_a_compaction_leaves(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, ledger = publish_values_and_roll_back(tmp_path)
    compare_questions(ledger, spark, list(questions(("1", "3"), "2", "3", choose_all, text=False)), filled=0.8)
    things = [("vertex", 5), ("edge", 1, 2), ("edge", 3, 4), ("triangle", 2, 3, 4), ("edge", 1, 99)]
    compare_explanations(ledger, spark, things, [{}, {"as_of": 4, "revision": 2}, {"as_of": 1}])
    compare_over_a_compaction(ledger, spark)


def publish_values_and_roll_back(folder: Path) -> tuple[Home, Ledger]:
    """Integer ids, values, motifs; a correction, and a rollback to before it."""
    home, ledger = home_helpers.make(folder / "home [a]*", VALUES)  # what DuckDB takes for a pattern of files
    land(home, 1, HEAD + clique(1, 2, 3, 4) + clique(4, 5, 6, w=2) + "7,x,1,on,1,true,\n7,8,1,off,,,\n7,9,-1,on,,,\n")
    land(home, 2, HEAD + clique(1, 2, 5, 7, w=2) + "1,2,,,,,delete\n" + "3,4,5,a{b},,,\n")
    land(home, 3, HEAD + clique(2, 3, 4, 5, 6, w=3))
    home_helpers.run(ledger, [1, 2, 3])
    land(home, 2, HEAD + clique(1, 2, 3) + clique(10, 11, 12, w=2) + "5,y,1,on,1,true,\n")
    land(home, 4, HEAD + clique(1, 5, 6, 10, also="off") + clique(1, 2, 3))
    home_helpers.run(ledger, [2, 4])
    rollback.roll_back(ledger, 1)
    # a home that was moved says so before either engine looks
    shutil.copytree(home.path, folder / "moved")
    with pytest.raises(UsageError, match="copied, moved"):
        Graph(folder / "moved")
    return home, ledger


def compare_questions(ledger: Ledger, spark: SparkSession, asked: list[Question], filled: float) -> None:
    """`filled`: the share of the answers that have rows, at least."""
    found = compare(ledger, spark, iter(asked))
    assert {option for question in asked for option in question.given_options()} == set(FLAGS) - {
        "revision",
        "published_at",
    }
    rows = [len(answer[3]) for answer in found if len(answer) == 4]
    assert len(rows) == len(asked) and sum(map(bool, rows)) > len(rows) * filled
    compare(ledger, spark, (Question("edges", revision=r) for r in (1, 2, 3)))


def compare_explanations(
    ledger: Ledger, spark: SparkSession, things: list[tuple[Any, ...]], places: list[dict[str, Any]]
) -> None:
    for thing in things:
        for at in places:
            mine, sparks = (explained(ledger, spark, e, *thing, **at) for e in (Engine.duckdb, Engine.spark))
            assert mine == sparks and (thing[-1] == 99 or isinstance(mine, dict) or at.get("revision")), (thing, at)


def compare_over_a_compaction(ledger: Ledger, spark: SparkSession) -> None:
    """Forward again, on, and a compaction that folds."""
    home_helpers.run(ledger, [2, 4])
    for epoch in (5, 6):
        land(ledger.home, epoch, HEAD + clique(1, 2, epoch, 20 + epoch, w=epoch))
        home_helpers.run(ledger, [epoch])
    compact(ledger, spark, grace=0)
    row = ledger.revisions.get()
    assert row.hidden and row.since is not None
    home_helpers.run(ledger, [])
    asks = [Question("edges", as_of="1"), Question("edges", revision=1), Question("edges", as_of="9")]  # errors
    asks += [Question("vertices", vertices=("x",)), Question("changes", since_revision=1)]
    asks += [Question("edges"), Question("vertices", as_of=str(row.since)), Question("support", revision=row.revision)]
    asks += [Question("edges", revision=row.revision - 1), Question("changes", since_revision=row.revision - 1)]
    asks += [Question("changes", since_revision=row.revision - 1, all_epochs=True), Question("quarantine")]
    asks += [Question("triangles", span=(str(row.since), "6")), Question("communities"), Question("trusses")]
    tells = compare(ledger, spark, iter(asks))
    assert [len(each) for each in tells[:4]] == [3] * 4 and all(len(each) == 4 for each in tells[5:])


NAMED = {"where", "vertices", "edge", "since_revision"}  # options where names are given


@pytest.mark.slow  # tests/e2e/test_ledger_only.py has names in the default tests
def test_names_in_every_option_that_takes_them(spark: SparkSession, tmp_path: Path) -> None:
    compare_over_names(spark, tmp_path, choose_one(random.Random(seeds.one())), NAMED)


@pytest.mark.slow
def test_names_beside_every_value_of_each_option(spark: SparkSession, tmp_path: Path) -> None:
    compare_over_names(spark, tmp_path, choose_all, set(FLAGS))


def compare_over_names(spark: SparkSession, folder: Path, choose: Choose, options: set[str]) -> None:
    """String ids, some that a query has to quote; corrections, a rollback, and numbers that a rebuild gives anew."""
    home, ledger = home_helpers.make(folder / "home", NAMES)
    land(home, 1, 'src,dst\nada,bob\nbob,cy\ncy,ada\n"o\'neil",{dee}\n{dee},ada\nback\\slash,ada\n')
    land(home, 2, "src,dst\nada,bob\nzoë,ada\nbob,zoë\n")
    home_helpers.run(ledger, [1, 2])
    land(home, 1, 'src,dst\nzed,bob\nbob,cy\ncy,zed\n"o\'neil",{dee}\n')
    home_helpers.run(ledger, [1])
    asked = questions(("bob", "cy"), "1", "2", choose, text=True)
    compare(ledger, spark, (each for each in asked if set(each.given_options()) <= options))
    odd = [("o'neil", "{dee}"), ("{dee}", "o'neil"), ("back\\slash", "ada"), ("nobody", "ada"), ("zoë", "ada")]
    found = compare(ledger, spark, (Question("edges", as_of="1", revision=1, edge=edge) for edge in odd))
    assert [len(each) for each in found] == [4, 4, 4, 3, 4] and len(found[0][3]) == 1
    wheres = ("src = 'o''neil' or dst = '{dee}'", "dst < 'c'", "src IS NOT NULL AND trussness BETWEEN 2 AND 3")
    graph = Graph.for_ledger(ledger, lambda: spark)
    for where in wheres:
        mine, sparks = graph.arrow.edges(where=where), graph.edges(where=where).toArrow()
        assert mine.to_pylist() == sparks.to_pylist(), where
    compare(ledger, spark, iter([Question("edges", where=wheres[1]), Question("edges", where=wheres[2])]))
    for thing in (("vertex", "bob"), ("edge", "bob", "cy"), ("triangle", "ada", "bob", "cy"), ("vertex", "nobody")):
        mine, sparks = (explained(ledger, spark, e, *thing, as_of=1) for e in (Engine.duckdb, Engine.spark))
        assert mine == sparks
    rollback.roll_back(ledger, 1)
    shutil.rmtree(home.landing / "epoch=1")
    land(home, 1, "src,dst\nbob,cy\nanna,bob\ncy,anna\n")  # numbers that others had
    home_helpers.run_as_planned(ledger, planning.plan_rebuild(ledger, from_landing=True))
    for edge in (None, ("bob", "cy"), ("cy", "anna"), ("zed", "bob")):
        compare(ledger, spark, (Question("changes", since_revision=r, edge=edge) for r in (0, 2, 3)))
    rollback.roll_back(ledger, 0)
    compare(ledger, spark, iter([Question("edges"), Question("changes", since_revision=2), Question("vertices")]))


def test_duckdb_answers_while_little_is_stored(
    altneu: Altneu, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, numbers: History
) -> None:
    """DuckDB while little is stored and the condition is sure to mean the same; else Spark. Either can be asked for."""
    home, _ = numbers.copy(tmp_path / "home")
    started: list[str] = []

    def session(*_: Any) -> SparkSession:
        started.append("spark")
        return spark

    monkeypatch.setattr(spark_session, "session_for", session)

    def by_spark(*arguments: str, fails: bool = False) -> bool:
        started.clear()
        outcome = altneu(*arguments)
        assert (outcome.code != 0) == fails, outcome.err
        return bool(started)

    plain = ("show", "edges")
    assert not by_spark(*plain) and not by_spark("explain", "edge", "1", "2") and not by_spark("show", "totals")
    assert by_spark(*plain, "--engine", "spark") and by_spark("explain", "edge", "1", "2", "--engine", "spark")
    assert not by_spark(*plain, "--where", "src = 1") and by_spark(*plain, "--where", "src / 2 = 1")
    refused = altneu(*plain, "--where", "src / 2 = 1", "--engine", "duckdb")
    assert (refused.code, "only Spark can evaluate" in refused.err, "--engine spark" in refused.err) == (2, True, True)
    overflow = ("--where", f"src * {2**62} > 5")
    assert by_spark(*plain, *overflow, fails=True)  # the error is Spark's
    assert altneu(*plain, *overflow, "--engine", "duckdb").code == 2
    assert altneu("show", "totals", "--engine", "duckdb").code == 2  # an option is not ignored
    monkeypatch.setattr(engines, "LITTLE", 1)
    assert by_spark(*plain) and not by_spark(*plain, "--engine", "duckdb")
    monkeypatch.setattr(engines, "LITTLE", 10**6)
    assert not by_spark("show", "support")
    monkeypatch.setattr(engines, "LITTLE_WORK", 1)
    assert by_spark("show", "support") and not by_spark(*plain)
    # in memory, by either engine; what the database answers too
    graph = Graph(home.path, spark)
    for name in ("totals", "trusses", "edges", "checks"):
        listed = getattr(graph.arrow, name)()
        assert listed.to_pylist() == [row.asDict() for row in getattr(graph, name)().collect()], name
        assert getattr(graph.pandas, name)().columns.to_list() == listed.column_names
    assert Graph(home.path, spark, "spark").arrow.edges().equals(graph.arrow.edges())
    with pytest.raises(UsageError, match="no engine 'sparks'"):
        Graph(home.path, engine="sparks")
    # a file of the tables that is lost is named
    for file in (home.path / "warehouse" / "graph" / "trussness" / "data").rglob("*.parquet"):
        file.unlink()
    lost = altneu(*plain)
    assert (lost.code, "trussness" in lost.err, "altneu rebuild" in lost.err) == (1, True, True)


@pytest.mark.parametrize("kind", DATABASE_KINDS)
def test_a_reader_needs_no_java(
    kind: str, tmp_path: Path, altneu: Altneu, numbers: History, request: pytest.FixtureRequest
) -> None:
    """In a process of its own, where there is neither Java nor Spark to import."""
    home, _ = numbers.copy(tmp_path / "home")
    if kind == "postgresql":
        assert altneu("move", str(tmp_path / "moved"), "--to", request.getfixturevalue("postgres")).code == 0
        home = Home.open(tmp_path / "moved")
    text = """if True:
        import sys
        sys.modules |= dict.fromkeys(("pyspark", "py4j", "great_expectations"))  # an import of them fails
        from altneu import Graph
        graph = Graph(sys.argv[1])
        assert sorted(graph.pandas.edges(where="src = 1").dst.to_list()) == [2, 3, 4, 7]
        assert graph.arrow.totals().num_rows == 1 and graph.explain("edge", 1, 2)["there"]
        from altneu.pipeline import cli
        cli.main(["--home", sys.argv[1], "show", "vertices", "--format", "csv"])
    """
    path = {**os.environ, "PATH": "", "JAVA_HOME": "/nowhere"}
    process = [sys.executable, "-c", text, str(home.path)]
    found = subprocess.run(process, capture_output=True, text=True, env=path, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[0] == "vertex,degree,triangles,clustering"
