"""The folders of the landing that are as they were when the digest of their batch was stored, and so are not opened.

A row of `digests` with the path of a folder has the stamp of its list of files, and the digest of its batch. Its files
are those that have rows of their own, as long as their digests make that of the batch. So a listing of a long history
asks the file system once for each folder and once for each file. Whatever has changed since is opened as any other.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .batch_files import BatchFiles, LandedFile


class KnownFolder(NamedTuple):
    """A folder that need not be opened: its files, the digest of its batch, and the time of its last change."""

    files: tuple[LandedFile, ...]
    digest: str
    modified_at: float


class KnownFolders:
    """The folders of a landing on this machine, by the rows of `digests`: path → (stamp, digest)."""

    def __init__(self, rows: Mapping[str, tuple[str, str]]) -> None:
        self._rows = rows
        self._paths: dict[str, list[str]] = defaultdict(list)  # folder → the paths in it, in no order
        for path in rows:
            self._paths[path.rpartition("/")[0]].append(path)

    def recall(self, folder: str) -> KnownFolder | None:
        """Return a folder by its path; None: it has to be opened. Raise `FileNotFoundError` if something has gone."""
        if folder not in self._rows:
            return None
        (stamp, digest), stat = self._rows[folder], os.stat(folder)
        paths = sorted(self._paths[folder])
        if stamp_folder(stat) != stamp or combine_digests([self._rows[path][1] for path in paths]) != digest:
            return None
        changed, files = stat.st_mtime, []
        for path in paths:
            stat = os.stat(path)
            files.append(LandedFile.from_stat(path, path[len(folder) + 1 :], stat))
            changed = max(changed, stat.st_ctime)
            if files[-1].stamp != self._rows[path][0]:
                return None
        return KnownFolder(tuple(files), digest, changed)

    def list_changes(
        self, batches: Iterable[BatchFiles], digests: Mapping[int, str]
    ) -> tuple[dict[str, tuple[str, str]], list[str]]:
        """List the rows to add for opened folders, and the paths of files that are not in them any more.

        Args:
            batches: The complete batches of these folders.
            digests: Their digests, by epoch.
        """
        new: dict[str, tuple[str, str]] = {}
        gone: list[str] = []
        for batch in batches:
            if batch.files and batch.folder_stamp:
                folder, row = batch.files[0].location.rpartition("/")[0], (batch.folder_stamp, digests[batch.epoch])
                if self._rows.get(folder) != row:
                    new[folder] = row
                gone += {*self._paths[folder]} - {file.location for file in batch.files}
        return new, gone


def stamp_folder(stat: os.stat_result) -> str:
    """Return the stamp of a folder, which changes with the list of its files."""
    return f"{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_ino}"


def tag_digest(name: str, digest: str) -> str:
    """Return the digest of a file for that of its batch; for a file of a relation it says the relation, too."""
    relation, _, _ = name.rpartition("/")
    return f"{relation}:{digest}" if relation else digest


def combine_digests(digests: Iterable[str]) -> str:
    """Return the digest of a batch by those of its files, whose order does not count."""
    return hashlib.sha256(" ".join(sorted(digests)).encode()).hexdigest()
