"""Signals while a build runs: SIGTERM ends it as cleanly as Ctrl-C; workers leave both to their parent."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from kmip_data.interrupts import insisting

TERMINATED = 128 + signal.SIGTERM  #: exit code after SIGTERM, 143
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HAS_MASK = hasattr(signal, "pthread_sigmask")


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise ``SystemExit(143)`` on SIGTERM, so that clean-up runs; Ctrl-C is a KeyboardInterrupt anyway.

    Neither is lost where Python would swallow it. Outside the main thread, and where the program has its own
    SIGTERM handler, nothing changes. The old handlers are back afterwards.
    """
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with insisting():
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
def held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the block ends, here and in processes started inside.

    Starting processes must not be torn apart by an exception from a handler. And a Ctrl-C on a
    terminal goes to every process of the group: a worker that is just starting must not die of it
    with a traceback before it can say that its parent decides, so it begins with both blocked.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS) if _HAS_MASK else None
    # The mask is this thread's; the system may hand the signal to another one, whose C handler then
    # makes the main thread run the Python handler all the same: that one has to wait too.
    caught: list[int] = []
    before = []
    if _in_main_thread():
        before = [(n, handler) for n in _SIGNALS if callable(handler := signal.getsignal(n))]
        for number, _ in before:
            signal.signal(number, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for late in caught:
            signal.raise_signal(late)


def leave_to_parent() -> None:
    """In a worker: ignore SIGINT and SIGTERM; the parent stops its workers."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if _HAS_MASK:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)
