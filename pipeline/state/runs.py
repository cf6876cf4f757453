"""Runs in the database: their beginning and end, the process that works on each, and the runs that are over.

A process that works on a run holds its lease (`lease`). Every write for the run renews it in its transaction, where
this process holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from ..errors import AltneuError, RevisionConflict, RunInProgress
from . import clock
from .approvals import record_verdict
from .database_session import DatabaseSession
from .records import OPEN_STATES, Json, Revision, RunKind, RunRecord, RunState, Verdict, new_run_id
from .revisions import RevisionStore
from .schema import homes, ledger, runs


@dataclass(eq=False)
class RunStore:
    """The rows of the table `runs`."""

    database: DatabaseSession
    revisions: RevisionStore

    def get(self, run_id: str) -> RunRecord:
        """Return a run. Raises `AltneuError` where there is none with this id."""
        rows = self.database.read_rows(sa.select(runs).where(runs.c.run_id == run_id))
        if not rows:
            raise AltneuError(f"there is no run {run_id!r}.", "altneu status")
        return RunRecord.from_row(rows[0])

    def list_all(self) -> list[RunRecord]:
        """List all runs, oldest first."""
        return [RunRecord.from_row(row) for row in self.database.read_rows(sa.select(runs).order_by(runs.c.started_at))]

    def list_motifs(self, revision: Revision) -> list[str]:
        """Return the names of the motifs that a revision was published with, in their order."""
        return list(self.get(revision.run_id).config.get("motifs", {})) if revision.revision else []

    def get_parent(self, run: RunRecord) -> Revision:
        """Return the revision that a run builds on, as it was when the run began."""
        row = self.revisions.get(run.parent)
        if run.base is None:
            return row
        return replace(row, since=run.base.since, snapshots=run.base.snapshots)

    def pinned_snapshots(self, without: str | None = None) -> dict[str, set[int]]:
        """Return the snapshots that are still needed: table → snapshots.

        Readers of a published revision need them, or runs that may be continued or are held, except the run `without`.
        """
        pins: dict[str, set[int]] = {}
        newest = self.revisions.get().revision
        open_ = runs.c.state.in_(OPEN_STATES) & (runs.c.run_id != (without or "")) & (runs.c.parent == newest)
        going = sa.select(runs).where(open_ | (runs.c.state == RunState.HELD))
        bases = [run.base.snapshots for run in map(RunRecord.from_row, self.database.read_rows(going)) if run.base]
        for snapshots in (*(row.snapshots for row in self.revisions.list_all()), *bases):
            for table, snapshot in snapshots.items():
                pins.setdefault(table, set()).add(snapshot)
        return pins

    def list_held(self) -> list[RunRecord]:
        """List the runs that wait for a decision, oldest first.

        A held run whose parent is not the newest revision any more is among them; it can only be rejected.
        """
        statement = sa.select(runs).where(runs.c.state == RunState.HELD).order_by(runs.c.started_at, runs.c.run_id)
        return [RunRecord.from_row(row) for row in self.database.read_rows(statement)]

    def list_dead(self) -> list[str]:
        """List the runs that no process works on any more, and whose branches may be removed.

        These are runs that can never be published, because their parent is not the newest revision or because they were
        rejected, and published runs that were killed before they had removed their branches. A held run is not among
        them, because it waits for an approval.
        """
        return [row.run_id for row in self._dead_records()]

    def _dead_records(self) -> list[RunRecord]:
        newest = self.revisions.get().revision
        lost = (runs.c.parent != newest) | (runs.c.kind == RunKind.COMPACT)
        done = runs.c.state.in_([RunState.PUBLISHED, RunState.REJECTED])
        over = done | (runs.c.state.in_([*OPEN_STATES, RunState.SUPERSEDED]) & lost)
        rows = self.database.read_rows(
            sa.select(runs).where(over & sa.not_(sa.func.coalesce(runs.c.discarded, sa.false())))
        )
        held = (RunState.RUNNING, RunState.PUBLISHED)
        return [run for run in map(RunRecord.from_row, rows) if run.state not in held or not run.has_heartbeat]

    def list_with_branches(self) -> set[str]:
        """Return the runs that may have branches. Branches of other runs are garbage of processes that counted as
        dead."""
        return {
            row.run_id for row in self.database.read_rows(sa.select(runs.c.run_id).where(runs.c.discarded.is_not(True)))
        }

    def list_active(self) -> set[str]:
        """Return the runs that a living process works on."""
        rows = self.database.read_rows(sa.select(runs).where(runs.c.state == RunState.RUNNING))
        return {run.run_id for run in map(RunRecord.from_row, rows) if run.is_alive}

    def create(
        self,
        run_id: str,
        parent: int,
        *,
        epochs: list[int],
        config: Json,
        kind: RunKind = RunKind.RUN,
        hold: bool = False,
        alone: bool = False,
    ) -> None:
        """Record a new run.

        Args:
            run_id: Its id.
            parent: The revision on which it builds.
            epochs: Its epochs.
            config: The semantic settings.
            kind: What it does.
            hold: Whether it waits for an approval before it is published.
            alone: Whether to refuse it where another run is in progress or has published on `parent`.

        Raises:
            RunInProgress: With `alone`, another run is in progress or has published.
        """
        row = {"run_id": run_id, "parent": parent, "epochs": epochs, "config": config, "kind": kind}
        with self.database.engine.begin() as connection:
            connection.execute(
                runs.insert().values(
                    **row, state=RunState.RUNNING, started_at=clock.timestamp(), beat_at=clock.timestamp()
                )
            )
            # in the transaction that makes the run, so that no compaction can run between this query and the pin
            parent_row = connection.execute(
                sa.select(ledger).where(ledger.c.revision == parent).with_for_update()
            ).first()
            base = (
                {"since": parent_row.since, "snapshots": parent_row.snapshots}
                if parent_row
                else {"since": None, "snapshots": {}}
            )
            connection.execute(runs.update().where(runs.c.run_id == run_id).values(base=base))
            if hold:
                record_verdict(connection, run_id, Verdict.WANTED)
            if alone:  # of two runs that begin at once, the second one waits for this lock, and then finds the first
                connection.execute(sa.select(homes.c.id).with_for_update())
                newest = connection.execute(sa.select(ledger).order_by(ledger.c.revision.desc()).limit(1)).first()
                if newest is not None and newest.revision != parent:
                    raise RunInProgress(f"revision {newest.revision} was published meanwhile.", run_id=newest.run_id)
                going = sa.select(runs).where((runs.c.state == RunState.RUNNING) & (runs.c.run_id != run_id))
                _refuse_second_run(map(RunRecord.from_row, connection.execute(going)))

    def refuse_concurrent(self) -> None:
        """Raise `RunInProgress` where a run is in progress that would publish."""
        going = sa.select(runs).where(runs.c.state == RunState.RUNNING)
        _refuse_second_run(map(RunRecord.from_row, self.database.read_rows(going)))

    def restrict_to_epochs(self, run_id: str, epochs: Sequence[int], failed: Mapping[int, str] | None = None) -> None:
        """Continue a run with some of its epochs, as if the others had not landed.

        Each epoch of `failed` (epoch → error) gets a failed run of its own on record.
        """
        run = self.get(run_id)
        with self.database.write_transaction(run_id) as connection:
            connection.execute(runs.update().where(runs.c.run_id == run_id).values(epochs=list(epochs)))
            for epoch, error in (failed or {}).items():
                ended = {"state": RunState.FAILED, "error": error, "finished_at": clock.timestamp(), "discarded": True}
                begun = {"parent": run.parent, "config": run.config, "kind": run.kind, "started_at": run.started_at}
                beat = {"beat_at": clock.timestamp(), "base": run.base and run.base.to_json()}
                connection.execute(runs.insert().values(run_id=new_run_id(), epochs=[epoch], **begun, **beat, **ended))

    def acquire_lease(self, run_id: str, *, reset_approval: bool = False) -> None:
        """Take the lease on a run. A failed run that is tried again is running from now on. Raises `LeaseLost`.

        `reset_approval`: the run will compute again. A held run is reopened for that, and its approval holds no more.
        """
        run = self.get(run_id)
        is_over = run.state is RunState.REJECTED or (run.discarded and run.state is not RunState.PUBLISHED)
        is_free = run.owner is None or run.owner == self.database.owner() or not run.has_heartbeat
        reopened = reset_approval and run.state is RunState.HELD
        values: dict[str, str | None] = {"owner": self.database.owner(), "beat_at": clock.timestamp()}
        if run.state in OPEN_STATES or reopened:
            values |= {"state": RunState.RUNNING, "error": None, "finished_at": None}
        unchanged = (runs.c.run_id == run_id) & (runs.c.state == run.state) & (runs.c.owner == run.owner)
        if run.owner:
            unchanged &= runs.c.beat_at == run.beat_at
        take = runs.update().where(unchanged).values(**values)
        with self.database.engine.begin() as connection:
            if is_over or not is_free or not connection.execute(take).rowcount:
                self.database.raise_lease_lost(connection, run_id)
            if reopened:
                record_verdict(connection, run_id, Verdict.WANTED)
        self.database.leases.add(run_id)

    def release_lease(self, run_id: str) -> None:
        """Give up the lease, so that another process may take it."""
        self.database.leases.discard(run_id)
        with self.database.engine.begin() as connection:
            mine = (runs.c.run_id == run_id) & (runs.c.owner == self.database.owner())
            connection.execute(runs.update().where(mine).values(owner=None, beat_at=clock.timestamp()))

    def renew_lease(self, run_id: str) -> None:
        """Send a heartbeat of the process that holds the lease. Raises `LeaseLost` where it has lost the lease."""
        with self.database.write_transaction(run_id):
            pass  # each write transaction of a run checks the lease and sends a heartbeat

    def finish(self, run_id: str, state: RunState, error: str | None = None) -> None:
        """Record the end of a run. A run that is published, done, superseded, held or rejected keeps its state."""
        stays = [RunState.PUBLISHED, RunState.DONE, RunState.SUPERSEDED, RunState.HELD, RunState.REJECTED]
        where = (runs.c.run_id == run_id) & runs.c.state.not_in(stays)
        with self.database.write_transaction(run_id) as connection:
            connection.execute(
                runs.update().where(where).values(state=state, error=error, finished_at=clock.timestamp())
            )

    def require_newest_parent(self, run_id: str) -> None:
        """Raise `RevisionConflict` where another run has published on a run's parent, and record the run as superseded.

        A held run stays held, so that its pages can be read.
        """
        run = self.get(run_id)
        newest = self.revisions.get().revision
        if run.kind is RunKind.COMPACT or run.state in (RunState.PUBLISHED, RunState.DONE) or newest == run.parent:
            return
        won = self.revisions.get(run.parent + 1)
        if run.state in OPEN_STATES:
            what = f"superseded by revision {won.revision}"
            supersede = runs.update().where((runs.c.run_id == run_id) & runs.c.state.in_(OPEN_STATES))
            with self.database.write_transaction(run_id) as connection:
                connection.execute(
                    supersede.values(state=RunState.SUPERSEDED, error=what, finished_at=clock.timestamp())
                )
        raise RevisionConflict(
            f"run {run_id} builds on revision {run.parent}, but run {won.run_id} has published revision "
            f"{won.revision} meanwhile. Nothing of this run was published.",
            "run the same command again" + (" (with --hold)" if run.state is RunState.HELD else ""),
        )

    def expire_dead(self) -> list[str]:
        """End the leases of dead runs (`list_dead`), so that their branches can be removed. Return their ids.

        A run that was killed is recorded as failed.
        """
        gone = []
        killed = {
            "state": RunState.FAILED,
            "error": "it stopped without an error message (killed, or the machine went down)",
        }
        for row in self._dead_records():
            with self.database.engine.begin() as connection:
                same = (runs.c.run_id == row.run_id) & (runs.c.state == row.state) & (runs.c.beat_at == row.beat_at)
                end = {"finished_at": row.last_signal, **killed} if row.state is RunState.RUNNING else {}
                if connection.execute(runs.update().where(same).values(owner=None, **end)).rowcount:
                    gone.append(row.run_id)
        return gone

    def forget_branches(self, run_ids: list[str]) -> None:
        """Record that these runs have no branches any more."""
        with self.database.engine.begin() as connection:
            connection.execute(runs.update().where(runs.c.run_id.in_(run_ids)).values(discarded=True))


def _refuse_second_run(running: Iterable[RunRecord]) -> None:
    other = next((run for run in running if run.kind is not RunKind.COMPACT and run.is_alive), None)
    if other is not None:
        raise RunInProgress(f"run {other.run_id} of {len(other.epochs)} epoch(s) is in progress.", run_id=other.run_id)
