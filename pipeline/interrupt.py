"""Ctrl-C and SIGTERM: the command ends with one line and code 130, its run is recorded, and no process stays behind.

The handler ends every child (Spark's JVM, also one that is just starting), so that nothing waits for it, and raises
`Interrupted` where the main thread is. It is no `Exception` and no `KeyboardInterrupt`: neither py4j nor the option
parser takes it for something of theirs. A library may lose it all the same, or fail for the JVM that has ended: after a
signal `interruption_of` is what ended the command, whatever error arrives. A second signal ends everything at once.
"""

from __future__ import annotations

import logging
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import psutil

from .errors import Exit, termination_cause

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME = 1.0  # seconds within which a second signal is the first one, passed on by a program around this one
PATIENCE = 5.0  # seconds that a child has to end by itself


class Interrupted(BaseException):
    """A signal asked the command to end; `during` which stage, where one was at work."""

    during: str | None = None


class _Signal:
    """The first signal that came: when, what it raised, and the children that there were."""

    def __init__(self) -> None:
        self.at = time.monotonic()
        self.raised = Interrupted()
        self.children = _list_children()


_first: _Signal | None = None


def interruption_of(error: BaseException | None = None) -> BaseException | None:
    """What asked the work to end: a signal, though another error has come of it, or else what is behind `error`."""
    return _first.raised if _first else termination_cause(error)


@contextmanager
def handle_signals() -> Iterator[None]:
    """Inside, these signals raise `Interrupted`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _first
    _first = None
    before = {number: signal.signal(number, _raise) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def preserve_sigint_handler() -> Iterator[None]:
    """What the block does to the handler of Ctrl-C is undone: PySpark's own speaks with a JVM that has ended."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is _raise and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _raise(number: int, frame: FrameType | None) -> None:
    global _first
    if _first is not None:
        if time.monotonic() - _first.at > SAME:
            _send_signal(signal.SIGKILL, {*_first.children, *_list_children()})
            os._exit(Exit.INTERRUPTED)
        return
    _first = _Signal()
    _silence_hooks()
    _send_signal(signal.SIGTERM, _first.children)
    raise _first.raised


def _silence_hooks() -> None:
    """What breaks off now, in other threads and in destructors, is no news."""

    def ignore(*_: Any) -> None:
        pass

    logging.disable(logging.CRITICAL)
    threading.excepthook = ignore
    sys.unraisablehook = ignore
    socketserver.BaseServer.handle_error = ignore  # type: ignore[assignment,method-assign]


def end_children() -> None:
    """End every process that this one has started, also one that was just starting when the signal came."""
    known = _first.children if _first else set()
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
