"""Copy the landing of a home to that of another one, from a folder or an object store to either of them.

A complete batch is copied with its files, under the names that its rows carry, and then with the marker that says that
they are all. The files of an incomplete epoch are copied without a marker, so that it stays incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import AltneuError, Unavailable, UsageError
from ..home.home import Home
from ..state import file_transfer, filesystem
from ..state.ledger import Ledger
from .batch_files import COMPLETE, EMPTY, BatchFiles
from .local_landing import digest_batches, list_batches, seal_folder
from .object_store_landing import Manifest


@dataclass(frozen=True)
class CopiedBatches:
    """The result of a copy: the number of complete epochs, the labels of the incomplete ones, and the copied files."""

    epochs: int
    incomplete: list[str]
    copied: file_transfer.CopyResult


def copy_landing(source: Home, target: Home, say: file_transfer.Say) -> CopiedBatches:
    """Copy all batches of a home to another home, and return what was copied.

    Raises:
        Unavailable: A store does not answer.
        UsageError: There are files of relations, and the other landing is in an object store.
        AltneuError: The landing is being changed.
    """
    batches = list_batches(source)
    if target.landed_remotely and any(batch.relation_files for batch in batches.values()):
        raise UsageError("relations ([relations]) cannot land in an object store yet.", "a [landing] on a disk")
    existing = file_transfer.list_existing(target.landed_at)
    wanted = [
        file_transfer.CopyRequest(
            file.location, f"{_target_folder(target, batch)}/{file.name}", file.bytes, file.modified_at
        )
        for batch in batches.values()
        for file in batch.all_files
    ]
    named = {filesystem.normalize_location(file.target) for file in wanted}
    try:
        for location in existing:  # what an earlier attempt has copied and has been landed anew since
            if location not in named and not location.rpartition("/")[2].startswith("_"):
                filesystem.delete_file(location)
        copied = file_transfer.copy_files(wanted, existing, "landing", say)
        complete = [batch for batch in batches.values() if batch.incomplete is None]
        filesystem.map_parallel(lambda batch: _mark_complete(target, batch), complete)
    except OSError as error:
        raise Unavailable(
            f"{target.landed_at}: {filesystem.format_store_error(error)}",
            "altneu doctor; then type the same command again",
        ) from error
    incomplete = [batch.label for batch in batches.values() if batch.incomplete is not None]
    return CopiedBatches(len(complete), incomplete, copied)


def _target_folder(target: Home, batch: BatchFiles) -> str:
    return f"{target.landed_at}/epoch={batch.label}"


def _mark_complete(target: Home, batch: BatchFiles) -> None:
    """Write the marker that says that a batch is complete, after its files."""
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
    """Compare the digests of the copied batches with those of the original, and remember them in the new home.

    Raise `AltneuError` if a batch differs; its copy is deleted, so that it is copied again.

    Args:
        source: The original home, whose ledger is `former`.
        target: The new home, whose ledger is `ledger`.
    """
    ours, theirs = _list_complete_batches(source), _list_complete_batches(target)
    expected = digest_batches(former, ours.values(), remember=False)
    actual = digest_batches(ledger, theirs.values())
    wrong = [epoch for epoch in expected if actual.get(epoch) != expected[epoch]]
    for epoch in wrong:
        for file in theirs[epoch].all_files if epoch in theirs else ():
            filesystem.delete_file(file.location)
    if wrong or actual.keys() - expected.keys():
        which = ", ".join(ours[epoch].label for epoch in wrong[:3]) or "an epoch that was removed"
        raise AltneuError(
            f"the landing has changed while it was copied, or a file was damaged: {which}.",
            "type the same command again: what is copied and right is not copied again",
        )


def _list_complete_batches(home: Home) -> Mapping[int, BatchFiles]:
    return {epoch: batch for epoch, batch in list_batches(home).items() if batch.incomplete is None}
