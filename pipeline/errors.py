"""The errors of altneu: each one says what happened, on which input, and the next command to type.

The command line alone turns them into text and exit codes (`Exit`).
"""

from __future__ import annotations

import errno
import re
from enum import IntEnum

from .secret_masking import mask_secrets


class Exit(IntEnum):
    """The exit codes of every `altneu` command."""

    OK = 0
    FAILED = 1  # a check failed or a run failed
    USAGE = 2  # wrong use or configuration
    INTERRUPTED = 130  # Ctrl-C or SIGTERM


class AltneuError(Exception):
    """The base class. `what` is a sentence that says what happened on which input, `next` the next command or a
    remedy."""

    exit = Exit.FAILED
    transient = False  # True: the same call may succeed later without a correction

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
    """A run stopped before it published. Everything that was published before is untouched."""


class RevisionConflict(RunFailed):
    """Another writer published first: the compare-and-swap of the ledger refused this run."""

    transient = True


class ClaimConflict(AltneuError):
    """Other tasks have claimed the same changes first, several times in a row: nothing is claimed for this task."""

    transient = True


class BatchRejected(RunFailed):
    """The landed files of an epoch cannot be read, too many rows are malformed, or their number is unusual (the
    gate)."""


class RunInProgress(RunFailed):
    """Another run, `run_id`, is in progress or waits for a decision, so this one was not started."""

    transient = True

    def __init__(self, what: str, next: str | None = None, run_id: str = "") -> None:
        super().__init__(what, next)
        self.run_id = run_id

    def __reduce__(self) -> tuple[type, tuple[str | None, ...]]:
        return type(self), (self.what, self.next, self.run_id)


class Unavailable(RunFailed):
    """Something that a run needs (database, Spark, disk) does not answer now or has changed meanwhile. Try it again."""

    transient = True


class LeaseLost(RunFailed):
    """Another process holds the lease of the run. This process has changed nothing since it lost the lease."""

    transient = True  # the other process may have been killed; then its lease ends by itself


class ForeignWrite(RunFailed):
    """The tables of a run hold other rows than the run has written, because another process has written there."""


class CheckFailed(AltneuError):
    """A critical check failed, or the maintained result differs from the recomputation."""


# the names that programs written for version 0.1 import
Conflict, BatchWrong, UnderWay, Disturbed = RevisionConflict, BatchRejected, RunInProgress, ForeignWrite

_EXTERNAL_LIBRARIES = {
    "py4j",
    "pyspark",
    "grpc",
    "sqlalchemy",
    "psycopg",
}  # libraries that communicate with other processes
_LASTING = {  # the errors of these libraries that another try does not resolve
    *("AnalysisException", "ParseException", "IllegalArgumentException", "PythonException", "ArithmeticException"),
    *("NumberFormatException", "DateTimeException", "ArrayIndexOutOfBoundsException", "SparkUpgradeException"),
    *("PySparkTypeError", "PySparkValueError", "PySparkAttributeError", "PySparkNotImplementedError"),
    *("ProgrammingError", "IntegrityError", "DataError", "ArgumentError", "NotSupportedError"),
}


def is_transient(error: BaseException) -> bool:
    """Tell whether the same call may succeed later without a correction.

    This is so after a failure of a database, of Spark or of a disk; not after wrong use, a failed check or a bug.
    """
    if isinstance(error, AltneuError):
        return error.transient
    kinds = type(error).__mro__
    outside = any(kind.__module__.partition(".")[0] in _EXTERNAL_LIBRARIES for kind in kinds)
    return isinstance(error, OSError) or (outside and not {kind.__name__ for kind in kinds} & _LASTING)


def termination_cause(error: BaseException | None) -> BaseException | None:
    """Return what asked the work to end (a signal, a scheduler's timeout), even where the clean-up failed
    afterwards."""
    seen: set[int] = set()
    while isinstance(error, Exception) and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None if isinstance(error, Exception) else error


_MISSING_FILE_TEXTS = ("NotFoundException", "FileNotFoundException", "does not exist")
_LOCKED = ("is locked by another writer", "database is locked", "due to lock timeout")
_FULL = ("No space left on device", "database or disk is full")


def is_disk_full(error: BaseException) -> bool:
    """Tell whether the disk is full. Such a failure is not retried automatically, because somebody has to make room."""
    return any(word in str(error) for word in _FULL)


def describe_error(error: BaseException) -> tuple[str, str | None]:
    """Describe an error of altneu, Spark, Iceberg or the database: what happened, without secrets, and the next
    command.

    Of a JVM's stack trace the description is the line with the real cause, from the name of its exception on.
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
    gone = [line for line in lines if any(word in line for word in _MISSING_FILE_TEXTS)]
    if full or gone:
        what = re.split(r"[\w.$]+(?:Exception|Error): ", (full or gone)[0].strip())[-1][:300]
        if full:
            return what, "make room on the disk, then run the same command again"
        return (
            what,
            "if it is a file of the tables: altneu rebuild; if landed rows are lost: altneu rebuild --from-landing",
        )
    if any("readonly database" in line for line in lines):
        return (
            "the database cannot be written: it is read-only here.",
            "altneu doctor   (says whether the home is read-only)",
        )
    locked = next((line.strip() for line in lines if any(word in line for word in _LOCKED)), None)
    if locked:
        what = re.split(r"[\w.$]+(?:Exception|Error|Locked|Timeout|NotAvailable)\)?:? ", locked)[-1][:300]
        return what, "find the program that holds the lock (for a file: fuser FILE), then run the same command again"
    of_java = [
        line.removeprefix(": ") for line in lines[1:2] if line.startswith(": ")
    ]  # py4j's own first line comes before it
    what = of_java[0][:300] if of_java else f"{type(error).__name__}: {lines[0][:300]}"
    if "OperationalError" in what:
        return what, "altneu doctor; when the database answers, run the same command again"
    return what, "run the same command again; if it fails again: altneu doctor"
