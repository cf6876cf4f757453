"""Files of declared relations in the landing: they are a part of their epoch's batch, and a land keeps the others."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from altneu.pipeline import landing
from altneu.pipeline.errors import AltneuError, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing.csv_reader import Delimited
from altneu.pipeline.landing.epoch_states import compare_with_ledger
from altneu.pipeline.landing.row_schema import RowSchema
from altneu.pipeline.run import planning
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers

TOML = '[relations]\npeople = { key = { id = "vertex" }, values = { country = "string", age = "long" } }\n'
EDGES, PEOPLE = "src,dst\n1,2\n2,3\n", "id,country\n1,DE\n2,\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return home_helpers.make(tmp_path / "home", TOML)[0]


def land(home: Home, tmp_path: Path, text: str, **options: object) -> landing.LandReport:
    file = tmp_path / "rows.csv"
    file.write_text(text)
    wanted = landing.LandOptions(epoch=5, far=True, **options)  # type: ignore[arg-type]
    return landing.land(home, [] if options.get("empty") else [file], wanted)


def contents(home: Home) -> dict[str, str]:
    folder = home.landing / "epoch=5"
    return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("*.csv"))}


def digest(home: Home) -> str:
    (batch,) = landing.list_batches(home).values()
    assert batch.incomplete is None
    return landing.digest_batches(Ledger(home), [batch])[5]


def test_a_land_replaces_its_own_files_and_keeps_the_others(home: Home, tmp_path: Path) -> None:
    land(home, tmp_path, EDGES)
    alone = digest(home)
    assert land(home, tmp_path, PEOPLE, relation="people").rows == 2
    both = contents(home)
    assert both == {"000-rows.csv": '"src","dst"\n1,2\n2,3\n', "people/000-rows.csv": '"id","country"\n1,"DE"\n2,\n'}
    assert digest(home) != alone
    land(home, tmp_path, EDGES + "7,8\n")
    assert contents(home).keys() == both.keys() and contents(home)["people/000-rows.csv"] == both["people/000-rows.csv"]
    land(home, tmp_path, "9\tFR\t30\n", relation="people", columns=("id", "country", "age"), append=True)
    assert contents(home).keys() == {*both, "people/001-rows.csv"}
    land(home, tmp_path, EDGES, append=True)
    assert contents(home).keys() == {*both, "people/001-rows.csv", "001-rows.csv"}
    seal = json.loads((home.landing / "epoch=5" / "_SUCCESS").read_text())
    assert seal["rows"] == 5 and seal["files"].keys() == contents(home).keys()
    land(home, tmp_path, "", relation="people", empty=True)
    assert contents(home).keys() == {"000-rows.csv", "001-rows.csv"}


def test_a_relation_lands_without_edges_and_makes_an_empty_batch_of_them(home: Home, tmp_path: Path) -> None:
    land(home, tmp_path, PEOPLE, relation="people")
    (batch,) = landing.list_batches(home).values()
    assert (batch.files, batch.sealed, batch.incomplete) == ((), 0, None)
    _, states = compare_with_ledger(Ledger(home))
    assert (states[5].state, states[5].relations, states[5].files) == ("missing", {"people"}, 1)


def test_a_file_that_changes_in_a_subfolder_changes_the_batch(home: Home, tmp_path: Path) -> None:
    land(home, tmp_path, EDGES)
    land(home, tmp_path, PEOPLE, relation="people")
    before = digest(home)
    (file,) = (home.landing / "epoch=5" / "people").iterdir()
    file.write_text(PEOPLE.replace("DE", "FR"))
    (home.landing / "epoch=5" / "_SUCCESS").touch()
    assert digest(home) != before
    (home.landing / "epoch=5" / "people" / "more.csv.part").touch()
    (batch,) = landing.list_batches(home).values()
    assert batch.incomplete is not None and "more.csv.part is still being written" in batch.incomplete


WRONG = {
    "no such relation": ({"relation": "peple"}, "--relation peple: altneu.toml does not declare it; there are people"),
    "a column that is not there": ({"relation": "people", "columns": ("name", "country")}, "id is missing"),
    "an unknown column": ({"relation": "people", "columns": ("id", "town")}, "town is unknown; people has id, country"),
    "a time": ({"relation": "people", "time_column": "ts"}, "--relation goes with --epoch E, without --time"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_is_refused_and_nothing_lands(home: Home, tmp_path: Path, case: str) -> None:
    options, words = WRONG[case]
    with pytest.raises(UsageError) as error:
        land(home, tmp_path, PEOPLE, **options)
    assert words in str(error.value) and not landing.list_batches(home)


def test_a_vertex_of_another_type_is_a_rejected_row(home: Home, tmp_path: Path) -> None:
    with pytest.raises(AltneuError, match="id is 'ann', not an integer"):
        land(home, tmp_path, "id,country\nann,DE\nbob,FR\n", relation="people")


def test_the_folder_of_a_relation_that_is_not_declared_is_named(home: Home, tmp_path: Path) -> None:
    land(home, tmp_path, PEOPLE, relation="people")
    (home.path / "altneu.toml").write_text("")
    with pytest.raises(AltneuError, match=r"epoch=5/people has the files of a relation people, which altneu\.toml"):
        landing.list_batches(Home.open(home.path))


BAD_SETTINGS = {
    'edges = { key = { id = "vertex" } }': "[relations] edges: a relation's name begins with a letter",
    'people_rows = { key = { id = "vertex" } }': "[relations] people_rows: a relation's name",
    "people = { key = {} }": "[relations] people, key",
    'people = { key = { id = "double" } }': "[relations] people, key, id = 'double'",
    'people = { key = { id = "long" }, values = { ID = "long" } }': "two of its columns have the same name",
    'people = { key = { epoch = "long" } }': "the name is reserved: a table of altneu has such a column",
}


@pytest.mark.parametrize("line", BAD_SETTINGS)
def test_wrong_declarations_are_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageError) as error:
        home_helpers.make(tmp_path / "home", f"[relations]\n{line}\n")
    assert BAD_SETTINGS[line] in str(error.value)


def test_a_query_of_the_same_name_and_one_over_a_missing_relation_are_refused(home: Home) -> None:
    (home.path / "queries").mkdir()
    (home.path / "queries" / "people.sql").write_text("SELECT src FROM arcs")
    (home.path / "queries" / "rich.sql").write_text("SELECT id, wealth FROM people")
    (home.path / "queries" / "flats.sql").write_text("SELECT id FROM towns")
    with pytest.raises(UsageError) as error:
        planning.plan_run(Ledger(home), lambda epoch: True)
    text = str(error.value)
    assert "queries/people.sql has the name of the relation people, which altneu.toml declares" in text
    assert "queries/rich.sql line 1, column 12: there is no column wealth; people has id, country, age" in text
    assert "queries/flats.sql line 1, column 16: there is no relation towns; there are landed, arcs, edges" in text


@pytest.mark.parametrize("header", ['"id"', "id"])
def test_a_file_of_one_column_is_read_as_it_was_landed(header: str) -> None:
    """`altneu land` quotes the names in a header, also where there is no separator beside them."""
    layout = RowSchema({"id": "long", "op": "string", "seq": "long"}, optional=frozenset({"op", "seq"}))
    reader = Delimited(layout)
    consumed, first = reader.start(io.BufferedReader(io.BytesIO(f"{header}\n1\n2\n".encode())))
    assert (reader.names, consumed, first) == (["id"], 1, b"1\n")
