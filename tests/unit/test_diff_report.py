"""A difference as Markdown: what has changed is in it, whatever it is."""

from altneu.pipeline.run.diff_report import diff_markdown

DOCUMENT = {
    "before": {"name": "revision 1"},
    "after": {"name": "revision 2"},
    "last": "2004-10-26",
    "totals": [],
    "trusses": [],
    "checks": [],
}


def test_a_query_that_has_changed_alone_is_a_difference() -> None:
    written = diff_markdown({**DOCUMENT, "queries": [{"query": "mutual", "came": 2, "went": 1, "first": "2004-05-15"}]})
    assert "No difference" not in written
    assert "| mutual | 2 | 1 | 2004-05-15 |" in written


def test_without_a_difference_it_says_so() -> None:
    assert "No difference." in diff_markdown({**DOCUMENT, "queries": []})
    assert "No difference." in diff_markdown(DOCUMENT)
