"""The identity of processes: a token by which others see whether a process still lives.

A process counts as dead when it has ended, if this can be seen on this machine, or when it has sent no heartbeat for
`SILENCE` seconds.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import datetime
from pathlib import Path

import psutil

from . import clock

SILENCE = 60.0  # seconds without a heartbeat after which a process counts as dead


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


def counts_as_dead(owner: str | None, beat_at: str) -> bool:
    """Tell whether a process counts as dead, by its token and its last heartbeat, which may be in the future."""
    since = clock.read_clock() - datetime.fromisoformat(beat_at)
    return since.total_seconds() >= SILENCE or has_ended(owner)
