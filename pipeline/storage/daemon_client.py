"""The daemon of a home as its clients see it: where it listens, what they have to agree on, and how they speak.

A daemon (`pipeline/local/daemon.py`) keeps Spark's JVM for the commands of one home. It listens at a Unix socket that
only its user may open. A message is one line of JSON. The requests, which may all be answered by `{"refused": why}`:

- `run` executes a command: with it travel its arguments, folder, environment, mask, and the descriptors of its standard
  streams, so that it writes to the client's own terminal, pipes and files. The answer is `{"started": pid}`, and
  `{"exit": code}` at the end (minus the signal that has killed it). Meanwhile the client may send `{"signal": number}`.
- `attach` gives a process access to the JVM for about so many `rows`: the answer is the `port` and the `secret` of the
  gateway, and the file `turn` to lock. The client ends with `{"done": 1}`, or with `{"broken": why}`.
- `status` is answered by what `altneu daemon status` shows.
- `stop` is answered by `{}`; the connection ends when the daemon has ended.

`needs`, in `run` and `attach`, says what the client has in common with the JVM. A daemon that was started with other
needs refuses; unless only the environment differs, a fresh daemon takes its place, with the `successor` of the client
as its command line and `at` as its folder.

This module imports only the standard library, so that a client starts at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER, SOCKET = "daemon", "socket"  # in the home
LONGEST = 100  # bytes of the path of a socket: the least limit of a system is 104
PATIENCE = 30.0  # seconds within which a daemon answers a first message
PACKAGE = Path(__file__).absolute().parents[2]  # the package altneu: in a clone it has links

Message = dict[str, Any]

# What the JVM, Spark's Python workers and the imported modules have read from the environment once and for all.
_INHERITED = re.compile(
    r"(AWS|AZURE|GOOGLE|JAVA|JDK|_JAVA|SPARK|PYSPARK|HADOOP|NUMBA|OMP|MKL|OPENBLAS|ARROW|LD|DYLD|LC)_.*"
    r"|PYTHON(?!IOENCODING$|UNBUFFERED$|UTF8$).*|LANG|TZ|TMPDIR|HOME|PGPASSWORD|PGPASSFILE|ALTNEU_MASTER|ALTNEU_LOG"
)
# Spark sets these in the process that starts it.
_SPARK_VARIABLES = {
    "SPARK_LOCAL_IP",
    "SPARK_LAUNCHER_OPTS",
    "SPARK_HOME",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
}
_SPARK_VARIABLES |= {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONHASHSEED", "JAVA_HOME", "LC_CTYPE"}
_WORDS = {
    "altneu": "has another version of altneu",
    "python": "has another Python",
    "jars": "has other jars",
    "settings": "has other settings of [spark]",
    "home": "is that of another home",
}


@dataclass
class Caller:
    """How this process uses a daemon; a command sets it from its options."""

    name: str = "a program"
    uses_daemon: bool = True  # whether it uses a daemon where there is one
    wait: float | None = None  # seconds to wait for the daemon while another command uses it; None: as long as it takes
    show_line: Callable[[str], None] = field(default=lambda text: None)  # takes lines about waiting, for a person


caller = Caller()


class NoDaemon(Exception):
    """No daemon serves this process. `reason` is what to say about it: empty where there is none."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.reason = why


@dataclass(frozen=True)
class DaemonStatus:
    """What a daemon says about itself: see `altneu daemon status`."""

    pid: int
    seconds: float
    socket: str
    heap_mb: int
    max_rows: int  # a command for more rows starts a Spark of its own
    idle_seconds: float
    idle_minutes: float | None  # None: it does not end by itself
    commands: int  # that have used the JVM
    working: str  # for whom the JVM works; empty: for nobody
    memory_mb: dict[str, int]
    is_ready: bool


def socket_paths(home: Path) -> list[Path]:
    """Return where the daemon of a home may listen: in the home, or else in the runtime folder of the user."""
    inside = home / FOLDER / SOCKET
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    outside = runtime_folder() / f"{name}.{SOCKET}"
    return [path for path in (inside, outside) if len(os.fsencode(path)) <= LONGEST]


def runtime_folder() -> Path:
    """Return the folder of this user for sockets whose path in the home would be too long."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and len(os.fsencode(given)) < LONGEST - 40:  # room for the name of a socket
        return Path(given) / "altneu"
    return Path(tempfile.gettempdir()) / f"altneu-{os.getuid()}"


def is_private(folder: Path) -> bool:
    """Tell whether a folder is this user's own and open to nobody else."""
    info = os.lstat(folder)
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not stat.S_IMODE(info.st_mode) & 0o077


class Connection:
    """A connection between a client and a daemon, which carries messages."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream, self._unread = stream, b""

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a message, with open descriptors if there are any."""
        data = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(self.stream, [data], list(descriptors)) if descriptors else 0
        if sent < len(data):  # where nothing is left, the other side may have answered and gone
            self.stream.sendall(data[sent:])

    def receive(self, descriptors: list[int] | None = None) -> Message | None:
        """Wait for the next message and return it; None: the other side has gone.

        Descriptors that come with it are added to the list.
        """
        while b"\n" not in self._unread:
            try:
                data, came, _, _ = socket.recv_fds(self.stream, 1 << 16, 0 if descriptors is None else 3)
            except ConnectionError:
                return None
            if descriptors is not None:
                descriptors += came
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        message: Message = json.loads(line)
        return message

    def fileno(self) -> int:
        return self.stream.fileno()

    def close(self) -> None:
        self.stream.close()


def connect(home: Path) -> Connection | None:
    """Connect to the daemon of a home, or return None where none listens."""
    for path in socket_paths(home):
        with suppress(OSError):
            if not is_private(path.parent):
                continue
            stream = socket.socket(socket.AF_UNIX)
            stream.settimeout(PATIENCE)
            try:
                stream.connect(str(path))
            except OSError:
                stream.close()
                raise
            return Connection(stream)
    return None


def ask(home: Path, request: Message, descriptors: Sequence[int] = ()) -> tuple[Connection, Message]:
    """Send a request to the daemon of a home; return the connection and the first answer.

    Raises:
        NoDaemon: There is none, it does not answer, or it refuses.
    """
    connection = connect(home)
    if connection is None:
        raise NoDaemon
    answer = None
    with suppress(OSError, ValueError):
        connection.send(request, descriptors)
        answer = connection.receive()
    if answer is None or "refused" in answer:
        connection.close()
        raise NoDaemon(answer["refused"] if answer else "the daemon of this home does not answer")
    connection.stream.settimeout(None)
    return connection, answer


def read_status(home: Path) -> DaemonStatus | None:
    """Ask the daemon of a home how it is, or return None where there is none."""
    try:
        connection, answer = ask(home.resolve(), {"do": "status"})
    except NoDaemon:
        return None
    connection.close()
    return DaemonStatus(**answer)


def format_status(status: DaemonStatus) -> list[str]:
    """Describe a daemon in lines: what it is, what it does, and what it takes."""
    ends = "" if status.idle_minutes is None else f", and ends after {status.idle_minutes:g} min"
    memory = ", ".join(f"{name} {size:,} MB" for name, size in status.memory_mb.items())
    return [
        f"process {status.pid}, since {status.seconds / 60:,.0f} min; its Spark was used {status.commands:,} time(s)",
        f"works for {status.working}" if status.working else f"idle since {status.idle_seconds / 60:,.0f} min{ends}",
        f"memory: {memory}; its heap of {status.heap_mb:,} MB is for up to {status.max_rows:,} rows",
    ]


def read_needs(home: Path) -> dict[str, str]:
    """Return what the processes of a daemon and of its client have to have in common, as digests by name.

    The names are `altneu`, `python`, `jars`, `settings` and `home`, and `$NAME` for each inherited variable.
    """
    prefix = Path(os.path.realpath(sys.prefix))  # an environment may be reached by a link
    assets = prefix / "altneu"
    installed = sorted({Path(os.path.realpath(place)) for place in sys.path if place.endswith("-packages")})
    needs = {
        "altneu": digest([str(PACKAGE), *_list_stamps(PACKAGE, ".py", ".properties")]),
        "python": digest([str(prefix), sys.version, *map(_stamp, installed)]),
        "jars": digest([*_list_stamps(assets / "jars", ".jar"), *map(_stamp, (assets / "java", assets / "spark.jsa"))]),
        "settings": digest([_spark_section(home / "altneu.toml")]),
        "home": home_need(home),
    }
    return needs | {f"${name}": digest([value]) for name, value in inherited_variables(os.environ).items()}


def home_need(home: Path) -> str:
    """Return the digest of the path of a home and of the folder that is there. Raises `OSError` where none is."""
    info = os.stat(home)
    return digest([str(home), str(info.st_dev), str(info.st_ino)])


def daemon_command(home: Path) -> list[str]:
    """Return the command line of the daemon of a home, with this process's Python; its folder is `PACKAGE.parent`."""
    return [sys.executable, "-m", "altneu.pipeline.cli.daemon_process", str(home)]


def inherited_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a JVM inherits for good, of those of a process that has not started Spark."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _SPARK_VARIABLES and _INHERITED.fullmatch(name)
    }


def describe_differences(own: Mapping[str, str], others: Mapping[str, str]) -> tuple[str, bool]:
    """Describe in which needs a daemon differs from a client, and tell whether a fresh daemon would agree.

    Values are never named. An empty text: in none.
    """
    names = sorted(name for name in {*own, *others} if own.get(name) != others.get(name))
    stale = [_WORDS[name] for name in _WORDS if name in names]
    variables = [name for name in names if name.startswith("$")]
    if variables and not stale:
        return f"has another {', '.join(variables)}", False
    return ", and ".join(stale), True


def digest(parts: Iterable[str]) -> str:
    """Return the digest of some texts."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def _list_stamps(folder: Path, *endings: str) -> list[str]:
    """Return name, size and time of each file below a folder, whose own links are followed."""
    stamps, folders = [], [str(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(endings):
                    stamps.append(_stamp(entry.path))
                elif not entry.name.startswith(("__pycache__", ".")) and entry.is_dir():
                    folders.append(entry.path)
    return sorted(stamps)


def _stamp(path: Path | str) -> str:
    try:
        info = os.stat(path)
    except OSError:
        return f"{path} -"
    return f"{path} {info.st_size} {info.st_mtime_ns}"


def _spark_section(file: Path) -> str:
    import tomllib

    try:
        return json.dumps(tomllib.loads(file.read_text("utf-8-sig")).get("spark"), sort_keys=True, default=str)
    except (OSError, ValueError):  # the command says what is wrong with it
        return "unreadable"


def format_age(since: float) -> str:
    """Format how long ago a moment of the monotonic clock was, which the wall clock does not move."""
    seconds = max(0, int(time.monotonic() - since))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
