"""The commands `altneu daemon start`, `stop` and `status`: a process that keeps Spark ready for the commands of a home.

The daemon imports what commands import, starts the JVM, and listens (`pipeline/storage/daemon_client.py` has the
protocol). A command runs in a fork of it, with the arguments, folder, environment, mask and standard streams of its
client, and ends as a process of its own does: nothing of it reaches the next one. Where a command needs Spark, it
attaches to the JVM (`pipeline/storage/shared_jvm.py`), and so do the tasks of Airflow, which are processes already.

The daemon itself has one thread and never calls the JVM, so that a fork of it is safe and nothing blocks it. It ends
when it is told to, after `[spark] idle_minutes`, when the home or the room on its disk is gone, and when a client comes
with another altneu, Python or setting: then a fresh one takes its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ..errors import Exit, RunFailed, UsageError
from ..home import memory_budget
from ..home.home import Home
from ..state import home_identity
from ..storage import daemon_client
from ..storage.daemon_client import FOLDER, Connection, DaemonStatus, Message, NoDaemon, read_status

LOCK, LOG = "lock", "log"  # files in the folder of the daemon
START_SECONDS = 300.0  # on a busy machine the JVM takes minutes
LASTS_SECONDS = 60.0  # a JVM that ends by itself before this time is not started again
STOP_SECONDS = 15.0  # within which a command or the JVM ends when it is asked to
LONGEST_LOG = 1 << 20  # bytes with which a log is begun anew
TICK = 2.0  # seconds between two looks at the clock, the home and its disk
LEAST_DISK = 50 * 2**20  # free bytes with which a daemon goes on
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_daemon(home: Home, say: Callable[[str], None]) -> None:
    """Start the daemon of a home, and wait until it listens. One that runs already is left as it is, if it fits.

    Raises:
        UsageError: The home has no use for a daemon.
        RunFailed: It does not start.
    """
    _require_useful(home)
    if (status := read_status(home.path)) is not None:
        say(f"the daemon of this home runs already (process {status.pid})")
        return
    folder = make_private_folder(home.path / FOLDER)
    log = folder / LOG
    if log.exists() and log.stat().st_size > LONGEST_LOG:
        log.unlink()
    with log.open("a") as stream:
        process = subprocess.Popen(
            daemon_client.daemon_command(home.path),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd=daemon_client.PACKAGE.parent,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while (status := read_status(home.path)) is None or not status.is_ready:
        if process.poll() is not None or time.monotonic() > deadline:
            if status is not None and status.pid != process.pid:  # another one was started at the same time
                time.sleep(0.1)
                continue
            with contextlib.suppress(OSError):
                process.kill()
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
            raise RunFailed(f"the daemon did not start:\n{tail}", f"less {log}; altneu doctor")
        time.sleep(0.1)
    say(f"the daemon keeps Spark ready for {home.path} (process {status.pid}, heap {status.heap_mb:,} MB)")
    if Path(status.socket).parent != folder:
        say(f"it listens at {status.socket}: a socket in the home is not possible")
    say(f"it ends after {home.config.spark.idle_minutes:g} minutes without a command, or with: altneu daemon stop")


def stop_daemon(home: Path) -> bool:
    """Stop the daemon of a home and the commands that it runs; return False where there is none."""
    try:
        connection, _ = daemon_client.ask(home.resolve(), {"do": "stop"})
    except NoDaemon as none:
        if none.reason:
            raise RunFailed(f"{none.reason}.", "altneu daemon status") from None
        return False
    with contextlib.closing(connection):
        while connection.receive() is not None:
            pass
    return True


def _require_useful(home: Home) -> None:
    from ..storage.session import may_have_daemon  # pyspark, which the doctor does without

    if not home.config.spark.daemon:
        raise UsageError(
            "[spark] daemon = false: the commands of this home do not use a daemon.",
            f"remove it from {home.path / 'altneu.toml'}",
        )
    if not may_have_daemon(home):
        raise UsageError(
            "a daemon is for homes whose Spark works on this machine; [spark] master or ALTNEU_MASTER names another.",
            "altneu connect   (a server that other machines reach)",
        )


def make_private_folder(folder: Path) -> Path:
    """Make a folder that only this user may open, if it is not there. Raises `UsageError` where it is not private."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid == os.getuid():
        folder.chmod(0o700)
    if not daemon_client.is_private(folder):
        raise UsageError(f"{folder} is not a folder of this user alone.", f"rm -r {folder}")
    return folder


@dataclass
class _Command:
    """A command that runs in a fork of the daemon, for a client."""

    pid: int
    connection: Connection
    end_requested_at: float | None = None  # when it was asked to end


@dataclass(frozen=True)
class Call:
    """A command as its client has typed it, which this process, a fork of the daemon, is to execute."""

    request: Message
    descriptors: list[int]

    def take_on(self) -> None:
        """Make this process like the client's: its folder, environment, mask, arguments and standard streams."""
        os.setsid()
        for number, descriptor in enumerate(self.descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(self.request["environment"])
        time.tzset()
        os.umask(self.request["umask"])
        os.chdir(self.request["folder"])
        sys.argv = ["altneu", *self.request["arguments"]]
        for number, (name, options) in enumerate(self.request["streams"].items()):
            stream = os.fdopen(number, "wb" if number else "rb", closefd=False)
            setattr(sys, name, io.TextIOWrapper(stream, **options))


@dataclass
class Daemon:
    """The state of a daemon: its home, its JVM, the commands that it runs, and the processes that use its JVM.

    `is_permanent`: it does not end when it is idle.
    """

    home: Home
    needs: dict[str, str]
    lock: int  # the descriptor of the file that only one daemon of the home can lock
    is_permanent: bool = False
    heap: int = 0  # bytes of the JVM
    java: Any = None  # the process of the JVM
    java_started: float = 0.0
    path: Path = Path()
    commands: dict[int, _Command] = field(default_factory=dict)  # by the process that runs it
    attached: set[Connection] = field(default_factory=set)
    stopping: list[Connection] = field(default_factory=list)  # clients that wait for the end
    sweeper: int = 0  # the process that makes the JVM ready for the next command; 0: none
    _needs_sweep: bool = False
    is_ready: bool = False
    finished_jobs: int = 0  # commands and tasks
    started_at: float = field(default_factory=time.monotonic)
    used_at: float = field(default_factory=time.monotonic)
    ends: str = ""  # why the daemon ends, once it is to
    successor: list[str] = field(default_factory=list)  # the command line of the daemon that takes its place

    def serve(self) -> Call | None:
        """Serve until the daemon ends and return None; in the fork for a command return that command."""
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = os.pipe()
        for descriptor in (self._wake, self._waker):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (*SIGNALS, signal.SIGCHLD):
            signal.signal(number, self._note_signal)
        self._start_jvm()
        self._listener = self._listen()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, self._drain)
        self._sweep()
        while not self.ends or self.commands or self.attached:
            for key, _ in self._selector.select(TICK):
                if key.fd not in self._selector.get_map():  # an event before it has ended the connection
                    continue
                call: Call | None = key.data(key.fileobj)
                if call is not None:
                    return call
            self._reap()
            self._look_around()
        self._end()
        return None

    def status(self) -> DaemonStatus:
        """Return what the daemon says about itself."""
        from ..storage.shared_jvm import describe_turn

        java = psutil.Process(self.java.pid)
        workers = sum(worker.memory_info().rss for worker in java.children(recursive=True))
        memory = {"daemon": psutil.Process().memory_info().rss, "JVM": java.memory_info().rss, "workers": workers}
        idle = 0.0 if self.commands or self.attached else time.monotonic() - self.used_at
        return DaemonStatus(
            pid=os.getpid(),
            seconds=round(time.monotonic() - self.started_at, 1),
            socket=str(self.path),
            heap_mb=self.heap >> 20,
            max_rows=int(memory_budget.max_heap_rows(self.heap)),
            idle_seconds=round(idle, 1),
            idle_minutes=None if self.is_permanent else self.home.config.spark.idle_minutes,
            commands=self.finished_jobs,
            working=describe_turn(self._turn_file),
            memory_mb={name: size >> 20 for name, size in memory.items()},
            is_ready=self.is_ready,
        )

    @property
    def _turn_file(self) -> Path:
        return self.path.with_name(self.path.name + ".turn")

    def _start_jvm(self) -> None:
        """Start the JVM, with a heap for the rows that are stored now."""
        from ..storage.session import count_stored_rows

        ledger = home_identity.open_ledger(self.home)
        self.heap = memory_budget.driver_heap(self.home.config, count_stored_rows(ledger))
        gateway = _launch_jvm(self.home, self.heap >> 20)
        gateway.close()  # the processes that attach make connections of their own
        parameters = gateway.java_parameters
        self._gateway = {"port": parameters.port, "secret": parameters.auth_token}
        self.java, self.java_started, self.is_ready = gateway.proc, time.monotonic(), False

    def _listen(self) -> socket.socket:
        """Listen in the home, or in the runtime folder where the path is too long or the file system has no sockets."""
        for path in daemon_client.socket_paths(self.home.path):
            listener = socket.socket(socket.AF_UNIX)
            try:
                make_private_folder(path.parent)
                path.unlink(missing_ok=True)  # of a daemon that was killed: this one holds the lock
                before = os.umask(0o177)
                try:
                    listener.bind(str(path))
                finally:
                    os.umask(before)
                listener.listen(64)
            except OSError as error:
                print(f"no socket at {path}: {error}", flush=True)
                listener.close()
                continue
            self.path = path
            return listener
        raise RunFailed("the daemon cannot listen: neither the home nor the runtime folder takes a socket.")

    def _note_signal(self, number: int, frame: object) -> None:
        """End the daemon at a signal; at that of a child's end the loop wakes up and looks after it."""
        if number != signal.SIGCHLD:
            self._end_with(signal.Signals(number).name, at_once=True)

    def _drain(self, descriptor: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, 1 << 10)

    def _end_with(self, why: str, *, at_once: bool = False) -> None:
        """Let the daemon end when its commands have ended; with `at_once` ask them to."""
        self.ends = self.ends or why
        if at_once:
            for command in self.commands.values():
                self._ask_to_end(command)
            for connection in [*self.attached]:
                self._detach(connection)

    def _accept(self, listener: Any) -> Call | None:
        """Read the request of a client and do it."""
        stream, _ = listener.accept()
        stream.settimeout(daemon_client.PATIENCE)
        connection, descriptors = Connection(stream), list[int]()
        call = None
        try:
            request = connection.receive(descriptors)
            if request is not None:
                requests = {"run": self._run, "attach": self._attach, "status": self._send_status, "stop": self._stop}
                stream.settimeout(None)
                call = requests[request["do"]](connection, request, descriptors)
            else:
                connection.close()
        except (OSError, ValueError, KeyError, psutil.Error) as error:
            print(f"a request has failed: {type(error).__name__}", flush=True)
            connection.close()
        if call is None:
            for descriptor in descriptors:
                os.close(descriptor)
        return call

    def _send_status(self, connection: Connection, request: Message, descriptors: list[int]) -> None:
        connection.send(asdict(self.status()))
        connection.close()

    def _stop(self, connection: Connection, request: Message, descriptors: list[int]) -> None:
        connection.send({})
        self.stopping.append(connection)  # it ends with this process
        self._end_with("stop", at_once=True)

    def _is_refused(self, connection: Connection, request: Message) -> bool:
        """Refuse a client that this daemon does not fit, and let a fresh daemon follow where that one would."""
        why, is_stale = daemon_client.describe_differences(self.needs, request["needs"])
        if why and is_stale:
            why += ", and a fresh one takes its place"
            self.successor, self._at = request["successor"], request["at"]
            self._end_with("it is stale")
        elif self.ends:
            why = "is about to end"
        if why:
            connection.send({"refused": f"the daemon of this home {why}"})
            connection.close()
        return bool(why)

    def _run(self, connection: Connection, request: Message, descriptors: list[int]) -> Call | None:
        """Run a command in a fork, and return it there."""
        if self._is_refused(connection, request):
            return None
        pid = self._fork(connection)
        if not pid:
            return Call(request, descriptors)
        self.commands[pid] = _Command(pid, connection)
        self.used_at = time.monotonic()
        with contextlib.suppress(OSError):
            connection.send({"started": pid})
        self._selector.register(connection, selectors.EVENT_READ, self._hear_client)
        return None

    def _fork(self, *own: Connection) -> int:
        """Fork this process; the fork has nothing of the daemon open, and takes signals as any process does."""
        pid = os.fork()
        if pid:
            return pid
        signal.set_wakeup_fd(-1)
        for number in (*SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        self._selector.close()
        self.java.stdin.close()
        for connection in (*own, *self.attached, *self.stopping, *(each.connection for each in self.commands.values())):
            connection.close()
        self._listener.close()
        for descriptor in (self._wake, self._waker, self.lock):
            os.close(descriptor)
        return 0

    def _hear_client(self, connection: Any) -> None:
        """Pass a signal of a client on to its command; end the command of a client that has gone."""
        command = next(each for each in self.commands.values() if each.connection is connection)
        message = connection.receive()
        if message is None:
            self._selector.unregister(connection)
            self._ask_to_end(command)
        else:
            self._ask_to_end(command, message["signal"])

    def _ask_to_end(self, command: _Command, number: int = signal.SIGTERM) -> None:
        """Send a signal to a command. One that has not ended within `STOP_SECONDS` is killed (`_reap`)."""
        command.end_requested_at = command.end_requested_at or time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(command.pid, number)

    def _attach(self, connection: Connection, request: Message, descriptors: list[int]) -> None:
        """Give a process access to the JVM, unless its work is too large for it."""
        if self._is_refused(connection, request):
            return
        if request["rows"] > (most := memory_budget.max_heap_rows(self.heap)):
            why = f"the heap of the daemon is for {most:,.0f} rows, and this is about {request['rows']:,.0f}"
            connection.send({"refused": why})
            connection.close()
            return
        connection.send(self._gateway | {"turn": str(self._turn_file)})
        self.attached.add(connection)
        self._selector.register(connection, selectors.EVENT_READ, self._hear_attached)

    def _hear_attached(self, connection: Any) -> None:
        """Note how a process has ended its work in the JVM, and stop what it has left there if it has not said so."""
        message = connection.receive()
        self._detach(connection)
        if message is None and not self.ends:
            self._needs_sweep = True
        elif message is not None and "broken" in message:
            print(f"the JVM is started again: {message['broken']}", flush=True)
            self.java.kill()

    def _detach(self, connection: Connection) -> None:
        self._selector.unregister(connection)
        self.attached.discard(connection)
        connection.close()
        self.used_at, self.finished_jobs = time.monotonic(), self.finished_jobs + 1

    def _sweep(self) -> None:
        """Start a process that makes the JVM ready for the next one: it attaches, which stops what is left there."""
        self._needs_sweep = False
        self.sweeper = self._fork()
        if self.sweeper:
            return
        code = 1
        try:
            daemon_client.caller.name, daemon_client.caller.wait = "its own upkeep", STOP_SECONDS
            _prepare_jvm(self.home)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        """Note which processes have ended: commands, the sweeper, the JVM."""
        for command in [*self.commands.values()]:
            pid, status = os.waitpid(command.pid, os.WNOHANG)
            if pid:
                del self.commands[pid]
                self.used_at = time.monotonic()
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(command.connection)
                with contextlib.suppress(OSError):
                    killed = command.end_requested_at and os.WIFSIGNALED(status)
                    code = Exit.INTERRUPTED if killed else os.waitstatus_to_exitcode(status)
                    command.connection.send({"exit": int(code)})
                command.connection.close()
            elif command.end_requested_at and time.monotonic() - command.end_requested_at > STOP_SECONDS:
                os.kill(command.pid, signal.SIGKILL)
        if self.sweeper:
            pid, status = os.waitpid(self.sweeper, os.WNOHANG)
            if pid:
                self.sweeper = 0
                if status and not self.is_ready:
                    self._end_with("Spark does not start")
                self.is_ready = True
        if self.java.poll() is not None and not self.ends:
            if time.monotonic() - self.java_started < LASTS_SECONDS:
                self._end_with("the JVM has ended twice")
            else:
                print("the JVM has ended, and is started again", flush=True)
                self._start_jvm()
                self._needs_sweep = True

    def _look_around(self) -> None:
        """Sweep where it is due; end without the home, room on its disk, or anything to do."""
        if self._needs_sweep and not self.sweeper and not self.ends:
            self._sweep()
        if not self.ends:
            idle = time.monotonic() - self.used_at
            busy = self.commands or self.attached or self.sweeper or self.is_permanent
            if not busy and idle > self.home.config.spark.idle_minutes * 60:
                self._end_with(f"no command for {idle / 60:.0f} min")
            elif not self._has_home():
                self._end_with("the home has gone")
            elif shutil.disk_usage(self.home.path).free < LEAST_DISK:
                self._end_with("the disk is full")

    def _has_home(self) -> bool:
        """Tell whether the home and the socket are still where they were."""
        try:
            return self.needs["home"] == daemon_client.home_need(self.home.path) and self.path.exists()
        except OSError:
            return False

    def _end(self) -> None:
        """End the JVM, and then this process, or become the daemon that takes its place."""
        print(f"the daemon ends: {self.ends}", flush=True)
        self._listener.close()
        self.path.unlink(missing_ok=True)
        if self.sweeper:
            os.kill(self.sweeper, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self.java.stdin.close()  # at which it ends
        try:
            self.java.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.java.kill()
            self.java.wait()
        if self.successor:
            os.chdir(self._at)
            os.execv(self.successor[0], [*self.successor, *(["--stay"] if self.is_permanent else [])])


def _launch_jvm(home: Home, heap_mb: int) -> Any:
    from ..storage.session import launch_shared_jvm

    return launch_shared_jvm(home, heap_mb)


def _prepare_jvm(home: Home) -> None:
    """Attach to the JVM once, which stops what is left there, and run a query."""
    from ..storage.session import release_session, session_for

    session_for(home_identity.open_ledger(home)).range(1).count()
    release_session()


def serve_home(path: Path, *, stays: bool) -> Call | None:
    """Be the daemon of a home until it ends, and return None; in the fork for a command return that command.

    Args:
        path: The folder of the home.
        stays: Whether the daemon goes on without commands, and waits for one that runs already to end.

    Raises:
        UsageError: The home has no use for a daemon.
        RunFailed: Another daemon of the home runs.
    """
    path = path.resolve()
    needs = daemon_client.read_needs(path)  # before anything is imported that may change meanwhile
    home = Home.open(path)
    _require_useful(home)
    lock = os.open(make_private_folder(path / FOLDER) / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if stays else fcntl.LOCK_NB))
    except BlockingIOError:
        raise RunFailed("another daemon of this home is running.", "altneu daemon status") from None
    os.chdir(path / FOLDER)
    _import_modules()
    gc.collect()
    gc.freeze()  # a fork copies no page only because the collector looks at it
    return Daemon(home, needs, lock, is_permanent=stays).serve()


def _import_modules() -> None:
    """Import what commands import, so that no command has to."""
    import altneu.pipeline.report.page_writer
    import altneu.pipeline.run.runner
    import altneu.pipeline.storage.duckdb_tables
    import altneu.pipeline.storage.warehouse

    from ..run.stages import STAGES

    for stage in STAGES:
        stage.load_module()
    with contextlib.suppress(ImportError):  # a reader's installation may lack it
        import great_expectations  # noqa: F401

        import altneu.expectations.gx_runner
        import altneu.expectations.suite  # noqa: F401
