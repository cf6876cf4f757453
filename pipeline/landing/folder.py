"""What is landed: `landing/epoch=<label>/*.{csv,csv.gz,parquet,jsonl}`, one folder an epoch, one batch a folder.

`listing` finds the folders, `digest` says whether their content changed (not their times).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..config import Home
from ..errors import AltneuError, UsageError
from ..ledger import Ledger
from ..reading import Layout

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".jsonl", ".jsonl.gz")
OPERATIONS = ("upsert", "delete")
EMPTY_DIGEST = hashlib.sha256().hexdigest()
BYTES_PER_ROW = 20.0  # about, before anything was published


@dataclass(frozen=True)
class Landed:
    """The files of one epoch's folder."""

    epoch: int
    label: str
    files: tuple[Path, ...]
    bytes: int = 0

    def newest(self) -> datetime:
        """When the youngest of the files was written."""
        return datetime.fromtimestamp(max(file.stat().st_mtime for file in self.files), UTC).replace(microsecond=0)


def listing(home: Home) -> dict[int, Landed]:
    """Epoch → what is landed for it. Raises `AltneuError` on a folder whose name is no epoch."""
    found: dict[int, Landed] = {}
    if not home.landing.is_dir():
        return found
    for folder in sorted(home.landing.iterdir()):
        if not folder.is_dir() or not folder.name.startswith("epoch="):
            continue
        text = folder.name.removeprefix("epoch=")
        try:
            epoch = home.schedule.epoch(text)
        except UsageError as error:
            raise AltneuError(f"landing/{folder.name}: {error.what}", f"rename or remove {folder}") from None
        if epoch in found:
            raise AltneuError(f"landing/{folder.name} and epoch={found[epoch].label} are the same epoch.", "merge them")
        files = []
        for file in sorted(folder.iterdir()):
            if file.name.startswith((".", "_")):
                continue
            if not file.name.endswith(SUFFIXES):
                raise AltneuError(
                    f"landing/{folder.name}/{file.name} is none of {', '.join(SUFFIXES)}.",
                    f"remove it, or give it a name that starts with _ ({file})",
                )
            files.append(file)
        found[epoch] = Landed(epoch, text, tuple(files), sum(file.stat().st_size for file in files))
    return found


def digest(ledger: Ledger, landed: Iterable[Landed], remember: bool = True) -> dict[int, str]:
    """Epoch → digest of its content (names of the files do not matter, their bytes do).

    A file whose size, times and inode are as before is not read again.
    """
    known = ledger.known_digests()
    new: dict[str, tuple[str, str]] = {}
    out: dict[int, str] = {}
    for batch in landed:
        parts = []
        for file in batch.files:
            stat = file.stat()
            stamp = f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_ino}"
            before = known.get(str(file))
            if before and before[0] == stamp:
                parts.append(before[1])
                continue
            with file.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            parts.append(content)
            if time.time_ns() - stat.st_mtime_ns > 2_000_000_000:  # a younger file may change within its own stamp
                new[str(file)] = (stamp, content)
        out[batch.epoch] = hashlib.sha256(" ".join(sorted(parts)).encode()).hexdigest() if parts else EMPTY_DIGEST
    if remember:
        ledger.put_digests(new)
    return out


def unchanged(ledger: Ledger, landed: Iterable[Landed], digests: dict[int, str]) -> bool:
    """Are the files as they were when they had these digests?"""
    try:
        return digest(ledger, landed, remember=False) == digests
    except FileNotFoundError:
        return False


def layout(home: Home) -> Layout:
    """What a landed file holds."""
    id_type = "long" if home.config.ids == "integer" else "string"
    types = {"src": id_type, "dst": id_type, **home.config.values, "op": "string", "seq": "long"}
    return Layout(types, optional=frozenset(types) - {"src", "dst"})
