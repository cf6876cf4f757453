"""Ctrl-C and SIGTERM: the command ends with one line and code 130, its run is recorded, and no process stays behind.

The handler ends every child process (Spark's JVM, even while it is starting), so that nothing waits for one, and raises
`Interrupted` in the main thread. `Interrupted` is neither an `Exception` nor a `KeyboardInterrupt`, so neither py4j nor
the option parser handles it as one of its own. A library may still lose it, or fail because the JVM has ended. So after
a signal `interruption_of` returns the interruption, whichever error arrives. A second signal ends everything at once.
"""

from __future__ import annotations

import logging
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import psutil

from .errors import Exit, termination_cause

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME_SIGNAL_SECONDS = 1.0  # seconds within which a second signal counts as the first one, passed on by a parent program
PATIENCE = 5.0  # seconds in which a child process may end by itself


class Interrupted(BaseException):
    """A signal asked the command to end. `during` is the stage that was running, if any."""

    during: str | None = None


class _Signal:
    """The first signal: its time, the exception that it raised, and the child processes at that time."""

    def __init__(self) -> None:
        self.received_at = time.monotonic()
        self.raised = Interrupted()
        self.children = _list_children()


_first_signal: _Signal | None = None
break_off: Callable[[], None] | None = None  # breaks off what this process has asked of a process that is no child


def interruption_of(error: BaseException | None = None) -> BaseException | None:
    """Return what asked the work to end: a signal, even if it led to another error, or else the cause of `error`."""
    return _first_signal.raised if _first_signal else termination_cause(error)


@contextmanager
def handle_signals() -> Iterator[None]:
    """Run the block with a handler that raises `Interrupted` at Ctrl-C and SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _first_signal
    _first_signal = None
    before = {number: signal.signal(number, _raise) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def preserve_sigint_handler() -> Iterator[None]:
    """Keep the handler of Ctrl-C while the block runs: PySpark's own handler would call a JVM that has ended.

    PySpark installs its handler some seconds before its session is ready, and a signal during these seconds would be
    lost.
    """
    install = signal.signal

    def install_others(number: int, handler: Any) -> Any:
        return signal.getsignal(number) if number == signal.SIGINT else install(number, handler)

    if signal.getsignal(signal.SIGINT) is not _raise:
        yield
        return
    signal.signal = install_others  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = install


def _raise(number: int, frame: FrameType | None) -> None:
    global _first_signal
    if _first_signal is not None:
        if time.monotonic() - _first_signal.received_at > SAME_SIGNAL_SECONDS:
            _send_signal(signal.SIGKILL, {*_first_signal.children, *_list_children()})
            os._exit(Exit.INTERRUPTED)
        return
    _first_signal = _Signal()
    _silence_hooks()
    _send_signal(signal.SIGTERM, _first_signal.children)
    if break_off is not None:
        break_off()
    raise _first_signal.raised


def _silence_hooks() -> None:
    """Suppress what other threads and destructors report when their work breaks off after a signal."""

    def ignore(*_: Any) -> None:
        pass

    logging.disable(logging.CRITICAL)
    threading.excepthook = ignore
    sys.unraisablehook = ignore
    socketserver.BaseServer.handle_error = ignore  # type: ignore[assignment,method-assign]


def end_children() -> None:
    """End every process that this one has started, including one that was starting when the signal arrived."""
    known = _first_signal.children if _first_signal else set()
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        known = {child for child in known | _list_children() if child.is_running()}
        if not known:
            return
        _send_signal(number, known)
        psutil.wait_procs(known, PATIENCE)


def _list_children() -> set[psutil.Process]:
    return set(psutil.Process(os.getpid()).children(recursive=True))


def _send_signal(number: int, processes: set[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
