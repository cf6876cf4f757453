"""The landing of a home, copied to that of another one: folder or object store, from either to either.

Batches are copied as they count: their files under the names that their rows are told by, then the marker that says
that they are all. Of an epoch that is not complete the files come along without one, so that it stays incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import AltneuError, Unavailable
from ..home.home import Home
from ..state import file_transfer, filesystem
from ..state.ledger import Ledger
from .batch_files import COMPLETE, EMPTY, BatchFiles
from .local_landing import digest_batches, list_batches, seal_folder
from .object_store_landing import Manifest


@dataclass(frozen=True)
class CopiedBatches:
    """epochs: how many are copied; incomplete: the labels of those that are no batch yet."""

    epochs: int
    incomplete: list[str]
    copied: file_transfer.CopyResult


def copy_landing(source: Home, target: Home, say: file_transfer.Say) -> CopiedBatches:
    """Raises `Unavailable`, and `AltneuError` where the landing is being changed."""
    batches = list_batches(source)
    there = file_transfer.list_existing(target.landed_at)
    wanted = [
        file_transfer.CopyRequest(
            file.location, f"{_target_folder(target, batch)}/{file.name}", file.bytes, file.changed
        )
        for batch in batches.values()
        for file in batch.files
    ]
    named = {filesystem.normalize_location(file.target) for file in wanted}
    try:
        for location in there:  # of an earlier attempt, since landed anew
            if location not in named and not location.rpartition("/")[2].startswith("_"):
                filesystem.delete_file(location)
        copied = file_transfer.copy_files(wanted, there, "landing", say)
        complete = [batch for batch in batches.values() if batch.incomplete is None]
        filesystem.map_parallel(lambda batch: _mark_complete(target, batch), complete)
    except OSError as error:
        raise Unavailable(
            f"{target.landed_at}: {filesystem.format_store_error(error)}", "altneu doctor; then the same command"
        ) from error
    incomplete = [batch.label for batch in batches.values() if batch.incomplete is not None]
    return CopiedBatches(len(complete), incomplete, copied)


def _target_folder(target: Home, batch: BatchFiles) -> str:
    return f"{target.landed_at}/epoch={batch.label}"


def _mark_complete(target: Home, batch: BatchFiles) -> None:
    """Write what says that a batch is complete, last."""
    folder = _target_folder(target, batch)
    if not batch.files:
        filesystem.write_file(f"{folder}/{EMPTY}", b"")
    if batch.sealed is None:
        filesystem.write_file(f"{folder}/{COMPLETE}", b"")
    elif target.landed_remotely:
        sizes = {file.name: file.bytes for file in batch.files}
        filesystem.write_file(f"{folder}/{COMPLETE}", Manifest(batch.sealed, sizes, {}).to_bytes())
    else:
        seal_folder(Path(folder), batch.sealed)


def verify_copy(source: Home, target: Home, former: Ledger, ledger: Ledger) -> None:
    """Raise `AltneuError` where a batch is not what it was; what differs is deleted, so that it is copied again. The
    digests are remembered by the new home."""
    ours, theirs = _list_complete_batches(source), _list_complete_batches(target)
    expected = digest_batches(former, ours.values(), remember=False)
    found = digest_batches(ledger, theirs.values())
    wrong = [epoch for epoch in expected if found.get(epoch) != expected[epoch]]
    for epoch in wrong:
        for file in theirs[epoch].files if epoch in theirs else ():
            filesystem.delete_file(file.location)
    if wrong or found.keys() - expected.keys():
        which = ", ".join(ours[epoch].label for epoch in wrong[:3]) or "an epoch that was removed"
        raise AltneuError(
            f"the landing has changed while it was copied, or a file broke: {which}.",
            "the same command again: what is copied and right is not copied again",
        )


def _list_complete_batches(home: Home) -> Mapping[int, BatchFiles]:
    return {epoch: batch for epoch, batch in list_batches(home).items() if batch.incomplete is None}
