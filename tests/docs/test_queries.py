"""docs/queries.md: its ten queries compile as they stand there, and the page says which columns a relation has."""

from __future__ import annotations

from pathlib import Path

from altneu.pipeline.home.home import Home
from altneu.pipeline.home.queries import RELATIONS, known_relations, read_queries
from altneu.pipeline.home.settings import Config
from tests import home_helpers
from tests.docs.pages import blocks, read, table

PAGE = read("docs/queries.md")
QUERIES = [block.text for block in blocks(PAGE) if block.language == "sql"]
(DECLARED,) = [block.text for block in blocks(PAGE) if block.language == "toml"]


def test_there_are_ten_of_which_one_has_another_that_reads_it() -> None:
    assert len(QUERIES) == 11 and sum("FROM across" in text for text in QUERIES) == 1


def test_the_queries_of_the_page_can_be_maintained_with_its_relations(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home", DECLARED)
    (home.path / "queries").mkdir()
    for number, text in enumerate(QUERIES):
        name = "across" if "p.country <> q.country" in text else f"q{number}"
        (home.path / "queries" / f"{name}.sql").write_text(text)
    definitions = read_queries(home)
    assert len(definitions) == len(QUERIES) + len(home.config.relations)


def test_the_page_lists_the_relations_with_their_columns() -> None:
    known = known_relations(Home(Path("any"), Config.model_validate({"values": {"w": "long"}})))
    listed = {name: columns.replace("the columns of [values]", "w") for name, columns, _ in table(PAGE, "Relations")}
    assert set(listed) == set(known) == set(RELATIONS)
    for name, relation in known.items():
        assert listed[name].split(", ") == list(relation.columns), name
