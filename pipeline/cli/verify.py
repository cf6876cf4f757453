"""Commands that check, certify and mend what is published, and write report pages: audit, certify, repair, report."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import AltneuError, CheckFailed, UsageError
from ..reading.query_model import Engine
from .app import Group, open_ledger, register_command
from .printing import err, out, print_rows, show_progress
from .query import EngineOption, PublishedAt
from .runs import Hold, execute_plan

if TYPE_CHECKING:
    from ..state.ledger import Ledger
    from ..state.records import Revision


@register_command(Group.CHECKING)
def audit(
    epochs: Annotated[
        list[str] | None, typer.Argument(help="The epochs to audit (default: all up to the frontier).")
    ] = None,
    sample: Annotated[
        int, typer.Option(help="Audit this number of the epochs, drawn at random (0: all of them).", min=0)
    ] = 0,
    third_party: Annotated[
        bool,
        typer.Option(
            "--third-party", help="Count triangles by GraphFrames or GraphX, too: seconds to minutes per epoch."
        ),
    ] = False,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Maintain and recompute the epochs side by side, and show both costs.")
    ] = False,
    fingerprints: Annotated[
        bool,
        typer.Option(
            "--fingerprints",
            help="Compare the stored rows with the published fingerprints instead; it reads every table once.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every result: .xml as JUnit does, .json as dbt's run_results.json."),
    ] = None,
) -> None:
    """Compare the published result with a full recomputation; exit with 1 on any difference.

    `altneu audit --sample 5 --third-party`

    `altneu audit --fingerprints`   finds rows that were damaged after they were published, in any table.

    `altneu audit --output audit.xml`   lets CI show each check; a file with the ending .json is as dbt writes it.

    `altneu audit 2004-06-01 --shadow`   works in a scratch home on the same landing; nothing is published.
    """
    from altneu.algorithms.graph.graphframes_oracle import reference_name

    from ..checking import audit, audit_engine, result_files
    from ..home import schedule
    from ..home.whole_files import open_whole_file, require_writable
    from ..observability import openlineage
    from ..report import refresh_pages
    from ..run import change_log
    from ..run.cost_comparison import compare_costs
    from ..storage.session import session_for
    from ..storage.warehouse import Warehouse

    write_results = None if output is None else result_files.choose_writer(output.name)
    if output is not None:
        if shadow or fingerprints:
            raise UsageError("--output is for the results of a recomputation.", "altneu audit --output audit.xml")
        require_writable(output, "--output")
    if shadow and third_party:
        raise UsageError("--third-party cannot be combined with --shadow.", "altneu audit --third-party")
    ledger = open_ledger(writes=True)
    home = ledger.home
    row = ledger.revisions.require_published()
    assert row.frontier is not None
    if fingerprints:
        if epochs or sample or third_party or shadow:
            raise UsageError("--fingerprints takes no epochs and no other options.", "altneu audit --fingerprints")
        _compare_fingerprints(ledger, row)
        return
    if epochs:
        wanted = sorted({home.schedule.parse_epoch(text) for text in epochs})
        late = [epoch for epoch in wanted if epoch > row.frontier]
        if late:
            raise UsageError(
                f"epoch {home.schedule.format_label(late[0])} is after the frontier: its state is not final."
            )
    else:
        wanted = audit.auditable_epochs(ledger, row)
    if sample:
        wanted = schedule.sample_epochs(wanted, sample, str(time.time_ns()))
    started = time.time()
    if shadow:
        spark = session_for(ledger)
        with show_progress("audit") as say:
            costs = compare_costs(home, wanted, spark, say)
        print_rows(costs)
        if any(entry["differences"] for entry in costs):
            raise CheckFailed("the maintained and the recomputed result differ in the scratch home.", "altneu audit")
        return
    reference = ""
    with show_progress("audit") as say:
        small = None if third_party else audit_engine.audit_without_spark(ledger, row, wanted, say)
        results = small or []
        if small is None or not all(result["passed"] for result in small):  # Spark explains the first difference
            warehouse = Warehouse(session_for(ledger), home)
            by_spark = audit.audit_published(warehouse, row, wanted, say, third_party=third_party)
            if small is None or not all(result["passed"] for result in by_spark):
                results = by_spark
            reference = f" and to {reference_name(warehouse.spark)}" if third_party else ""
    results += change_log.check_change_log(ledger, lambda: Warehouse(session_for(ledger), home))
    ledger.checks.put(None, row.revision, results)
    openlineage.emit_audit(ledger, results)
    if output is not None and write_results is not None:
        with open_whole_file(output) as stream:
            stream.write(write_results(results, home.schedule.format_label, time.time() - started))
    failed = [result for result in results if not result["passed"]]
    refresh_pages(ledger, {result["epoch"] for result in failed})
    if failed:
        for result in failed[:20]:
            err.print(
                f"[red]✗[/] {home.schedule.format_label(result['epoch'])}: {result['name']}: {result['observed']}",
                markup=True,
            )
            for line in result["rows"][0].get("why", ()) if result["rows"] else ():
                err.print(f"    {result['rows'][0]['key']}: {line}", markup=False)
        bad = {result["epoch"] for result in failed}
        raise CheckFailed(
            f"{len(bad)} of {len(wanted)} epochs differ from the recomputation.",
            f"altneu report {home.schedule.format_label(min(bad))}",
        )
    out.print(
        f"{len(wanted)} epoch(s) audited at revision {row.revision}: all equal to a full recomputation"
        f"{reference} ({len(results)} checks, {time.time() - started:.1f} s)"
    )


def _compare_fingerprints(ledger: Ledger, row: Revision) -> None:
    """Check by their fingerprints that the tables hold what was published.

    Raises:
        CheckFailed: A table holds other rows.
        AltneuError: No fingerprints are recorded.
    """
    from ..checking import fingerprint_check
    from ..storage.session import session_for
    from ..storage.warehouse import Warehouse

    recorded = ledger.outputs.fingerprints_of(row.revision)
    if not recorded:
        raise AltneuError(
            f"revision {row.revision} has no recorded fingerprints: there is nothing to compare with.",
            "altneu rebuild   (records them, as the next run does)",
        )
    started = time.time()
    with show_progress("audit") as say:
        say("reading all tables")
        comparison = fingerprint_check.compare_fingerprints(Warehouse(session_for(ledger), ledger.home), row, recorded)
    for difference in comparison.differences:
        label = ledger.home.schedule.format_label(difference.epoch)
        err.print(f"[red]✗[/] {difference.describe(label)}", markup=True)
    if comparison.differences:
        raise comparison.to_error()
    out.print(
        f"{len(comparison.compared)} tables hold what was published as revision {row.revision}, at every epoch "
        f"({time.time() - started:.1f} s)"
    )
    if comparison.unknown:
        out.print(f"[yellow]no fingerprint was recorded of[/]: {', '.join(comparison.unknown)}", markup=True)


@register_command(Group.CHECKING)
def certify(
    revision: Annotated[int | None, typer.Argument(help="The revision (default: the newest).")] = None,
    published_at: PublishedAt = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="EPOCH", help="Certify this epoch alone (default: every epoch).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write this folder (default: certificate-rN among the reports, replaced)."),
    ] = None,
    engine: EngineOption = Engine.auto,
) -> None:
    """Write a folder from which others verify every trussness and count of a revision, with DuckDB and without altneu.

    `altneu certify 7 --output certificate`   then   `python certificate/verify.py`

    It has the edges with their trussness and an order that proves it, the counts, the fingerprints of the tables, the
    digests of the landed files, and `verify.py`, one file to read and run. The folder is verified before it is there.
    """
    from ..checking import certificate
    from ..reading.engines import Engines
    from ..reading.published_moment import choose_revision
    from ..report import refresh_pages
    from ..storage.session import session_for
    from ..storage.warehouse import Warehouse

    ledger = open_ledger()
    home = ledger.home
    row = ledger.revisions.require_published(choose_revision(ledger, revision, published_at))
    epoch = None if as_of is None else home.schedule.parse_epoch(as_of)
    scope = certificate.certified_scope(ledger, row, epoch)
    engines = Engines(home, lambda: Warehouse(session_for(ledger), home), engine)
    with show_progress("certify") as say, certificate.placed_folder(home, scope, output) as (folder, place):
        say(f"revision {row.revision}")
        lines = certificate.write_certificate(ledger, engines, scope, folder)
    if output is None:
        refresh_pages(ledger)  # the index links it
    for line in lines:
        out.print(line, markup=False)
    out.print(f"{place}\n  next: python {place}/{certificate.VERIFIER}", markup=False)


@register_command(Group.CHECKING)
def repair(
    epochs: Annotated[list[str] | None, typer.Argument(help="The epochs to audit (default: all).")] = None,
    hold: Hold = False,
) -> None:
    """Audit epochs and, if the result differs, publish a revision that replaces what differs.

    The differing rows stay on record with the revision that had them. Where rows of batches or names of vertices are
    themselves lost or wrong, the landed files are read again, as by `altneu rebuild --from-landing`.
    """
    from ..checking.audit import needs_landing
    from ..run import planning

    ledger = open_ledger(writes=True)
    known = {row.id for row in ledger.checks.select()}
    try:
        audit(epochs)
        return
    except CheckFailed as failed:
        what = failed.what
    checks = [row.to_check() for row in ledger.checks.select() if row.run_id is None and row.id not in known]
    reload = needs_landing(checks)
    source = "read again from the landing" if reload else "computed again from the landed rows"
    err.print(f"[yellow]{what}[/] They are {source}.", markup=True)
    before = ledger.revisions.get().revision
    execute_plan(ledger, planning.plan_rebuild(ledger, from_landing=reload), hold=hold)
    if ledger.revisions.get().revision != before:
        audit(epochs)


@register_command(Group.READING)
def report(
    epoch: Annotated[str | None, typer.Argument(help="The epoch (default: the frontier).")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Write the pages of all epochs.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the facts behind the page instead.")] = False,
    data_docs: Annotated[
        bool, typer.Option("--data-docs", help="Write and link the Data Docs of Great Expectations, too.")
    ] = False,
    revision: Annotated[
        int | None, typer.Option(help="Write the page as of this revision, as a page of its own that never changes.")
    ] = None,
    vertex: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Write the page of one vertex instead, with its numbers over epochs and its edges."
        ),
    ] = None,
    published_at: PublishedAt = None,
) -> None:
    """Write the report page of an epoch, that of its rows and trusses, and the index, and print their paths.

    It needs no Spark. With `--revision` the page shows what that revision said of the epoch, even if later ones have
    changed it.

    `altneu report 2004-05-15 --vertex 41`   writes the page of a vertex: its numbers over epochs, its neighbourhood and
    its edges.
    """
    from ..reading.published_moment import choose_revision
    from ..report import epoch_document, write_former, write_pages, write_vertex

    ledger = open_ledger()
    revision = choose_revision(ledger, revision, published_at)
    if vertex is not None:
        if all_ or json_ or data_docs:
            other = "--all" if all_ else "--json" if json_ else "--data-docs"
            raise UsageError(
                f"--vertex writes a page of its own: it cannot be combined with {other}.", "altneu report --help"
            )
        row = ledger.revisions.require_published(revision)
        assert row.frontier is not None
        shown_epoch = row.frontier if epoch is None else ledger.home.schedule.parse_epoch(epoch)
        with show_progress("report"):
            page = write_vertex(ledger, shown_epoch, vertex, row)
        out.print(str(page), markup=False)
        return
    if revision is not None and (all_ or data_docs):
        other = "--all" if all_ else "--data-docs"
        raise UsageError(
            f"--revision is for the page of one epoch: it cannot be combined with {other}.", "altneu report --help"
        )
    if revision is not None:
        former = ledger.revisions.require_published(revision)
        assert former.frontier is not None
        wanted_epoch = former.frontier if epoch is None else ledger.home.schedule.parse_epoch(epoch)
        if wanted_epoch not in ledger.outputs.published_batches(revision):
            from ..reading.query_executor import unpublished_error

            raise unpublished_error(
                ledger.home,
                wanted_epoch,
                ledger.outputs.published_batches(revision),
                f"published at revision {revision}",
            )
        if json_:
            print(json.dumps(epoch_document(ledger, wanted_epoch, revision), indent=1, default=str))
        else:
            out.print(write_former(ledger, wanted_epoch, revision), markup=False)
        return
    if epoch is not None and all_:
        raise UsageError("give either an epoch or --all.", "altneu report --help")
    if json_ and data_docs:
        raise UsageError("--json writes no pages: it cannot be combined with --data-docs.", "altneu report --help")
    wanted = _epochs_to_report(ledger, epoch, all_=all_)
    if json_:
        if not wanted:
            ledger.revisions.require_published()
        documents = [epoch_document(ledger, epoch_) for epoch_ in wanted]
        print(json.dumps(documents if all_ else documents[0], indent=1, default=str))
        return
    with show_progress("report"):
        pages = write_pages(ledger, wanted, data_docs, None) if all_ else write_pages(ledger, wanted, data_docs)
    for page in pages[:1] if all_ else pages:
        out.print(page, markup=False)
    if all_:
        out.print(f"and {len(pages) - 1:,} more page(s)")


def _epochs_to_report(ledger: Ledger, epoch: str | None, *, all_: bool) -> list[int]:
    """Return the epochs whose pages are wanted; only those of which something is known."""
    from ..reading.query_executor import unpublished_error
    from ..state.records import RunKind

    row = ledger.revisions.get()
    tried = [run.epochs for run in ledger.runs.list_all() if run.kind is not RunKind.COMPACT]
    known = {*ledger.outputs.published_batches(), *(each for epochs in tried for each in epochs)}
    if all_:
        return sorted(known)
    if epoch is None:
        return [] if row.frontier is None else [row.frontier]
    wanted = ledger.home.schedule.parse_epoch(epoch)
    if wanted not in known:
        raise unpublished_error(ledger.home, wanted, known, "landed and run")
    return [wanted]
