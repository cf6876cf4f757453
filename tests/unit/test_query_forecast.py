"""What `altneu plan` says about each declared query: what a run does for it, and what that took the last time."""

from __future__ import annotations

from altneu.pipeline.run.query_changes import QueryChanges
from altneu.pipeline.run.query_forecast import forecast_queries
from altneu.pipeline.state.stage_results import QueriesFacts, QueryRun

RECENT = [
    QueriesFacts(queries={"rings": QueryRun(way="anew", rows=900, seconds=8.0), "old": QueryRun(way="anew")}),
    QueriesFacts(queries={"rings": QueryRun(way="delta", rows=1, seconds=2.25), "week": QueryRun(way="anew", rows=5)}),
    QueriesFacts(queries={"rings": QueryRun(way="nothing"), "week": QueryRun(way="nothing")}),
]


def test_each_query_has_what_the_last_run_that_did_the_same_took() -> None:
    changes = QueryChanges(("rings", "week"), (("new", "it is new"),), ("old",), is_published=True)
    lines = [each.describe() for each in forecast_queries(changes, RECENT, runs=True)]
    assert lines == [
        "rings: from its changes (last time 1 changed row, 2.2 s)",
        "week: from its changes",
        "new: anew, it is new",
        "old: dropped; its result stays in older revisions",
    ]
    changed = QueryChanges(anew=(("rings", "its text has changed"),))
    (only,) = forecast_queries(changed, RECENT, runs=True)
    assert only.to_document() == {
        "query": "rings",
        "way": "anew",
        "why": "its text has changed",
        "rows": 900,
        "seconds": 8.0,
    }


def test_queries_that_stay_have_nothing_to_do_where_nothing_has_landed() -> None:
    changes = QueryChanges(("rings",), (("new", "it is new"),), is_published=True)
    assert [each.way for each in forecast_queries(changes, RECENT, runs=False)] == ["nothing", "anew"]
