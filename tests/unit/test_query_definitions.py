"""The definitions of queries as runs record them, also those that earlier versions have recorded."""

from altneu.pipeline.home.queries import QueryDefinition, recorded_queries

STORED = {
    "text": "SELECT src, count(*) AS n FROM landed GROUP BY src",
    "normal_form": "SELECT landed.src AS src, COUNT(*) AS n FROM landed AS landed GROUP BY landed.src",
    "columns": {"src": "bigint", "n": "bigint"},
    "state": {"k0": "bigint", "measure": "bigint"},
    "relations": ["landed"],
    "vertices": [],
}


def test_what_the_version_before_has_recorded_is_read() -> None:
    queries = recorded_queries({"queries": {"a": {**STORED, "is_set": True}, "b": {**STORED, "is_set": False}}})
    assert queries["a"].is_set and not queries["b"].is_set
    assert queries["a"].has_same_meaning(
        QueryDefinition.from_json("a", {**STORED, "key": ["src"], "has_landed": False})
    )
    assert QueryDefinition.from_json("a", queries["a"].to_json()) == queries["a"]
