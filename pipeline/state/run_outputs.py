"""The outputs of runs in the database: batches that they read, and totals, fingerprints and proofs of what they
change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import sqlalchemy as sa

from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph.proof_records import Proof

from .database_session import DatabaseSession
from .fingerprint_sums import UNKNOWN, Prints, sum_before, sum_by_revision, sum_texts
from .records import Batch, StagedBatch
from .schema import batches, fingerprints, ledger, proofs, totals
from .totals import TotalDiff
from .versions import DatabaseOutdated

MAX_SINGLE_LOOKUPS = 200  # epochs whose batches are looked up one by one; beyond that all are read


@dataclass(eq=False)
class OutputStore:
    """The rows of the tables `batches`, `totals`, `fingerprints` and `proofs`."""

    database: DatabaseSession
    _batches: dict[int, dict[int, Batch]] = field(default_factory=dict, init=False, repr=False)

    def published_batches(
        self, revision: int | None = None, epochs: Sequence[int] | None = None
    ) -> Mapping[int, Batch]:
        """Return the published batches as of a revision (default: the newest): epoch → batch.

        With `epochs` only those of these epochs are sure to be there. The batches of the revision that was asked for
        last are kept, since they never change and a run asks for those of its parent in each stage.
        """
        if revision is not None and revision in self._batches:
            return self._batches[revision]
        columns = [batches.c[name] for name in ("epoch", "digest", "files", "rows", "bad_rows")]
        joined = batches.join(ledger, ledger.c.run_id == batches.c.run_id)
        statement = sa.select(*columns, ledger.c.revision).select_from(joined).order_by(ledger.c.revision)
        if revision is not None:
            statement = statement.where(ledger.c.revision <= revision)
        if epochs is not None and len(epochs) <= MAX_SINGLE_LOOKUPS:
            statement = statement.where(batches.c.epoch.in_(epochs))
        newest = {row[0]: row for row in self.database.read_rows(statement)}
        published = {epoch: Batch(*row) for epoch, row in sorted(newest.items()) if row.digest}
        is_whole = epochs is None or len(epochs) > MAX_SINGLE_LOOKUPS
        is_published = any(row.revision == revision for row in newest.values())  # and not about to be published
        if revision is not None and is_whole and is_published:
            self._batches = {revision: published}
        return published

    def staged_batches(self, run_id: str) -> list[StagedBatch]:
        """List the batches of a run, whether it is published or not."""
        mine = sa.select(batches).where(batches.c.run_id == run_id).order_by(batches.c.epoch)
        return [StagedBatch.from_row(row) for row in self.database.read_rows(mine)]

    def put_batches(self, run_id: str, staged: Iterable[StagedBatch]) -> None:
        """Replace the batches of a run."""
        rows = [{"run_id": run_id, **asdict(batch)} for batch in staged]
        self.database.replace_rows(run_id, batches, batches.c.run_id == run_id, rows)

    def total_diffs(self, revision: int | None = None, first: int | None = None) -> list[TotalDiff]:
        """List the totals as diff triples `(measure, k, epoch, revision, diff)`, up to a revision (default: the
        newest).

        With `first` those of earlier epochs are one triple for each measure and k, at epoch `first` - 1, with the
        newest of their revisions: the totals from there on are the same.
        """
        shown = sa.true() if revision is None else ledger.c.revision <= revision
        key, of_run = (totals.c.measure, totals.c.k), ledger.c.run_id == totals.c.run_id
        rows = sa.select(*key, totals.c.epoch, ledger.c.revision, totals.c.diff).join(ledger, of_run).where(shown)
        listed = self.database.read_rows(rows if first is None else rows.where(totals.c.epoch >= first))
        if first is not None:
            sums = sa.func.max(ledger.c.revision).label("revision"), sa.func.sum(totals.c.diff).label("diff")
            epoch_before = sa.literal(first - 1).label("epoch")
            before = (
                sa.select(*key, epoch_before, *sums)
                .join(ledger, of_run)
                .where(shown, totals.c.epoch < first)
                .group_by(*key)
            )
            listed = [*listed, *self.database.read_rows(before)]
        # the fields of a row by their places, since its attributes take four times as long
        return [(measure, k, epoch, revision, int(diff)) for measure, k, epoch, revision, diff in map(tuple, listed)]

    def list_measures(self, revision: int) -> set[str]:
        """List the measures that totals up to a revision are about."""
        rows = self.database.read_rows(
            sa.select(totals.c.measure).where(totals.c.run_id.in_(_select_published_runs(revision))).distinct()
        )
        return {row.measure for row in rows}

    def estimate_edges_since(self, revision: int, first: int, most: int) -> int:
        """Estimate how many of the `most` edge intervals of a revision reach epoch `first`.

        These are the edges just before it, and at most one for each row that has landed since.
        """
        alive = sa.select(sa.func.coalesce(sa.func.sum(totals.c.diff), 0)).where(
            totals.c.run_id.in_(_select_published_runs(revision)), totals.c.measure == "edges", totals.c.epoch < first
        )
        landed = sa.select(sa.func.coalesce(sa.func.sum(batches.c.rows), 0)).where(
            batches.c.run_id.in_(_select_published_runs(revision)), batches.c.epoch >= first
        )
        both = sa.select(alive.scalar_subquery().label("alive"), landed.scalar_subquery().label("landed"))
        (row,) = self.database.read_rows(both)
        return min(most, int(row.alive) + int(row.landed))

    def staged_totals(self, run_id: str, revision: int) -> list[TotalDiff]:
        """List the total diffs of a run that is not published yet, as if it were published as `revision`."""
        rows = self.database.read_rows(sa.select(totals).where(totals.c.run_id == run_id))
        return [(row.measure, row.k, row.epoch, revision, row.diff) for row in rows]

    def put_totals(self, run_id: str, measures: Iterable[str], rows: Iterable[tuple[str, int, int, int]]) -> None:
        """Replace the total diffs of a run for these measures by rows `(measure, k, epoch, diff)`."""
        where = (totals.c.run_id == run_id) & totals.c.measure.in_(list(measures))
        listed = [
            {"run_id": run_id, "measure": measure, "k": k, "epoch": epoch, "diff": diff}
            for measure, k, epoch, diff in rows
            if diff
        ]
        self.database.replace_rows(run_id, totals, where, listed)

    def fingerprints_of(self, revision: int) -> Prints:
        """Return the fingerprints of the tables at a revision.

        A table whose fingerprints are not known is left out: no run has computed them since an earlier version wrote
        it.
        """
        return self.fingerprints_at([revision])[revision]

    def fingerprints_at(self, revisions: Iterable[int]) -> dict[int, Prints]:
        """Return the fingerprints of the tables at several revisions, in one query. An old database has none."""
        wanted = list(revisions)
        columns = (ledger.c.revision, fingerprints.c.collection, fingerprints.c.epoch, fingerprints.c.fingerprint)
        statement = sa.select(*columns).join(ledger, ledger.c.run_id == fingerprints.c.run_id)
        newest = statement.where(ledger.c.revision <= max(wanted, default=0)).order_by(ledger.c.revision)
        try:
            rows = self.database.read_rows(newest)
        except DatabaseOutdated:
            rows = []
        published = [
            row.revision for row in self.database.read_rows(sa.select(ledger.c.revision).order_by(ledger.c.revision))
        ]
        return sum_by_revision(map(tuple, rows), wanted, published)

    def fingerprints_since(self, revision: int, first: int) -> Prints:
        """Return the fingerprints of the tables at a revision, with the sum of those before epoch `first` at
        `first` - 1.

        Of a long history only these sums are made, and no object for each of its epochs.
        """
        known, has_gaps = self._find_known_tables(revision)
        if has_gaps:
            return sum_before(self.fingerprints_of(revision), first)
        epoch = sa.case((fingerprints.c.epoch < first, first - 1), else_=fingerprints.c.epoch).label("at")
        joined = sa.func.aggregate_strings(fingerprints.c.fingerprint, "").label("joined")
        rows = sa.select(fingerprints.c.collection, epoch, joined).group_by(fingerprints.c.collection, epoch)
        is_published = fingerprints.c.run_id.in_(_select_published_runs(revision))
        prints: Prints = {table: {} for table in known}
        for row in self.database.read_rows(rows.where(is_published).order_by(epoch)) if known else ():
            if each := sum_texts(row.joined):
                prints[row.collection][row.at] = each
        return prints

    def known_tables(self, revision: int) -> set[str]:
        """Return the tables whose fingerprints at a revision are known."""
        known, has_gaps = self._find_known_tables(revision)
        return set(self.fingerprints_of(revision)) if has_gaps else known

    def _find_known_tables(self, revision: int) -> tuple[set[str], bool]:
        """Return the tables with fingerprints, and whether those of one are not known at each revision since its first.

        An old database has none.
        """
        columns = (fingerprints.c.collection, sa.func.min(ledger.c.revision).label("first"))
        count = sa.func.count(ledger.c.revision.distinct()).label("revisions")
        known = sa.select(*columns, count).join(ledger, ledger.c.run_id == fingerprints.c.run_id)
        known = known.where(ledger.c.revision <= revision, fingerprints.c.fingerprint != UNKNOWN)
        try:
            rows = self.database.read_rows(known.group_by(fingerprints.c.collection))
        except DatabaseOutdated:
            rows = []
        return {row.collection for row in rows}, any(row.revisions <= revision - row.first for row in rows)

    def staged_fingerprints(self, run_id: str) -> Prints:
        """Return the fingerprints of what a run changes, whether it is published or not."""
        rows = self.database.read_rows(sa.select(fingerprints).where(fingerprints.c.run_id == run_id))
        return sum_by_revision([(0, row.collection, row.epoch, row.fingerprint) for row in rows], [0])[0]

    def put_fingerprints(self, run_id: str, prints: Mapping[str, Mapping[int, Fingerprint] | None]) -> None:
        """Replace the fingerprints of what a run changes in these tables.

        A table without epochs gets an empty row, which says that its fingerprints are known. None: they are not known
        from this run on, until a later run stores those of the whole table.
        """
        where = (fingerprints.c.run_id == run_id) & fingerprints.c.collection.in_(list(prints))
        rows = [
            {"run_id": run_id, "collection": table, "epoch": epoch, "fingerprint": text}
            for table, by_epoch in prints.items()
            for epoch, text in _encode_fingerprints(by_epoch).items()
        ]
        self.database.replace_rows(run_id, fingerprints, where, rows)

    def put_proof(self, run_id: str, proof: str | None) -> None:
        """Replace the proof of a run, as JSON; None: it has none."""
        rows = [] if proof is None else [{"run_id": run_id, "proof": proof}]
        self.database.replace_rows(run_id, proofs, proofs.c.run_id == run_id, rows)

    def get_proof(self, run_id: str) -> Proof | None:
        """Return the proof of a run; None: its graph was too large for one task, or nothing was replayed."""
        rows = self.database.read_rows(sa.select(proofs.c.proof).where(proofs.c.run_id == run_id))
        return Proof.from_json(rows[0].proof) if rows else None


def _select_published_runs(revision: int) -> sa.Select[tuple[str]]:
    """Return the query for the ids of the runs that are published up to a revision."""
    return sa.select(ledger.c.run_id).where(ledger.c.revision <= revision)


def _encode_fingerprints(by_epoch: Mapping[int, Fingerprint] | None) -> dict[int, str]:
    if by_epoch is None:
        return {0: UNKNOWN}
    return {epoch: str(each) for epoch, each in (by_epoch or {0: Fingerprint()}).items()}
