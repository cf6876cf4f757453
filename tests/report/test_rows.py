"""What the pages read: as much of a long history as of a short one, and of the index a row an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.report import epoch_document
from altneu.pipeline.report import index_page as whole
from altneu.pipeline.state.database_session import DatabaseSession
from tests.report.seed import DAY, audit, long_history, write

SHORT, LONG = 200, 700


class Reads:
    """The statements that the ledger has sent, and the rows that came back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements = self.rows = 0
        original = DatabaseSession.read_rows

        def counted(database: DatabaseSession, statement: Any) -> Any:
            found = original(database, statement)
            self.statements += 1
            self.rows += len(found)
            return found

        monkeypatch.setattr(DatabaseSession, "read_rows", counted)

    def taken(self) -> tuple[int, int]:
        """Since the last time."""
        found, self.statements, self.rows = (self.statements, self.rows), 0, 0
        return found


def test_a_page_reads_as_much_of_a_long_history_as_of_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, found = Reads(monkeypatch), {}
    for days in (SHORT, LONG):
        seed = long_history(tmp_path / str(days), days)
        for epoch in (DAY + 130, DAY + days - 1):
            reads.taken()
            assert epoch_document(seed.ledger, epoch)["state"] == "good"
            found[days, epoch] = reads.taken()
    assert len(set(found.values())) == 1, found
    statements, rows = found[SHORT, DAY + 130]
    assert statements < 30 and rows < 600


def test_a_write_reads_a_row_an_epoch_and_no_epoch_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the checks, of which there are more than of anything else, only what has failed."""
    reads, found = Reads(monkeypatch), {}
    for days in (SHORT, LONG):
        seed = long_history(tmp_path / str(days), days)
        write(seed.ledger, list(range(DAY + days - 50, DAY + days)))
        seed.run({DAY + days: (9, 0)}, {DAY + days: {"edges": 1}}, audit(DAY + days))
        reads.taken()
        write(seed.ledger, [DAY + days])  # its page, the one before that links it now, and the index
        found[days] = reads.taken()
    assert found[SHORT][0] == found[LONG][0]
    per_epoch = (found[LONG][1] - found[SHORT][1]) / (LONG - SHORT)
    assert per_epoch <= 3, per_epoch  # its batch, its totals, its audit


def test_the_index_shows_so_many_epochs_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = long_history(tmp_path, SHORT)
    monkeypatch.setattr(whole, "GRID", 40)
    text = write(seed.ledger, [])[0].read_text()
    assert text.count('class="c ') == 40 and "160 older ones" in text
    assert "200 epochs published, the newest 40 of all shown here, each of these equal" in text
