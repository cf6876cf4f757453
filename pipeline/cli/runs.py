"""Commands that plan and publish revisions: plan, run, backfill, rebuild, rollback."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape

from ..errors import BatchRejected, UsageError
from .app import Group, open_ledger, register_command
from .printing import Document, Progress, abbreviate_labels, err, format_moment, out, print_totals, show_progress
from .query import PublishedAt

if TYPE_CHECKING:
    from ..home.home import Home
    from ..landing.epoch_states import EpochComparison
    from ..run.forecast import Forecast
    from ..run.planning import Plan
    from ..state.ledger import Ledger
    from ..state.records import Revision, RunRecord

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would happen, and change nothing.")]
Accept = Annotated[
    bool,
    typer.Option("--accept-rows", help='Accept epochs with any number of rows, even where [checks] rows = "stop".'),
]
Hold = Annotated[bool, typer.Option("--hold", help="Compute and check, but leave publishing to `altneu publish`.")]


@register_command(Group.RUNS)
def plan(
    first: Annotated[str | None, typer.Argument(metavar="[FROM]", help="The first epoch.")] = None,
    last: Annotated[str | None, typer.Argument(metavar="[TO]", help="The last epoch.")] = None,
    format: Annotated[Document, typer.Option(help="The output format.")] = Document.table,
) -> None:
    """Show what a backfill would do and what it would cost.

    It changes nothing and needs no Spark.
    """
    from ..run import planning, semantic_settings
    from ..run.forecast import forecast_run

    ledger = open_ledger()
    planned = planning.plan_run(ledger, planning.epochs_within(ledger.home, first, last))
    changed = semantic_settings.changed_meaning(ledger)
    guess = forecast_run(ledger, planned)
    if format is Document.json:
        settings = {"settings_changed": changed.descriptions, "settings_need": changed.needs}
        print(json.dumps({**guess.to_document(), **settings}, indent=1))
        return
    _print_plan(ledger.home, guess)
    if changed.descriptions:
        out.print(f"[yellow]the settings have changed[/]: {'; '.join(changed.descriptions)}", markup=True)
        out.print(f"  a run refuses until the history is computed again; next: {changed.command}", markup=False)


def _print_incomplete(epochs: list[EpochComparison]) -> None:
    """Print the epochs whose batch is incomplete, and why; no run reads them."""
    for epoch in epochs[:5]:
        err.print(f"epoch {epoch.label} is incomplete and is left out: {epoch.why or ''}", markup=False)
    if len(epochs) > 5:
        err.print(f"(and {len(epochs) - 5:,} more; altneu status lists them)")


def _print_folded(epochs: list[EpochComparison]) -> None:
    """Print the epochs that have landed before the history that is kept; no run takes them up."""
    from ..landing.epoch_states import REMEDY, describe_folded

    if epochs:
        err.print(f"[yellow]not run:[/] {escape(describe_folded(epochs))}")
        err.print(f"  next: {REMEDY}", markup=False)


def _print_absent(home: Home, epochs: int, gone: int) -> None:
    """Print what is missing from the landing: everything, or the folders of published epochs."""
    if not epochs:
        out.print(f"nothing is landed in {home.landed_at}", markup=False)
        out.print("  next: altneu land FILE --columns src,dst --epoch 1")
    if gone:
        out.print(
            f"[yellow]{gone:,} published epoch(s) have no folder in the landing any more[/]; they stay published",
            markup=True,
        )
        out.print("  next: put the folders back, or remove an epoch on purpose: altneu run EPOCH --remove")


def _print_queries(forecast: Forecast) -> None:
    for place, query in enumerate(forecast.queries):
        out.print(f"  {'' if place else 'queries':<10} {query.describe()}", markup=False)


def _print_plan(home: Home, forecast: Forecast) -> None:
    label, counts = home.schedule.format_label, forecast.counts
    if counts:
        out.print(", ".join(f"{n:,} {state}" for state, n in counts.items()))
    _print_absent(home, sum(counts.values()), counts.get("gone", 0))
    _print_incomplete(forecast.incomplete)
    _print_folded(forecast.plan.in_state("folded"))
    queries = forecast.plan.queries
    if not forecast.chosen_epochs and queries.needs_run:
        out.print(f"would compute queries as revision {forecast.revision}, from the rows as stored")
        _print_queries(forecast)
        return
    if not forecast.chosen_epochs:
        if counts.get("published") and not counts.get("incomplete") and not counts.get("folded"):
            out.print("nothing to run: every landed epoch is published unchanged")
        return
    several = forecast.revisions > 1
    where = (
        f"{forecast.revisions} revisions from {forecast.revision} on" if several else f"revision {forecast.revision}"
    )
    labels = abbreviate_labels(epoch.label for epoch in forecast.chosen_epochs)
    out.print(f"would run {len(forecast.chosen_epochs):,} epoch(s) as {where}: {labels}")
    out.print(
        f"  rows       about {forecast.rows:,} ({decimal(sum(epoch.bytes for epoch in forecast.chosen_epochs))} landed)"
    )
    if forecast.late_epochs:
        late = abbreviate_labels(map(label, forecast.late_epochs))
        out.print(f"  late       {len(forecast.late_epochs):,} at or before the frontier: {late}")
    if forecast.restated_epochs:
        restated = abbreviate_labels(map(label, forecast.restated_epochs))
        out.print(
            f"  restated   {len(forecast.restated_epochs):,} published epoch(s) may change their results: {restated}"
        )
    if several:
        out.print("  the first revision:")
    for name, text in forecast.choice_descriptions.items():
        out.print(f"  {name:<10} {text}")
    _print_queries(forecast)
    if forecast.stages is None:
        out.print("  time       no estimate before the first published run")
    else:
        parts = ", ".join(f"{stage} {seconds:.0f}" for stage, seconds in forecast.stages.items() if seconds >= 0.5)
        out.print(f"  time       about {forecast.seconds:,.0f} s, and Spark's start ({parts})")


@register_command(Group.RUNS)
def run(
    epochs: Annotated[list[str], typer.Argument(help="The epochs, as integers or labels.")],
    remove: Annotated[
        bool, typer.Option("--remove", help="Replace epochs whose folder is gone by empty batches.")
    ] = False,
    hold: Hold = False,
    accept_rows: Accept = False,
) -> None:
    """Run these epochs and publish the result as one revision.

    If an epoch is run again, its batch is replaced; unchanged epochs are skipped.
    """
    from ..run import planning

    ledger = open_ledger(writes=True)
    wanted = list(dict.fromkeys(ledger.home.schedule.parse_epoch(text) for text in epochs))
    execute_plan(ledger, planning.plan_epochs(ledger, wanted, remove=remove), hold=hold, accept=accept_rows)


@register_command(Group.RUNS)
def backfill(
    first: Annotated[str | None, typer.Argument(metavar="[FROM]", help="The first epoch.")] = None,
    last: Annotated[str | None, typer.Argument(metavar="[TO]", help="The last epoch.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Take every landed epoch.")] = False,
    hold: Hold = False,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="Leave out epochs whose batches are wrong, and exit with 1."),
    ] = False,
    accept_rows: Accept = False,
) -> None:
    """Run every landed epoch of a range that is missing or changed, and publish the results.

    All epochs are computed in one pass and published as one revision. More landed files than `[ingest]
    max_revision_mb` make several revisions; if the command is stopped in between, run it again to continue after the
    last published one. With `--hold` only the
    first of them is computed, because the others build on it.

    A broken file, too large a share of malformed rows, or (where `[checks] rows = "stop"`) an unusual number of rows
    stops the backfill. With `--keep-going` such an epoch is left out as if it had not landed, and malformed rows are
    counted for each epoch by itself.
    """
    from ..run import planning

    ledger = open_ledger(writes=True)
    if all_ == (first is not None) or (first is None) != (last is None):
        raise UsageError("give FROM and TO, or --all.", "altneu backfill --all")
    planned = planning.plan_run(ledger, planning.epochs_within(ledger.home, first, last))
    execute_plan(ledger, planned, hold=hold, keep_going=keep_going, accept=accept_rows)


@register_command(Group.RUNS)
def rebuild(
    from_landing: Annotated[
        bool, typer.Option("--from-landing", help="Read the landed files again, instead of the stored rows.")
    ] = False,
    dry_run: DryRun = False,
    hold: Hold = False,
) -> None:
    """Compute everything again and publish it as one new revision.

    Use it after other settings, or when a table's file is lost or wrong; old revisions stay as they were. It is needed
    after a change of `[edges] live_for` or `where`, or of `[motifs]`; with `--from-landing` also after one of
    `[values]`, or when the stored rows themselves are damaged.
    """
    from ..run import planning

    if dry_run and hold:
        raise UsageError("--dry-run computes nothing: it cannot be combined with --hold.", "altneu rebuild --help")
    ledger = open_ledger(writes=not dry_run)
    planned = planning.plan_rebuild(ledger, from_landing=from_landing)
    if dry_run:
        _print_rebuild(ledger, planned)
        return
    execute_plan(ledger, planned, hold=hold)


def _print_rebuild(ledger: Ledger, planned: Plan) -> None:
    from ..run import semantic_settings
    from ..run.forecast import forecast_run
    from ..state.records import RunKind

    guess = forecast_run(ledger, planned)
    source = "the landed files" if planned.kind is RunKind.RELOAD else "the rows as stored"
    out.print(f"would publish {len(planned.epochs):,} epoch(s) again as revision {guess.revision}, from {source}")
    out.print(f"  rows       about {guess.rows:,}")
    for name, text in guess.choice_descriptions.items():
        out.print(f"  {name:<10} {text}")
    if guess.seconds is not None:
        out.print(f"  time       about {guess.seconds:,.0f} s, and Spark's start")
    changed = semantic_settings.changed_meaning(ledger)
    if changed.descriptions:
        out.print(f"  settings   {'; '.join(changed.descriptions)}", markup=False)
    if not changed.allows(planned.kind):
        out.print(f"[yellow]it would refuse[/]: the settings need {changed.command}", markup=True)


@register_command(Group.RUNS)
def rollback(
    revision: Annotated[int | None, typer.Argument(help="The revision to go back to; 0 is the empty state.")] = None,
    published_at: PublishedAt = None,
    dry_run: DryRun = False,
) -> None:
    """Publish the state of an old revision, or what was published at a moment, as a new revision.

    Nothing is computed: it takes no time and no Spark. The landing stays as it is: what it holds beyond that state is
    missing or changed again, and the next backfill would publish it again. `altneu status` shows it.
    """
    from ..maintenance import rollback
    from ..reading.published_moment import choose_revision
    from ..run import semantic_settings

    ledger = open_ledger(writes=not dry_run)
    newest = ledger.revisions.get().revision
    revision = choose_revision(ledger, revision, published_at)
    if revision is None:
        raise UsageError("name the revision to go back to, or a moment.", "altneu rollback 1, or --published-at …")
    if newest and revision == newest:
        raise UsageError(
            f"revision {revision} is the newest already: there is nothing to roll back.",
            f"altneu rollback {newest - 1}" if newest > 1 else "altneu status",
        )
    if dry_run:
        _print_rollback(ledger, revision)
        return
    with show_progress("rollback") as say:
        row, epochs = rollback.roll_back(ledger, revision, say)
    out.print(
        f"published revision {row.revision}: the state of revision {revision}; {len(epochs):,} epoch(s) rolled back"
    )
    print_totals(ledger)
    if row.config_digest != ledger.home.config.semantic_digest():
        changed = semantic_settings.changed_meaning(ledger)
        out.print(
            f"[yellow]revision {revision} had other settings[/]: {'; '.join(changed.descriptions)} ({changed.command})",
            markup=True,
        )


def _print_rollback(ledger: Ledger, revision: int) -> None:
    target, now, then = (
        ledger.revisions.get(revision),
        ledger.outputs.published_batches(),
        ledger.outputs.published_batches(revision),
    )
    if not target.snapshots and target.frontier is not None:
        raise UsageError(f"revision {revision} cannot be read any more: a compaction has expired it.", "altneu status")
    epochs = [epoch for epoch in sorted({*now, *then}) if now.get(epoch) != then.get(epoch)]
    taken = abbreviate_labels(map(ledger.home.schedule.format_label, epochs))
    out.print(f"would publish revision {revision} again as revision {ledger.revisions.get().revision + 1}")
    out.print(f"  epochs     {len(epochs):,} rolled back{': ' if epochs else ''}{taken}")
    print_totals(ledger, revision)


def _print_others(ledger: Ledger) -> None:
    """Print which other runs are alive, on what and since when, before this one begins."""
    from ..state.records import RunKind

    for other in (run for run in ledger.runs.list_all() if run.is_alive):
        kind, labels = other.kind, abbreviate_labels(map(ledger.home.schedule.format_label, other.epochs))
        many = f" of {len(other.epochs):,} epoch(s) ({labels})" if other.epochs else ""
        effect = (
            "it disturbs no run" if kind is RunKind.COMPACT else "the first to publish wins, the other is superseded"
        )
        err.print(
            f"[yellow]another {kind}{many} is running[/] since {format_moment(other.started_at)} on "
            f"revision {other.parent} "
            f"(last heartbeat {format_moment(other.beat_at)}): {effect}",
            markup=True,
        )
    newest = ledger.revisions.get().revision
    for other in (run for run in ledger.runs.list_held() if run.parent == newest):
        err.print(
            f"[yellow]a {other.kind} of {len(other.epochs):,} epoch(s) is held[/] on revision {newest} (run "
            f"{other.run_id}): a run that is published before it overtakes it",
            markup=True,
        )


def execute_plan(
    ledger: Ledger, planned: Plan, *, hold: bool = False, keep_going: bool = False, accept: bool = False
) -> None:
    """Run a plan and print its outcome.

    Args:
        hold: Compute and check, but do not publish.
        keep_going: Leave out the epochs whose own batches are wrong.
        accept: Accept any number of rows.

    Raises:
        BatchRejected: Epochs were left out, because their batches are wrong or because a compaction has folded them.
    """
    from ..landing.epoch_states import record_folded
    from ..run import planning, runner
    from ..run.forecast import forecast_run
    from ..state.records import RunKind, RunRecord
    from ..state.stage_results import IngestFacts

    folded = planned.in_state("folded") if planned.kind is RunKind.RUN else []
    if planned.kind is RunKind.RUN:
        record_folded(ledger)
    _print_incomplete(planned.in_state("incomplete"))
    if planned.is_idle:
        same = sum(entry.state == "published" for entry in planned.epochs)
        if same:
            out.print(f"nothing new: {same:,} epoch(s) are published as landed (revision {planned.parent.revision})")
        _print_absent(ledger.home, len(planned.epochs), len(planned.in_state("gone")))
        _refuse_left_out(ledger, [], folded)
        return
    _print_others(ledger)
    cut = planning.split_by_size(ledger.home, planned) if planned.kind is RunKind.RUN else []
    parts = cut or [planned.run]
    size = {entry.epoch: entry.bytes for entry in planned.epochs}
    total = sum(size.get(epoch, 0) for epoch in planned.run)
    started, done = time.time(), 0
    left_out: list[int] = []
    for number, epochs in enumerate(parts):
        part = replace(planned, run=epochs, parent=ledger.revisions.get())
        many = f" ({number + 1} of {len(parts)})" if len(parts) > 1 else ""
        guess = forecast_run(ledger, part)
        time_ = f", about {guess.seconds:,.0f} s and Spark's start" if guess.seconds else ""
        is_of_queries = not epochs and planned.kind is RunKind.RUN
        what = f"{len(epochs) or len(planned.epochs):,} epoch(s), about {guess.rows:,} rows{time_}"
        if is_of_queries:
            what = f"queries: {planned.queries.describe_pending()}"
        err.print(f"revision {part.parent.revision + 1}{many}: {what}", markup=False)
        progress, began = Progress(_expected_seconds(guess, hold=hold), guess.learned), time.time()
        try:
            revision = runner.execute_run(ledger, part, progress, hold=hold, keep_going=keep_going, accept=accept)
        except BatchRejected:
            if not keep_going:
                raise
            left_out += epochs
            continue
        finally:
            progress.close_display()
        assert revision is not None
        taken = ledger.runs.get(revision.run_id).epochs
        left_out += [epoch for epoch in epochs if epoch not in taken]
        if isinstance(revision, RunRecord):
            print_held(ledger, revision, time.time() - began)
            if len(parts) > 1:
                rest = sum(map(len, parts[number + 1 :]))
                out.print(f"{rest:,} epoch(s) are left: type the same command again once this run is published")
            _refuse_left_out(ledger, left_out, folded)
            return
        mark = f", with a {revision.mark}" if revision.mark else ""
        seconds = time.time() - began
        read = ledger.stages.get_facts(revision.run_id, IngestFacts)
        rows = read.rows + read.quarantined
        rate = f", {rows:,} rows ({rows / seconds:,.0f} a second)" if rows else ""
        many = "queries" if is_of_queries else f"{len(taken) or len(planned.epochs):,} epoch(s)"
        out.print(f"published revision {revision.revision}{mark}: {many}{rate}, {seconds:.1f} s")
        if part.kind is not RunKind.RUN:
            print_same(ledger, revision)
        done += sum(size.get(epoch, 0) for epoch in epochs)
        if done < total:
            left = (time.time() - started) * (total - done) / done
            err.print(f"  {decimal(done)} of {decimal(total)}, about {left:,.0f} s left")
    print_totals(ledger)
    _refuse_left_out(ledger, left_out, folded)


def _refuse_left_out(ledger: Ledger, epochs: list[int], folded: list[EpochComparison]) -> None:
    """Raise `BatchRejected` if epochs were left out, with the reason for each of the first ones.

    Args:
        epochs: Epochs whose batches are wrong.
        folded: Landed epochs that a compaction has folded.
    """
    from ..landing.epoch_states import REMEDY, describe_folded
    from ..state import failed_runs

    if folded and not epochs:
        raise BatchRejected(f"{describe_folded(folded)}.", REMEDY)
    if not epochs:
        return
    _print_folded(folded)
    tried = failed_runs.list_unpublished(ledger)
    lines = [
        f"  {ledger.home.schedule.format_label(epoch)}: {tried[epoch][-1].error}"
        for epoch in epochs[:20]
        if epoch in tried
    ]
    more = [f"  (and {len(epochs) - 20:,} more; altneu status lists them)"] if len(epochs) > 20 else []
    may_accept = ledger.home.config.checks.rows == "stop"
    accepting = " (if their number of rows is right: altneu run EPOCH --accept-rows)" if may_accept else ""
    raise BatchRejected(
        "\n".join([f"{len(epochs):,} epoch(s) were left out, as if they had not landed:", *lines, *more]),
        f"fix or remove their files{accepting}, then run the same command again",
    )


def _expected_seconds(guess: Forecast, *, hold: bool) -> dict[str, float]:
    """Return the expected seconds of each stage; of a held run without the stages of publishing."""
    from ..run import runner

    stages = guess.stages or {}
    return {name: seconds for name, seconds in stages.items() if not (hold and name in runner.STAGES_AFTER_PUBLISH)}


def print_held(ledger: Ledger, run: RunRecord, seconds: float) -> None:
    """Print that a run waits for an approval, why, and what to type."""
    from ..run import approval
    from ..state.stage_results import AuditFacts

    warned = ledger.stages.get_facts(run.run_id, AuditFacts).failed
    mark = f", {warned} check(s) warn" if warned else ""
    epochs, why = (
        len(run.epochs) or len(ledger.outputs.published_batches()),
        approval.approval_reason(ledger, run.run_id),
    )
    out.print(f"held: run {run.run_id} on revision {run.parent}, {epochs:,} epoch(s){mark}, {seconds:.1f} s")
    out.print(f"  nothing is published: {why}", markup=False)
    out.print(f"  next: altneu diff {run.run_id}   (what readers would see change)")
    out.print(f"        altneu publish {run.run_id}, or: altneu discard {run.run_id}")


def print_same(ledger: Ledger, revision: Revision) -> None:
    """Print which tables a rebuild has left as they were published before, by their fingerprints."""
    from ..state.fingerprint_sums import list_differences

    known = ledger.outputs.fingerprints_at([revision.parent, revision.revision])
    before, after = known[revision.parent], known[revision.revision]
    other = {each.table: each for each in list_differences(before, after)}
    same = sorted(table for table in after if table in before and table not in other)
    if not same and not other:
        out.print(f"it is not known whether the tables are as before: revision {revision.parent} has no fingerprints")
    elif not other:
        out.print(f"every table is the same as in revision {revision.parent}")
    else:
        if same:
            out.print(f"the same as in revision {revision.parent}: {', '.join(same)}")
        from_ = (
            f"{table} from epoch {ledger.home.schedule.format_label(each.epoch)} on"
            for table, each in sorted(other.items())
        )
        out.print(f"[yellow]other than in revision {revision.parent}[/]: {', '.join(from_)}", markup=True)
