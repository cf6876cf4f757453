"""The landed batches: `landing/epoch=<label>/*.{csv,csv.gz,parquet,jsonl}`, one folder and one batch per epoch.

`list_batches` finds the folders, and `digest_batches` shows whether their content has changed (not their times). A
folder counts as landed when it holds a data file and is complete: a `_SUCCESS` in it is newer than everything else
(altneu and Spark write it last), or nothing in it has changed for `[ingest] settle` seconds. The file `_EMPTY` makes an
empty batch. `object_store_landing` says when a batch in an object store counts.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO

from ..errors import Unavailable
from ..home.home import Home
from ..state import filesystem
from ..state.ledger import Ledger
from . import batch_files, object_store_landing
from .atomic_placement import list_interrupted
from .batch_files import COMPLETE, EMPTY, NOT_ASKED_FOR, SUFFIXES, BatchFiles, LandedFile

__all__ = ["COMPLETE", "EMPTY", "SUFFIXES", "BatchFiles", "LandedFile"]

OPERATIONS = ("upsert", "delete")
EMPTY_DIGEST = hashlib.sha256().hexdigest()
BYTES_PER_ROW = 20.0  # an estimate for as long as nothing is published
TICK = 0.1  # seconds by which the time of a folder may be later than that of its newest file
YOUNG = 2, 300  # seconds in which a file may change within its stamp: here, and by an object store's clock


def list_batches(home: Home) -> dict[int, BatchFiles]:
    """Return the landed batches by epoch. Raise `AltneuError` for a folder whose name is not an epoch."""
    if home.landed_remotely:
        return object_store_landing.list_batches(home)
    if not home.landing.is_dir():
        return {}
    batches = []
    disturbed = list_interrupted(home.landing)
    for folder in sorted(home.landing.iterdir()):
        if not folder.is_dir() or not folder.name.startswith("epoch="):
            continue
        label = folder.name.removeprefix("epoch=")
        epoch = batch_files.parse_epoch_folder(home, folder.name)
        try:
            batches.append(_describe_folder(home, folder, epoch, disturbed.pop(label, None)))
        except FileNotFoundError:  # a land is replacing the folder
            batches.append(BatchFiles(epoch, label, (), incomplete="it is being replaced"))
    for label, reason in disturbed.items():
        batches.append(BatchFiles(batch_files.parse_epoch_folder(home, f"epoch={label}"), label, (), incomplete=reason))
    return batch_files.index_by_epoch(batches)


def _describe_folder(home: Home, folder: Path, epoch: int, disturbed: str | None) -> BatchFiles:
    names = [file.name for file in folder.iterdir()]
    files = [LandedFile.from_path(folder / name) for name in batch_files.iterate_data_names(home, folder.name, names)]
    sealed = _read_sealed_count(folder, files) if files else 0
    why = disturbed or batch_files.explain_unfinished(home, epoch, names)
    why = why or (_explain_unsettled(home, folder, files, sealed) if files else _explain_unexpected(folder))
    return BatchFiles(epoch, folder.name.removeprefix("epoch="), tuple(files), why, sealed)


def _explain_unsettled(home: Home, folder: Path, files: list[LandedFile], sealed: int | None) -> str | None:
    """Explain why the files may not be whole yet, or return None.

    It looks at ctime, because copying tools set mtime back.
    """
    changes = {file.name: Path(file.location).stat().st_ctime for file in files}
    changes["its list of files"] = folder.stat().st_mtime
    if (folder / COMPLETE).exists():
        complete = (folder / COMPLETE).stat().st_ctime
        if changes["its list of files"] <= complete + TICK:
            changes["its list of files"] = complete
        if sealed is not None or complete >= max(changes.values()):
            return None
    last = max(changes, key=lambda name: changes[name])
    age, settle = max(batch_files.clock() - changes[last], 0), home.config.ingest.settle
    if age >= settle:
        return None
    return (
        f"still being written: {last} changed {age:.0f} s ago; it counts as landed {settle:g} s after its last change, "
        f"or at once with a new file {COMPLETE} next to it"
    )


def _explain_unexpected(folder: Path) -> str | None:
    return None if (folder / EMPTY).exists() else NOT_ASKED_FOR


def seal_folder(folder: Path, rows: int) -> None:
    """Mark a folder as complete, after everything else is written into it."""
    if not rows:
        (folder / EMPTY).touch()
    stamps = {
        file.name: _format_stamp(LandedFile.from_path(file))
        for file in folder.iterdir()
        if not file.name.startswith((".", "_"))
    }
    (folder / COMPLETE).write_text(json.dumps({"rows": rows, "files": stamps}) + "\n")


def _format_stamp(file: LandedFile) -> str:
    """Return the size and the time of a file, which stay when a folder is copied with its times."""
    return ":".join(file.stamp.split(":")[:2])


def _read_sealed_count(folder: Path, files: Iterable[LandedFile]) -> int | None:
    """Return how many rows the files hold, if they are the files that the folder was sealed with."""
    try:
        seal = json.loads((folder / COMPLETE).read_text())
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


def digest_batches(ledger: Ledger, batches: Iterable[BatchFiles], *, remember: bool = True) -> dict[int, str]:
    """Return the digest of each batch's content by epoch; the names of the files do not count.

    A file whose stamp is unchanged is not read again. Nor is a young object, which may have changed within its stamp:
    the store is asked for its ETag.

    Args:
        remember: Store new digests in the ledger.

    Raises:
        Unavailable: An object store does not answer.
    """
    batches = list(batches)
    known = ledger.digests.read_all()
    new: dict[str, tuple[str, str]] = {}

    def digest_file(file: LandedFile) -> str:
        before = known.get(file.location)
        if before and before[0] == file.stamp:
            return before[1]
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
        if time.time() - file.changed > YOUNG[remote]:
            new[file.location] = file.stamp, digest
        elif tag:
            new[file.location] = exact, digest
        return digest

    listed = [file for batch in batches for file in batch.files]
    try:
        digests = dict(zip(listed, filesystem.map_parallel(digest_file, listed), strict=True))
    except OSError as error:
        if isinstance(error, FileNotFoundError) or any(filesystem.local_path(file.location) for file in listed):
            raise
        raise Unavailable(f"the landing cannot be read: {error}", "altneu doctor") from error
    if remember:
        ledger.digests.put(new)
    return {
        batch.epoch: hashlib.sha256(" ".join(sorted(digests[file] for file in batch.files)).encode()).hexdigest()
        if batch.files
        else EMPTY_DIGEST
        for batch in batches
    }


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

    try:
        fresh = [replace(batch, files=tuple(filesystem.map_parallel(restat_file, batch.files))) for batch in batches]
        return digest_batches(ledger, fresh, remember=False) == digests
    except FileNotFoundError:
        return False
