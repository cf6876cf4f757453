"""A command that the daemon of the home executes: this process gives it away, passes signals on, and ends as it ends.

It imports little, so that `altneu status` answers in a tenth of a second. Where there is no daemon, or it refuses, this
process executes the command itself.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ..storage import daemon_client
from ..storage.daemon_client import Connection, NoDaemon, caller

# They start processes that stay, or change what the daemon has imported.
COMMANDS_WITHOUT_DAEMON = {"airflow", "connect", "daemon", "demo", "doctor", "setup"}
WITH_VALUE = {"--home", "--log-format", "--wait"}  # options that every command takes, with a value
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def execute_by_daemon(arguments: list[str]) -> None:
    """Let the daemon execute the command, and exit with its code; return where there is none that may."""
    command, options = scan_options(arguments)
    if command is None or command in COMMANDS_WITHOUT_DAEMON or "--no-daemon" in options or "--help" in options:
        return
    home = Path(options.get("--home") or os.environ.get("ALTNEU_HOME") or ".altneu").expanduser().resolve()
    if not any(path.exists() for path in daemon_client.socket_paths(home)):
        return
    try:
        connection = _give_away(home, arguments)
    except NoDaemon as absence:
        if absence.reason and not {"-q", "--quiet"} & options.keys() and options.get("--log-format") != "json":
            print(f"{absence.reason}; this command runs without it", file=sys.stderr)
        caller.uses_daemon = False
        return
    _exit_as(_await_exit(connection))


def scan_options(arguments: list[str]) -> tuple[str | None, dict[str, str]]:
    """Return the name of the command, and the options that stand before or after it, as far as one sees by their form.

    A wrong guess does no harm: the process that executes the command reads all of them again.
    """
    command, options = None, dict[str, str]()
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in WITH_VALUE and not equals:
            options[name] = next(words, "")
        elif word.startswith("-"):
            options[name] = value
        elif command is None:
            command = word
    return command, options


def _give_away(home: Path, arguments: list[str]) -> Connection:
    """Send the command to the daemon, with the standard streams of this process. Raises `NoDaemon`."""
    try:
        streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
        descriptors = [stream.fileno() for stream in streams.values()]
        mask = os.umask(0o077)
        os.umask(mask)
        request = {
            "do": "run",
            "needs": daemon_client.read_needs(home),
            "successor": daemon_client.daemon_command(home),
            "at": str(daemon_client.PACKAGE.parent),
            "arguments": arguments,
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "umask": mask,
            "streams": {name: _options_of(stream) for name, stream in streams.items()},
        }
    except (OSError, AttributeError) as error:  # a stream is closed, or the folder has gone
        raise NoDaemon from error
    # Signals wait until their handler is there, which passes them on.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        connection, _ = daemon_client.ask(home, request, descriptors)

        def pass_on(number: int, frame: object) -> None:
            with suppress(OSError):
                connection.send({"signal": number})

        for number in _SIGNALS:
            signal.signal(number, pass_on)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return connection


def _options_of(stream: Any) -> dict[str, Any]:
    """Return how a stream encodes and buffers its text."""
    names = ("encoding", "errors", "line_buffering", "write_through")
    return {name: getattr(stream, name) for name in names}


def _await_exit(connection: Connection) -> int | None:
    """Wait until the command has ended, and return its exit code, or minus the signal that has killed it."""
    while (message := connection.receive()) is not None:
        if "exit" in message:
            code: int = message["exit"]
            return code
    return None


def _exit_as(code: int | None) -> NoReturn:
    """Exit as the command has ended; None: nobody knows, because its daemon was killed, and the command with it."""
    if code is None:
        print("the daemon has ended, and the command with it; run the same command to continue", file=sys.stderr)
        os._exit(1)
    if code < 0:
        with suppress(OSError):  # nobody handles SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
