"""The command that lists the state of every epoch: `altneu status`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from ..errors import UsageError
from .app import Group, open_ledger, register_command
from .printing import Document, abbreviate_labels, format_moment, format_ranges, out, print_rows

if TYPE_CHECKING:
    from ..home.home import Home

MANY_FILES = 500  # from this number of files on, a compaction is recommended
MAX_UNFOLDED_EPOCHS = 90  # with more epochs than this, a month in which all is well is one line
RECENT = 31  # this number of the newest epochs are always listed one by one

Entry = dict[str, Any]


@register_command(Group.READING)
def status(
    since: Annotated[str | None, typer.Option(metavar="EPOCH", help="List the epochs from this one on.")] = None,
    last: Annotated[int | None, typer.Option(help="List this number of the newest epochs.", min=1)] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="List the epochs that failed, or differ in an audit.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="List every epoch on a line of its own.")] = False,
    format: Annotated[Document, typer.Option(help="The output format.")] = Document.table,
) -> None:
    """List the state of every epoch: landed, changed, published, audited, failed.

    It reads only the database and needs no Spark; a daemon of this home is asked what it does. In a long history the
    months in which all is well are one line each; `--all` lists every epoch.
    """
    from ..landing.epoch_states import REMEDY, list_epoch_rows
    from ..run import approval
    from ..state import fingerprint_sums
    from ..storage import daemon_client

    if all_ and (since or last or failed):
        raise UsageError("--all cannot be combined with --since, --last or --failed.", "altneu status --all")
    ledger = open_ledger()
    home = ledger.home
    parent, rows = list_epoch_rows(ledger)
    shown = _choose_entries(home, rows, since, last, failed=failed)
    sizes = ledger.stages.table_sizes()
    readable = ledger.revisions.list_readable()
    waiting = [approval.describe_held_run(ledger, run) for run in ledger.runs.list_held()]
    holes = _holes(home, [row["epoch"] for row in rows])
    daemon_status = daemon_client.read_status(home.path)
    if format is Document.json:
        document = {
            "revision": parent.revision,
            "frontier": parent.frontier,
            "mark": parent.mark,
            "since": parent.since,
            "readable_revisions": readable,
            "holes": holes,
            "tables": {table: asdict(size) for table, size in sizes.items()},
            "fingerprints": fingerprint_sums.cumulative_at(
                fingerprint_sums.fold_fingerprints(ledger.outputs.fingerprints_of(parent.revision), parent.since),
                parent.frontier,
            ),
            "epochs": shown,
            "held": waiting,
            "daemon": daemon_status and asdict(daemon_status),
        }
        print(json.dumps(document, indent=1))
        return
    label = "none" if parent.frontier is None else home.schedule.format_label(parent.frontier)
    out.print(f"revision {parent.revision}, frontier {label}, {len(rows):,} epochs")
    if readable:
        answers = "all epochs" if parent.since is None else f"epochs from {home.schedule.format_label(parent.since)} on"
        files, size = (sum(getattr(each, unit) for each in sizes.values()) for unit in ("files", "bytes"))
        out.print(
            f"the tables answer for {answers}, at revisions {format_ranges(readable)}: {files:,} files, {decimal(size)}"
        )
        if files > MANY_FILES:
            out.print("[yellow]many small files slow every read down[/]; next: altneu compact", markup=True)
    if daemon_status is not None:
        out.print(f"daemon: {'; '.join(daemon_client.format_status(daemon_status)[:2])}", markup=False)
    for held in waiting:
        out.print(_format_held_run(held), markup=False)
        out.print(f"  next: {held['next']}", markup=False)
    if not rows:
        out.print(f"nothing is landed in {home.landed_at}", markup=False)
        out.print("  next: altneu land FILE --columns src,dst --epoch 1")
        return
    if holes:
        out.print(
            f"{len(holes):,} epoch(s) between the first and the last have nothing landed: {abbreviate_labels(holes)}"
        )
    fold = not (all_ or since or last or failed) and len(rows) > MAX_UNFOLDED_EPOCHS
    lines = (
        fold_months(shown[:-RECENT]) + [_format_entry(entry) for entry in shown[-RECENT:]]
        if fold
        else map(_format_entry, shown)
    )
    print_rows(lines, ("epoch", "state", "rows", "revision", "audited"))
    for line in list_errors(shown):
        out.print(line, markup=False)
    if any(row["state"] == "folded" for row in shown):
        out.print(f"  next: {REMEDY}", markup=False)


def _format_held_run(run: Entry) -> str:
    """Describe a held run in one line."""
    which = abbreviate_labels(run["epochs"]) or "all epochs"
    what = (
        f"held since {format_moment(run['held_at'])}: {run['kind']} {run['run_id']} on revision "
        f"{run['parent']} ({which})"
    )
    if run["warnings"]:
        what += f", {run['warnings']} check(s) warn"
    if run["overtaken_by"]:
        return f"{what}; overtaken by revision {run['overtaken_by']}: it cannot be published any more"
    return f"{what}; kept until {format_moment(run['expires_at'])}"


def _choose_entries(home: Home, rows: list[Entry], since: str | None, last: int | None, *, failed: bool) -> list[Entry]:
    if since is not None:
        first = home.schedule.parse_epoch(since)
        rows = [row for row in rows if row["epoch"] >= first]
    if failed:
        rows = [row for row in rows if _needs_attention(row)]
    return rows[-last:] if last is not None else rows


def _needs_attention(row: Entry) -> bool:
    return row["state"] == "failed" or row["error"] is not None or row["audited"] is False


def _format_entry(entry: Entry) -> Entry:
    return {
        "epoch": entry["label"],
        "state": entry["state"],
        "rows": f"{entry['rows']:,}",
        "revision": entry["revision"],
        "audited": entry["audit"],
    }


def fold_months(rows: list[Entry]) -> list[Entry]:
    """Return one line for each month in which every epoch is published and none differs.

    Epochs that are integers are folded by hundreds.
    """

    def group_of(entry: Entry) -> str:
        return entry["label"][:7] if "-" in entry["label"][1:] else f"{entry['epoch'] // 100 * 100}…"

    return [line for name, entries in groupby(rows, group_of) for line in _format_month(name, list(entries))]


def list_errors(rows: list[Entry]) -> Iterator[str]:
    """Yield the errors, each once for consecutive epochs that have the same one."""
    for error, entries in groupby(rows, lambda row: row["error"]):
        labels = [entry["label"] for entry in entries]
        if error:
            which = labels[0] if len(labels) == 1 else f"{labels[0]} … {labels[-1]} ({len(labels):,} epochs)"
            yield f"{which}: {error}"


def _format_month(name: str, rows: list[Entry]) -> Iterator[Entry]:
    if len(rows) == 1 or any(row["state"] != "published" or _needs_attention(row) for row in rows):
        yield from map(_format_entry, rows)
        return
    right = Counter(row["audit"] for row in rows if row["audited"])
    yield {
        "epoch": name,
        "state": f"{len(rows)} published",
        "rows": f"{sum(row['rows'] for row in rows):,}",
        "revision": format_ranges(sorted({row["revision"] for row in rows if row["revision"]})),
        "audited": ", ".join(f"{n} {word}" for word, n in sorted(right.items())),
    }


def _holes(home: Home, epochs: list[int]) -> list[str]:
    """Return the labels of unknown epochs between known ones, in a schedule by time."""
    if home.schedule.seconds is None or not epochs or max(epochs) - min(epochs) > 100_000:
        return []
    known = set(epochs)
    return [home.schedule.format_label(epoch) for epoch in range(min(epochs), max(epochs)) if epoch not in known]
