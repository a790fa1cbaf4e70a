"""Signals that end a program unwind it like an exception.

Builds hold them back where they must not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

AGAIN_AFTER = 0.05  #: seconds
#: Signals that end a program, besides Ctrl-C: ``kill``, and a terminal or connection that closes.
ENDING = (signal.SIGTERM, signal.SIGHUP)
_SIGNALS = (signal.SIGINT, *ENDING)
#: Handlers of a program that has none of its own.
_USUAL: dict[int, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    **dict.fromkeys(ENDING, signal.SIG_DFL),
}


class Ended(SystemExit):
    """Exit because of a signal; code that catches ``SystemExit`` must re-raise it."""


def unwind_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    """Handle a signal of :data:`ENDING`: locks are freed and children ended on the way out."""
    for stream in (1, 2):
        try:
            os.tcgetpgrp(stream)
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal is gone: later output must not fail
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    raise Ended(128 + number)


_Hook = Callable[["sys.UnraisableHookArgs"], object]


def resend_swallowed_signals(shown: _Hook) -> _Hook:
    """Return a hook for :data:`sys.unraisablehook` that resends a swallowed signal.

    ``shown`` takes all else.

    Python swallows what a handler raises while a callback of a weak reference or a finaliser runs;
    imports and h5py are full of them.
    """

    def hook(event: sys.UnraisableHookArgs) -> None:
        error = event.exc_value
        code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "code", None)
        received = [number for number in _SIGNALS if code == 128 + number]
        if received:  # after this hook is left: what comes before that would be swallowed, too
            timer = threading.Timer(AGAIN_AFTER, os.kill, (os.getpid(), received[0]))
            timer.daemon = True
            timer.start()
        else:
            shown(event)

    return hook


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise ``SystemExit`` on SIGTERM (143) and SIGHUP (129), so that clean-up runs, as it does at Ctrl-C.

    No signal is lost where Python would swallow it, or a library would raise an error of its own.
    Outside the main thread, and for a signal that the program handles itself or ignores
    (``nohup``), nothing changes. The old handlers are back afterwards.
    """
    handled = [number for number, handler in _USUAL.items() if signal.getsignal(number) is handler]
    if threading.current_thread() is not threading.main_thread() or not handled:
        yield
        return
    received = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        (unwind_on_signal if number in ENDING else signal.default_int_handler)(number, frame)

    hook = sys.unraisablehook
    sys.unraisablehook = resend_swallowed_signals(sys.unraisablehook)
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    except Exception:
        if received:
            stop(received[0], None)
        raise
    finally:
        sys.unraisablehook = hook
        for number in handled:
            signal.signal(number, _USUAL[number])


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Hold SIGINT, SIGTERM and SIGHUP back until the block ends, here and in processes started inside.

    Clean-up and starting processes must not be torn apart by an exception from a handler. And a
    Ctrl-C on a terminal goes to every process of the group: a starting worker begins with all
    blocked, so as not to die of it with a traceback. loky's resource tracker never unblocks SIGHUP:
    it outlives the terminal.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    # The mask is this thread's; the system may hand the signal to another one, whose C handler then
    # makes the main thread run the Python handler all the same: that one has to wait too.
    caught = []
    before = []
    if threading.current_thread() is threading.main_thread():
        before = [(n, handler) for n in _SIGNALS if callable(handler := signal.getsignal(n))]
        for number, _ in before:
            signal.signal(number, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for late in caught:
            signal.raise_signal(late)


def ignore_ending_signals() -> None:
    """In a worker: ignore SIGINT, SIGTERM and SIGHUP; the parent stops its workers."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
