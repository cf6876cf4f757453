"""Whether servers can be reached."""

from __future__ import annotations

import contextlib
import socket


def is_listening(host: str, port: int) -> bool:
    """Tell whether a process listens at a port."""
    with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), port), timeout=10):
        return True
    return False
