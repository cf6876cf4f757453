"""The command line of altneu: a command parses its options, calls a function of another package and prints.

Only this package turns errors into text and exit codes. Progress goes to standard error, results to standard output;
Spark and the suites are imported only when a command needs them. There is one module for each concept:
`daemon_request` (a command that the daemon of the home executes), `command_line` (one that this process executes),
`app` (the app and its common options), `printing`, `crash_report`, and the commands in `land`, `runs`, `approval`,
`status`, `incidents`, `query`, `verify`, `admin` and `daemon`.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

from . import daemon_request


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run `altneu` with these arguments; exit with its code.

    Without arguments they are those of the process, and the daemon of the home may execute the command.
    """
    # Objects of a command last as long as it does: searching them for cycles took a tenth of those of a long history.
    gc.set_threshold(200_000)
    # Without this, pydantic reads the entry points of all packages to look for plugins, in each process.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if arguments is None:
        daemon_request.execute_by_daemon(sys.argv[1:])
    from .command_line import run

    run(arguments)
