"""The lease of a run: one process at a time works on the run, and sends heartbeats while it does.

The lease is a token of the process in the row of the run. The ledger checks it in every transaction that writes for the
run, including the one that inserts the ledger row. A process that has lost its lease, because it hung for `SILENCE`
seconds or counted as dead, is refused and changes nothing. Each stage takes the lease and gives it up, so that another
process, even on another machine, may run the next stage. A process may take over the lease of an owner that has ended,
if this can be seen on this machine, or that has sent no heartbeat for `SILENCE` seconds.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import sqlalchemy as sa

from ..errors import LeaseLost

if TYPE_CHECKING:
    from .ledger import Ledger
    from .records import RunRecord

SILENCE = 60.0  # seconds without a heartbeat after which a process counts as dead
BEAT = 5.0  # seconds between two heartbeats


def read_clock() -> datetime:
    """Return the present time. Tests replace this function."""
    return datetime.now(UTC)


def timestamp() -> str:
    """Return the present time as the database stores it."""
    return read_clock().isoformat(timespec="milliseconds")


def process_token(pid: int | None = None) -> str:
    """Return the token of a process of this machine (default: this process): its machine, its pid, and its start."""
    process = psutil.Process(pid)
    return f"{_machine_token()}/{process.pid}/{_process_start(process)}"


def _process_start(process: psutil.Process) -> str:
    """Return the start of a process, where possible in ticks since the boot, since psutil's time moves with the
    clock."""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()[19]
    except OSError:
        return f"{process.create_time():.2f}"


def _machine_token() -> str:
    """Return the token of this host and container. A pid means something only within them."""
    name = socket.gethostname().replace("/", "_")[:80]
    with contextlib.suppress(OSError):
        return f"{name}.{os.stat('/proc/self/ns/pid').st_ino}"
    return name


def is_on_this_machine(owner: str) -> bool:
    """Tell whether an owner is a process of this machine, where one can see whether it has ended."""
    return owner.rsplit("/", 2)[0] == _machine_token()


def has_ended(owner: str | None) -> bool:
    """Tell whether a process has certainly ended. Of a process of another machine this is never certain."""
    machine, pid, began = (owner or "//").rsplit("/", 2)
    if machine != _machine_token():
        return False
    try:
        process = psutil.Process(int(pid))
        return _process_start(process) != began or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def has_heartbeat(run: RunRecord) -> bool:
    """Tell whether a run had a heartbeat within `SILENCE` seconds, or in the future, and its owner may still exist."""
    since = read_clock() - datetime.fromisoformat(run.beat_at or run.started_at)
    return since.total_seconds() < SILENCE and not has_ended(run.owner)


@contextlib.contextmanager
def hold_lease(ledger: Ledger, run_id: str, *, reset_approval: bool = False) -> Iterator[None]:
    """Hold the lease on a run, with heartbeats, until the block has ended.

    `reset_approval`: see `Runs.acquire_lease`. Raises `LeaseLost` where another process has it.
    """

    def send_heartbeat() -> None:
        with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):  # the next write will report it
            ledger.renew_lease(run_id)

    ledger.acquire_lease(run_id, reset_approval=reset_approval)
    try:
        with run_periodically(BEAT, send_heartbeat):
            yield
    finally:
        with contextlib.suppress(sa.exc.SQLAlchemyError):  # then it expires
            ledger.release_lease(run_id)


@contextlib.contextmanager
def run_periodically(seconds: float, work: Callable[[], None]) -> Iterator[None]:
    """Run the block while a thread calls `work` every `seconds` seconds."""
    done = threading.Event()

    def run_until_stopped() -> None:
        while not done.wait(seconds):
            work()

    thread = threading.Thread(target=run_until_stopped, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
