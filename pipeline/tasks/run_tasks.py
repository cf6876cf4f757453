"""The tasks of a run, from the plan to the report.

Runs may be active together, as many as there are epochs to wait for: no run is planned while another is running (see
`run_batching`), and the stages share a pool with one slot, so that runs compute one after the other. If they race
nonetheless (somebody types `altneu run`, a retry comes between, the pool is larger), a run may build on a revision that
is no longer the newest. Then its stages do nothing (`execute_stage_task` says so), and only `publish_run` settles it:
it runs the epochs again on the newest revision until they are published as landed. The cost of a lost race is the work
of its stages, and one chain of stages inside the publish task; the order of the epochs never matters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AltneuError, BatchRejected, CheckFailed, RevisionConflict, RunFailed, UsageError
from ..formatting import count_epochs
from ..home.approval_rule import NEVER
from ..home.home import Home
from ..run.stages import get_stage
from ..state.records import RunRecord, RunState, Severity
from ..state.stage_results import QueriesFacts, ReportFacts, to_json, without_version
from .base import (
    PUBLISH,
    ApprovalRequest,
    PlannedRun,
    PublishedRun,
    Say,
    format_error,
    format_failures,
    ignore_message,
    open_ledger,
    skippable_epochs,
)

if TYPE_CHECKING:
    from altneu.expectations.model import Check

    from ..run.planning import Plan
    from ..run.runner import RunDriver
    from ..state.ledger import Ledger

ATTEMPTS = 5  # the number of attempts to publish while other writers win again and again


def plan_range(
    path: str,
    first: str | int | None,
    last: str | int | None,
    force: bool = False,
    accept: bool = False,
    say: Say = ignore_message,
) -> PlannedRun | None:
    """Begin one run over every landed epoch of a range that is missing or changed.

    If more files have landed than `[ingest] max_revision_mb`, the run takes the first part; `rest` then holds the
    parameters of the next run: first, last, again, accept.

    Args:
        path: The folder of the home.
        first: The first epoch, or None for the first landed one.
        last: The last epoch, or None for the last landed one.
        force: Take all landed epochs of the range.
        accept: Accept any number of rows, where `[checks] rows` would stop the run.
        say: A function that gets lines for the log.

    Returns:
        The planned run, or None if there is nothing to do.

    Raises:
        UsageError: No epoch of the range has landed.
        BatchRejected: A compaction has folded all epochs that are left to do.
    """
    from ..landing.epoch_states import REMEDY, describe_folded, record_folded
    from ..run import planning

    ledger = open_ledger(path)
    inside = planning.epochs_within(ledger.home, *(None if text in (None, "") else str(text) for text in (first, last)))
    plan = planning.plan_run(ledger, lambda e: e.state != "gone" and inside(e), force=force)
    if not plan.epochs:
        raise UsageError(
            f"no epoch is landed between {first or 'the beginning'} and {last or 'the end'}.", "altneu status"
        )
    record_folded(ledger)
    folded = plan.in_state("folded")
    if folded and not plan.run:
        raise BatchRejected(f"{describe_folded(folded)}.", REMEDY)
    if folded:
        say(f"left out: {describe_folded(folded)}\nnext: {REMEDY}")
    parts = planning.split_by_size(ledger.home, plan)
    planned = begin_run(ledger, replace(plan, run=parts[0]) if parts else plan, say)
    if planned is not None and accept:
        planned["accept"] = True
    if planned is not None and len(parts) > 1:
        label = ledger.home.schedule.format_label(parts[1][0])
        planned["rest"] = {"first": label, "last": last, "again": force, "accept": accept}
        say(f"[ingest] max_revision_mb cuts the range into {len(parts)} runs; the next one from {label} on")
    return planned


def plan_corrected(path: str, say: Say = ignore_message) -> PlannedRun | None:
    """Begin a run over the published epochs that have landed again; return None if there are none."""
    from ..run import planning
    from .maintenance import list_corrected

    ledger = open_ledger(path)
    epochs = [ledger.home.schedule.parse_epoch(label) for label in list_corrected(path)]
    if not epochs:
        say("nothing to do: what is landed is published, or its run has failed or is running (altneu status)")
        return None
    return begin_run(ledger, planning.plan_epochs(ledger, exclude_gone(ledger, epochs, say)), say)


def begin_run(ledger: Ledger, plan: Plan, say: Say, *, alone: bool = False) -> PlannedRun | None:
    """Begin a run of a plan; log it and return None if the plan has nothing to do.

    With `alone`, raise `RunInProgress` if another run is running.
    """
    from ..run import runner

    run_id = runner.begin_run(ledger, plan, alone=alone)
    if run_id is None:
        say(describe_nothing_to_do(ledger, plan))
        return None
    labels = _format_labels(ledger.home, plan.run)
    say(f"run {run_id}: {count_epochs(labels)} on revision {plan.parent.revision}")
    return {"run_id": run_id, "label": labels[-1], "parent": plan.parent.revision}


def describe_nothing_to_do(ledger: Ledger, plan: Plan) -> str:
    """Describe a plan that has nothing to do."""
    whole = count_epochs([epoch.label for epoch in plan.epochs])
    revisions = {epoch.revision for epoch in plan.epochs if epoch.revision}
    by = ""
    if len(revisions) == 1:
        (revision,) = revisions
        by = f", by run {ledger.revisions.get(revision).run_id} as revision {revision}"
    return f"nothing to do: {whole} published as landed{by} (the newest revision is {plan.parent.revision})"


def _format_labels(home: Home, epochs: Iterable[int]) -> list[str]:
    return [home.schedule.format_label(epoch) for epoch in epochs]


def exclude_gone(ledger: Ledger, epochs: Iterable[int], say: Say) -> list[int]:
    """Return the epochs without published ones whose folder has gone, which are logged.

    They stay published; only `altneu run --remove` removes them.
    """
    from .. import landing

    epochs, kept = list(epochs), []
    landed, published = landing.list_batches(ledger.home, set(epochs)), ledger.outputs.published_batches(epochs=epochs)
    for epoch in epochs:
        if epoch not in landed and epoch in published:
            label = ledger.home.schedule.format_label(epoch)
            say(f"epoch {label} stays published, but its folder has gone; to remove it: altneu run {label} --remove")
        else:
            kept.append(epoch)
    return kept


def has_stage(path: str, planned: PlannedRun, name: str) -> bool:
    """Tell whether a run has a stage, so that Spark has to be asked for."""
    ledger = open_ledger(path)
    return name == PUBLISH or get_stage(name).is_needed(ledger.runs.get(planned["run_id"]).config)


def execute_stage_task(path: str, planned: PlannedRun, name: str, say: Say = ignore_message) -> dict[str, Any]:
    """Execute one stage of a run, and return its facts.

    A run that another revision has overtaken already does nothing here, and returns the reason as `superseded`. The
    error of an audit names every failed critical check, its epoch and its first rows.
    """
    ledger = open_ledger(path)
    run_id = planned["run_id"]
    try:
        facts = _make_driver(ledger, planned, say).execute_and_report(run_id, name)
    except CheckFailed as error:
        failed = _failed_checks(ledger, run_id, Severity.CRITICAL)
        raise CheckFailed(f"{error.what}\n{format_failures(ledger.home, failed)}", error.next) from None
    except RevisionConflict:
        newest = ledger.revisions.get().revision
        text = f"revision {newest} was published since this run was planned: publish runs its epochs again on it"
        say(text)
        return {"superseded": text}
    return without_version(to_json(facts))


def _make_driver(ledger: Ledger, planned: PlannedRun, say: Say) -> RunDriver:
    """Return the driver of a planned run, which logs what the stages report and their results."""
    from ..run.runner import RunDriver

    def log_stage(stage: str, text: str) -> None:
        facts = text.removeprefix("done ")
        if text:
            say(text if facts == text else f"{stage}: {facts}")

    spare, accept = skippable_epochs(ledger, planned), planned.get("accept", False)
    return RunDriver(ledger, log_stage, optional_epochs=spare, accept=accept)


class Replanning:
    """The policy of the tasks for a run that was overtaken: its epochs run again on the newest revision.

    These are the epochs that are still to be published as landed. Where a run took along the epochs of other DAG runs,
    nothing runs again once its own epoch is published: the others have DAG runs, which also fail by their own errors.
    """

    def __init__(self, ledger: Ledger, planned: PlannedRun, say: Say) -> None:
        self.home, self.ledger, self.planned, self.say = ledger.home, ledger, planned, say
        self.epochs = ledger.runs.get(planned["run_id"]).epochs  # without those that it has left out
        self.reruns = 0

    def replace_run(self, run_id: str, conflict: RunFailed) -> str | None:
        """Log the conflict, and begin a run in place of the run; return its id, or None when nothing is left to do.

        Raise `RevisionConflict` when other writers have won `ATTEMPTS` times.
        """
        self.say(conflict.what)
        return self.begin_run()

    def begin_run(self) -> str | None:
        """Begin a run of what is left to do, as `replace_run` does."""
        from ..run import planning, runner

        wanted = exclude_gone(self.ledger, self.epochs, self.say)
        plan = planning.plan_epochs(self.ledger, wanted)
        if "own" in self.planned and self.planned["own"] not in plan.run:
            plan = replace(plan, run=())
        if plan.run and self.reruns == ATTEMPTS - 1:
            raise RevisionConflict(
                f"{count_epochs(_format_labels(self.home, self.epochs))}: other writers published first, "
                f"{ATTEMPTS} times in a row. Nothing of it was published.",
                "stop the writer outside Airflow (altneu status shows its runs), then clear this task",
            )
        run_id = runner.begin_run(self.ledger, plan)
        if run_id is not None:
            self.reruns += 1
            self.say(f"run {run_id} has the same epochs, on revision {plan.parent.revision}")
        return run_id


def request_approval(
    path: str, planned: PlannedRun, say: Say = ignore_message, *, pages: bool = True
) -> tuple[PlannedRun, ApprovalRequest | None]:
    """Hold the planned run if a person has to approve it first.

    Args:
        path: The folder of the home.
        planned: The planned run.
        say: A function that gets lines for the log.
        pages: Write the page with the rows, too, which needs Spark.

    Returns:
        The run that is asked about, and the question; None instead of the question if the run may be published, or if
        nothing is left to publish. A run that was overtaken is computed again, so that nothing is published which
        nobody has seen.
    """
    from ..run.runner import Step

    ledger = open_ledger(path)
    replanning = Replanning(ledger, planned, say)

    def replace_run(run_id: str, conflict: RunFailed) -> str | None:
        if ledger.home.config.publish.approve.when == NEVER:  # then publish computes it again
            return None
        newest, epochs = ledger.revisions.get().revision, set(ledger.runs.get(run_id).epochs)
        same = [held.run_id for held in ledger.runs.list_held() if held.parent == newest and set(held.epochs) == epochs]
        return same[-1] if same else replanning.replace_run(run_id, conflict)

    driver = replace(_make_driver(ledger, planned, say), replace_run=replace_run)
    run_id, why = driver.drive(planned["run_id"], Step.APPROVE, Step.APPROVE)
    run = ledger.runs.get(run_id)
    planned = {**planned, "run_id": run_id, "parent": run.parent}
    if why is None:
        return planned, None
    say(f"run {run_id} is held: {why}")
    return planned, _approval_request(ledger, run, why, pages=pages, say=say)


def _approval_request(ledger: Ledger, run: RunRecord, why: str, *, pages: bool, say: Say) -> ApprovalRequest:
    from ..run import approval_numbers, diff_report

    home = ledger.home
    difference, page = approval_numbers.diff_held_run(ledger, run), None
    if pages:
        from ..report import write_difference
        from ..storage.session import session_for

        try:
            page = write_difference(home, run.run_id, diff_report.diff_document(home, difference, session_for(ledger)))
            page = page.rpartition("/")[2]
        except Exception as error:  # the decision can be taken without it
            say(f"no page: {error}")
    labels = _format_labels(home, run.epochs)
    return {
        "subject": f"Publish {count_epochs(labels)}?",
        "body": f"Run `{run.run_id}` is held: {why}. More: `altneu diff "
        f"{run.run_id}`.\n\n{diff_report.diff_summary(difference)}",
        "page": page,
    }


def describe_difference(path: str, planned: PlannedRun) -> str | None:
    """Write what a run would change as Markdown; None where nothing ever needs an approval, or it was overtaken."""
    ledger = open_ledger(path)
    run = ledger.runs.get(planned["run_id"])
    over = run.state is RunState.PUBLISHED or run.parent != ledger.revisions.get().revision
    if over or ledger.home.config.publish.approve.when == NEVER:
        return None
    from ..run import approval_numbers, diff_report

    return diff_report.diff_markdown(approval_numbers.diff_held_run(ledger, run).to_document())


def identify_person(path: str, user: Mapping[str, Any]) -> str | None:
    """Return the name or the id of a user of Airflow, whichever may approve; the name if neither may."""
    from ..run import approval

    home, names = open_ledger(path).home, (user.get("name"), user.get("id"))
    return next((name for name in names if name and approval.may_approve(home, name)), names[0])


def may_decide(path: str, person: str | None, *, approved: bool) -> bool:
    """Tell whether a person may approve a held run; everybody may reject one."""
    from ..run import approval

    return not approved or approval.may_approve(open_ledger(path).home, person)


def record_decision(path: str, planned: PlannedRun, *, approved: bool, person: str | None, because: str | None) -> None:
    """Record the decision on a held run.

    Raise `RevisionConflict` if a run that is approved was overtaken: then a person is asked again.
    """
    from ..run import approval

    ledger = open_ledger(path)
    run = ledger.runs.get(planned["run_id"])
    if run.state is RunState.PUBLISHED and approved:  # a command has published it meanwhile
        return
    run = approval.require_held_run(ledger, run.run_id)
    (approval.approve_run if approved else approval.reject_run)(ledger, run, person, because)


def publish_run(path: str, planned: PlannedRun, say: Say = ignore_message) -> PublishedRun:
    """Publish the planned epochs as landed, and return which revision did it.

    The run itself is published if it still builds on the newest revision; otherwise its epochs run again here on the
    newest one. The returned epochs and labels are just those that the run has published. Raise `RevisionConflict` if
    other writers win `ATTEMPTS` times.
    """
    from ..run.runner import Step

    ledger = open_ledger(path)
    replanning = Replanning(ledger, planned, say)
    driver = replace(_make_driver(ledger, planned, say), replace_run=replanning.replace_run)
    run_id, why = planned["run_id"], None
    before = ledger.revisions.published_by(run_id)
    if before is None:
        run_id, why = driver.drive(run_id, Step.PUBLISH, Step.PUBLISH)
    elif (successor := replanning.begin_run()) is not None:  # the task was cleared, and epochs have landed again
        run_id, why = driver.drive(successor, Step.COMPUTE, Step.PUBLISH)
    if why is not None:
        raise RunFailed(
            f"run {planned['run_id']} was overtaken; its epochs are computed again as run {run_id}, which is held: "
            f"{why}.",
            f"clear the task approve, or: altneu publish {run_id}",
        )
    row = ledger.revisions.published_by(run_id)
    epochs = [] if row is None else list(ledger.runs.get(run_id).epochs)
    labels = _format_labels(ledger.home, epochs)
    if row == before:  # this run has published them, or another run with more epochs
        say(f"already published as landed, at revision {ledger.revisions.get().revision}")
    elif row is not None:
        say(f"published revision {row.revision}: {count_epochs(labels)}")
    return {
        "run_id": run_id,
        "revision": None if row is None else row.revision,
        "epochs": epochs,
        "labels": labels,
        "reruns": replanning.reruns,
    }


def raise_warnings(path: str, published: PublishedRun, say: Say = ignore_message) -> None:
    """Raise `CheckFailed` if checks have warned in what `publish_run` returned. It is published, with its mark."""
    if published["revision"] is None:
        say("this run published nothing itself")
        return
    ledger = open_ledger(path)
    warned = _failed_checks(ledger, published["run_id"], Severity.WARNING)
    if warned:
        raise CheckFailed(
            f"{len(warned)} check(s) warn; revision {published['revision']} is published, with its mark:\n"
            + format_failures(ledger.home, warned),
            f"altneu report {ledger.home.schedule.format_label(warned[0]['epoch'])}",
        )
    say("no check warns")


def count_query_changes(path: str, published: PublishedRun, name: str) -> int:
    """Return how many rows of a declared query's result the run has changed that `publish_run` returned."""
    if published["revision"] is None:
        return 0
    ledger = open_ledger(path)
    facts = (row.facts for row in ledger.stages.select(published["run_id"]))
    runs = [each.queries[name] for each in facts if isinstance(each, QueriesFacts) and name in each.queries]
    return sum(run.rows for run in runs)


def write_report(
    path: str, planned: PlannedRun, published: PublishedRun | None, say: Say = ignore_message
) -> list[str]:
    """Write the report pages of a run's epochs, even of a failed run, and return their paths.

    For a failed run `published` is None. It needs no Spark.
    """
    from ..report import write_run_pages
    from ..run.run_session import RunSession

    ledger = open_ledger(path)
    session = RunSession(ledger, (published or planned)["run_id"], "report")
    pages, why = write_run_pages(ledger, list(ledger.runs.get(planned["run_id"]).epochs))
    # without the lease: a failed run that somebody takes goes on
    session.finish_stage(ReportFacts(pages=len(pages), page=pages[-1] if pages else None, unwritten=why))
    say(f"report: {why or (pages[-1] if pages else 'nothing to write')}")
    return pages


def _failed_checks(ledger: Ledger, run_id: str, severity: Severity) -> list[Check]:
    """Return the failed checks of a run that have this severity."""
    checks = ledger.checks.select(run_id=run_id)
    return [check.to_check() for check in checks if not check.passed and check.severity is severity]


# -- as submissions to a cluster ---------------------------------------------------------------------------------


def submit_settings(path: str, master: str, *, cluster: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return the conf and the environment that `spark-submit` needs for a home.

    `cluster` says that the driver runs on another machine.
    """
    from ..storage import session

    return session.submit_settings(Home.open(path).config.spark.conf, master, cluster=cluster)


def run_submitted(path: str, name: str, planned: str, answer: str) -> int:
    """Run a task of a submission, write its result or its error to a file, and return the exit code.

    Args:
        path: The folder of the home.
        name: The name of the stage.
        planned: The planned run, as JSON.
        answer: The file for the result.
    """

    def report_progress(text: str) -> None:
        print(text, flush=True)

    run: PlannedRun = json.loads(planned)
    try:
        answered: dict[str, Any] = {
            "done": publish_run(path, run, report_progress)
            if name == PUBLISH
            else execute_stage_task(path, run, name, report_progress)
        }
    except AltneuError as error:
        print(format_error(error), file=sys.stderr, flush=True)
        answered = {"error": {"says": format_error(error), "retry": error.transient}}
    whole = Path(f"{answer}.new")  # the task that waits for the file finds it whole
    whole.write_text(json.dumps(answered, default=str))
    whole.replace(answer)
    return int("error" in answered)
