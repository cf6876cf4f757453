"""Which process works on a run. One at a time: it holds the run's lease and beats while it works.

The lease is a token of the process in the run's row. The ledger looks at it in every transaction that writes for the
run, the one with the ledger row among them: a process that has lost its lease (it hung for `SILENCE`, or was taken for
dead) is refused and changes nothing. Each stage takes the lease and gives it back, so that the next one may be another
process, on another machine. It is taken over from a former owner that has ended, as far as can be seen from here, or
that has not beaten for so long.
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
    """The time; tests set another."""
    return datetime.now(UTC)


def timestamp() -> str:
    """The time, as it is stored."""
    return read_clock().isoformat(timespec="milliseconds")


def process_token(pid: int | None = None) -> str:
    """A token of this process, or of another one here: its machine, its number there, and when it began."""
    there = psutil.Process(pid)
    return f"{_machine_token()}/{there.pid}/{_process_start(there)}"


def _process_start(there: psutil.Process) -> str:
    """When it began: in ticks since the machine did, where told. The time that psutil says moves with the clock."""
    try:
        return Path(f"/proc/{there.pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()[19]
    except OSError:
        return f"{there.create_time():.2f}"


def _machine_token() -> str:
    """The host and the container in it: only there do process numbers mean anything."""
    name = socket.gethostname().replace("/", "_")[:80]
    with contextlib.suppress(OSError):
        return f"{name}.{os.stat('/proc/self/ns/pid').st_ino}"
    return name


def is_on_this_machine(owner: str) -> bool:
    """Is this a process of this machine, of which one can see whether it has ended?"""
    return owner.rsplit("/", 2)[0] == _machine_token()


def has_ended(owner: str | None) -> bool:
    """Is it certain that this process is not there any more? Of another machine's nothing is."""
    machine, pid, began = (owner or "//").rsplit("/", 2)
    if machine != _machine_token():
        return False
    try:
        there = psutil.Process(int(pid))
        return _process_start(there) != began or there.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def has_heartbeat(run: RunRecord) -> bool:
    """Was there a heartbeat within `SILENCE`, of a process that may be there? (A clock that went back is one.)"""
    since = read_clock() - datetime.fromisoformat(run.beat_at or run.started_at)
    return since.total_seconds() < SILENCE and not has_ended(run.owner)


@contextlib.contextmanager
def hold_lease(ledger: Ledger, run_id: str, *, again: bool = False) -> Iterator[None]:
    """Hold the lease on a run, with a heartbeat, until the block has ended. Raises `LeaseLost` when another has it.
    `again`: to compute, see `Runs.acquire_lease`."""

    def send_heartbeat() -> None:
        with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):  # the next write will say so
            ledger.renew_lease(run_id)

    ledger.acquire_lease(run_id, again=again)
    try:
        with run_periodically(BEAT, send_heartbeat):
            yield
    finally:
        with contextlib.suppress(sa.exc.SQLAlchemyError):  # then it expires
            ledger.release_lease(run_id)


@contextlib.contextmanager
def run_periodically(seconds: float, work: Callable[[], None]) -> Iterator[None]:
    """Do `work` every so many seconds, from a thread, until the block has ended."""
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
