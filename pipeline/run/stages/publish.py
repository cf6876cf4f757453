"""The stage `publish`: it writes the ledger row, from which on the revision exists.

The revision pins the snapshots that the audit has seen, and is refused when a branch has another one by now. Where the
branches cannot be cleaned up afterwards, the next run does it.

Every tenth revision lets the revisions that are older than the newest ones (`[retention] revisions`) share its
snapshots, and drops snapshots that nothing pins. So there are few files, however many revisions there are.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import describe_error
from ...state.records import RunKind, Severity
from ...state.stage_results import AuditFacts, PublishFacts
from .. import approval, change_log
from ..run_context import RunContext

TIDIED_EVERY = 10  # a revision whose number is divisible by it shares its snapshots


def publish(run: RunContext) -> PublishFacts:
    warned = run.get_result(AuditFacts).failed
    row = run.ledger.revisions.published_by(run.run_id)
    if row is None:
        approval.require_decision(run.ledger, run.run_id)
        row = run.ledger.publish_revision(
            run.run_id,
            run.parent.revision,
            frontier=run.frontier,
            snapshots=run.unpublished_revision().snapshots,
            digest=run.home.config.semantic_digest(),
            mark=Severity.WARNING if warned else None,
            since=None if run.kind is RunKind.RELOAD else run.parent.since,
        )
    sizes = {table: run.warehouse.snapshot_size(table, snapshot) for table, snapshot in row.snapshots.items()}
    facts = PublishFacts(revision=row.revision, tables=sizes)
    tidies = row.revision % TIDIED_EVERY == 0
    try:
        if tidies:
            run.ledger.revisions.share_snapshots(row, run.home.config.retention.revisions)
        run.warehouse.update_refs(run.ledger, run.run_id)
        run.ledger.runs.forget_branches([run.run_id])
        change_log.try_to_follow(run.ledger, lambda: run.warehouse, run.say)
        approval.expire_held_runs(run.ledger)
        for table in run.warehouse.tables if tidies else ():
            run.warehouse.expire_snapshots(table, run.ledger, run.run_id)
        return replace(facts, dropped_runs=run.warehouse.discard_leftovers(run.ledger))
    except Exception as error:
        what, _ = describe_error(error)
        run.say(f"revision {row.revision} is published; the next run cleans up its branches ({what})")
        return replace(facts, untidied=what)
