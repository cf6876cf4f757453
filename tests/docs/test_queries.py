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
DECLARED = "\n".join(block.text for block in blocks(PAGE) if block.language == "toml")


def name_queries(texts: list[str]) -> dict[str, str]:
    """Return the queries of the page by name: those that others read have the names that the page gives them."""
    named = {"HAVING count(*) >= 10": "pairs", "p.country <> q.country": "across", "RECURSIVE": "reachable"}
    return {
        next((name for words, name in named.items() if words in text), f"page{number}"): text
        for number, text in enumerate(texts)
    }


def test_there_are_eleven_two_that_read_others_and_one_that_is_recomputed() -> None:
    assert len(QUERIES) == 14
    assert sum("RECURSIVE" in text for text in QUERIES) == 1
    assert sum("FROM across" in text or "FROM pairs" in text for text in QUERIES) == 2


def test_the_queries_of_the_page_can_be_maintained_with_its_relations(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home", DECLARED)
    (home.path / "queries").mkdir()
    for name, text in name_queries(QUERIES).items():
        (home.path / "queries" / f"{name}.sql").write_text(text)
    definitions = read_queries(home)
    assert len(definitions) == len(QUERIES) + len(home.config.relations)


def test_the_page_lists_the_relations_with_their_columns() -> None:
    known = known_relations(Home(Path("any"), Config.model_validate({"values": {"w": "long"}})))
    listed = {name: columns.replace("the columns of [values]", "w") for name, columns, _ in table(PAGE, "Relations")}
    assert set(listed) == set(known) == set(RELATIONS)
    for name, relation in known.items():
        assert listed[name].split(", ") == list(relation.columns), name
