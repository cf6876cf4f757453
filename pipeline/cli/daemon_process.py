"""Entry point of the process of a daemon, which `altneu daemon start` and `altneu airflow` start."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import NoReturn

from ..errors import AltneuError
from ..local.daemon import serve_home
from . import command_line, printing


def main() -> None:
    """Be the daemon of the home that the arguments name; in the fork for a command execute that command."""
    try:
        call = serve_home(Path(sys.argv[1]), stays="--stay" in sys.argv)
    except AltneuError as error:
        sys.exit(error.what)
    code: object = 0
    if call is not None:
        call.take_on()
        printing.renew_consoles()
        try:
            command_line.run()
        except SystemExit as done:
            code = done.code
        except BaseException:
            traceback.print_exc()
            code = 1
    _exit_at_once(code)


def _exit_at_once(code: object) -> NoReturn:
    """Exit as the interpreter does, but leave out its last look at all that the daemon has imported."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main()
