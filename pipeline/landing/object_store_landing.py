"""A landing in an object store: when its files are a batch, and how `altneu land` puts batches there.

An object store has no folder that could be renamed, so a batch appears by one small object that is written last: the
`_SUCCESS` of its epoch. If `altneu land` has written it, it is a manifest: `{"rows": …, "files": {name: bytes},
"replaces": {name: stamp}}`, and the batch consists of the files that it names, whole. A new land uploads files under
names of its own (`land-<id>-…`), which do not count until a manifest names them, and then replaces the manifest: a
reader sees the old batch or the new one. The files of the former batch are deleted afterwards; until then the manifest
names them, too.

Files from elsewhere are a batch when a `_SUCCESS` is there that is not older than they are. Without one it cannot be
known whether more is coming (a large file appears only when its upload ends): they count only if `[ingest] settle` is
set, that number of seconds after the last change.

Several epochs appear together by a journal, `_work/<id>.json`: while it exists no run reads its epochs; the next
`altneu land` undoes what an interrupted one has left.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import AltneuError, Unavailable
from ..home.home import Home
from ..home.settings_file import read_text, write_text
from ..state import filesystem
from . import batch_files
from .atomic_placement import JOURNAL, WORK, undo_moves
from .batch_files import COMPLETE, EMPTY, NOT_ASKED_FOR, BatchFiles, LandedFile

DRAFT = re.compile(r"land-[0-9a-f]{12}-")
ALIVE = 15 * 60  # seconds for which the land of another machine's journal may still be alive; placing takes seconds
REMAINS_AFTER_SECONDS = 24 * 3600  # seconds after which files that no manifest names are the remains of a killed land
FolderObjects = dict[str, filesystem.FileEntry]  # name in an epoch's folder → the object


@dataclass(frozen=True)
class Manifest:
    """The content of a `_SUCCESS`: the files of the batch with their bytes, the number of rows, and which files they
    replace."""

    rows: int
    files: dict[str, int]
    replaces: dict[str, str]

    @classmethod
    def parse(cls, content: bytes) -> Manifest | None:
        """Parse the content of a `_SUCCESS`; return None if it names no files, as that of another program.

        The seal of a folder that was copied is a manifest, too.
        """
        try:
            fields = json.loads(content)
            sizes = {str(name): int(str(size).split(":")[0]) for name, size in fields["files"].items()}
            return cls(int(fields["rows"]), sizes, dict(fields.get("replaces", {})))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def to_bytes(self) -> bytes:
        return (json.dumps({"rows": self.rows, "files": self.files, "replaces": self.replaces}) + "\n").encode()


def strip_row_prefix(name: str) -> str:
    """Return a file's name without the prefix of `altneu land`, as its rows carry it: it stays when the batch is landed
    again.

    >>> strip_row_prefix("land-0123456789ab-000-messages.csv"), strip_row_prefix("part-0.csv")
    ('000-messages.csv', 'part-0.csv')
    """
    return DRAFT.sub("", name, count=1)


class ObjectStoreListing:
    """A landing as one listing has shown it: all of it, or the folders of some epochs.

    It raises `Unavailable` if the store does not answer.
    """

    def __init__(self, home: Home, epochs: Collection[int] | None = None) -> None:
        self.home, self.base, self.epochs = home, home.landed_at, epochs
        with name_setting_on_error(home):
            self.folders: dict[str, FolderObjects] = {}
            journals = []
            for path, info in filesystem.list_files(self.base).items():
                folder, _, name = path.partition("/")
                if folder.startswith("epoch=") and name:
                    self.folders.setdefault(folder, {})[name] = info
                elif folder == WORK and name.endswith(".json"):
                    journals.append(name)
            self.journals = {
                name: journal for name in journals if (journal := _read_json(f"{self.base}/{WORK}/{name}"))
            }
            wanted = [folder for folder, _ in batch_files.select_folders(home, self.folders, epochs)]
            marked = [
                folder for folder in wanted if COMPLETE in self.folders[folder] and self.folders[folder][COMPLETE].bytes
            ]
            texts = filesystem.map_parallel(lambda folder: _read_content(f"{self.base}/{folder}/{COMPLETE}"), marked)
            self.manifests = {
                folder: manifest
                for folder, text in zip(marked, texts, strict=True)
                if (manifest := Manifest.parse(text))
            }

    def list_batches(self) -> dict[int, BatchFiles]:
        disturbed = dict.fromkeys(
            (label for journal in self.journals.values() for label in journal["before"]),
            "altneu land is placing it now, or was interrupted; if so, type it again",
        )
        folders = self.folders.keys() | {f"epoch={label}" for label in disturbed}
        return batch_files.index_by_epoch(
            self._describe_batch(folder, epoch, disturbed.get(folder.removeprefix("epoch=")))
            for folder, epoch in batch_files.select_folders(self.home, folders, self.epochs)
        )

    def _describe_batch(self, folder: str, epoch: int, disturbed: str | None) -> BatchFiles:
        objects, label = self.folders.get(folder, {}), folder.removeprefix("epoch=")
        names = self.list_batch_names(folder)
        files = [self._describe_file(folder, name) for name in names]
        manifest = self.manifests.get(folder)
        sealed = manifest.rows if manifest and set(names) <= set(manifest.files) else None
        why = (
            disturbed
            or batch_files.explain_unfinished(self.home, epoch, objects)
            or self._explain_unsettled(folder, files, sealed)
        )
        return BatchFiles(epoch, label, tuple(sorted(files, key=lambda file: file.name)), why, lambda: sealed)

    def list_batch_names(self, folder: str) -> list[str]:
        """Return the names of the files of a batch: those that its manifest names, and those that came from elsewhere
        after it."""
        manifest, objects = self.manifests.get(folder), self.folders.get(folder, {})
        data = list(batch_files.iterate_data_names(self.home, folder, objects))
        if manifest is None:
            return [name for name in data if not DRAFT.match(name)]
        replaced = {name for name in data if manifest.replaces.get(name) == objects[name].stamp}
        return [name for name in data if name in manifest.files or not (name in replaced or DRAFT.match(name))]

    def _describe_file(self, folder: str, name: str) -> LandedFile:
        entry = self.folders[folder][name]
        return LandedFile(
            f"{self.base}/{folder}/{name}", strip_row_prefix(name), entry.bytes, entry.modified_at, entry.stamp
        )

    def _explain_unsettled(self, folder: str, files: list[LandedFile], sealed: int | None) -> str | None:
        """Explain why the files may not be all of the batch, or return None."""
        objects, manifest = self.folders.get(folder, {}), self.manifests.get(folder)
        for name, size in manifest.files.items() if manifest else ():
            if name not in objects or objects[name].bytes != size:
                return f"{name}, which its {COMPLETE} names, does not exist with the {size:,} bytes that it should have"
        if sealed is not None:
            return None if files or not sealed else NOT_ASKED_FOR
        if not files:
            if any(DRAFT.match(name) for name in objects):
                return f"an altneu land has not finished it: no {COMPLETE} names its files"
            return None if EMPTY in objects else NOT_ASKED_FOR
        last = max(
            (file for file in files if manifest is None or file.location.rpartition("/")[2] not in manifest.files),
            key=lambda file: file.modified_at,
        )
        mark = objects.get(COMPLETE)
        if mark is not None and manifest is None and mark.modified_at >= last.modified_at:
            return None
        ingest = self.home.config.ingest
        if "settle" in ingest.model_fields_set and batch_files.clock() - last.modified_at >= ingest.settle:
            return None
        return (
            f"no {COMPLETE} says that {last.name} is the last of its files; it counts as landed with a new one next to "
            "it, or by [ingest] settle"
        )


def list_batches(home: Home, epochs: Collection[int] | None = None) -> dict[int, BatchFiles]:
    """Return the landed batches by epoch: all, or those of some epochs, of which alone the manifests are read.

    Raise `AltneuError` if a folder is wrong or the store does not answer.
    """
    return ObjectStoreListing(home, epochs).list_batches()


def restat_file(file: LandedFile) -> LandedFile:
    """Return the description of a file as it is now. Raise `OSError` if it cannot be read."""
    entry = filesystem.stat_file(file.location)
    return LandedFile(file.location, file.name, entry.bytes, entry.modified_at, entry.stamp)


@contextlib.contextmanager
def name_setting_on_error(home: Home) -> Iterator[None]:
    """Run the block, and turn an error of the store into `Unavailable` that names the setting."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"[landing] uri = {home.landed_at}: {filesystem.format_store_error(error)}", "altneu doctor"
        ) from error


def _read_content(location: str) -> bytes:
    try:
        return filesystem.read_file(location)
    except FileNotFoundError:  # a land is replacing it
        return b""


def _read_json(location: str) -> dict[str, Any] | None:
    content = _read_content(location)
    return dict(json.loads(content)) if content else None


# -- landing ------------------------------------------------------------------------------------------------------


def place_batches(home: Home, new: Path, labels: dict[str, int], settings: str | None, *, append: bool) -> None:
    """Put the files of `new/<label>/` into the landing as the batches of these epochs, and write the settings.

    After an error everything is as before, and after a kill the next land restores it. Call it with the `landing_lock`
    of this machine held. If two machines place at once, one batch wins for each epoch, whole.

    Args:
        new: The private folder with the new files.
        labels: The label of each epoch → the number of its rows.
        settings: The new text of `altneu.toml`, or None to leave it.
        append: Keep the files of the former batches.

    Raises:
        Unavailable: The store does not answer.
    """
    token = new.parent.name
    with name_setting_on_error(home):
        listing = ObjectStoreListing(home)
        manifests = {
            label: _build_manifest(listing, new / label, rows, token, append=append) for label, rows in labels.items()
        }
        sent = [
            (file, f"{home.landed_at}/epoch={label}/land-{token}-{name}")
            for label in labels
            for file, name in _choose_names(listing, new / label, append=append)
        ]
        filesystem.map_parallel(lambda pair: filesystem.upload_file(*pair), sent)
        file, local_journal = home.path / "altneu.toml", new.parent / JOURNAL
        if settings is not None:  # the settings may hold a password, so their journal stays on this machine
            texts = {"before": read_text(file) if file.exists() else None, "after": settings}
            write_text(local_journal, json.dumps({"labels": [], "moves": []} | texts))
        former = {label: _read_former_marker(listing, label) for label in labels}
        journal = {"host": socket.gethostname(), "home": str(home.path), "before": former}
        location = f"{home.landed_at}/{WORK}/{token}.json"
        filesystem.write_file(location, json.dumps(journal).encode())
        try:
            filesystem.map_parallel(
                lambda label: filesystem.write_file(
                    f"{home.landed_at}/epoch={label}/{COMPLETE}", manifests[label].to_bytes()
                ),
                labels,
            )
            if settings is not None:
                write_text(file, settings)
            filesystem.delete_file(location)
            local_journal.unlink(missing_ok=True)
        except BaseException as error:
            try:
                _undo_journal(home, location, journal)
            except OSError as second:
                raise Unavailable(
                    f"[landing] uri = {home.landed_at}: the new batches could not be placed ({error}), nor could "
                    f"the old ones be put back ({second}). No run reads these epochs.",
                    "altneu doctor; then type the same command again: it first restores the old batches",
                ) from error
            raise
    with contextlib.suppress(OSError):  # these files do not count any more
        filesystem.map_parallel(filesystem.delete_file, _list_superfluous(listing, manifests))


def _choose_names(listing: ObjectStoreListing, folder: Path, *, append: bool) -> list[tuple[Path, str]]:
    """Return the new files of an epoch, with names that no file of its batch has."""
    label = f"epoch={folder.name}"
    taken = {strip_row_prefix(name) for name in listing.list_batch_names(label)} if append else set()
    chosen = []
    for file in sorted(path for path in folder.iterdir() if not path.name.startswith("_")):
        name, rest, number = file.name, file.name.split("-", 1)[-1], 0
        while name in taken:
            number += 1
            name = f"{number:03d}-{rest}"
        taken.add(name)
        chosen.append((file, name))
    return chosen


def _build_manifest(listing: ObjectStoreListing, folder: Path, rows: int, token: str, *, append: bool) -> Manifest:
    label = f"epoch={folder.name}"
    old = listing.folders.get(label, {})
    kept = listing.list_batch_names(label) if append else []
    named = {
        f"land-{token}-{name}": file.stat().st_size for file, name in _choose_names(listing, folder, append=append)
    }
    replaces = {
        name: old[name].stamp for name in batch_files.iterate_data_names(listing.home, label, old) if name not in kept
    }
    return Manifest(rows, {name: old[name].bytes for name in kept} | named, replaces)


def _read_former_marker(listing: ObjectStoreListing, label: str) -> str | None:
    """Return the text of an epoch's marker, or None if it has none."""
    folder = f"epoch={label}"
    if COMPLETE not in listing.folders.get(folder, {}):
        return None
    return _read_content(f"{listing.base}/{folder}/{COMPLETE}").decode("utf-8", "replace")


def _list_superfluous(listing: ObjectStoreListing, manifests: dict[str, Manifest]) -> Iterator[str]:
    """Yield the locations of files that a land makes superfluous: the former batch, and the remains of killed lands."""
    for label, manifest in manifests.items():
        folder = f"epoch={label}"
        known = listing.list_batch_names(folder)
        for name in manifest.replaces:
            left = batch_files.clock() - listing.folders[folder][name].modified_at > REMAINS_AFTER_SECONDS
            if name in known or left:
                yield f"{listing.base}/{folder}/{name}"


def recover_landing(home: Home) -> list[str]:
    """Undo what killed lands have left half placed, and return the labels of their epochs.

    Call it with the `landing_lock` of this machine held, so that no other process of this machine is placing. Raise
    `AltneuError` if another machine may be placing now.
    """
    undone: list[str] = []
    with name_setting_on_error(home):
        entries = filesystem.list_files(f"{home.landed_at}/{WORK}")
        for local_journal in home.landing.glob(f"{WORK}/*/{JOURNAL}"):
            if (
                f"{local_journal.parent.name}.json" not in entries
            ):  # the land was killed before it placed anything, or after it was done
                local_journal.unlink()
        for name, entry in entries.items():
            location = f"{home.landed_at}/{WORK}/{name}"
            journal = _read_json(location) if name.endswith(".json") else None
            if journal is None:
                continue
            is_own = journal["host"] == socket.gethostname() and journal["home"] == str(home.path)
            age = batch_files.clock() - entry.modified_at
            if not is_own and age < ALIVE:
                raise AltneuError(
                    f"another altneu land, of {journal['home']} on {journal['host']}, is placing "
                    f"{len(journal['before'])} epoch(s) in {home.landed_at}, or was interrupted {age:.0f} s ago. "
                    "Nothing was landed.",
                    f"type the same command again; an interrupted land is undone after {ALIVE // 60} minutes",
                )
            _undo_journal(home, location, journal)
            undone += journal["before"]
    return undone


def _undo_journal(home: Home, location: str, journal: dict[str, Any]) -> None:
    """Put back the markers of a journal, and the settings; then remove the journal.

    The files that it has uploaded do not count then.
    """
    for label, text in journal["before"].items():
        marker = f"{home.landed_at}/epoch={label}/{COMPLETE}"
        if text is None:
            filesystem.delete_file(marker)
        else:
            filesystem.write_file(marker, text.encode())
    undo_moves(home.landing, home.landing / WORK / location.rpartition("/")[2].removesuffix(".json"))  # the settings
    filesystem.delete_file(location)
