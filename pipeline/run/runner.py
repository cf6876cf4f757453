"""The execution of runs, step by step, for the command line and for Airflow.

`begin_run` records a run on the newest revision. `execute_stage` executes one stage of it in this process, so that each
stage may be a task of its own; `RunDriver` takes a run through all steps that this process is to take, and asks a
policy what to do when another run has published first. `execute_run` does it for a whole plan. Every stage is recorded
with its seconds and facts, or with its error, by a `RunSession`; a failure loses nothing.

There are several kinds of runs. A `run` adds batches; a `rebuild` computes everything again from the stored upserts,
and a `reload` from the landing. A rollback, which publishes an old revision again, is in the module `rollback`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

import sqlalchemy as sa

from .. import events, landing
from ..errors import (
    AltneuError,
    ForeignWrite,
    LeaseLost,
    RevisionConflict,
    RunFailed,
    Unavailable,
    UsageError,
    is_transient,
)
from ..home.home import Home
from ..home.queries import FOLDER, read_queries
from ..interrupt import Interrupted
from ..observability import openlineage, telemetry
from ..optional_dependencies import require_extras
from ..state.ledger import Ledger
from ..state.records import Revision, RunRecord, RunState, StageState, new_run_id
from ..state.stage_results import KINDS, Facts, display_fields
from . import approval
from .choices.plan_choice import Scope
from .planning import Plan
from .run_session import RunSession
from .semantic_settings import changed_meaning
from .stages import NAMES, STAGES, Stage, get_stage

if TYPE_CHECKING:
    from .run_context import RunContext

Say = Callable[[str, str], None]  # stage, text
STAGES_AFTER_PUBLISH = [each.name for each in STAGES if not each.before_publish]


def ignore_progress(stage: str, text: str) -> None:
    """Ignore a line about the progress of a stage."""


def begin_run(ledger: Ledger, plan: Plan, *, hold: bool = False, alone: bool = False) -> str | None:
    """Record a run of the plan on the newest revision.

    Args:
        ledger: The ledger of the home.
        plan: What the run does.
        hold: Whether the run needs an approval before it is published.
        alone: Whether no other run may be active.

    Returns:
        The id of the run, or None when there is nothing to do.

    Raises:
        UsageError: The settings have changed the meaning of history and the plan does not restate it, or a package that
            a run needs is not installed.
        RunInProgress: `alone` is true, and another run is active.
    """
    home = ledger.home
    if plan.is_idle:
        return None
    require_extras("the audit of a run", "quality")
    meaning = changed_meaning(ledger)
    if not meaning.allows(plan.kind):
        raise UsageError(
            f"settings in {home.path / 'altneu.toml'} change the meaning of history since revision "
            f"{plan.parent.revision} was published: {'; '.join(meaning.descriptions)}. Restore them, or publish "
            "history again.",
            meaning.advice,
        )
    queries = {name: definition.to_json() for name, definition in read_queries(home).items()}
    run_id = new_run_id()
    ledger.runs.create(
        run_id,
        plan.parent.revision,
        epochs=list(plan.run),
        config=home.config.semantic_settings() | ({FOLDER: queries} if queries else {}),
        kind=plan.kind,
        hold=hold,
        alone=alone,
    )
    events.log_event("run started", **telemetry.run_fields(home, ledger.runs.get(run_id)))
    openlineage.emit_run(ledger, run_id)
    return run_id


def execute_stage(
    ledger: Ledger,
    run_id: str,
    name: str,
    say: Say = ignore_progress,
    *,
    optional_epochs: Collection[int] = (),
    accept: bool = False,
) -> Facts:
    """Execute one stage of a run in this process, and record how it ends.

    Args:
        ledger: The ledger of the home.
        run_id: The run.
        name: The name of the stage.
        say: A function that takes the stage and a line about its progress.
        optional_epochs: Epochs that may be left out where their own batches are wrong.
        accept: Whether the gate accepts any number of rows.

    Returns:
        The facts of the stage.

    Raises:
        RevisionConflict: Another run has published a revision since this run began.
        RunFailed: The stage has failed, or the run was rejected. Other errors of altneu are raised unchanged.
    """
    from ..report import refresh_pages, rows_page
    from ..storage.session import session_for
    from .read_rows import count_rows_before_run
    from .run_context import RunContext

    stage, row = get_stage(name), ledger.runs.get(run_id)
    if row.state is RunState.PUBLISHED and stage.before_publish:
        return ledger.stages.get_facts(run_id, KINDS[name])
    ledger.runs.require_newest_parent(run_id)
    if row.state is RunState.REJECTED:
        raise RunFailed(f"run {run_id} has ended: it was {row.error}.", "run its epochs again")
    if not stage.is_needed(row.config):
        return KINDS[name]()
    if name in STAGES_AFTER_PUBLISH:
        rows_page.import_in_background()
    with RunSession(ledger, run_id, name, reset_approval=stage.before_publish) as session:
        watch = telemetry.StageTelemetry(ledger, row, name)
        session.start_stage()
        try:
            landed = functools.cache(functools.partial(_estimate_landed_rows, ledger.home, row.epochs))
            parent = ledger.runs.get_parent(row)
            scope = Scope(parent, tuple(row.epochs), row.kind)
            spark = session_for(ledger, lambda: count_rows_before_run(ledger, scope) + landed())
            report = functools.partial(say, name)
            run = RunContext(ledger, spark, run_id, parent, list(row.epochs), report, row.kind, optional_epochs, accept)
            facts = _run_stage(stage, run, watch, landed)
            session.finish_stage(facts)
        except BaseException as error:
            outcome = session.record_failure(error, watch.cost())
            if outcome.interruption is None and stage.is_critical:
                refresh_pages(ledger, row.epochs)
            watch.report_failed(outcome.what)
            if isinstance(outcome.interruption, Interrupted):
                outcome.interruption.during = name
            if outcome.interruption is not None:
                raise outcome.interruption from None
            if isinstance(error, AltneuError):
                raise
            kind = Unavailable if is_transient(error) else RunFailed
            what = f"stage {name} of run {run_id} failed: {outcome.what}. What was published is unchanged."
            raise kind(what, outcome.next) from error
        watch.report_done(facts)
    return facts


def _run_stage(stage: Stage, run: RunContext, watch: telemetry.StageTelemetry, landed: Callable[[], float]) -> Facts:
    """Run the function of a stage with plans for the rows that it works on; return its facts, cost and snapshots."""
    from ..storage.session import size_plans

    rows = 0.0
    if stage is STAGES[0]:
        run.warehouse.ensure_tables(retype=not run.appends_to("upserts") or run.parent.frontier is None)
        rows = landed()
    count_rows = run.count_stored_rows if stage.reads_history else run.count_read_rows
    with size_plans(run.spark, count_rows() + rows if stage.before_publish else None):
        facts = watch.measure(stage.run_stage, run)
    return replace(facts, snapshots=run.new_snapshots) if run.new_snapshots else facts


def _estimate_landed_rows(home: Home, epochs: Sequence[int]) -> float:
    """Return about how many rows are landed for some epochs."""
    return sum(batch.bytes for batch in landing.list_batches(home, set(epochs)).values()) / landing.BYTES_PER_ROW


class Step(IntEnum):
    """The steps of a run. A process may take some of them, and leave the others to another one."""

    COMPUTE = 0  # the stages before publish
    APPROVE = 1  # the run is held if a person has to approve it
    PUBLISH = 2
    REPORT = 3


def refuse(run_id: str, conflict: RunFailed) -> str | None:
    """Raise the conflict: the policy of the command line, where the user types the command again."""
    raise conflict


@dataclass(frozen=True)
class RunDriver:
    """The driver of runs through their steps, for the command line and for Airflow.

    Args:
        ledger: The ledger of the home.
        say: A function that takes a stage and a line about its progress.
        optional_epochs: Epochs that may be left out where their own batches are wrong.
        accept: Whether the gate accepts any number of rows.
        replace_run: The policy for a run that another one has overtaken or disturbed. It takes its id and the error,
            and returns the id of a run that takes its place, or None when nothing is left to do, or raises the error.
    """

    ledger: Ledger
    say: Say = ignore_progress
    optional_epochs: Collection[int] = ()
    accept: bool = False
    replace_run: Callable[[str, RunFailed], str | None] = refuse

    def drive(self, run_id: str, first: Step = Step.COMPUTE, last: Step = Step.REPORT) -> tuple[str, str | None]:
        """Take a run, or those that take its place, from one step to another. Each of the latter begins at `COMPUTE`.

        Returns:
            The id of the last run, and why it waits for an approval, or None where it does not.
        """
        while True:
            try:
                with _record_interruption(self.ledger, run_id):
                    return run_id, self._take_steps(run_id, first, last)
            except (RevisionConflict, ForeignWrite) as conflict:
                successor = self.replace_run(run_id, conflict)
            if successor is None:
                return run_id, None
            run_id, first = successor, Step.COMPUTE

    def _take_steps(self, run_id: str, first: Step, last: Step) -> str | None:
        row = self.ledger.runs.get(run_id)
        if first is Step.COMPUTE and row.state is not RunState.HELD:
            for stage in STAGES[: -len(STAGES_AFTER_PUBLISH)]:
                if stage.is_needed(row.config):
                    self.execute_and_report(run_id, stage.name)
        if first <= Step.APPROVE:
            why = approval.hold_unapproved_run(self.ledger, run_id)
            if why is not None:
                return why
        for name in STAGES_AFTER_PUBLISH[: last - Step.APPROVE]:
            self.execute_and_report(run_id, name)
        return None

    def execute_and_report(self, run_id: str, name: str) -> Facts:
        """Execute one stage of a run, and report its beginning and its facts."""
        self.say(name, "")
        facts = execute_stage(
            self.ledger, run_id, name, self.say, optional_epochs=self.optional_epochs, accept=self.accept
        )
        self.say(name, "done " + format_facts(self.ledger.home, facts))
        return facts


def execute_run(
    ledger: Ledger,
    plan: Plan,
    say: Say = ignore_progress,
    *,
    hold: bool = False,
    keep_going: bool = False,
    accept: bool = False,
) -> Revision | RunRecord | None:
    """Execute all stages of a plan.

    Args:
        ledger: The ledger of the home.
        plan: What the run does.
        say: A function that takes a stage and a line about its progress.
        hold: Whether the run is held before it is published, as where `[publish] approve` asks for it.
        keep_going: Whether epochs whose own batches are wrong are left out.
        accept: Whether the gate accepts any number of rows.

    Returns:
        The published revision, or the held run, or None when there was nothing to do.
    """
    run_id = begin_run(ledger, plan, hold=hold)
    if run_id is None:
        return None
    driver = RunDriver(ledger, say, optional_epochs=plan.run if keep_going else (), accept=accept)
    _, why = driver.drive(run_id)
    if why is not None:
        say(STAGES_AFTER_PUBLISH[0], f"not published: {why}")
        return ledger.runs.get(run_id)
    return ledger.revisions.published_by(run_id)


def publish_held_run(ledger: Ledger, run_id: str, say: Say = ignore_progress) -> Revision:
    """Publish a held run that was approved, by executing the stages that it was held before."""
    RunDriver(ledger, say).drive(run_id, Step.PUBLISH)
    return ledger.revisions.get(ledger.runs.get(run_id).parent + 1)


@contextlib.contextmanager
def _record_interruption(ledger: Ledger, run_id: str) -> Iterator[None]:
    """Run the block, and record it when a signal ends the run in it."""
    try:
        yield
    except Interrupted as stop:
        with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):
            if stop.during is None:  # the signal came between two stages, or after the last one
                done = {row.stage for row in ledger.stages.select(run_id) if row.state is StageState.DONE}
                config = ledger.runs.get(run_id).config
                needed = [stage.name for stage in STAGES if stage.is_needed(config)]
                stop.during = next((name for name in needed if name not in done), None)
            # This is repeated here because the stage's own write may have been interrupted.
            ledger.runs.finish(run_id, RunState.INTERRUPTED, f"interrupted during {stop.during or NAMES[-1]}")
            ledger.runs.release_lease(run_id)
        raise


def format_facts(home: Home, facts: Facts) -> str:
    """Format the facts of a stage as one line, with epochs by their labels."""

    def format_value(field: str, name: str, value: int | str) -> str:
        if isinstance(value, str):
            return value
        return f"{name} {home.schedule.format_label(value) if field.endswith('_epoch') else f'{value:,}'}"

    return ", ".join(format_value(*each) for each in display_fields(facts, "line"))
