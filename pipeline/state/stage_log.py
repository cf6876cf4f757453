"""The stages of runs in the database: their states, durations and results."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from ..errors import AltneuError
from .database_session import DatabaseSession
from .records import StageRecord, StageState
from .schema import ledger, stages
from .stage_results import CompactFacts, F, Facts, PublishFacts, Size, to_json


@dataclass(eq=False)
class StageLog:
    """The rows of the table `stages`."""

    database: DatabaseSession

    def select(self, run_id: str) -> list[StageRecord]:
        """List the stages of a run, in the order in which they began."""
        mine = sa.select(stages).where(stages.c.run_id == run_id).order_by(stages.c.started_at)
        return [StageRecord.from_row(row) for row in self.database.read_rows(mine)]

    def recorded_snapshots(self, run_id: str) -> dict[str, int]:
        """Return the snapshots that the finished stages of a run have recorded: table → snapshot."""
        done = [row.facts for row in self.select(run_id) if row.state is StageState.DONE]
        return {table: snapshot for facts in done for table, snapshot in facts.snapshots.items()}

    def get_facts(self, run_id: str, kind: type[F]) -> F:
        """Return the facts of a finished stage, by their class. Raises `AltneuError` where the stage has not
        finished."""
        for row in self.select(run_id):
            if row.state is StageState.DONE and isinstance(row.facts, kind):
                return row.facts
        raise AltneuError(f"run {run_id}: stage {kind.STAGE} has not finished.", "altneu status")

    def list_recent(self, newest: int, stage: str | None = None) -> list[StageRecord]:
        """List the finished stages of the `newest` most recent published runs, the oldest run first: all, or one."""
        last = sa.select(ledger.c.run_id, ledger.c.revision).order_by(ledger.c.revision.desc()).limit(newest).subquery()
        statement = sa.select(stages).join(last, last.c.run_id == stages.c.run_id).order_by(last.c.revision)
        done = statement.where(stages.c.state == StageState.DONE, stages.c.stage == stage if stage else sa.true())
        return [StageRecord.from_row(row) for row in self.database.read_rows(done)]

    def table_sizes(self) -> Mapping[str, Size]:
        """Return the size of each table for a reader of the newest revision, as the last publication or compaction
        found it."""
        last = stages.c.stage.in_(["publish", "compact"]) & (stages.c.state == StageState.DONE)
        rows = self.database.read_rows(sa.select(stages).where(last).order_by(stages.c.started_at.desc()).limit(1))
        facts = StageRecord.from_row(rows[0]).facts if rows else None
        return facts.tables if isinstance(facts, (PublishFacts, CompactFacts)) else {}

    def record(self, run_id: str, stage: str, state: StageState, started: float, facts: Facts | None = None) -> None:
        """Record that a stage has started (`running`) or ended, with its facts; `started` is in seconds since 1970."""
        row = {
            "state": state,
            "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
            "seconds": None if state is StageState.RUNNING else time.time() - started,
            "facts": to_json(facts) if facts else {},
        }
        where = (stages.c.run_id == run_id) & (stages.c.stage == stage)
        with self.database.write_transaction(run_id) as connection:
            if not connection.execute(stages.update().where(where).values(**row)).rowcount:
                connection.execute(stages.insert().values(run_id=run_id, stage=stage, **row))
