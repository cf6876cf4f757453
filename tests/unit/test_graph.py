"""The door for programs has what the command line has: every view of `altneu show`, by the same names and arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer

from altneu.pipeline import cli
from altneu.pipeline.cli.command_line import app
from altneu.pipeline.errors import UsageError
from altneu.pipeline.reading.arguments import READERS
from altneu.pipeline.reading.graph import Graph, Narrowing, Views
from altneu.pipeline.reading.query_executor import Answer
from altneu.pipeline.reading.query_model import COMMON_OPTIONS, FLAGS, NAMES, VIEWS, Question
from tests.report.seed import DAY, Seed

ARGUMENT = {"vertices": "vertex"}  # it is one or many, as `--vertex` is
BESIDES = {
    "revision",
    "collection",
    "register",
    "ask",
    "for_ledger",
    "spark",
    "explain",
    "explain_query",
}  # what is no view
FORMS = {"arrow", "pandas", "polars"}


def test_every_view_is_a_method_and_every_option_an_argument_and_nothing_else() -> None:
    for name in NAMES:
        forms = [view for view in VIEWS if view.name == name]
        options = {ARGUMENT.get(option, option) for view in forms for option in view.options}
        words = (
            {"name"} if name == "query" else {"first", "last"} if any(view.epoch_arguments for view in forms) else set()
        )
        takes = set(inspect.signature(getattr(Graph, name)).parameters) - {"self", "narrow"}
        assert takes == options | words, name
        assert "narrow" in inspect.signature(getattr(Graph, name)).parameters
    assert set(Narrowing.__annotations__) == set(COMMON_OPTIONS)
    assert {name for name in vars(Views) if not name.startswith("_")} == {*NAMES, "changes_since"}
    assert {name for name in vars(Graph) if not name.startswith("_")} == {*BESIDES, *FORMS}


def test_the_command_line_has_the_same_names() -> None:
    show = typer.main.get_command(app).commands["show"]  # type: ignore[attr-defined]
    takes = {param.name: param.opts for param in show.params if param.name in FLAGS}
    assert takes == {option: [flag] for option, flag in FLAGS.items()}


class Asked(Views[Question]):
    """A door that gives the question."""

    def _answer_question(self, question: Question) -> Question:
        return question


def test_every_argument_has_a_reader() -> None:
    takes = {name for view in NAMES for name in inspect.signature(getattr(Graph, view)).parameters}
    assert takes - {"self", "narrow"} | set(Narrowing.__annotations__) == set(READERS)


def test_dates_are_epochs() -> None:
    given = (date(2004, 5, 15), datetime(2004, 5, 15, 12), "2004-05-15", 7, np.int64(7), pd.Timestamp("2004-05-15"))
    typed = ["2004-05-15", "2004-05-15T12:00:00", "2004-05-15", "7", "7", "2004-05-15T00:00:00"]
    assert [Asked().edges(as_of=epoch).as_of for epoch in given] == typed
    assert [Asked().quarantine(epoch, 9).span for epoch in given] == [(epoch, "9") for epoch in typed]


@pytest.mark.parametrize("number", [int, np.int64, np.int32, np.uint8])
def test_whole_numbers_of_any_library_are_numbers(number: Callable[[int], Any]) -> None:
    asked = Asked().edges(revision=number(3), vertex=number(5), limit=number(2))
    assert asked == Question("edges", revision=3, vertices=("5",), limit=2)
    assert type(asked.revision) is type(asked.limit) is int
    for several in ([5, 7], np.array([5, 7]), pd.Series([5, 7])):
        assert Asked().edges(vertex=several).vertices == ("5", "7")
    assert Asked().edges(edge=(number(5), "7")).edge == Asked().edges(edge=np.array([5, 7])).edge == ("5", "7")
    since = Asked().changes_since(number(0), number(3), all_epochs=np.bool_(True))
    assert since == Question("changes", since_revision=0, revision=3, all_epochs=True)


NO_NUMBERS = ("1", 1.0, True, np.float64(1), np.bool_(True), [1], date(2004, 5, 15), b"1")
WRONG: list[tuple[str, str, tuple[object, ...]]] = [
    *[(view, name, NO_NUMBERS) for view in ("edges", "vertices", "triangles") for name in ("revision", "top", "limit")],
    ("communities", "k", NO_NUMBERS),
    ("changes", "since_revision", NO_NUMBERS),
    ("edges", "edge", ((1, 2, 3), (1,), "12", 5, (1, 2.0), (True, 2), {1: 2})),
    ("edges", "vertex", (1.5, True, [1, 2.0], [None], b"ab", np.float64(2), [[1]])),
    ("edges", "as_of", (1.5, True, ["1"], b"1", np.float64(1))),
    ("changes", "first", (1.5, True)),
    ("changes", "last", (1.5, True)),
    ("edges", "where", (5, True, ["trussness > 3"])),
    ("edges", "sort", (5, ["src"])),
    ("totals", "all_epochs", (1, "yes", 0.0)),
]


@pytest.mark.parametrize(("view", "name", "values"), WRONG)
def test_what_is_of_another_kind_is_refused_with_the_name_of_the_argument(
    view: str, name: str, values: tuple[object, ...]
) -> None:
    for value in values:
        with pytest.raises(UsageError) as refused:
            getattr(Asked(), view)(**{name: value})
        assert refused.value.what.startswith(f"{name}="), value


def test_the_graph_itself_refuses_such_arguments(tmp_path: Path) -> None:
    seed = Seed(tmp_path / "home")
    seed.run({DAY: (9, 0)}, {DAY: {"vertices": 4, "edges": 6}})
    graph = Graph(seed.home.path)
    for wrong in (
        lambda: graph.revision("1"),  # type: ignore[arg-type]
        lambda: graph.explain("edge", 1, 2.5),  # type: ignore[arg-type]
        lambda: graph.explain("edge", 1, 2, revision="1"),  # type: ignore[arg-type]
        lambda: graph.explain("edge", 1, 2, as_of=1.0),  # type: ignore[arg-type]
        lambda: graph.explain("edge", (1, 2)),  # type: ignore[arg-type]
        lambda: graph.arrow.changes_since("0"),  # type: ignore[arg-type]
        lambda: Graph(5),  # type: ignore[arg-type]
        lambda: Graph(seed.home.path, engine=5),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError):
            wrong()
    assert graph.revision(np.int64(1)).revision == 1  # type: ignore[arg-type]


def test_show_asks_the_door_and_starts_no_spark_for_what_sql_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = Seed(tmp_path / "home")
    seed.run({DAY: (9, 0)}, {DAY: {"vertices": 4, "edges": 6}})
    asked: list[tuple[Graph, Question]] = []
    before = Graph.ask

    def ask(graph: Graph, question: Question) -> Answer:
        asked.append((graph, question))
        return before(graph, question)

    monkeypatch.setattr(Graph, "ask", ask)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--home", str(seed.home.path), "show", "totals", "--format", "json"])
    assert stopped.value.code in (0, None)
    ((graph, question),) = asked
    assert question.view == "totals" and "spark" not in vars(graph)


def test_trusses_have_every_k_from_the_greatest_to_two(tmp_path: Path) -> None:
    """Also those of which no edge has just that trussness: five vertices with all their edges, and one edge beside."""
    seed = Seed(tmp_path / "home")
    seed.run({DAY: (11, 0), DAY + 1: (1, 0)}, {DAY: {"truss5": 10}, DAY + 1: {"truss2": 1}})
    graph = Graph(seed.home.path)
    sizes = [(row["k"], row["edges"], row["exactly"]) for row in graph.arrow.trusses(as_of=str(DAY)).to_pylist()]
    assert sizes == [(5, 10, 10), (4, 10, 0), (3, 10, 0), (2, 10, 0)]
    of_all = [(row["epoch"], row["k"], row["edges"]) for row in graph.arrow.trusses(all_epochs=True).to_pylist()]
    assert of_all[4:] == [(DAY + 1, 5, 10), (DAY + 1, 4, 10), (DAY + 1, 3, 10), (DAY + 1, 2, 11)]
