"""What runs say of epochs: the batches that they have read, and the totals of the graph that they change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import sqlalchemy as sa

from .records import Batch, StagedBatch
from .schema import batches, ledger, totals
from .store import Store
from .totals import TotalDiff


class Contents(Store):
    """The rows of `batches` and `totals`."""

    def batches(self, revision: int | None = None) -> dict[int, Batch]:
        """Epoch → its batch as of a revision (default: the newest)."""
        statement = (
            sa.select(batches, ledger.c.revision)
            .join(ledger, ledger.c.run_id == batches.c.run_id)
            .order_by(ledger.c.revision)
        )
        if revision is not None:
            statement = statement.where(ledger.c.revision <= revision)
        newest = {row.epoch: Batch.of(row) for row in self.read(statement)}
        return {epoch: batch for epoch, batch in sorted(newest.items()) if batch.digest}

    def staged_batches(self, run_id: str) -> list[StagedBatch]:
        """The batches of a run, published or not."""
        mine = sa.select(batches).where(batches.c.run_id == run_id).order_by(batches.c.epoch)
        return [StagedBatch.of(row) for row in self.read(mine)]

    def put_batches(self, run_id: str, found: Iterable[StagedBatch]) -> None:
        """Replace the batches of a run."""
        rows = [{"run_id": run_id, **asdict(batch)} for batch in found]
        self._replace(run_id, batches, batches.c.run_id == run_id, rows)

    def total_diffs(self, revision: int | None = None) -> list[TotalDiff]:
        """The totals as diff triples `(measure, k, epoch, revision, diff)` up to a revision."""
        statement = sa.select(totals, ledger.c.revision).join(ledger, ledger.c.run_id == totals.c.run_id)
        if revision is not None:
            statement = statement.where(ledger.c.revision <= revision)
        return [(row.measure, row.k, row.epoch, row.revision, row.diff) for row in self.read(statement)]

    def staged_totals(self, run_id: str, revision: int) -> list[TotalDiff]:
        """The total diffs of a run that is not published yet, as if it were."""
        rows = self.read(sa.select(totals).where(totals.c.run_id == run_id))
        return [(row.measure, row.k, row.epoch, revision, row.diff) for row in rows]

    def put_totals(self, run_id: str, measures: Iterable[str], rows: Iterable[tuple[str, int, int, int]]) -> None:
        """Replace the run's total diffs of these measures by `(measure, k, epoch, diff)` rows."""
        where = (totals.c.run_id == run_id) & totals.c.measure.in_(list(measures))
        listed = [
            {"run_id": run_id, "measure": measure, "k": k, "epoch": epoch, "diff": diff}
            for measure, k, epoch, diff in rows
            if diff
        ]
        self._replace(run_id, totals, where, listed)
