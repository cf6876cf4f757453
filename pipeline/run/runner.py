"""The execution of runs, stage by stage.

`begin_run` records a run on the newest revision. `execute_stage` executes one stage of it in this process, so that each
stage may be a task of its own. `execute_run` does both for a whole plan. Every stage is recorded with its seconds and
facts, and sends a heartbeat while it works. A failure is recorded with its error, and loses nothing.

There are several kinds of runs. A `run` adds batches; a `rebuild` computes everything again from the stored upserts,
and a `reload` from the landing. A rollback, which publishes an old revision again, is in the module `rollback`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import sqlalchemy as sa

from .. import events, landing
from ..errors import (
    AltneuError,
    LeaseLost,
    RevisionConflict,
    RunFailed,
    Unavailable,
    UsageError,
    describe_error,
    is_transient,
)
from ..home.home import Home
from ..interrupt import Interrupted, interruption_of
from ..optional_dependencies import require_extras
from ..state import lease
from ..state.ledger import Ledger
from ..state.records import Revision, RunKind, RunRecord, RunState, StageState, new_run_id
from ..state.stage_results import KINDS, Facts, FailedFacts, display_fields
from . import approval, openlineage, telemetry
from .planning import Plan
from .semantic_settings import changed_meaning
from .stages import NAMES, STAGES, get_stage

Say = Callable[[str, str], None]  # stage, text
LAST = [each.name for each in STAGES if not each.before_publish]
# kind of a run → the kinds of restatement that it covers
_COVERS = {
    RunKind.RUN: ("run",),
    RunKind.REBUILD: ("run", "rebuild"),
    RunKind.RELOAD: ("run", "rebuild", "reload"),
}


def begin_run(home: Home, ledger: Ledger, plan: Plan, *, hold: bool = False, alone: bool = False) -> str | None:
    """Record a run of the plan on the newest revision.

    Args:
        home: The home.
        ledger: Its ledger.
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
    if not plan.run and plan.kind is RunKind.RUN:
        return None
    require_extras("the audit of a run", "quality")
    meaning = changed_meaning(home, ledger)
    if not meaning.allows(plan.kind):
        raise UsageError(
            f"settings in {home.path / 'altneu.toml'} change the meaning of history since revision "
            f"{plan.parent.revision} was published: {'; '.join(meaning.words)}. Restore them, or publish history "
            f"again.",
            meaning.advice,
        )
    run_id = new_run_id()
    ledger.runs.create(
        run_id,
        plan.parent.revision,
        epochs=list(plan.run),
        config=home.config.semantic_settings(),
        kind=plan.kind,
        hold=hold,
        alone=alone,
    )
    events.log_event("run started", **telemetry.run_fields(home, ledger.runs.get(run_id)))
    openlineage.emit_run(home, ledger, run_id)
    return run_id


def execute_stage(
    home: Home,
    ledger: Ledger,
    run_id: str,
    name: str,
    say: Say = lambda stage, text: None,
    spare: Collection[int] = (),
    accept: bool = False,
) -> Facts:
    """Execute one stage of a run in this process, and record how it ends.

    Args:
        home: The home.
        ledger: Its ledger.
        run_id: The run.
        name: The name of the stage.
        say: A function that takes the stage and a line about its progress.
        spare: Epochs that may be left out where their own batches are wrong.
        accept: Whether the gate accepts any number of rows.

    Returns:
        The facts of the stage.

    Raises:
        RevisionConflict: Another run has published a revision since this run began.
        RunFailed: The stage has failed, or the run was rejected. Other errors of altneu are raised unchanged.
    """
    from expectations.gx_runner import import_in_background

    from ..report import rows_page
    from ..storage.session import session_for, size_plans
    from .run_context import RunContext

    this, row = get_stage(name), ledger.runs.get(run_id)
    if row.state is RunState.PUBLISHED and this.before_publish:
        return ledger.stages.get_facts(run_id, KINDS[name])
    conflict = ledger.runs.supersede_if_behind(run_id)
    if conflict is not None:
        raise conflict
    if row.state is RunState.REJECTED:
        raise RunFailed(f"run {run_id} has ended: it was {row.error}.", "run its epochs again")
    if this.suites:
        import_in_background()
    if name in LAST:
        rows_page.import_in_background()
    with lease.hold_lease(ledger, run_id, again=this.before_publish):
        watch = telemetry.StageTelemetry(home, ledger, row, name)
        ledger.stages.record(run_id, name, StageState.RUNNING, watch.started)
        try:
            landed = functools.cache(lambda: _estimate_landed_rows(home, row.epochs))
            spark = session_for(home, ledger, landed)
            run = RunContext(
                home,
                ledger,
                spark,
                run_id,
                ledger.runs.get_parent(row),
                list(row.epochs),
                lambda text: say(name, text),
                row.kind,
                spare,
                accept,
            )
            if this is STAGES[0]:
                run.warehouse.ensure_tables(retype=not run.appends_to("upserts") or run.parent.frontier is None)
            read = landed() if this is STAGES[0] else 0
            with size_plans(spark, run.count_stored_rows() + read if this.before_publish else None):
                facts = watch.measure(this.run_stage, run)
            if run.new_snapshots:
                facts = replace(facts, snapshots=run.new_snapshots)
            ledger.stages.record(run_id, name, StageState.DONE, watch.started, facts)
        except BaseException as error:
            raised = _record_stage_failure(home, ledger, row, name, watch, error)
            if raised is error:
                raise
            raise raised from (error if isinstance(raised, RunFailed) else None)
        watch.report_done(facts)
    return facts


def _record_stage_failure(
    home: Home, ledger: Ledger, run: RunRecord, name: str, watch: telemetry.StageTelemetry, error: BaseException
) -> BaseException:
    """Record how an unfinished stage has ended, and return the exception to raise.

    An interruption (a signal, or a scheduler's termination or timeout) is returned unchanged, even where cleaning up
    has failed after it.
    """
    stop = interruption_of(error)
    what, then = describe_error(error)
    state, message = StageState.FAILED, f"{name}: {what}"
    if stop is not None:
        reason = f" ({type(stop).__name__}: {stop})"
        if isinstance(stop, (Interrupted, KeyboardInterrupt)):
            reason = ""
        if isinstance(stop, Interrupted):
            stop.during = name
        state, message = StageState.INTERRUPTED, f"interrupted during {name}{reason}"
        what = message
    elif isinstance(error, RevisionConflict):
        state = StageState.SUPERSEDED
    with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):  # the database itself may be what failed
        ledger.stages.record(run.run_id, name, state, watch.started, FailedFacts(error=what, cost=watch.cost()))
        if get_stage(name).is_critical:
            ledger.runs.finish(run.run_id, RunState(state), message)
    if stop is None and get_stage(name).is_critical:
        from ..report import refresh_pages

        refresh_pages(home, ledger, run.epochs)
    watch.report_failed(what)
    if stop is not None:
        return stop
    if isinstance(error, AltneuError):
        return error
    failed = Unavailable if is_transient(error) else RunFailed
    return failed(f"stage {name} of run {run.run_id} failed: {what}. What was published is unchanged.", then)


def _estimate_landed_rows(home: Home, epochs: Sequence[int]) -> float:
    """Return about how many rows are landed for some epochs."""
    landed = landing.list_batches(home)
    return sum(landed[epoch].bytes for epoch in epochs if epoch in landed) / landing.BYTES_PER_ROW


def execute_run(
    home: Home,
    ledger: Ledger,
    plan: Plan,
    say: Say = lambda stage, text: None,
    *,
    hold: bool = False,
    keep_going: bool = False,
    accept: bool = False,
) -> Revision | RunRecord | None:
    """Execute all stages of a plan.

    Args:
        home: The home.
        ledger: Its ledger.
        plan: What the run does.
        say: A function that takes a stage and a line about its progress.
        hold: Whether the run is held before it is published, as where `[publish] approve` asks for it.
        keep_going: Whether epochs whose own batches are wrong are left out.
        accept: Whether the gate accepts any number of rows.

    Returns:
        The published revision, or the held run, or None when there was nothing to do.
    """
    from expectations.gx_runner import import_in_background

    run_id = begin_run(home, ledger, plan, hold=hold)
    if run_id is None:
        return None
    with _record_interruption(ledger, run_id):
        import_in_background()
        spare = plan.run if keep_going else ()
        _execute_stages(
            home, ledger, run_id, [each.name for each in STAGES if each.before_publish], say, spare, accept=accept
        )
        why = approval.approval_reason(home, ledger, run_id)
        if why is not None:
            say(NAMES[-2], f"not published: {why}")
            return approval.hold_run(home, ledger, run_id)
        _execute_stages(home, ledger, run_id, LAST, say)
    return ledger.revisions.get()


def publish_held_run(home: Home, ledger: Ledger, run_id: str, say: Say = lambda stage, text: None) -> Revision:
    """Publish a held run that was approved, by executing the stages that it was held before."""
    with _record_interruption(ledger, run_id):
        _execute_stages(home, ledger, run_id, LAST, say)
    return ledger.revisions.get(ledger.runs.get(run_id).parent + 1)


def _execute_stages(
    home: Home,
    ledger: Ledger,
    run_id: str,
    names: Sequence[str],
    say: Say,
    spare: Collection[int] = (),
    *,
    accept: bool = False,
) -> None:
    for name in names:
        say(name, "")
        facts = execute_stage(home, ledger, run_id, name, say, spare, accept)
        say(name, "done " + format_facts(home, facts))


@contextlib.contextmanager
def _record_interruption(ledger: Ledger, run_id: str) -> Iterator[None]:
    """Run the block, and record it when a signal ends the run in it."""
    try:
        yield
    except Interrupted as stop:
        with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):
            if stop.during is None:  # the signal came between two stages
                done = {row.stage for row in ledger.stages.select(run_id) if row.state is StageState.DONE}
                stop.during = next((name for name in NAMES if name not in done), NAMES[-1])
            # This is repeated here because the stage's own write may have been interrupted.
            ledger.runs.finish(run_id, RunState.INTERRUPTED, f"interrupted during {stop.during}")
            ledger.runs.release_lease(run_id)
        raise


def format_facts(home: Home, facts: Facts) -> str:
    """Format the facts of a stage as one line, with epochs by their labels."""

    def format_value(field: str, name: str, value: int | str) -> str:
        if isinstance(value, str):
            return value
        return f"{name} {home.schedule.format_label(value) if field.endswith('_epoch') else f'{value:,}'}"

    return ", ".join(format_value(*each) for each in display_fields(facts, "line"))
