"""`altneu move` copies a whole home to another place, or to other kinds of places.

It copies the tables with every snapshot, branch and tag, the landing, the database and the reports. The files come
first, then the database in one transaction, then the proof (`_compare_copies`: every table at every revision has
the fingerprints that its run recorded), and last the new `altneu.toml`. Before that file is written there is no new
home. The original is read, never written.

The file `move.json` in the new folder, locked while its process lives, records what is copied from where, and the name
of the new catalog. The object `_move.json` in the store has the same name. After a kill the same command therefore
continues the move; a second move into the same place, or a place that holds something else, is refused. When the
original has changed during the copy, the move does not finish, and the same command copies what is new.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ..errors import AltneuError, CheckFailed, Unavailable, UsageError
from ..home.home import Home
from ..home.settings_file import NAME, write_text
from ..landing import copy_landing as batches
from ..state import clock, copy_database, database, file_transfer, filesystem, home_identity, versions
from ..state.ledger import Ledger
from ..state.records import SERVING_TABLES, RunKind, RunState
from ..state.schema import homes
from ..storage import catalogs
from ..storage import copy_tables as tables
from .move_target import MoveTarget

JOURNAL, MARK = "move.json", "_move.json"
REPEAT_COMMAND = "run the same command again: files that are copied and right are not copied again"
Prove = Callable[[Home, Home, file_transfer.Say], dict[int, list[str]]]


@dataclass(frozen=True)
class MoveResult:
    """What a move has copied (files, bytes, and files that existed already), and the tables proved at each revision."""

    home: Home
    tables: int
    batches: batches.CopiedBatches
    copied: file_transfer.CopyResult
    rows: int  # number of copied rows of the database
    proved_tables: dict[int, list[str]]
    held_runs: list[str]  # ids of the held runs


def move_home(home: Home, to: MoveTarget, say: file_transfer.Say, prove: Prove | None = None) -> MoveResult | None:
    """Copy a home to another place, and prove the copy.

    Args:
        home: The home to copy.
        to: The places of the new home.
        say: A function that takes lines about the progress.
        prove: A function that compares the copy with the original; by default `_compare_copies`.

    Returns:
        What was copied and proved, or None when an earlier call had finished the move and only its journal was left,
        which is removed.

    Raises:
        UsageError: The target belongs to another home, or the home cannot be moved now.
        CheckFailed: The copy differs from the original.
        AltneuError: The home has changed during the copy.
    """
    new, settings = to.target_home(home), to.settings_text(home)
    ledger = _open_current_ledger(home)
    _refuse_active_runs(ledger)
    _refuse_nested_target(home, new)
    with _hold_journal(home, to) as catalog:
        if (to.folder / NAME).exists():
            _release_prefix(to)
            return None
        tables.refuse_other_home(new, catalog)
        copy_database.refuse_other_home(new.database, catalog)
        _claim_prefix(to, home, catalog)
        before = _home_state(ledger)
        copied_batches = batches.copy_landing(home, new, say)
        copied_tables = (
            tables.copy_tables(home, new, catalog, say)
            if home_identity.find_identity(home) is not None
            else tables.NO_TABLES
        )
        copied = copied_batches.copied + copied_tables.copied + _copy_reports(home, new, say)
        say("database")
        rows = _copy_database(home, new, catalog, copied_tables.located)
        books = Ledger(new)
        batches.verify_copy(home, new, ledger, books)
        proved = _prove_copy(home, new, copied_tables, say, prove or _compare_copies)
        if _home_state(ledger) != before:
            raise AltneuError("a run or a compaction has changed the home while it was copied.", REPEAT_COMMAND)
        _claim_prefix(to, home, catalog)
        _write_settings(home, new, settings)
        _release_prefix(to)
    say("reports")
    from ..report import refresh_pages

    refresh_pages(books)
    return MoveResult(
        new,
        len(copied_tables.located),
        copied_batches,
        copied,
        rows,
        proved,
        [run.run_id for run in books.runs.list_held()],
    )


def _open_current_ledger(home: Home) -> Ledger:
    """Open the ledger. Raise `UsageError` where its database has an earlier version, which a move may not change."""
    ledger = home_identity.open_ledger(home)
    with database.open_connection(home.database) as connection:
        if versions.database_version(connection) != versions.newest_version():
            raise UsageError(
                f"the database {database.redact_uri(home.database)} was made by an earlier version of altneu.",
                "altneu doctor   (brings it up to date), then move",
            )
    return ledger


def _refuse_active_runs(ledger: Ledger) -> None:
    for run in ledger.runs.list_all():
        if run.state is RunState.RUNNING and run.is_alive:
            compaction = run.kind is RunKind.COMPACT
            what = "a compaction" if compaction else f"run {run.run_id} of {len(run.epochs)} epoch(s)"
            raise UsageError(
                f"{what} is active, and a copy would have only a part of it.",
                "wait until it has ended (altneu status), then move",
            )


def _refuse_nested_target(home: Home, new: Home) -> None:
    if new.path == home.path or home.path in new.path.parents or new.path in home.path.parents:
        raise UsageError(
            f"{new.path} and the home {home.path} are the same folder, or one contains the other.",
            "name another folder",
        )


def _home_state(ledger: Ledger) -> list[Any]:
    """Return values that differ whenever a run or a compaction has changed the home."""
    identity = home_identity.find_identity(ledger.home)
    locations = catalogs.open_catalog(ledger.home, identity).metadata_locations() if identity else {}
    return [locations, ledger.revisions.get(), [(run.run_id, run.state) for run in ledger.runs.list_all()]]


# -- The claim on the new places -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _hold_journal(home: Home, to: MoveTarget) -> Iterator[str]:
    """Hold the journal of a move, so that this process alone fills the new folder. Yield the new catalog's name."""
    folder, path = to.folder, to.folder / JOURNAL
    if folder.is_file() or ((folder / NAME).exists() and not path.exists()):
        what = "is a file" if folder.is_file() else "is a home already"
        raise UsageError(f"{folder} {what}.", "altneu move DIR   (a folder that does not exist, or is empty)")
    others = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    if others and not path.exists():
        raise UsageError(f"{folder} is not empty: it contains {others[0]}.", "altneu move DIR   (a new folder)")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT), "r+", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be created: {error.strerror}.", "name a folder that you may write to"
        ) from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another altneu move is filling {folder}.", "wait until it has ended") from None
        expected = {"from": str(home.path), "to": to.to_arguments()}
        journal = _read_json(stream.read())
        if journal and {name: journal.get(name) for name in expected} != expected:
            raise UsageError(
                f"{folder} holds an unfinished move of {journal.get('from')}, with --to {journal.get('to')}.",
                f"repeat the command of that move; or name another folder; or give that move up: rm -r {folder}",
            )
        if not journal:  # the file is new, or a process was killed while it wrote it
            catalog = home_identity.new_catalog(home_identity.REST_PREFIX if to.catalog else home_identity.PREFIX)
            journal = {**expected, "catalog": catalog, "begun": clock.timestamp()}
            stream.seek(0)
            stream.truncate()
            stream.write(json.dumps(journal))
            stream.flush()
            os.fsync(stream.fileno())
        try:
            yield str(journal["catalog"])
        except UsageError:  # it was raised before anything was copied
            if [each.name for each in folder.iterdir()] == [JOURNAL]:
                path.unlink()
                folder.rmdir()
            raise
        path.unlink()


def _read_json(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError:
        return {}


def _claim_prefix(to: MoveTarget, home: Home, catalog: str) -> None:
    """Claim the prefix of the store for this move. Raise `UsageError` where it has files of something else."""
    if to.store is None:
        return
    mark = f"{to.store}/{MARK}"
    with _translate_store_errors(to):
        files = filesystem.list_files(to.store)
        claim = _read_json(filesystem.read_file(mark).decode()) if MARK in files else {}
        if files and claim.get("catalog") != catalog:
            what, then = f"{len(files):,} files that do not belong to this move", "name a prefix that is empty"
            if claim:
                what = f"another move, of {claim['from']} into {claim['into']} on {claim['host']}"
                then += f"; if that move was given up, delete what is below {to.store}"
            raise UsageError(f"{to.store} holds {what}.", then)
        own_claim = {"catalog": catalog, "from": str(home.path), "into": str(to.folder), "host": socket.gethostname()}
        filesystem.write_file(mark, json.dumps(own_claim).encode())


def _release_prefix(to: MoveTarget) -> None:
    if to.store is not None:
        with _translate_store_errors(to):
            filesystem.delete_file(f"{to.store}/{MARK}")


@contextlib.contextmanager
def _translate_store_errors(to: MoveTarget) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        next_ = f"altneu doctor shows how a store is reached; then {REPEAT_COMMAND}"
        raise Unavailable(f"{to.store}: {filesystem.format_store_error(error)}.", next_) from error


# -- Steps ---------------------------------------------------------------------------------------------------------


def _copy_database(home: Home, new: Home, catalog: str, located: dict[str, str]) -> int:
    def register_tables(connection: sa.Connection) -> None:
        if located:
            tables.register_tables(new, catalog, located, connection)
            connection.execute(
                homes.insert().values(
                    home_identity.identity_row(new, catalog, home_identity.database_place(connection))
                )
            )

    return copy_database.copy_database(home.database, new.database, catalog, register_tables)


def _copy_reports(home: Home, new: Home, say: file_transfer.Say) -> file_transfer.CopyResult:
    """Copy the report pages. Outdated pages are written again at the end of the move."""
    here, there = filesystem.normalize_location(home.reports_at), filesystem.normalize_location(new.reports_at)
    wanted = [
        file_transfer.CopyRequest(location, there + location.removeprefix(here), info.bytes, info.modified_at)
        for location, info in file_transfer.list_existing(here).items()
        if not location.removeprefix(here).startswith("/.")
    ]
    return file_transfer.copy_files(wanted, file_transfer.list_existing(there), "reports", say)


def _write_settings(home: Home, new: Home, text: str) -> None:
    """Write the new `altneu.toml`, which makes the folder a home."""
    file = new.path / NAME
    os.sync()  # everything must be on the disk before the settings file says that there is a home
    try:
        write_text(file, text)
        shutil.copymode(home.path / NAME, file)
    except OSError as error:
        raise Unavailable(f"{file} cannot be written: {error.strerror}.", f"make room; then {REPEAT_COMMAND}") from None


def _prove_copy(
    home: Home, new: Home, copied_tables: tables.CopiedTables, say: file_transfer.Say, prove: Prove
) -> dict[int, list[str]]:
    """Return what `prove` returns. Where it fails, delete damaged files, so that the next call copies them again."""
    if not copied_tables.located:
        return {}
    try:
        return prove(home, new, say)
    except Exception as error:
        if isinstance(error, AltneuError) and not isinstance(error, CheckFailed):
            raise
        say("comparing the files")
        wrong = file_transfer.delete_different(copied_tables.files)
        if not wrong:
            raise
        raise CheckFailed(
            f"{len(wrong)} of {len(copied_tables.files):,} files of the copy differ from those of the home; the first "
            f"is {wrong[0]}. They are deleted.",
            REPEAT_COMMAND,
        ) from error


def _compare_copies(home: Home, new: Home, say: file_transfer.Say) -> dict[int, list[str]]:
    """Compare every table at every revision with its recorded fingerprints, or with those of the original.

    Returns:
        The tables that were compared at each revision.

    Raises:
        CheckFailed: A table of the copy, or of the home itself, differs.
    """
    from ..checking.fingerprint_check import compare_fingerprints
    from ..run import serving_tables
    from ..storage.session import session_for
    from ..storage.table_fingerprints import published_fingerprints
    from ..storage.warehouse import Warehouse

    say("proof")
    ledger = Ledger(new)
    spark = session_for(ledger)
    original, copy, proved = Warehouse(spark, home), Warehouse(spark, new), {}
    rows = [row for row in ledger.revisions.list_all() if row.snapshots and row.frontier is not None]
    for number, row in enumerate(rows):
        say(f"proof of revision {row.revision} ({number + 1} of {len(rows)})")
        recorded = ledger.outputs.fingerprints_of(row.revision)
        if set(row.collections) - set(recorded):
            recorded = {**published_fingerprints(original, row), **recorded}
        comparison = compare_fingerprints(copy, row, recorded)
        if comparison.differences:
            raise CheckFailed(
                f"the home itself does not hold what was published as revision {row.revision}: "
                f"{', '.join(each.table for each in comparison.differences)}.",
                "altneu audit --fingerprints; altneu repair; then move",
            )
        for table in set(row.snapshots) & set(SERVING_TABLES):
            if serving_tables.hash_sum(original.read_as_stored(table, row)) != serving_tables.hash_sum(
                copy.read_as_stored(table, row)
            ):
                raise CheckFailed(f"the copy of {table} at revision {row.revision} has other rows.", REPEAT_COMMAND)
        proved[row.revision] = comparison.compared
    return proved
