"""The writing of the report pages, as files in the home's `reports`, and on request.

The file `.pages.json` has a *stamp* of each page: everything that its content depends on. A page whose stamp differs
from that of the database is out of date. It is written again, or, where there are more than `PAGES` such pages,
replaced by a short page that says so. A page therefore never shows what is no longer true, and pages that have not
changed are not written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .. import events
from ..errors import Unavailable
from ..home.home import Home
from ..landing.epoch_states import EpochComparison
from ..landing.local_landing import Listing, recall_listing
from ..optional_dependencies import require_extras
from ..state import clock, incidents
from ..state.epoch_status import EpochStatuses, list_epoch_statuses, newest_checks_since
from ..state.ledger import Ledger
from ..state.records import Revision
from . import check_page
from . import vertex_page as vertices
from .epoch_page import Document, describe_epoch
from .html import (
    render_check_page,
    render_difference_page,
    render_epoch_page,
    render_index_page,
    render_outdated_page,
    render_rows_page,
    render_vertex_page,
)
from .html.formatting import vertex_page as vertex_file
from .index_page import describe_landing, index_document, inspect_landing
from .page_queries import WINDOW, ReportState
from .page_store import PageStore
from .rows_page import describe_rows as rows_of
from .rows_page import page_name as rows_name

PAGES = 200  # pages that are written at once, those of the newest epochs
CHUNK = 200  # epochs that are read at once
KEPT_ROWS_PAGES = 60  # pages of rows that are kept, the newest
MANIFEST = ".pages.json"
_ROWS = re.compile(r"rows=(.+)\.revision=(\d+)\.html")


def epoch_document(ledger: Ledger, epoch: int, revision: int | None = None) -> Document:
    """Return the facts of one epoch as a JSON document, now or as an older revision published them.

    Args:
        ledger: The ledger of the home.
        epoch: The epoch.
        revision: The revision (default: the newest).
    """
    newest = ledger.revisions.get()
    if revision is None or revision == newest.revision:
        return describe_epoch(ReportState(ledger, [epoch], newest), epoch, clock.timestamp())
    state = ReportState(ledger, [epoch], ledger.revisions.get(revision), former=True)
    return {
        **describe_epoch(state, epoch, clock.timestamp()),
        "former": {"revision": revision, "newest": newest.revision},
    }


def page_name(home: Home, epoch: int, revision: int | None = None) -> str:
    """Return the file name of an epoch's page; with a revision, of the page that this revision keeps."""
    of = "" if revision is None else f".revision={revision}"
    return f"epoch={home.schedule.format_label(epoch)}{of}.html"


def render_page(ledger: Ledger, epoch: int, revision: int | None = None) -> str:
    """Render the page of an epoch, now or as a revision published it. It also links pages that are made on request."""
    document = epoch_document(ledger, epoch, revision)
    rows = _existing_rows_page(ledger.home, _readable_store(ledger.home), epoch, document["written"]["revision"])
    return render_epoch_page(document, lambda name: True, check_page.known_checks(ledger), (), rows)


def render_check(ledger: Ledger, name: str) -> str | None:
    """Render the page of a check by its file name. Return None where there is no such check."""
    key = next((key for key, file in check_page.known_checks(ledger).items() if file == name), None)
    if key is None:
        return None
    every, stand = incidents.list_incidents(ledger), list_epoch_statuses(ledger, ledger.revisions.get())
    document = check_page.check_history(ledger, stand, every, key, clock.timestamp())
    return render_check_page(document, lambda name: True, ledger.home.config.checks.sensitivity)


def render_index(
    ledger: Ledger,
    inside: Document | None = None,
    base: str = "",
    read: tuple[EpochStatuses, Mapping[int, EpochComparison]] | None = None,
) -> str:
    """Render the index. It also links pages that are made on request.

    Args:
        ledger: The ledger of the home.
        inside: What the page in Airflow shows in addition (`airflow.html`), or None outside Airflow.
        base: The address of the pages.
        read: What `compare_statuses` has just returned (default: it is read here, as far as it can be read).
    """
    written_at = clock.timestamp()
    stand = read[0] if read else list_epoch_statuses(ledger, ledger.revisions.get())
    landing = describe_landing(read[1], written_at) if read else inspect_landing(ledger, stand)
    every = incidents.list_incidents(ledger)
    document = index_document(ledger, stand, written_at, lambda epoch: "new", landing, every)
    document |= _written_pages(ledger.home, _readable_store(ledger.home), stand.newest)
    return render_index_page(document, lambda name: True, inside, base)


def read_written_page(home: Home, name: str) -> str | None:
    """Return a page that is not made on request (of rows, a vertex, a difference, Data Docs) by its name, or None.

    Raises:
        Unavailable: The store of the pages does not answer.
    """
    as_written = re.fullmatch(r"(diff-|rows=|vertex=)[^/]*\.html|data-docs/[^/]+/[^/]+\.html", name)
    return PageStore(home).read_page(name) if as_written else None


def _readable_store(home: Home) -> PageStore | None:
    """Return the store of the pages, or None where it cannot be read; a page is then made without some links."""
    try:
        return PageStore(home)
    except Unavailable as error:
        events.log_event("reports not listed", error=str(error))
        return None


def refresh_pages(ledger: Ledger, epochs: Iterable[int] = ()) -> str | None:
    """Write pages after an action that must not fail because of a page. Return what went wrong, or None."""
    try:
        write_pages(ledger, list(epochs))
    except Exception as error:
        events.log_event("pages not written", error=str(error))
        return f"{type(error).__name__}: {error}"
    return None


def write_run_pages(ledger: Ledger, epochs: list[int]) -> tuple[list[str], str | None]:
    """Write pages after a run, which must not fail because an object store does not accept them.

    The index shows the landing as the run has listed it, unless that is too long ago.

    Returns:
        What `write_pages` returns, and why pages could not be written, or None.
    """
    try:
        return write_pages(ledger, epochs, listing=recall_listing(ledger)), None
    except Unavailable as error:
        if not ledger.home.reports_remotely:
            raise
        events.log_event("pages not written", error=error.what)
        return [], f"{error.what} Next: {error.next}"


def write_pages(
    ledger: Ledger,
    epochs: list[int],
    data_docs: bool = False,
    limit: int | None = PAGES,
    listing: Listing | None = None,
) -> list[str]:
    """Write the pages of some epochs, all pages that are out of date, and the index.

    Args:
        ledger: The ledger of the home.
        epochs: The epochs.
        data_docs: Whether Great Expectations' own pages of their checks are written as well. The page of an epoch links
            those that exist.
        limit: The greatest number of pages that are written, those of the newest epochs; None for no limit.
        listing: A listing of the landing for the index (default: it is listed again).

    Returns:
        The paths or URIs of the index and of the pages of `epochs`, the newest epoch last.

    Raises:
        Unavailable: The store of `[reports] uri` does not accept the pages.
    """
    home = ledger.home
    folder = PageStore(home)
    written_at, stand = clock.timestamp(), list_epoch_statuses(ledger, ledger.revisions.get())
    files = ReportIndex(ledger, stand, folder)
    wanted = sorted(set(epochs))[-limit if limit else 0 :]
    files.expect_pages(wanted)
    known, every = check_page.known_checks(ledger), incidents.list_incidents(ledger)
    check_pages = set(known.values())
    frontier = stand.newest.frontier
    for epoch in {frontier, *(wanted if len(wanted) == 1 else ())} - {None}:
        if frontier is not None and epoch is not None and epoch <= frontier:
            _write_rows(ledger, stand.newest, epoch=epoch, axis=stand.shown_epochs, at=written_at, files=files)
    files.remove_old_rows_pages()

    def has_page(name: str) -> bool:
        return name in check_pages or files.has_page(name)

    due = sorted({*wanted, *(epoch for epoch in files.epochs if not files.is_current(epoch))})
    put_off = due[:-limit] if limit else []
    for chunk in _split_epochs([epoch for epoch in due if epoch not in set(put_off)]):
        state = ReportState(ledger, chunk, stand.newest)
        for epoch in chunk:
            if data_docs and epoch in wanted:
                _write_data_docs(state, epoch, folder)
            links = sorted(name for name in folder.list_names() if name.startswith(f"{_docs_link(state, epoch)}/"))
            files.put_page(
                epoch,
                render_epoch_page(
                    describe_epoch(state, epoch, written_at), files.has_page, known, links, files.rows_page(epoch)
                ),
                written_at,
            )
    for epoch in put_off:
        if not files.is_marked_outdated(epoch):
            files.put_page(
                epoch,
                render_outdated_page(home.schedule.format_label(epoch), stand.newest.revision, written_at),
                written_at,
                old=True,
            )
    moving = check_page.checks_to_refresh(ledger, known)
    for key, name in known.items():
        if key not in moving and name in folder:
            continue
        document = check_page.check_history(ledger, stand, every, key, written_at)
        folder.put_page(name, render_check_page(document, has_page, home.config.checks.sensitivity))
    landing = inspect_landing(ledger, stand, listing)
    document = index_document(ledger, stand, written_at, files.shown_state, landing, every)
    folder.put_page("index.html", render_index_page(document | _written_pages(home, folder, stand.newest), has_page))
    files.save_stamps()
    return [folder.page_location(name) for name in ("index.html", *map(files.page_name, wanted))]


def write_former(ledger: Ledger, epoch: int, revision: int) -> str:
    """Write the page of an epoch as a revision published it, under a name of its own, and return its path or URI."""
    home = ledger.home
    folder = PageStore(home)
    written_at, stand = clock.timestamp(), list_epoch_statuses(ledger, ledger.revisions.get())
    files, row = ReportIndex(ledger, stand, folder), ledger.revisions.get(revision)
    if row.frontier is not None and epoch <= row.frontier:
        _write_rows(
            ledger,
            row,
            epoch=epoch,
            axis=list_epoch_statuses(ledger, row).shown_epochs,
            at=written_at,
            files=files,
        )
    rows = _existing_rows_page(home, folder, epoch, revision)
    text = render_epoch_page(
        epoch_document(ledger, epoch, revision), files.has_page, check_page.known_checks(ledger), (), rows
    )
    folder.put_page(page_name(home, epoch, revision), text)
    folder.flush_pages()
    return folder.page_location(page_name(home, epoch, revision))


def write_vertex(ledger: Ledger, epoch: int, vertex: str, row: Revision) -> str:
    """Write the page of a vertex at an epoch, and the page of the epoch's rows, which links it.

    Args:
        ledger: The ledger of the home.
        epoch: The epoch.
        vertex: The name of the vertex.
        row: The revision.

    Returns:
        The path or URI of the page.

    Raises:
        UsageError: There is no such vertex.
        AltneuError: The tables cannot be read by one process.
    """
    home = ledger.home
    folder = PageStore(home)
    written_at, stand = clock.timestamp(), list_epoch_statuses(ledger, ledger.revisions.get())
    axis = (
        stand.shown_epochs if row.revision == stand.newest.revision else list_epoch_statuses(ledger, row).shown_epochs
    )
    files, label = ReportIndex(ledger, stand, folder), home.schedule.format_label(epoch)
    document = vertices.describe_vertex(home, row, epoch, vertex, axis, written_at)
    name = vertex_file(vertex, label, row.revision)
    document["rows_page"] = rows_name(label, row.revision)
    folder.put_page(name, render_vertex_page(document, files.has_page_or_rows))
    _write_rows(ledger, row, epoch=epoch, axis=axis, at=written_at, files=files, again=True)
    folder.flush_pages()
    return folder.page_location(name)


def _write_rows(
    ledger: Ledger,
    row: Revision,
    *,
    epoch: int,
    axis: list[int],
    at: str,
    files: ReportIndex,
    again: bool = False,
) -> None:
    """Write the page of an epoch's rows, unless it exists and `again` is false.

    A table that cannot be read is only logged.
    """
    name = rows_name(ledger.home.schedule.format_label(epoch), row.revision)
    exists = name in files.folder and not again
    if not row.snapshots or (row.since is not None and epoch < row.since) or exists:
        return
    try:
        files.folder.put_page(name, render_rows_page(rows_of(ledger, row, epoch, axis, at), files.has_page_or_rows))
    except Exception as error:
        events.log_event("rows not written", page=name, error=str(error))
        return
    files.add_rows_page(name)


def _split_epochs(epochs: list[int]) -> Iterator[list[int]]:
    """Yield the epochs in chunks that lie close together and are read at once."""
    part: list[int] = []
    for epoch in epochs:
        if part and (epoch - part[-1] > WINDOW or len(part) == CHUNK):
            yield part
            part = []
        part.append(epoch)
    if part:
        yield part


class ReportIndex:
    """The pages that exist, with the stamp of each."""

    def __init__(self, ledger: Ledger, stand: EpochStatuses, folder: PageStore) -> None:
        home = ledger.home
        self.home, self.stand, self.folder = home, stand, folder
        self.entries: dict[int, dict[str, Any]] = {}
        self._position = {epoch: place for place, epoch in enumerate(stand.shown_epochs)}
        known = self._read_stamps()
        existing_pages = {}
        self._rows: dict[str, dict[int, int]] = {}  # label → revision → when its page of rows was written
        for name in folder.list_names():
            self.add_rows_page(name)
            if name.startswith("epoch=") and name.endswith(".html"):
                existing_pages[name] = folder.written_at(name)
        self._page_names = {epoch: page_name(home, epoch) for epoch in {*known, *stand.shown_epochs, *stand.rows}}
        labels = {name: epoch for epoch, name in self._page_names.items()}
        for name, written in existing_pages.items():
            if name in labels:
                entry = known.get(labels[name], {})  # pages without a stamp are out of date
                self.entries[labels[name]] = entry if entry.get("mtime") == written else {}
        self._names = {self.page_name(epoch) for epoch in self.entries}
        stamped = [entry for entry in self.entries.values() if "stamp" in entry]
        seen = [(entry["revision"], entry.get("check", _stamped_check(entry))) for entry in stamped]
        self._newest_check = ledger.checks.newest_id()
        # all stamps are of when the newest of them was written
        self._checks = newest_checks_since(ledger, stand.newest, *map(max, zip(*seen, strict=True))) if seen else {}

    def _read_stamps(self) -> dict[int, dict[str, Any]]:
        try:
            stamps = json.loads(self.folder.read_page(MANIFEST) or "{}")
            return {int(epoch): dict(entry) for epoch, entry in stamps.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    @property
    def epochs(self) -> list[int]:
        return list(self.entries)

    def page_name(self, epoch: int) -> str:
        return self._page_names.get(epoch) or page_name(self.home, epoch)

    def has_page(self, name: str) -> bool:
        """Tell whether the page of an epoch with this name exists."""
        return name in self._names

    def has_page_or_rows(self, name: str) -> bool:
        """Tell whether the page of an epoch, of rows or of a vertex with this name exists."""
        return self.has_page(name) or (name.startswith(("rows=", "vertex=")) and name in self.folder)

    def add_rows_page(self, name: str) -> None:
        """Record that a page exists, if its name is that of a page of rows."""
        if matched := _ROWS.fullmatch(name):
            self._rows.setdefault(matched[1], {})[int(matched[2])] = self.folder.written_at(name)

    def rows_page(self, epoch: int) -> str | None:
        """Return the page of an epoch's rows as they are published now, or None."""
        label, newest = self.home.schedule.format_label(epoch), self.stand.newest.revision
        since = max(self.stand.status_of(epoch).revision, self.stand.marks.everywhere)
        known = [revision for revision in self._rows.get(label, ()) if since <= revision <= newest]
        return rows_name(label, max(known)) if known else None

    def remove_old_rows_pages(self) -> None:
        """Delete old pages of rows, except the newest and those that the page of an older revision links."""
        every = [(when, label, revision) for label, mine in self._rows.items() for revision, when in mine.items()]
        for _, label, revision in sorted(every)[: max(len(every) - KEPT_ROWS_PAGES, 0)]:
            if f"epoch={label}.revision={revision}.html" in self.folder:
                continue
            self.folder.delete_page(rows_name(label, revision))
            del self._rows[label][revision]

    def expect_pages(self, epochs: Iterable[int]) -> None:
        """Record that the pages of some epochs will be written, so that other pages may link them."""
        for epoch in epochs:
            self.entries.setdefault(epoch, {})
            self._names.add(self.page_name(epoch))

    def content_stamp(self, epoch: int) -> list[Any]:
        """Return the stamp of a page: everything that its content depends on."""
        row, tried, frontier = (
            self.stand.status_of(epoch),
            self.stand.newest_unresolved(epoch),
            self.stand.newest.frontier,
        )
        place, axis = self._position.get(epoch), self.stand.shown_epochs
        around = [] if place is None else [*axis[max(place - 1, 0) : place], *axis[place + 1 : place + 2]]
        return [
            max(row.revision, self.stand.marks.everywhere),
            self._checks.get(epoch) or _stamped_check(self.entries.get(epoch, {})),
            frontier is not None and epoch <= frontier,
            self.home.config.checks.sensitivity,
            self.stand.put_back,  # the page shows how its batch has changed later epochs up to this one
            [tried.run_id, tried.state, tried.last_seen_at] if tried else None,
            len(self.stand.unpublished_attempts.get(epoch, ())),
            None if place is None else axis[max(place - WINDOW + 1, 0)],  # the first epoch of its charts
            [[self.home.schedule.format_label(each), self.has_page(self.page_name(each))] for each in around],
            self.rows_page(epoch),
        ]

    def is_current(self, epoch: int) -> bool:
        """Tell whether a page shows what is in the database now."""
        return self.entries.get(epoch, {}).get("stamp") == self.content_stamp(epoch)

    def is_marked_outdated(self, epoch: int) -> bool:
        """Tell whether the page itself says that it is out of date."""
        return bool(self.entries.get(epoch, {}).get("old"))

    def shown_state(self, epoch: int) -> str | None:
        """Return the state of a page in the index: `new`, `old`, or None where there is no page."""
        if epoch not in self.entries:
            return None
        return "new" if self.is_current(epoch) and not self.is_marked_outdated(epoch) else "old"

    def put_page(self, epoch: int, text: str, at: str, *, old: bool = False) -> None:
        self.folder.put_page(self.page_name(epoch), text)
        self.entries[epoch] = {
            "stamp": self.content_stamp(epoch),
            "revision": self.stand.newest.revision,
            "check": self._newest_check,
            "at": at,
            "old": old,
        }

    def save_stamps(self) -> None:
        """Send all pages that were put, and then write their stamps."""
        self.folder.flush_pages()
        written = {epoch for epoch in self.entries if self.page_name(epoch) in self.folder}
        entries = {
            str(epoch): entry | {"mtime": self.folder.written_at(self.page_name(epoch))}
            for epoch, entry in sorted(self.entries.items())
            if entry and epoch in written
        }
        self.folder.put_page(MANIFEST, json.dumps(entries, separators=(",", ":")))
        self.folder.flush_pages()


def _stamped_check(entry: Mapping[str, Any]) -> int:
    """Return the id of the newest check result that a page with this entry shows; 0: none."""
    return int(entry["stamp"][1]) if "stamp" in entry else 0


def write_difference(home: Home, name: str, document: Document) -> str:
    """Write the page of a difference, and return its path or URI."""
    folder = PageStore(home)
    folder.put_page(f"diff-{name}.html", render_difference_page({**document, "at": clock.timestamp()}))
    folder.flush_pages()
    return folder.page_location(f"diff-{name}.html")


def _existing_rows_page(home: Home, folder: PageStore | None, epoch: int | None, revision: int) -> str | None:
    """Return the name of the page of an epoch's rows at a revision, or None where it was not written."""
    name = rows_name("" if epoch is None else home.schedule.format_label(epoch), revision)
    return name if folder is not None and name in folder else None


def _written_pages(home: Home, folder: PageStore | None, newest: Revision) -> Document:
    """Return what is written and the index links: the newest page of rows, differences of revisions (`1-2`), and the
    revisions that have a certificate."""
    names = list(folder.list_names()) if folder else []
    matches = (re.fullmatch(r"diff-(\d+-\d+)\.html", name) for name in names)
    certified = (re.fullmatch(r"certificate-r(\d+)/certificate\.json", name) for name in names)
    rows = _existing_rows_page(home, folder, newest.frontier, newest.revision)
    return {
        "rows": rows,
        "differences": sorted(each[1] for each in matches if each),
        "certificates": sorted((int(each[1]) for each in certified if each), reverse=True),
    }


def _docs_link(state: ReportState, epoch: int) -> str:
    return f"data-docs/epoch={state.label(epoch)}"


def _write_data_docs(state: ReportState, epoch: int, folder: PageStore) -> None:
    require_extras("a page of Data Docs", "quality")
    from altneu.expectations.data_docs import render_pages

    rows = [*state.checks.get(epoch, ()), *state.audits.get(epoch, ())]
    if not rows:
        return
    newest = max(rows, key=lambda row: row.at)
    checks = [{name: getattr(row, name) for name in ("suite", "name", "passed", "observed", "rows")} for row in rows]
    for suite, text in render_pages(checks, state.label(epoch), newest.run_id or "an audit", newest.at).items():
        folder.put_page(f"{_docs_link(state, epoch)}/{suite}.html", text)
