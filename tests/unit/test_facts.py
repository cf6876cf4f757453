"""What stages say: rows of the database → typed facts and back, of this version and of those before."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from altneu.pipeline.run.stages import NAMES, STAGES
from altneu.pipeline.state.stage_results import (
    KINDS,
    AuditFacts,
    CompactFacts,
    Cost,
    EdgesFacts,
    Facts,
    FailedFacts,
    IngestFacts,
    PublishFacts,
    QuarantinedRow,
    ReportFacts,
    Size,
    TrianglesFacts,
    TrussFacts,
    display_fields,
    from_json,
    stage_fields,
    to_json,
    without_version,
)
from tests import home_helpers

ROW = QuarantinedRow(epoch=1, file="epoch=1/rows.csv", line=7, reason="dst is empty", text="1,")
EXAMPLES: list[Facts] = [
    IngestFacts(rows=2, quarantined=1, changed_rows=3, replaced_epochs=1, rows_before=4, quarantine_sample=[ROW]),
    EdgesFacts(rows=0, broadcast=True),
    EdgesFacts(rows=2, first_epoch=0, broadcast=False, motif_edges=0),
    TrianglesFacts(rows=0, proposals=0),
    TrianglesFacts(
        rows=3,
        plan="bulk",
        chosen="enumeration of all",
        proposals=None,
        estimate={"bulk": 0.3},
        top_vertices={"1": [{"vertex": "5", "triangles": 3}, {"vertex": 5, "triangles": 1}]},
        motif_rows=0,
    ),
    TrussFacts(rows=0, epochs=0),
    TrussFacts(rows=1, first_epoch=-3, epochs=2, methods={"peel": 2}, seconds=0.5, entered_core={"1": ["a", "7", 7]}),
    AuditFacts(checks=70, failed=1, critical=0, cost=Cost(python=1, rows=0), snapshots={"edges": 2**63 - 1}),
    PublishFacts(revision=3, tables={"edges": Size(files=0, bytes=0, rows=0)}, untidied="no answer"),
    ReportFacts(pages=0, page=None),
    CompactFacts(
        since=None, revisions=[1, 3], dropped_revisions=0, expired_snapshots=2, orphans=0, tables={"names": Size()}
    ),
]


def old_rows(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    home, _ = home_helpers.old(folder)
    with closing(sqlite3.connect(home / "altneu.db")) as connection:
        for stage, facts in connection.execute("SELECT stage, facts FROM stages"):
            yield stage, json.loads(facts)


def test_every_stage_has_facts_of_its_own() -> None:
    assert [*KINDS] == [*NAMES, "compact"]


def test_rows_of_a_stored_old_home_read_as_typed_and_write_as_they_were(tmp_path: Path) -> None:
    rows = list(old_rows(tmp_path))
    assert {stage for stage, _ in rows} == {stage.name for stage in STAGES if stage.part is None} and not any(
        "version" in stored for _, stored in rows
    )
    for stage, stored in rows:
        facts = from_json(stage, stored)
        assert type(facts) is KINDS[stage]
        assert without_version(to_json(facts)) == stored, stage


@pytest.mark.parametrize("facts", EXAMPLES, ids=lambda facts: type(facts).__name__)
def test_what_is_stored_is_read_as_it_was(facts: Facts) -> None:
    stored = json.loads(json.dumps(to_json(facts)))
    assert stored["version"] == 1
    assert to_json(from_json(facts.STAGE, stored)) == stored
    assert stage_fields(from_json(facts.STAGE, stored)) == stage_fields(facts)


def test_a_snapshot_keeps_its_64_bits() -> None:
    stored = to_json(AuditFacts(checks=0, failed=0, critical=0, snapshots={"edges": 2**63 - 1}))
    assert stored["snapshots"] == {"edges": "9223372036854775807"}
    assert from_json("audit", stored).snapshots == {"edges": 2**63 - 1}


@pytest.mark.parametrize("stage", [*NAMES, "compact"])
def test_a_row_that_lacks_fields_and_has_unknown_ones_is_read(stage: str) -> None:
    facts = from_json(stage, {"rows": 3, "of a later version": {"x": 1}})
    assert type(facts) is KINDS[stage] and getattr(facts, "rows", 3) == 3
    assert all(value in (0, 3) for _, _, value in display_fields(facts, "page"))


def test_a_stage_that_runs_has_said_nothing_and_one_that_failed_why() -> None:
    assert from_json("truss", {}) == Facts()
    failed = from_json("truss", {"error": "no memory", "cost": {"jvm": 5}})
    assert failed == FailedFacts(error="no memory", cost=Cost(jvm=5))
    assert from_json("a stage of a later version", {"rows": 3}) == Facts()


def test_an_absent_option_is_not_stored() -> None:
    assert to_json(TrussFacts(rows=0, epochs=0)) == {"rows": 0, "epochs": 0, "version": 1}
    assert to_json(TrianglesFacts(rows=1, proposals=None))["proposals"] is None


def test_what_a_command_prints_and_a_page_shows_of_a_stage() -> None:
    facts = IngestFacts(rows=2, quarantined=0, changed_rows=3, replaced_epochs=1, rows_before=4, quarantine_sample=[])
    shown = [("rows", "rows", 2), ("quarantined", "quarantined", 0)]
    replaced = [("replaced_epochs", "replaced epochs", 1), ("rows_before", "before", 4)]
    assert [*display_fields(facts, "line")] == [*shown, *replaced]
    assert [*display_fields(facts, "page")] == [*shown, ("changed_rows", "changed rows", 3), *replaced]
    edges = EdgesFacts(rows=1, first_epoch=-2, broadcast=True)
    assert [*display_fields(edges, "line")] == [("rows", "rows", 1), ("first_epoch", "from epoch", -2)]
    assert [*display_fields(edges, "page")] == [("rows", "rows", 1)]  # a flag is no number
    assert [*display_fields(FailedFacts(error="no memory", cost=Cost(jvm=5)), "page")] == []


def test_sizes_of_a_row_that_lacks_them_are_zero() -> None:
    facts = from_json("publish", {"revision": 1, "tables": {"edges": {}}})
    assert isinstance(facts, PublishFacts)
    size = facts.tables["edges"]
    assert (size.files, size.bytes, size.rows) == (0, 0, 0)


def test_the_version_of_a_stored_row_is_not_shown() -> None:
    assert without_version(json.loads('{"rows": 1, "version": 1}')) == {"rows": 1}


def test_a_stage_reads_the_results_of_earlier_stages_that_it_declares() -> None:
    from altneu.pipeline.run.run_context import RunContext

    for place, stage in enumerate(STAGES):
        assert {kind.STAGE for kind in stage.reads} <= set(NAMES[:place]), stage.name
        run = RunContext.__new__(RunContext)
        run.reads, run.run_id = stage.reads, "r"
        results = SimpleNamespace(get_facts=lambda run_id, kind: (run_id, kind))
        run.ledger = SimpleNamespace(stages=results)  # type: ignore[assignment]
        for kind in KINDS.values():
            if kind in stage.reads:
                assert run.get_result(kind) == ("r", kind)
            else:
                with pytest.raises(AssertionError, match=f"does not declare that it reads {kind.__name__}"):
                    run.get_result(kind)
