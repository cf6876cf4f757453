"""What can go wrong, as types: an error carries what happened, on which input, and the next command to type.

`cli` alone turns them into text and exit codes (`Exit`).
"""

from __future__ import annotations

import errno
import re
from enum import IntEnum

from .secret import mask_secrets


class Exit(IntEnum):
    """Exit codes of every `altneu` command."""

    OK = 0
    FAILED = 1  # a check failed or a run failed
    USAGE = 2  # wrong use or configuration
    INTERRUPTED = 130  # Ctrl-C or SIGTERM


class AltneuError(Exception):
    """Base: `what` happened (one sentence that names the input), and the `next` command or remedy."""

    exit = Exit.FAILED
    transient = False  # may the same succeed later, with nothing fixed?

    def __init__(self, what: str, next: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.next = next

    def __reduce__(self) -> tuple[type, tuple[str | None, ...]]:
        return type(self), (self.what, self.next)


class UsageError(AltneuError):
    """Wrong use or configuration; nothing was changed."""

    exit = Exit.USAGE


class RunFailed(AltneuError):
    """A run stopped before publish; what was published before it is untouched."""


class RevisionConflict(RunFailed):
    """Another writer published first (the ledger's compare-and-swap refused)."""

    transient = True


class BatchRejected(RunFailed):
    """What has landed for an epoch cannot be read, too much of it is malformed, or its size is unusual (`gate`)."""


class RunInProgress(RunFailed):
    """Another run is at work, or waits for a person: this one was not begun. `run_id`: that other run."""

    transient = True

    def __init__(self, what: str, next: str | None = None, run_id: str = "") -> None:
        super().__init__(what, next)
        self.run_id = run_id

    def __reduce__(self) -> tuple[type, tuple[str | None, ...]]:
        return type(self), (self.what, self.next, self.run_id)


class Unavailable(RunFailed):
    """What a run needs does not answer now (database, Spark, disk), or has changed under it: worth another try."""

    transient = True


class LeaseLost(RunFailed):
    """Another process works on the run (see `lease`); this one has changed nothing since."""

    transient = True  # that process may be one that was killed: its lease ends by itself


class ForeignWrite(RunFailed):
    """What a run has written is not what is in its tables: another process has written there."""


class CheckFailed(AltneuError):
    """A critical check failed or the maintained result differs from the recomputation."""


_OUTSIDE = {"py4j", "pyspark", "grpc", "sqlalchemy", "psycopg"}  # libraries that speak with other processes
_LASTING = {  # their errors that come again however often it is tried
    *("AnalysisException", "ParseException", "IllegalArgumentException", "PythonException", "ArithmeticException"),
    *("NumberFormatException", "DateTimeException", "ArrayIndexOutOfBoundsException", "SparkUpgradeException"),
    *("PySparkTypeError", "PySparkValueError", "PySparkAttributeError", "PySparkNotImplementedError"),
    *("ProgrammingError", "IntegrityError", "DataError", "ArgumentError", "NotSupportedError"),
}


def is_transient(error: BaseException) -> bool:
    """May the same succeed later, with nothing fixed? So of a database, a Spark or a disk that failed; not of wrong
    use, a failed check or a fault of the code."""
    if isinstance(error, AltneuError):
        return error.transient
    kinds = type(error).__mro__
    outside = any(kind.__module__.partition(".")[0] in _OUTSIDE for kind in kinds)
    return isinstance(error, OSError) or (outside and not {kind.__name__ for kind in kinds} & _LASTING)


def termination_cause(error: BaseException | None) -> BaseException | None:
    """What asked the work to end (a signal, a scheduler's timeout), also where cleaning up has failed after it."""
    seen: set[int] = set()
    while isinstance(error, Exception) and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None if isinstance(error, Exception) else error


_GONE = ("NotFoundException", "FileNotFoundException", "does not exist")
_LOCKED = ("is locked by another writer", "database is locked", "due to lock timeout")
_FULL = ("No space left on device", "database or disk is full")


def is_disk_full(error: BaseException) -> bool:
    """Is there no room on the disk? Then nothing is tried again by itself: somebody has to make room."""
    return any(word in str(error) for word in _FULL)


def describe_error(error: BaseException) -> tuple[str, str | None]:
    """What happened, in one line without secrets, and the next command: of an error of ours, or of Spark, Iceberg or
    the database.

    Of a JVM's stack trace it is the line with the real cause, from its exception on.
    """
    what, then = _describe_known_error(error)
    return mask_secrets(what), then


def _describe_known_error(error: BaseException) -> tuple[str, str | None]:
    if isinstance(error, AltneuError):
        return error.what, error.next
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, OSError) and error.filename is not None and error.strerror and error.errno != errno.ENOSPC:
        what = f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}."
        return what, "altneu doctor   (says whether the home can be written)"
    full = [line for line in lines if any(word in line for word in _FULL)]
    gone = [line for line in lines if any(word in line for word in _GONE)]
    if full or gone:
        what = re.split(r"[\w.$]+(?:Exception|Error): ", (full or gone)[0].strip())[-1][:300]
        if full:
            return what, "make room on the disk, then run the same command again"
        return what, "is it a file of the tables: altneu rebuild; with landed rows lost: altneu rebuild --from-landing"
    if any("readonly database" in line for line in lines):
        return "the database cannot be written: it is read-only here.", "altneu doctor   (says whether the home is)"
    locked = next((line.strip() for line in lines if any(word in line for word in _LOCKED)), None)
    if locked:
        what = re.split(r"[\w.$]+(?:Exception|Error|Locked|Timeout|NotAvailable)\)?:? ", locked)[-1][:300]
        return what, "see which program keeps it (of a file: fuser FILE), then the same command again"
    of_java = [line.removeprefix(": ") for line in lines[1:2] if line.startswith(": ")]  # after py4j's own first line
    what = of_java[0][:300] if of_java else f"{type(error).__name__}: {lines[0][:300]}"
    if "OperationalError" in what:
        return what, "altneu doctor; when the database answers: the same command again"
    return what, "run the same command again; if it fails again: altneu doctor"
