"""Rollback as far as it goes: to nothing, and not to where we are. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from altneu.pipeline.errors import RevisionConflict, UsageError
from altneu.pipeline.landing.epoch_states import list_epoch_rows
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.reading import views
from altneu.pipeline.report import epoch_document
from altneu.pipeline.run import semantic_settings
from altneu.pipeline.state.records import EMPTY
from altneu.pipeline.state.run_outputs import OutputStore
from altneu.pipeline.tasks.airflow_page import epoch_grid as page_in_airflow
from tests.report.seed import DAY, Seed, write


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    seed = Seed(tmp_path / "home")
    seed.run({DAY: (9, 0), DAY + 1: (4, 0)}, {DAY: {"edges": 9, "vertices": 5}, DAY + 1: {"edges": 1}})
    return seed


def test_the_first_publication_can_be_taken_back(seed: Seed) -> None:
    home, ledger = seed.home, seed.ledger
    row, epochs = rollback.roll_back(ledger, 0)
    assert (row.revision, row.frontier, row.snapshots, epochs) == (2, None, {}, [DAY, DAY + 1])
    assert ledger.revisions.get() == row
    assert ledger.outputs.published_batches() == {} and views.select_totals(ledger, all_epochs=True) == []
    assert views.select_totals(ledger, revision=1)[0]["edges"] == 10
    assert (list_epoch_rows(ledger), page_in_airflow(str(home.path))["epochs"]) == ((row, []), [])
    assert semantic_settings.changed_meaning(ledger) == ([], "run")
    for epoch in (DAY, DAY + 1):
        assert epoch_document(ledger, epoch)["state"] == "empty"
        assert epoch_document(ledger, epoch)["graph"] is None
    write(ledger, epochs)
    # nothing to take back any more; forward again is a rollback too
    with pytest.raises(UsageError, match="the published state is already empty, as revision 0 is"):
        rollback.roll_back(ledger, 0)
    with pytest.raises(UsageError, match="the published state is already revision 2"):
        rollback.roll_back(ledger, 2)


def test_forward_again(seed: Seed) -> None:
    """After nothing, anything may be published, under other settings, too."""
    rollback.roll_back(seed.ledger, 0)
    seed.run({DAY: (3, 0)}, {DAY: {"edges": 3, "vertices": 4}})
    found = views.select_totals(seed.ledger, all_epochs=True)
    assert [(point["epoch"], point["edges"], point["vertices"]) for point in found] == [(DAY, 3, 4)]


def test_where_there_is_nothing_to_take_back(tmp_path: Path) -> None:
    seed = Seed(tmp_path / "home")
    with pytest.raises(UsageError, match="the published state is already revision 0"):
        rollback.roll_back(seed.ledger, 0)
    assert seed.ledger.revisions.get() == EMPTY


def test_to_the_current_revision_is_refused(seed: Seed) -> None:
    with pytest.raises(UsageError, match=r"already revision 1\. Nothing was changed"):
        rollback.roll_back(seed.ledger, 1)
    with pytest.raises(UsageError, match="no revision -1"):
        rollback.roll_back(seed.ledger, -1)
    assert seed.ledger.revisions.get().revision == 1 and len(seed.ledger.runs.list_all()) == 1


def test_a_compaction_between_the_look_and_the_row(seed: Seed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots that a rollback has read may be gone: it does not pin them."""
    ledger = seed.ledger
    seed.run({DAY: (3, 0)}, {DAY: {"edges": 3}})
    ledger.runs.create("compaction", 2, epochs=[], config={}, kind="compact")
    ledger.revisions.repin("compaction", {"edges": 5}, [1], None, [])
    ledger.revisions.repin("compaction", {"edges": 7}, [2], None, [])
    put = OutputStore.put_totals

    def meanwhile(*arguments: object) -> None:
        put(*arguments)  # type: ignore[arg-type]
        ledger.revisions.repin("compaction", {"edges": 6}, [2], None, [1])

    monkeypatch.setattr(OutputStore, "put_totals", meanwhile)
    with pytest.raises(RevisionConflict, match="revision 1 shares its tables with another one since"):
        rollback.roll_back(ledger, 1)
    assert ledger.revisions.get().revision == 2


def test_an_interrupted_one_is_recorded_and_publishes_nothing(seed: Seed, monkeypatch: pytest.MonkeyPatch) -> None:
    def publish(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(seed.ledger, "publish_revision", publish)
    with pytest.raises(KeyboardInterrupt):
        rollback.roll_back(seed.ledger, 0)
    run = seed.ledger.runs.list_all()[-1]
    assert (run.state, run.error, run.owner) == ("interrupted", "interrupted during rollback", None)
    assert seed.ledger.revisions.get().revision == 1
