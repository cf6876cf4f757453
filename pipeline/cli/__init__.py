"""`altneu`: the command line. It parses, calls one function, prints; it alone turns errors to text and exit codes.

Progress goes to standard error, results to standard output; Spark and the suites are imported only when needed. A
module per concept: `base` (the app and its options), `printing`, and the commands: `land`, `runs`, `status`, `read`,
`checks`, `admin`.
"""

from __future__ import annotations

import logging
import os
import sys

from sqlalchemy.exc import SQLAlchemyError

from .. import orchestration, telemetry
from ..errors import AltneuError, Exit, explained
from .base import app
from .printing import err, out

# their order is that of the commands in the help
from . import land, runs, status, read, checks, admin  # noqa: F401  # isort: skip

__all__ = ["app", "err", "main", "out"]

_FOREIGN = ("py4j", "pyspark")  # what they raise speaks of tables and files, not of a mistake in the program


def main(arguments: list[str] | None = None) -> int:
    """Run `altneu` with these arguments (default: the process's); exit with its code."""
    try:
        app(arguments, standalone_mode=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.OK)
    except KeyboardInterrupt:
        err.print("interrupted; what was published is untouched")
        sys.exit(130)
    except Exception as error:
        if (
            not isinstance(error, (AltneuError, SQLAlchemyError))
            and type(error).__module__.split(".")[0] not in _FOREIGN
        ):
            raise  # a mistake of ours: its trace says more than a line
        what, then = explained(error)
        if err.quiet:
            telemetry.event("command failed", logging.ERROR, error=what, next=then)
        err.print("altneu:", style="bold red", end=" ")
        err.print(what, markup=False)
        if then:
            err.print(f"  next: {then}", markup=False)
        sys.exit(error.exit if isinstance(error, AltneuError) else Exit.FAILED)
    finally:
        orchestration.release()
    return Exit.OK
