"""Signals while a build runs: SIGTERM ends it as cleanly as Ctrl-C; workers leave both to their parent."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

TERMINATED = 128 + signal.SIGTERM  #: exit code after SIGTERM, 143
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise ``SystemExit(143)`` on SIGTERM, so that clean-up runs; Ctrl-C is a KeyboardInterrupt anyway.

    Outside the main thread, and where the program has its own SIGTERM handler, nothing changes.
    The old handler is back afterwards.
    """
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Ignore further SIGINT and SIGTERM while a short clean-up runs (main thread only)."""
    if not _in_main_thread():
        yield
        return
    before = [signal.getsignal(number) for number in _SIGNALS]
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            if handler is not None:  # None: set by C code, which cannot be put back from here
                signal.signal(number, handler)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back in this thread; processes started inside begin with them held back.

    A Ctrl-C on a terminal goes to every process of the group: a worker that is just starting must
    not die of it with a traceback before it can say that its parent decides.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_parent() -> None:
    """In a worker: ignore SIGINT and SIGTERM; the parent stops its workers."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)
