"""docs/queries.md: its ten queries compile as they stand there, and the page says which columns a relation has."""

from __future__ import annotations

from pathlib import Path

import pytest

from altneu.algorithms.sql_query import compile_query
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.queries import RELATIONS, known_relations
from altneu.pipeline.home.settings import Config
from tests.docs.pages import blocks, read, table

PAGE = read("docs/queries.md")
QUERIES = [block.text for block in blocks(PAGE) if block.language == "sql"]


def test_there_are_ten() -> None:
    assert len(QUERIES) == 10


@pytest.mark.parametrize("text", QUERIES, ids=range(len(QUERIES)))
def test_each_query_of_the_page_can_be_maintained(text: str) -> None:
    assert compile_query(text, known_relations(Home(Path("any"), Config()))).types


def test_the_page_lists_the_relations_with_their_columns() -> None:
    known = known_relations(Home(Path("any"), Config.model_validate({"values": {"w": "long"}})))
    listed = {name: columns.replace("the columns of [values]", "w") for name, columns, _ in table(PAGE, "Relations")}
    assert set(listed) == set(known) == set(RELATIONS)
    for name, relation in known.items():
        assert listed[name].split(", ") == list(relation.columns), name
