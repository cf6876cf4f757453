"""The runs that a person decides on: which runs are held, and how a held run is approved, rejected or expires.

A run is held after its last check when it was started with `--hold`, or when `[publish] approve` asks for it. It is
bound to its parent, the revision that it was computed from: it is published on that revision, as it was computed and
checked, or not at all. When another run publishes a revision in the meantime, the held run is overtaken. The branches
of a held run are kept until it is published, rejected, or older than `[runs] hold_days`.
"""

from __future__ import annotations

import contextlib
import json
from datetime import datetime, timedelta

from ..errors import LeaseLost, RevisionConflict, RunFailed, UsageError
from ..home.approval_rule import ALWAYS, NEVER, ON_WARNING
from ..home.home import Home
from ..home.queries import without_queries
from ..landing.epoch_states import compare_with_ledger
from ..landing.local_landing import EMPTY_DIGEST
from ..observability import openlineage
from ..state import clock, lease
from ..state.ledger import Ledger
from ..state.records import RunKind, RunRecord, RunState, Verdict
from ..state.stage_results import AuditFacts

MAX_NAMED_EPOCHS = 8  # epochs that a command names one by one


def approval_reason(ledger: Ledger, run_id: str) -> str | None:
    """Return why a run whose checks are done must not be published yet, or None when it may be published."""
    approval, rule = ledger.approvals.get(run_id), ledger.home.config.publish.approve.when
    if approval is not None:
        return {
            Verdict.APPROVED: None,
            Verdict.WANTED: "it was begun with --hold",
            Verdict.REJECTED: f"it was {approval.describe()}",
        }[approval.verdict]
    if rule in (ALWAYS, NEVER):
        return f'[publish] approve = "{ALWAYS}"' if rule == ALWAYS else None
    if rule == ON_WARNING:
        failed = ledger.stages.get_facts(run_id, AuditFacts).failed
        return f'{failed} check(s) warn, and [publish] approve = "{ON_WARNING}"' if failed else None
    from . import approval_numbers  # which needs Spark's modules

    return approval_numbers.explain_rule(ledger, ledger.runs.get(run_id), rule)


def hold_unapproved_run(ledger: Ledger, run_id: str) -> str | None:
    """Hold a run whose checks are done if a person has to approve it first.

    Returns:
        Why the run is held, or None when it may be published, or is.

    Raises:
        RevisionConflict: Another run has published a revision since this run began.
        LeaseLost: Another process has taken over the run.
    """
    ledger.runs.require_newest_parent(run_id)
    run = ledger.runs.get(run_id)
    why = None if run.state is RunState.PUBLISHED else approval_reason(ledger, run_id)
    if why is not None and run.state is not RunState.HELD:
        with lease.hold_lease(ledger, run_id):
            ledger.approvals.request(run_id)
        _renew_pages(ledger, run)
    return why


def require_held_run(ledger: Ledger, run_id: str | None) -> RunRecord:
    """Return the held run with this id, or the only held run when the id is None.

    Raises:
        UsageError: There is no such run, it is not held, or the id is None and not exactly one run is held.
    """
    held = ledger.runs.list_held()
    if run_id is None:
        if len(held) == 1:
            return held[0]
        names = ", ".join(run.run_id for run in held)
        raise UsageError(
            f"{len(held)} runs are held: say which one ({names})." if held else "no run is held.",
            "altneu status" if held else "altneu run EPOCH --hold, or: altneu backfill --all --hold",
        )
    run = next((run for run in ledger.runs.list_all() if run.run_id == run_id), None)
    if run is None:
        raise UsageError(f"there is no run {run_id!r}.", "altneu status")
    if run.state is RunState.HELD:
        return run
    what = f"it is {run.state}"
    row = ledger.revisions.published_by(run_id)
    if row is not None:
        what = f"it is published, as revision {row.revision}"
    elif run.state is RunState.REJECTED:
        what = f"it was {run.error}"
    raise UsageError(f"run {run_id} is not held: {what}.", "altneu status")


def approve_run(ledger: Ledger, run: RunRecord, person: str | None, because: str | None) -> None:
    """Record that a held run may be published on its parent.

    Args:
        ledger: The ledger of the home.
        run: The held run.
        person: Who approves, if it is known.
        because: The reason, if one is given.

    Raises:
        RevisionConflict: Another run has published a revision since the run was held.
        UsageError: The person may not approve, or the semantic settings have changed since.
    """
    if not may_approve(ledger.home, person):
        raise UsageError(
            f"{person or 'a person without a name'} may not approve run {run.run_id}: [publish] approve names "
            f"{', '.join(ledger.home.config.publish.approve.by)}.",
            f"one of them types: altneu publish {run.run_id}; or: altneu discard {run.run_id}",
        )
    require_publishable(ledger, run)
    with lease.hold_lease(ledger, run.run_id):
        ledger.approvals.approve(run.run_id, person, because)


def may_approve(home: Home, person: str | None) -> bool:
    """Tell whether `[publish] approve` lets a person approve runs."""
    allowed = home.config.publish.approve.by
    return not allowed or person in allowed


def require_publishable(ledger: Ledger, run: RunRecord) -> None:
    """Raise `RevisionConflict` or `UsageError` when a held run can no longer be published."""
    home = ledger.home
    by = newer_revision(ledger, run)
    if by is not None:
        raise RevisionConflict(
            f"held run {run.run_id} builds on revision {run.parent}, but revision {by} was published meanwhile (by run "
            f"{ledger.revisions.get(by).run_id}): what would be published is not what was looked at. "
            f"Nothing of the held run was published.",
            f"{rerun_command(home, run)}   (computes it again); altneu discard {run.run_id}",
        )
    # Queries are published as they were when the run began. As JSON, because the order of the motifs counts.
    if json.dumps(without_queries(run.config)) != json.dumps(home.config.semantic_settings()):
        raise UsageError(
            f"the settings in {home.path / 'altneu.toml'} differ from those that held run {run.run_id} was computed "
            f"with.",
            f"restore the settings, or: altneu discard {run.run_id}",
        )


def reject_run(ledger: Ledger, run: RunRecord, person: str | None, because: str | None) -> None:
    """Record that a held run is not to be published. The next run or compaction removes its branches."""
    with lease.hold_lease(ledger, run.run_id):
        ledger.approvals.reject(run.run_id, person, because)
    openlineage.emit_run(ledger, run.run_id)
    _renew_pages(ledger, run)


def expire_held_runs(ledger: Ledger) -> None:
    """Reject the runs that were held for longer than `[runs] hold_days`, except those that a process works on."""
    for run in ledger.runs.list_held():
        if clock.read_clock() >= hold_deadline(ledger.home, run):
            days = f"{ledger.home.config.runs.hold_days:g} day(s)"
            with contextlib.suppress(LeaseLost):
                reject_run(ledger, run, None, f"nobody has decided within {days} ([runs] hold_days)")


def hold_deadline(home: Home, run: RunRecord) -> datetime:
    """Return the time from which a held run may be rejected because nobody has decided."""
    return datetime.fromisoformat(run.last_signal) + timedelta(days=home.config.runs.hold_days)


def newer_revision(ledger: Ledger, run: RunRecord) -> int | None:
    """Return the revision that another run has published on the parent of a held run, or None."""
    return run.parent + 1 if ledger.revisions.get().revision != run.parent else None


def relanded_labels(ledger: Ledger, run: RunRecord) -> list[str]:
    """Return the labels of a run's epochs whose landing folders have changed since the run has read them.

    When the run is published, what it computed is published, and these epochs are in state `changed`.
    """
    _, now = compare_with_ledger(ledger)

    def digest_of(epoch: int) -> str | None:
        state = now.get(epoch)
        return EMPTY_DIGEST if state is None or state.state == "gone" else state.digest

    read = {batch.epoch: batch.digest for batch in ledger.outputs.staged_batches(run.run_id)}
    return [
        ledger.home.schedule.format_label(epoch)
        for epoch in run.epochs
        if epoch in read and digest_of(epoch) != read[epoch]
    ]


def rerun_command(home: Home, run: RunRecord) -> str:
    """Return the command that computes a run's epochs again and holds the new run."""
    if run.kind is not RunKind.RUN:
        return f"altneu rebuild {'--from-landing ' if run.kind is RunKind.RELOAD else ''}--hold"
    labels = [home.schedule.format_label(epoch) for epoch in sorted(run.epochs)]
    if len(labels) <= MAX_NAMED_EPOCHS:
        return f"altneu run {' '.join(labels)} --hold"
    return f"altneu backfill {labels[0]} {labels[-1]} --hold"


def describe_held_run(ledger: Ledger, run: RunRecord) -> dict[str, object]:
    """Return a held run as the JSON document that `altneu status` shows."""
    home = ledger.home
    by = newer_revision(ledger, run)
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "parent": run.parent,
        "epochs": [home.schedule.format_label(epoch) for epoch in run.epochs],
        "held_at": run.last_signal,
        "expires_at": hold_deadline(home, run).isoformat(timespec="milliseconds"),
        "warnings": ledger.stages.get_facts(run.run_id, AuditFacts).failed,
        "overtaken_by": by,
        "next": f"altneu diff {run.run_id}" if by is None else rerun_command(home, run),
    }


def require_decision(ledger: Ledger, run_id: str) -> None:
    """Raise `RunFailed` when a run that is about to be published waits for an approval."""
    why = approval_reason(ledger, run_id)
    if why is not None:
        raise RunFailed(f"run {run_id} needs an approval before it is published: {why}.", f"altneu publish {run_id}")


def _renew_pages(ledger: Ledger, run: RunRecord) -> None:
    from ..report import refresh_pages  # its templates are slow to import, and every command imports this module

    refresh_pages(ledger, run.epochs)
