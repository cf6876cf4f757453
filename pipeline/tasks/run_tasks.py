"""What the tasks of a run decide and do, from the plan to the report.

Runs may be active together, as many as there are epochs to wait for: no run is planned while another is at work
(`passes`), and what computes has a pool of one slot, so that runs compute one after the other. Where they
race nonetheless (somebody types `altneu run`, a retry comes between, the pool is larger), a run may build on
a revision that is no longer the newest. Then its stages do nothing (`execute_stage` says so), and `publish_run` is the
one place that settles it: it runs the epochs again on the newest revision until they are published as
landed. The cost of a lost race is the stages done in vain, and one chain of stages inside the publish task;
the order of the epochs never matters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AltneuError, BatchRejected, CheckFailed, ForeignWrite, RevisionConflict, RunFailed, UsageError
from ..home.home import Home
from ..run.stages import STAGES
from ..state.records import RunRecord, RunState, Severity, StageState
from ..state.stage_results import PublishFacts, ReportFacts, to_json, without_version
from .base import (
    PUBLISH,
    ApprovalRequest,
    PlannedRun,
    PublishedRun,
    Say,
    abbreviate_labels,
    batch_policy,
    format_error,
    format_failures,
    ignore_message,
    open_home,
)

if TYPE_CHECKING:
    from expectations.model import Check

    from ..run.planning import Plan
    from ..state.ledger import Ledger

ATTEMPTS = 5  # at a publish that others (not under our pool) win again and again


def plan_range(
    path: str,
    first: str | int | None,
    last: str | int | None,
    force: bool = False,
    accept: bool = False,
    say: Say = ignore_message,
) -> PlannedRun | None:
    """Begin one run over every landed epoch of a range that is missing or changed (`force`: over all of them; `accept`:
    with any number of rows, where `[checks] rows` would stop it).

    Over more landed files than `[ingest] max_revision_mb` it takes the first part; `rest` then holds the parameters of
    the next run: first, last, again, accept. Raises `BatchRejected` when a compaction has folded all that is left to
    do.
    """
    from dataclasses import replace

    from ..landing.folded_epochs import REMEDY, describe_folded, record_folded
    from ..run import planning

    home, ledger = open_home(path)
    inside = planning.epochs_within(home, *(None if text in (None, "") else str(text) for text in (first, last)))
    found = planning.plan_run(home, ledger, lambda e: e.state != "gone" and inside(e), force=force)
    if not found.epochs:
        raise UsageError(
            f"no epoch is landed between {first or 'the beginning'} and {last or 'the end'}.", "altneu status"
        )
    record_folded(home, ledger)
    folded = found.in_state("folded")
    if folded and not found.run:
        raise BatchRejected(f"{describe_folded(folded)}.", REMEDY)
    if folded:
        say(f"left out: {describe_folded(folded)}\nnext: {REMEDY}")
    parts = planning.split_by_size(home, found)
    planned = begin_run(home, ledger, replace(found, run=parts[0]) if parts else found, say)
    if planned is not None and accept:
        planned["accept"] = True
    if planned is not None and len(parts) > 1:
        label = home.schedule.format_label(parts[1][0])
        planned["rest"] = {"first": label, "last": last, "again": force, "accept": accept}
        say(f"[ingest] max_revision_mb cuts the range into {len(parts)} runs; the next one from {label} on")
    return planned


def plan_corrected(path: str, say: Say = ignore_message) -> PlannedRun | None:
    """Begin a run over the published epochs that have landed again; None when there are none."""
    from ..run import planning
    from .maintenance import list_corrected

    home, ledger = open_home(path)
    epochs = [home.schedule.parse_epoch(label) for label in list_corrected(path)]
    if not epochs:
        say("nothing to do: what is published is what is landed, or its run has failed or is at work (altneu status)")
        return None
    return begin_run(home, ledger, planning.plan_epochs(home, ledger, exclude_gone(home, ledger, epochs, say)), say)


def begin_run(home: Home, ledger: Ledger, found: Plan, say: Say, *, alone: bool = False) -> PlannedRun | None:
    """Begin a run of a plan; None when it has nothing to do, which is said. `alone`: raises `RunInProgress` when
    another run is at work."""
    from ..run import runner

    run_id = runner.begin_run(home, ledger, found, alone=alone)
    if run_id is None:
        say(describe_nothing_to_do(ledger, found))
        return None
    labels = _format_labels(home, found.run)
    say(f"run {run_id}: {abbreviate_labels(labels)} on revision {found.parent.revision}")
    return {"run_id": run_id, "label": labels[-1], "parent": found.parent.revision}


def describe_nothing_to_do(ledger: Ledger, found: Plan) -> str:
    """What to say of a plan that has nothing to do."""
    whole = abbreviate_labels([epoch.label for epoch in found.epochs])
    made = {epoch.revision for epoch in found.epochs if epoch.revision}
    by = f", by run {ledger.get_revision(min(made)).run_id} as revision {min(made)}" if len(made) == 1 else ""
    return f"nothing to do: {whole} published as landed{by} (the newest revision is {found.parent.revision})"


def _format_labels(home: Home, epochs: Iterable[int]) -> list[str]:
    return [home.schedule.format_label(epoch) for epoch in epochs]


def exclude_gone(home: Home, ledger: Ledger, epochs: Iterable[int], say: Say) -> list[int]:
    """Published epochs whose folder has gone stay as they are; only `altneu run --remove` takes them back."""
    from .. import landing

    there, published, kept = landing.list_batches(home), ledger.published_batches(), []
    for epoch in epochs:
        if epoch not in there and epoch in published:
            label = home.schedule.format_label(epoch)
            say(f"epoch {label} stays published, its folder has gone; to take it back: altneu run {label} --remove")
        else:
            kept.append(epoch)
    return kept


def execute_stage(path: str, planned: PlannedRun, name: str, say: Say = ignore_message) -> dict[str, Any]:
    """One stage of a run; its facts. A run that has lost to another revision already does nothing here, and says why:
    `superseded`. An audit's critical failure names every failed critical check, its epoch and its first rows."""
    from ..run import runner

    home, ledger = open_home(path)
    run_id = planned["run_id"]
    try:
        facts = runner.execute_stage(
            home, ledger, run_id, name, lambda stage, text: say(text), *batch_policy(ledger, planned)
        )
    except CheckFailed as error:
        failed = _failed_checks(ledger, run_id, Severity.CRITICAL)
        raise CheckFailed(f"{error.what}\n{format_failures(home, failed)}", error.next) from None
    except RevisionConflict:
        newest = ledger.get_revision().revision
        text = f"revision {newest} was published since this run was planned: publish runs its epochs again on it"
        say(text)
        return {"superseded": text}
    say(f"{name}: {runner.format_facts(home, facts)}")
    return without_version(to_json(facts))


def request_approval(
    path: str, planned: PlannedRun, say: Say = ignore_message, *, pages: bool = True
) -> tuple[PlannedRun, ApprovalRequest | None]:
    """Hold the planned run where somebody has to approve it first; what to ask, or None: it may be published, or
    nothing is left to publish. The run asked about is the first's; one that was overtaken is computed again, so that
    nothing is published which nobody has seen. `pages`: also write the page with the rows, for which Spark is needed.
    """
    from ..run import approval, runner

    home, ledger = open_home(path)
    for _ in range(ATTEMPTS):
        run = ledger.get_run(planned["run_id"])
        if run.state is RunState.PUBLISHED or ledger.supersede_if_behind(run.run_id) is not None:
            if run.state is RunState.PUBLISHED or home.config.publish.approve == "never":
                return planned, None
            newest = ledger.get_revision().revision
            same = [
                each for each in ledger.list_held() if each.parent == newest and set(each.epochs) == set(run.epochs)
            ]
            if same:
                planned = {**planned, "run_id": same[-1].run_id, "parent": newest}
                continue
            found = _remaining_plan(home, ledger, planned, run.epochs, say)
            again = runner.begin_run(home, ledger, found)
            if again is None:
                return planned, None
            say(f"overtaken: run {again}: the same epochs again, on revision {found.parent.revision}")
            planned = {**planned, "run_id": again, "parent": found.parent.revision}
            try:
                _execute_stages(home, ledger, again, planned, say)
            except (RevisionConflict, ForeignWrite) as lost:
                say(lost.what)
            continue
        why = approval.approval_reason(home, ledger, run.run_id)
        if why is None:
            return planned, None
        if run.state is not RunState.HELD:
            run = approval.hold_run(home, ledger, run.run_id)
        say(f"run {run.run_id} is held: {why}")
        return planned, _approval_request(home, ledger, run, why, pages=pages, say=say)
    what = abbreviate_labels(_format_labels(home, ledger.get_run(planned["run_id"]).epochs))
    raise RevisionConflict(f"{what}: other writers published first, {ATTEMPTS} times in a row.")


def _remaining_plan(home: Home, ledger: Ledger, planned: PlannedRun, epochs: Iterable[int], say: Say) -> Plan:
    """What of a run that was overtaken is still to be published, on the newest revision. Nothing, once the DAG run's
    own epoch is: what it took along is run by the DAG runs of those, which also fail by what is wrong there."""
    from dataclasses import replace

    from ..run import planning

    found = planning.plan_epochs(home, ledger, exclude_gone(home, ledger, epochs, say))
    return replace(found, run=()) if "own" in planned and planned["own"] not in found.run else found


def _execute_stages(home: Home, ledger: Ledger, run_id: str, planned: PlannedRun, say: Say) -> None:
    """The stages before publish, of a run in the place of the planned one."""
    from ..run import runner

    for name in (each.name for each in STAGES if each.before_publish):
        facts = runner.execute_stage(
            home, ledger, run_id, name, lambda stage, text: say(text), *batch_policy(ledger, planned)
        )
        say(f"{name}: {runner.format_facts(home, facts)}")


def _approval_request(
    home: Home, ledger: Ledger, run: RunRecord, why: str, *, pages: bool, say: Say
) -> ApprovalRequest:
    from ..run import diff_report

    found, page = diff_report.diff_held_run(home, ledger, run), None
    if pages:
        from ..report import write_difference
        from ..storage.session import session_for

        try:
            page = write_difference(home, run.run_id, diff_report.diff_document(home, found, session_for(home, ledger)))
            page = page.rpartition("/")[2]
        except Exception as error:  # the decision can be taken without it
            say(f"no page: {error}")
    labels = _format_labels(home, run.epochs)
    return {
        "subject": f"Publish {abbreviate_labels(labels)}?",
        "body": f"Run `{run.run_id}` is held: {why}. More: `altneu diff "
        f"{run.run_id}`.\n\n{diff_report.diff_summary(found)}",
        "page": page,
    }


def record_decision(path: str, planned: PlannedRun, *, approved: bool, person: str | None, because: str | None) -> None:
    """Record what was decided of a held run. Raises `RevisionConflict` when it was overtaken: then it is asked for
    again."""
    from ..run import approval

    home, ledger = open_home(path)
    run = ledger.get_run(planned["run_id"])
    if run.state is RunState.PUBLISHED and approved:  # by a command, meanwhile
        return
    run = approval.require_held_run(ledger, run.run_id)
    (approval.approve_run if approved else approval.reject_run)(home, ledger, run, person, because)


def publish_run(path: str, planned: PlannedRun, say: Say = ignore_message) -> PublishedRun:
    """See to it that the planned epochs are published as landed; which revision did it.

    The run's own publish when it still builds on the newest revision; else its epochs run again here on the newest. Its
    epochs and labels are just those that it has published. Raises `RevisionConflict` when others win `ATTEMPTS` times.
    """
    from ..run import approval, runner

    home, ledger = open_home(path)
    run_id = planned["run_id"]
    epochs = ledger.get_run(run_id).epochs  # those that it has left out are not its business any more

    def published_run(revision: int | None, reruns: int) -> PublishedRun:
        mine = [] if revision is None else list(ledger.get_run(run_id).epochs)
        labels = _format_labels(home, mine)
        return {"run_id": run_id, "revision": revision, "epochs": mine, "labels": labels, "reruns": reruns}

    for reruns in range(ATTEMPTS):
        row = ledger.published_by(run_id)
        published = None if row is None else row.revision
        try:
            if reruns:
                _execute_stages(home, ledger, run_id, planned, say)
                why = approval.approval_reason(home, ledger, run_id)
                if why is not None:
                    approval.hold_run(home, ledger, run_id)
                    raise RunFailed(
                        f"run {planned['run_id']} was overtaken; its epochs are computed again as run {run_id}, which "
                        f"is held: {why}.",
                        f"clear the task approve, or: altneu publish {run_id}",
                    )
            if published is None:
                runner.execute_stage(home, ledger, run_id, "publish", lambda stage, text: say(text))
                published = ledger.get_facts(run_id, PublishFacts).revision
                found = published_run(published, reruns)
                say(f"published revision {published}: {abbreviate_labels(found['labels'])}")
                return found
        except (RevisionConflict, ForeignWrite) as lost:
            say(lost.what)
        plan = _remaining_plan(home, ledger, planned, epochs, say)
        again = runner.begin_run(home, ledger, plan)
        if again is None:  # ours, or a wider pass of another run
            say(f"already published as landed, at revision {plan.parent.revision}")
            return published_run(published, reruns)
        run_id = again
        say(f"run {run_id}: the same epochs again, on revision {plan.parent.revision}")
    raise RevisionConflict(
        f"{abbreviate_labels(_format_labels(home, epochs))}: other writers published first, {ATTEMPTS} "
        f"times in a row. Nothing of it was "
        "published.",
        "stop the writer outside Airflow (altneu status shows its runs), then clear this task",
    )


def raise_warnings(path: str, published: PublishedRun, say: Say = ignore_message) -> None:
    """The checks that warned in what `publish_run` returned. Raises `CheckFailed` when there are any: it is published,
    with its mark."""
    if published["revision"] is None:
        say("this run published nothing itself")
        return
    home, ledger = open_home(path)
    warned = _failed_checks(ledger, published["run_id"], Severity.WARNING)
    if warned:
        raise CheckFailed(
            f"{len(warned)} check(s) warn; revision {published['revision']} is published, with its mark:\n"
            + format_failures(home, warned),
            f"altneu report {home.schedule.format_label(warned[0]['epoch'])}",
        )
    say("no check warns")


def write_report(
    path: str, planned: PlannedRun, published: PublishedRun | None, say: Say = ignore_message
) -> list[str]:
    """Write the report pages of a run's epochs, also of one that has failed (then `publish_run` returned nothing);
    their paths. Needs no Spark."""
    import time

    from ..report import write_run_pages

    home, ledger = open_home(path)
    started = time.time()
    pages, why = write_run_pages(home, ledger, list(ledger.get_run(planned["run_id"]).epochs))
    facts = ReportFacts(pages=len(pages), page=pages[-1] if pages else None, unwritten=why)
    ledger.record_stage((published or planned)["run_id"], "report", StageState.DONE, started, facts)
    say(f"report: {why or (pages[-1] if pages else 'nothing to write')}")
    return pages


def _failed_checks(ledger: Ledger, run_id: str, severity: Severity) -> list[Check]:
    """The checks of a run that failed, of a severity."""
    found = ledger.list_checks(run_id=run_id)
    return [check.to_check() for check in found if not check.passed and check.severity is severity]


# -- as submissions to a cluster ---------------------------------------------------------------------------------


def submit_settings(path: str, master: str, *, cluster: bool) -> tuple[dict[str, str], dict[str, str]]:
    """What `spark-submit` needs for a home: conf and environment. `cluster`: the driver is on another machine."""
    from ..storage import session

    return session.submit_settings(Home.open(path).config.spark.conf, master, cluster=cluster)


def run_submitted(path: str, name: str, planned: str, answer: str) -> int:
    """The work of one submission: a task of the run that `planned` (JSON) describes. What it returns, or its error, is
    written to the file `answer`. Returns the exit code."""

    def report_progress(text: str) -> None:
        print(text, flush=True)

    run: PlannedRun = json.loads(planned)
    try:
        answered: dict[str, Any] = {
            "done": publish_run(path, run, report_progress)
            if name == PUBLISH
            else execute_stage(path, run, name, report_progress)
        }
    except AltneuError as error:
        print(format_error(error), file=sys.stderr, flush=True)
        answered = {"error": {"says": format_error(error), "retry": error.transient}}
    whole = Path(f"{answer}.new")  # who waits for the file finds all of it
    whole.write_text(json.dumps(answered, default=str))
    whole.replace(answer)
    return int("error" in answered)
