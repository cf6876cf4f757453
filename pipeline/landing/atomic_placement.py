"""The placement of finished batches, and of the settings that they need, in the landing: all or nothing.

A `land` works in a private folder inside the landing, `_work/<id>/`, so that every move is a rename within one file
system; a file lock says that its process lives. `place_batches` runs with the landing's lock held: it writes the
journal (every move, and the settings before and after), makes the moves, and removes the journal: from then on the new
batches count. After an error it makes the moves backwards. A process that was killed leaves its journal, and the next
`land`, of any epoch, undoes it (`recover_landing`); until then `list_interrupted` names its epochs, and no run reads
them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import AltneuError
from ..home.settings_file import read_text, write_text

WORK, JOURNAL = "_work", "journal.json"
Say = Callable[[str], None]


class Draft:
    """The private folder of one `land`: finished batches go into `new/<label>/`, and `place_batches` moves them into
    the landing."""

    def __init__(self, landing: Path, say: Say = lambda text: None, settings: Path | None = None) -> None:
        self.landing, self.say = landing, say
        self.settings = settings or landing.parent / "altneu.toml"
        self.folder = landing / WORK / uuid.uuid4().hex[:12]
        with landing_lock(landing, say):
            report_undone(recover_landing(landing), say)
            self.new.mkdir(parents=True)
            self._owner = _lock_file(self.folder / "owner")

    @property
    def new(self) -> Path:
        return self.folder / "new"

    def place_batches(self, labels: list[str], settings: str | None, others: list[tuple[str, str]]) -> None:
        """Replace the batches of these epochs by those in `new/`, and the text of the home's `altneu.toml`.

        Call it with `landing_lock` held. After an error everything is as before.

        Args:
            labels: The labels of the epochs.
            settings: The new text of `altneu.toml`, or None to leave it.
            others: Further moves (from, to) within the landing.

        Raises:
            AltneuError: Neither the new batches could be placed nor the old ones be put back.
        """
        private = self.folder.relative_to(self.landing)
        moves = list(others)
        (self.folder / "old").mkdir(exist_ok=True)
        for label in labels:
            target = f"epoch={label}"
            if (self.landing / target).exists():
                moves.append((target, str(private / "old" / label)))
            moves.append((str(private / "new" / label), target))
        file = self.settings
        before = read_text(file) if file.exists() else None
        place = os.path.relpath(file, self.landing)
        journal = {"labels": labels, "moves": moves, "before": before, "after": settings, "settings": place}
        try:
            write_text(self.folder / JOURNAL, json.dumps(journal))
            for source, place in moves:
                (self.landing / source).rename(self.landing / place)
            if settings is not None:
                write_text(file, settings)
            (self.folder / JOURNAL).unlink()
        except BaseException as error:
            try:
                undo_moves(self.landing, self.folder)
            except OSError as second:
                raise AltneuError(
                    f"the new batches could not be placed ({error}), nor could the old ones be put back "
                    f"({second}). The old ones are in {self.folder / 'old'}, and no run reads these epochs.",
                    "make room on the disk, then type the same command again: it first restores the old batches",
                ) from error
            raise

    def close(self) -> None:
        """Remove the private folder, except a journal that could not be undone and the files that it names."""
        if not (self.folder / JOURNAL).exists():
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._owner)


def recover_landing(landing: Path) -> list[str]:
    """Undo what killed or failed lands have left, and return the labels of their epochs.

    Call it with `landing_lock` held. Only the holder of that lock places batches, so any journal is a former one's. A
    draft without a journal is removed if its process has ended.
    """
    undone: list[str] = []
    for folder in _list_drafts(landing):
        undone += undo_moves(landing, folder)
        if not _is_locked(folder / "owner"):
            shutil.rmtree(folder, ignore_errors=True)
    return undone


def report_undone(undone: list[str], say: Say) -> None:
    if undone:
        say(f"a land was interrupted: its {len(undone)} epoch(s) from {undone[0]} on are as they were before it")


def list_interrupted(landing: Path) -> dict[str, str]:
    """Return the labels whose folders must not be read now, with the reason: a `land` is placing them, or was
    interrupted.

    It changes nothing.
    """
    reasons: dict[str, str] = {}
    for folder in _list_drafts(landing):
        with contextlib.suppress(FileNotFoundError):  # the land has finished meanwhile
            labels = json.loads((folder / JOURNAL).read_text(encoding="utf-8"))["labels"]
            lives = _is_locked(folder / "owner")
            reason = "altneu land is placing it now" if lives else "altneu land was interrupted; type it again"
            reasons |= dict.fromkeys(labels, reason)
    return reasons


@contextlib.contextmanager
def landing_lock(landing: Path, say: Say = lambda text: None) -> Iterator[None]:
    """Hold the landing's lock, so that one process at a time places batches; say so if it has to wait."""
    path = landing / WORK / "lock"
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = _lock_file(path, wait=False)
        except FileNotFoundError:  # another process has just removed an unused landing
            continue
        except BlockingIOError:
            say(f"waiting for another altneu land in {landing}")
            lock = _lock_file(path)
        if path.exists() and os.fstat(lock).st_ino == path.stat().st_ino:
            break
        os.close(lock)
    try:
        yield
    finally:
        os.close(lock)


def discard_unused(landing: Path) -> None:
    """Remove the folders of a home that does not exist, after a refused `land`; a folder with any content stays."""
    with contextlib.suppress(OSError), landing_lock(landing):
        if not _list_drafts(landing) and {path.name for path in (landing / WORK).iterdir()} == {"lock"}:
            (landing / WORK / "lock").unlink()
            for folder in (landing / WORK, landing, landing.parent):
                folder.rmdir()


def undo_moves(landing: Path, folder: Path) -> list[str]:
    """Make the moves of a journal backwards, as far as they were made, and restore the settings; then remove the
    journal.

    Return the labels of its epochs. If somebody has put a folder for an epoch there meanwhile, it stays, and the former
    batch is kept next to it as `_before-…`.
    """
    path = folder / JOURNAL
    if not path.exists():
        return []
    journal = json.loads(path.read_text(encoding="utf-8"))
    for source, target in reversed(journal["moves"]):
        origin, place = landing / source, landing / target
        if place.exists():
            if not origin.exists():
                place.rename(origin)
            elif place.parent.name == "old":
                place.rename(landing / f"_before-{place.name}-{folder.name}")
    file, after = landing / journal.get("settings", "../altneu.toml"), journal["after"]
    if after is not None and file.exists() and read_text(file) == after:
        if journal["before"] is None:
            file.unlink()
        else:
            write_text(file, journal["before"])
    path.unlink()
    return list(journal["labels"])


def _list_drafts(landing: Path) -> list[Path]:
    work = landing / WORK
    return sorted(path for path in work.iterdir() if path.is_dir()) if work.is_dir() else []


def _lock_file(path: Path, *, wait: bool = True) -> int:
    """Return a descriptor that holds the file's lock until it is closed, or until the process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_locked(path: Path) -> bool:
    """Tell whether a living process holds the file's lock. It only reads."""
    try:
        with path.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False
