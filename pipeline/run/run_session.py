"""The life cycle of a run, the same for a run of stages, a rollback and a compaction.

A run begins in the ledger (`RunSession.begin_run`, or `runner.begin_run` for one whose stages follow). To work on it a
process enters a `RunSession`: it takes the lease, or raises `LeaseLost` and changes nothing, and sends heartbeats until
the block ends. In the block `start_stage` and `finish_stage` record the stage. An error in it is recorded as `classify`
says, for the stage and for the run, and leaves the block unchanged. What the run has published stays published: then,
and where the run was superseded, is held or rejected, its state remains.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from types import TracebackType

import sqlalchemy as sa

from ..errors import LeaseLost, RevisionConflict, describe_error
from ..interrupt import Interrupted, interruption_of
from ..state import lease
from ..state.ledger import Ledger
from ..state.records import Json, RunKind, RunState, StageState, new_run_id
from ..state.stage_results import Cost, Facts, FailedFacts
from .stages import NAMES


@dataclass(frozen=True)
class Outcome:
    """How work on a run has ended with an error.

    `what` says it in words, `next` is the command or remedy, if there is one, and `interruption` is the exception that
    asked the work to end, if one did.
    """

    state: StageState
    what: str
    next: str | None
    interruption: BaseException | None


def classify(error: BaseException, work: str) -> Outcome:
    """Return how an error has ended the work of this name.

    A signal, or a scheduler's termination or timeout, counts as an interruption, even where cleaning up has failed
    after it.
    """
    what, then = describe_error(error)
    stop = interruption_of(error)
    if stop is not None:
        reason = "" if isinstance(stop, (Interrupted, KeyboardInterrupt)) else f" ({type(stop).__name__}: {stop})"
        return Outcome(StageState.INTERRUPTED, f"interrupted during {work}{reason}", then, stop)
    state = StageState.SUPERSEDED if isinstance(error, RevisionConflict) else StageState.FAILED
    return Outcome(state, what, then, None)


class RunSession:
    """The work of this process on a run, under its lease: a stage, or all of a rollback or a compaction.

    Args:
        ledger: The ledger.
        run_id: The run.
        work: The name of the stage, or of the kind of the run.
        reset_approval: Whether the run computes again, so that an approval of a held run holds no more.
    """

    def __init__(self, ledger: Ledger, run_id: str, work: str, *, reset_approval: bool = False) -> None:
        self.ledger, self.run_id, self.work = ledger, run_id, work
        self.started_at = time.time()
        self._lease = lease.hold_lease(ledger, run_id, reset_approval=reset_approval)
        self._stage_started = False
        self._outcome: Outcome | None = None

    @classmethod
    def begin_run(cls, ledger: Ledger, parent: int, kind: RunKind, *, epochs: list[int], config: Json) -> RunSession:
        """Record a new run of one piece of work, and return the session for it."""
        run_id = new_run_id()
        ledger.runs.create(run_id, parent, epochs=epochs, config=config, kind=kind)
        return cls(ledger, run_id, kind.value)

    def __enter__(self) -> RunSession:
        self._lease.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is not None:
                self.record_failure(error)
        finally:
            self._lease.__exit__(None, None, None)

    def start_stage(self) -> None:
        """Record that the stage is running."""
        self._record_stage(StageState.RUNNING)
        self._stage_started = True

    def finish_stage(self, facts: Facts) -> None:
        """Record that the stage is done, with its facts."""
        self._record_stage(StageState.DONE, facts)

    def record_failure(self, error: BaseException, cost: Cost | None = None) -> Outcome:
        """Record how an error has ended the stage and the run, once, and return it.

        It is not recorded where the database does not answer, or another process has taken the lease.
        """
        if self._outcome is None:
            outcome = classify(error, self.work)
            is_interrupted = outcome.interruption is not None
            what = f"{self.work}: {outcome.what}" if self.work in NAMES and not is_interrupted else outcome.what
            with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):
                if self._stage_started:
                    self._record_stage(outcome.state, FailedFacts(error=outcome.what, cost=cost))
                self.ledger.runs.finish(self.run_id, RunState.INTERRUPTED if is_interrupted else RunState.FAILED, what)
            self._outcome = outcome
        return self._outcome

    def _record_stage(self, state: StageState, facts: Facts | None = None) -> None:
        self.ledger.stages.record(self.run_id, self.work, state, self.started_at, facts)
