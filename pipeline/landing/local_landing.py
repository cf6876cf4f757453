"""The landed batches: `landing/epoch=<label>/*.{csv,csv.gz,parquet,jsonl}`, one folder and one batch per epoch.

`list_batches` finds the folders, and `digest_batches` shows whether their content has changed (not their times). A
folder counts as landed when it holds a data file and is complete: a `_SUCCESS` in it is newer than everything else
(altneu and Spark write it last), or nothing in it has changed for `[ingest] settle` seconds. The file `_EMPTY` makes an
empty batch. A subfolder with the name of a declared relation has the files of that relation, which are a part of the
batch. `object_store_landing` says when a batch in an object store counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple
from weakref import WeakKeyDictionary

from ..errors import AltneuError, Unavailable
from ..home.home import Home
from ..state import clock, filesystem
from ..state.ledger import Ledger
from . import batch_files, object_store_landing
from .atomic_placement import list_interrupted
from .batch_files import COMPLETE, EMPTY, NO_SEAL, NOT_ASKED_FOR, SUFFIXES, BatchFiles, LandedFile
from .known_folders import KnownFolder, KnownFolders, combine_digests, stamp_folder, tag_digest

__all__ = ["COMPLETE", "EMPTY", "SUFFIXES", "BatchFiles", "LandedFile"]

OPERATIONS = ("upsert", "delete")
EMPTY_DIGEST = hashlib.sha256().hexdigest()
BYTES_PER_ROW = 20.0  # an estimate for as long as nothing is published
TICK = 0.1  # seconds by which the time of a folder may be later than that of its newest file
RECENT = timedelta(minutes=1)  # for so long a listing is good enough for the page of a run
YOUNG = 2, 300  # seconds in which a file may change within its stamp: here, and by an object store's clock


def list_batches(
    home: Home, epochs: Collection[int] | None = None, recall: Callable[[str], KnownFolder | None] = lambda folder: None
) -> dict[int, BatchFiles]:
    """Return the landed batches by epoch: all, or those of some epochs, of which alone the folders are opened.

    Args:
        home: The home.
        epochs: The epochs; None: all.
        recall: A function that returns a folder on this machine by its path, or None where it has to be opened.

    Raises:
        AltneuError: The name of a folder is not an epoch.
    """
    if home.landed_remotely:
        return object_store_landing.list_batches(home, epochs)
    if not home.landing.is_dir():
        return {}
    with os.scandir(home.landing) as entries:
        folders = {entry.name for entry in entries if entry.name.startswith("epoch=") and entry.is_dir()}
    disturbed, landing, settle = list_interrupted(home.landing), str(home.landing), home.config.ingest.settle
    batches = []
    for folder, epoch in batch_files.select_folders(home, folders | {f"epoch={each}" for each in disturbed}, epochs):
        label = folder.removeprefix("epoch=")
        if folder not in folders:
            batches.append(BatchFiles(epoch, label, (), incomplete=disturbed[label]))
            continue
        try:
            place = f"{landing}/{folder}"
            known = None if label in disturbed else recall(place)
            if known and batch_files.clock() - known.modified_at >= settle:
                read_seal = partial(_read_sealed_count, place, known.files)
                batches.append(BatchFiles(epoch, label, known.files, None, read_seal, known.digest))
            else:
                batches.append(_describe_folder(home, place, epoch, disturbed.get(label)))
        except FileNotFoundError:  # a land is replacing the folder
            batches.append(BatchFiles(epoch, label, (), incomplete="it is being replaced"))
    return batch_files.index_by_epoch(batches)


def _describe_folder(home: Home, folder: str, epoch: int, disturbed: str | None) -> BatchFiles:
    folder_status = os.stat(folder)  # before its names are read, so that a later name changes the stamp
    label, names = folder.rpartition("/epoch=")[2], os.listdir(folder)
    _refuse_unknown_folders(home, folder, names)
    relations = sorted(set(names) & set(home.config.relations))
    edge_names = [name for name in names if name not in relations]
    inner = {relation: os.listdir(f"{folder}/{relation}") for relation in relations}
    files = _stat_files(home, folder, edge_names)
    parts = [_stat_files(home, folder, inner[relation], f"{relation}/") for relation in relations]
    others = tuple(chain.from_iterable(parts))
    every = (*files, *others)
    read_seal = partial(_read_sealed_count, folder, every) if COMPLETE in names and every else NO_SEAL
    written = [*edge_names, *(name for each in inner.values() for name in each)]
    why = disturbed or batch_files.explain_unfinished(home, epoch, written)
    if why is None:
        unexpected = None if every or EMPTY in names else NOT_ASKED_FOR
        folders = [folder_status, *(os.stat(f"{folder}/{relation}") for relation in relations)]
        why = _explain_unsettled(home, folder, folders, every, read_seal) if every else unexpected
    is_old = time.time() - folder_status.st_mtime > YOUNG[0] and not relations
    stamp = stamp_folder(folder_status) if is_old else ""
    return BatchFiles(epoch, label, files, why, read_seal, folder_stamp=stamp, relation_files=others)


def _stat_files(home: Home, folder: str, names: Iterable[str], prefix: str = "") -> tuple[LandedFile, ...]:
    """Describe the data files among some names; those of a relation are in the subfolder `prefix`."""
    place = f"epoch={folder.rpartition('/epoch=')[2]}/{prefix}".rstrip("/")
    return tuple(
        LandedFile.from_stat(f"{folder}/{prefix}{name}", f"{prefix}{name}", os.stat(f"{folder}/{prefix}{name}"))
        for name in batch_files.iterate_data_names(home, place, names)
    )


def _refuse_unknown_folders(home: Home, folder: str, names: Iterable[str]) -> None:
    """Raise `AltneuError` for a subfolder that is no declared relation's."""
    for name in names:
        is_plain = name.startswith((".", "_")) or name.endswith(SUFFIXES) or name in home.config.relations
        if not is_plain and os.path.isdir(f"{folder}/{name}"):
            raise AltneuError(
                f"{folder}/{name} has the files of a relation {name}, which altneu.toml does not declare.",
                f"declare it under [relations], or remove {folder}/{name}",
            )


def _explain_unsettled(
    home: Home,
    folder: str,
    folders: Sequence[os.stat_result],
    files: Sequence[LandedFile],
    read_seal: Callable[[], int | None],
) -> str | None:
    """Explain why the files may not be whole yet, or return None; `folders` are those that they are in.

    It looks at ctime, because copying tools set mtime back.
    """
    changes = {file.name: file.modified_at for file in files}
    changes["its list of files"] = max(at.st_mtime for at in folders)
    if read_seal is not NO_SEAL:
        complete = os.stat(f"{folder}/{COMPLETE}").st_ctime
        if changes["its list of files"] <= complete + TICK:
            changes["its list of files"] = complete
        if complete >= max(changes.values()):
            return None
    last = max(changes, key=lambda name: changes[name])
    age, settle = max(batch_files.clock() - changes[last], 0), home.config.ingest.settle
    if age >= settle or read_seal() is not None:
        return None
    return (
        f"still being written: {last} changed {age:.0f} s ago; it counts as landed {settle:g} s after its last change, "
        f"or at once with a new file {COMPLETE} next to it"
    )


def seal_folder(folder: Path, rows: int) -> None:
    """Mark a folder as complete, after everything else is written into it."""
    if not rows:
        (folder / EMPTY).touch()
    files = [path for path in (*folder.glob("[!._]*"), *folder.glob("[!._]*/[!._]*")) if path.is_file()]
    stamps = {str(file.relative_to(folder)): _format_stamp(LandedFile.from_path(file)) for file in files}
    (folder / COMPLETE).write_text(json.dumps({"rows": rows, "files": stamps}) + "\n")


def _format_stamp(file: LandedFile) -> str:
    """Return the size and the time of a file, which stay when a folder is copied with its times."""
    return ":".join(file.stamp.split(":")[:2])


def _read_sealed_count(folder: str, files: Iterable[LandedFile]) -> int | None:
    """Return how many rows the files hold, if they are the files that the folder was sealed with."""
    try:
        seal = json.loads(Path(folder, COMPLETE).read_text())
        return int(seal["rows"]) if seal["files"] == {file.name: _format_stamp(file) for file in files} else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def count_batch_rows(batch: BatchFiles) -> int:
    """Return how many rows a batch holds: the number of its seal, or else the counted lines of its files.

    For a broken file, which a run will name, the number is estimated from its size.
    """
    return batch.sealed if batch.sealed is not None else sum(map(_count_file_rows, batch.files))


def _count_file_rows(file: LandedFile) -> int:
    try:
        return _count_lines(file)
    except (OSError, EOFError, zlib.error, ValueError):  # Arrow's errors about a broken file are ValueErrors
        return round(file.bytes / BYTES_PER_ROW)


def _count_lines(file: LandedFile) -> int:
    if file.name.endswith(".parquet"):
        import pyarrow.parquet as pq

        with filesystem.open_random_access(file.location) as stream:
            return int(pq.ParquetFile(stream).metadata.num_rows)
    from .file_reader import open_stream

    with open_stream(file.location) as stream:
        lines = sum(1 for line in stream if line.strip())
    return max(lines - (".csv" in Path(file.name).suffixes), 0)


class Listing(NamedTuple):
    """The landed batches, the digests of the complete ones, by epoch, and when they were listed."""

    batches: dict[int, BatchFiles]
    digests: dict[int, str]
    listed_at: datetime


_newest_listings: WeakKeyDictionary[Ledger, Listing] = WeakKeyDictionary()


def recall_listing(ledger: Ledger) -> Listing | None:
    """Return the newest listing by a ledger, if it is younger than `RECENT`: a short run need not list again at its
    end."""
    listing = _newest_listings.get(ledger)
    return listing if listing and clock.read_clock() - listing.listed_at < RECENT else None


def read_landing(ledger: Ledger) -> Listing:
    """Return the landed batches, and the digests of the complete ones, by epoch.

    A folder is opened only if it may have changed since its digest was stored, which happens here.
    """
    home = ledger.home
    listed_at = clock.read_clock()
    known = None if home.landed_remotely else KnownFolders(ledger.digests.read())
    batches = list_batches(home, recall=known.recall) if known else list_batches(home)
    whole = [batch for batch in batches.values() if batch.incomplete is None]
    digests = digest_batches(ledger, whole)
    if known:
        ledger.digests.put(*known.list_changes([batch for batch in whole if batch.digest is None], digests))
    _newest_listings[ledger] = Listing(batches, digests, listed_at)
    return _newest_listings[ledger]


def digest_batches(ledger: Ledger, batches: Iterable[BatchFiles], *, remember: bool = True) -> dict[int, str]:
    """Return the digest of each batch's content by epoch; the names of the files do not count.

    Args:
        ledger: The ledger.
        batches: The batches.
        remember: Store new digests in the ledger.

    Raises:
        Unavailable: An object store does not answer.
    """
    batches = list(batches)
    listed = [file for batch in batches if batch.digest is None for file in batch.all_files]
    digests = digest_files(ledger, listed, remember=remember)
    return {batch.epoch: batch.digest or _digest_batch(batch, digests) for batch in batches}


def _digest_batch(batch: BatchFiles, digests: Mapping[LandedFile, str]) -> str:
    own = [tag_digest(file.name, digests[file]) for file in batch.all_files]
    return combine_digests(own) if own else EMPTY_DIGEST


def digest_files(ledger: Ledger, listed: list[LandedFile], *, remember: bool = True) -> dict[LandedFile, str]:
    """Return the digest of each file's content.

    A file whose stamp is unchanged is not read again. Nor is a young object, which may have changed within its stamp:
    the store is asked for its ETag. The parameters and errors are those of `digest_batches`.
    """
    known = ledger.digests.read([file.location for file in listed])
    digests = {file: known[file.location][1] for file in listed if known.get(file.location, ("",))[0] == file.stamp}
    new: dict[str, tuple[str, str]] = {}

    def digest_file(file: LandedFile) -> str:
        before = known.get(file.location)
        remote = filesystem.local_path(file.location) is None
        tag = filesystem.get_etag(file.location) if remote else ""
        exact = f"{file.stamp}:{tag}"
        digest = before[1] if before and tag and before[0] == exact else None
        if digest is None:
            try:
                with filesystem.open_stream(file.location) as stream:
                    digest = _hash_stream(stream)
            except OSError as error:
                if remote or isinstance(error, FileNotFoundError):
                    raise
                return hashlib.sha256(
                    f"unreadable {file.stamp}".encode()
                ).hexdigest()  # a run names the file and the reason
        if time.time() - file.modified_at > YOUNG[remote]:
            new[file.location] = file.stamp, digest
        elif tag:
            new[file.location] = exact, digest
        return digest

    unknown = [file for file in listed if file not in digests]
    try:
        digests |= zip(unknown, filesystem.map_parallel(digest_file, unknown), strict=True)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or any(filesystem.local_path(file.location) for file in unknown):
            raise
        raise Unavailable(f"the landing cannot be read: {error}", "altneu doctor") from error
    if remember:
        ledger.digests.put(new)
    return digests


def _hash_stream(stream: IO[bytes]) -> str:
    sums = hashlib.sha256()
    while block := stream.read(1 << 20):
        sums.update(block)
    return sums.hexdigest()


def is_unchanged(ledger: Ledger, batches: Iterable[BatchFiles], digests: dict[int, str]) -> bool:
    """Tell whether the files are as they were when they had these digests."""

    def restat_file(file: LandedFile) -> LandedFile:
        path = filesystem.local_path(file.location)
        return object_store_landing.restat_file(file) if path is None else LandedFile.from_path(path)

    def restat_relation_file(file: LandedFile) -> LandedFile:
        return replace(restat_file(file), name=file.name)

    try:
        fresh = [
            replace(
                batch,
                digest=None,
                files=tuple(filesystem.map_parallel(restat_file, batch.files)),
                relation_files=tuple(map(restat_relation_file, batch.relation_files)),
            )
            for batch in batches
        ]
        return digest_batches(ledger, fresh, remember=False) == digests
    except FileNotFoundError:
        return False
