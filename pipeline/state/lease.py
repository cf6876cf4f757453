"""The lease of a run: one process at a time works on the run, and sends heartbeats while it does.

The lease is a token of the process in the row of the run. While this process holds it, the ledger checks it in every
transaction that writes for the run, including the one that inserts the ledger row. A process that has lost its lease is
refused and changes nothing. Each stage takes the lease and gives it up, so that another process, even on another
machine, may run the next stage. A process may take over the lease of an owner that counts as dead (`process_identity`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ..errors import LeaseLost

if TYPE_CHECKING:
    from .ledger import Ledger

BEAT = 5.0  # seconds between two heartbeats


@contextlib.contextmanager
def hold_lease(ledger: Ledger, run_id: str, *, reset_approval: bool = False) -> Iterator[None]:
    """Hold the lease on a run, with heartbeats, until the block has ended.

    `reset_approval`: see `RunStore.acquire_lease`. Raises `LeaseLost` where another process has it.
    """

    def send_heartbeat() -> None:
        with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):  # the next write will report it
            ledger.runs.renew_lease(run_id)

    ledger.runs.acquire_lease(run_id, reset_approval=reset_approval)
    try:
        with run_periodically(BEAT, send_heartbeat):
            yield
    finally:
        with contextlib.suppress(sa.exc.SQLAlchemyError):  # then it expires
            ledger.runs.release_lease(run_id)


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
