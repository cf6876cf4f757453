"""Fingerprints as the ledger adds them up: over runs and revisions, through rollbacks, folded, compared. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from altneu.algorithms.fingerprint import Fingerprint
from altneu.pipeline.cli.runs import print_same
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.state import fingerprint_sums
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.report.seed import DAY, Seed

Diffs = dict[str, dict[int, int]]
NOTHING = Fingerprint()


def of(found: dict[str, dict[int, int]]) -> fingerprint_sums.Prints:
    return {table: {epoch: one(number) for epoch, number in by.items()} for table, by in found.items()}


def one(number: int) -> Fingerprint:
    """Of something; linear, and with carries."""
    return Fingerprint(number * 2**63 % 2**64 + number, -number % 2**64)


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    return Seed(tmp_path / "home")


def publish(seed: Seed, staged: Diffs | None) -> None:
    """One more revision; `staged`: what its run says of fingerprints. None: it is of before there were any."""
    begin = seed.ledger.runs.create

    def and_stage(run_id: str, *arguments: object, **named: object) -> None:
        begin(run_id, *arguments, **named)  # type: ignore[arg-type]
        if staged is not None:
            seed.ledger.outputs.put_fingerprints(run_id, of(staged))

    seed.ledger.runs.create = and_stage  # type: ignore[method-assign]
    seed.run({DAY + seed.ledger.revisions.get().revision: (1, 0)}, {DAY: {"edges": 1, "vertices": 2}})
    seed.ledger.runs.create = begin  # type: ignore[method-assign]
    newest = seed.ledger.revisions.get()
    seed.ledger.revisions.repin(newest.run_id, {"edges": newest.revision}, [newest.revision], None, [])


def check_sums_before(ledger: Ledger) -> None:
    """The sums of a revision before an epoch are those of its fingerprints by epoch."""
    for revision in range(ledger.revisions.get().revision + 1):
        whole = ledger.outputs.fingerprints_of(revision)
        assert ledger.outputs.known_tables(revision) == set(whole)
        for first in (0, 1, 2, 3, 9):
            assert ledger.outputs.fingerprints_since(revision, first) == fingerprint_sums.sum_before(whole, first)


def test_what_cancels_leaves_no_trace(seed: Seed) -> None:
    publish(seed, {"edges": {1: 5, 2: 7}, "names": {}})
    publish(seed, {"edges": {2: -7, 3: 1}, "names": {}})
    ledger = seed.ledger
    assert ledger.outputs.fingerprints_of(0) == {}
    assert ledger.outputs.fingerprints_of(1) == of({"edges": {1: 5, 2: 7}, "names": {}})
    assert ledger.outputs.fingerprints_of(2) == of({"edges": {1: 5, 3: 1}, "names": {}})
    assert ledger.outputs.fingerprints_at([2, 1]) == {n: ledger.outputs.fingerprints_of(n) for n in (1, 2)}
    check_sums_before(ledger)
    run_id = ledger.revisions.get().run_id
    assert ledger.outputs.staged_fingerprints(run_id) == of({"edges": {2: -7, 3: 1}, "names": {}})
    ledger.outputs.put_fingerprints(run_id, of({"edges": {9: 1}}))  # a stage that is tried again replaces what it wrote
    assert ledger.outputs.staged_fingerprints(run_id) == of({"edges": {9: 1}, "names": {}})


def test_a_rollback_restores_every_fingerprint(seed: Seed) -> None:
    publish(seed, {"edges": {1: 5}, "degrees": {1: 1}})
    publish(seed, {"edges": {1: -5, 2: 8}, "degrees": {}})
    publish(seed, {"edges": {2: 3}, "motif_counts": {4: 4}})  # a table that came with this revision
    ledger = seed.ledger
    for target in (1, 2, 3, 0, 3, 1, 0, 2):
        row, _ = rollback.roll_back(ledger, target)
        wanted = (
            ledger.outputs.fingerprints_of(target)
            if target
            else {table: {} for table in ledger.outputs.fingerprints_of(row.parent)}
        )
        assert ledger.outputs.fingerprints_of(row.revision) == wanted
    check_sums_before(ledger)


def test_what_nobody_took_is_not_known(seed: Seed) -> None:
    """A home of before there were fingerprints: after a rollback to a revision whose fingerprints are not known, they
    are not known until a run takes those of whole tables again."""
    publish(seed, None)
    publish(seed, {"edges": {1: 5}})  # the first run that knows them stages those of the whole table
    ledger = seed.ledger
    assert (ledger.outputs.fingerprints_of(1), ledger.outputs.fingerprints_of(2)) == ({}, of({"edges": {1: 5}}))
    assert rollback.roll_back(ledger, 1)[0].revision == 3
    assert ledger.outputs.fingerprints_of(3) == {}
    publish(seed, {"edges": {1: 2}})
    assert ledger.outputs.fingerprints_of(4) == of({"edges": {1: 2}})
    rollback.roll_back(ledger, 2)
    assert ledger.outputs.fingerprints_of(5) == of({"edges": {1: 5}})
    rollback.roll_back(ledger, 3)
    rollback.roll_back(ledger, 2)  # from a state that is not known to one that is
    assert ledger.outputs.fingerprints_of(6) == {} and ledger.outputs.fingerprints_of(7) == of({"edges": {1: 5}})
    assert ledger.outputs.fingerprints_of(2) == of({"edges": {1: 5}})
    check_sums_before(ledger)


def test_a_revision_of_an_earlier_version_leaves_nothing_known(seed: Seed) -> None:
    """Somebody went back to it for a run: what it wrote is in no fingerprint."""
    for staged in ({"edges": {1: 5}}, None, {"edges": {1: 9}}, {"edges": {2: 1}}):
        publish(seed, staged)
    found = [seed.ledger.outputs.fingerprints_of(revision) for revision in (1, 2, 3, 4)]
    assert found == [of({"edges": {1: 5}}), {}, of({"edges": {1: 9}}), of({"edges": {1: 9, 2: 1}})]
    check_sums_before(seed.ledger)


def test_an_older_database_knows_none(tmp_path: Path) -> None:
    ledger = home_helpers.open_database(f"sqlite:///{tmp_path / 'l.db'}")
    with ledger.database.engine.begin() as connection:
        connection.exec_driver_sql("drop table fingerprints")
        connection.exec_driver_sql("update altneu_version set version_num = 'v0005'")
    outputs = Ledger(ledger.home).outputs
    assert outputs.fingerprints_of(3) == outputs.fingerprints_since(3, 1) == {} and outputs.known_tables(3) == set()


def test_folding() -> None:
    found = of({"edges": {1: 5, 2: 7, 4: 1}, "upserts": {1: 5, 2: 7, 4: 1}, "names": {1: 5}, "degrees": {1: 1, 3: -1}})
    assert fingerprint_sums.fold_fingerprints(found, None) == found
    folded = fingerprint_sums.fold_fingerprints(found, 3)
    assert folded == of({"edges": {3: 12, 4: 1}, "upserts": {4: 1}, "names": {1: 5}, "degrees": {}})
    assert fingerprint_sums.fold_fingerprints(folded, 3) == folded
    assert fingerprint_sums.cumulative_at(found, 2) == {
        "edges": str(one(12)), "upserts": str(one(12)), "names": str(one(5)), "degrees": str(one(1))
    }  # fmt: skip
    assert fingerprint_sums.cumulative_at(found, None) == {}


def test_differences_name_the_first_epoch() -> None:
    expected = of({"edges": {1: 5, 2: 7}, "degrees": {3: 1}, "trussness": {1: 1}})
    found = of({"edges": {1: 5, 3: 7}, "degrees": {3: 1}, "names": {1: 1}})
    assert fingerprint_sums.list_differences(expected, expected) == []
    (difference,) = fingerprint_sums.list_differences(expected, found)
    assert difference == fingerprint_sums.FingerprintDifference("edges", 2, one(7), NOTHING, 2)
    assert difference.describe("2004-05-15") == (
        f"table edges, epoch 2004-05-15: fingerprint {'0' * 32} instead of {one(7)}, and of 1 more epoch(s)"
    )


def test_a_rebuild_says_what_is_as_before(seed: Seed, capsys: pytest.CaptureFixture[str]) -> None:
    publish(seed, None)
    publish(seed, {"edges": {DAY: 5}, "names": {}, "degrees": {DAY: 1}})
    publish(seed, {"edges": {}, "names": {}, "degrees": {}})
    publish(seed, {"edges": {DAY + 1: 2}, "names": {}, "degrees": {DAY: 1}})

    def said(revision: int) -> str:
        print_same(seed.ledger, seed.ledger.revisions.get(revision))
        return " ".join(capsys.readouterr().out.split())

    assert said(2) == "it is not known whether the tables are as before: revision 1 has no fingerprints"
    assert said(3) == "every table is the same as in revision 2"
    assert said(4) == (
        "the same as in revision 3: names "
        "other than in revision 3: degrees from epoch 2004-07-01 on, edges from epoch 2004-07-02 on"
    )
