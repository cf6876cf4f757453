"""The door for programs has what the command line has: every view of `altneu show`, by the same names and arguments."""

from __future__ import annotations

import inspect
from datetime import date
from pathlib import Path

import pytest
import typer

from pipeline import cli
from pipeline.cli.base import app
from pipeline.reading.answers import Answer
from pipeline.reading.graph import Graph, Narrow, Views, as_typed
from pipeline.reading.questions import ANY, FLAGS, NAMES, VIEWS, Question
from tests.report.seed import DAY, Seed

ARGUMENT = {"vertices": "vertex"}  # it is one or many, as `--vertex` is
BESIDES = {"revision", "collection", "register", "ask", "over", "spark", "explain"}  # what is no view
FORMS = {"arrow", "pandas", "polars"}


def test_every_view_is_a_method_and_every_option_an_argument_and_nothing_else() -> None:
    for name in NAMES:
        forms = [view for view in VIEWS if view.name == name]
        options = {ARGUMENT.get(option, option) for view in forms for option in view.options}
        words = {"first", "last"} if any(view.words for view in forms) else set()
        takes = set(inspect.signature(getattr(Graph, name)).parameters) - {"self", "narrow"}
        assert takes == options | words, name
        assert "narrow" in inspect.signature(getattr(Graph, name)).parameters
    assert set(Narrow.__annotations__) == set(ANY)
    assert {name for name in vars(Views) if not name.startswith("_")} == {*NAMES, "changes_since"}
    assert {name for name in vars(Graph) if not name.startswith("_")} == {*BESIDES, *FORMS}


def test_the_command_line_has_the_same_names() -> None:
    show = typer.main.get_command(app).commands["show"]  # type: ignore[attr-defined]
    takes = {param.name: param.opts for param in show.params if param.name in FLAGS}
    assert takes == {option: [flag] for option, flag in FLAGS.items()}


def test_dates_are_epochs() -> None:
    assert [as_typed(epoch) for epoch in (date(2004, 5, 15), "2004-05-15", 7)] == ["2004-05-15", "2004-05-15", "7"]


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
