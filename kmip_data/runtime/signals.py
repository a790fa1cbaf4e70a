"""Termination signals, raised as exceptions so that clean-up runs, and deferred in critical sections."""

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

RESEND_SECONDS = 0.05
#: Termination signals other than Ctrl-C: ``kill``, and a terminal or connection that closes.
TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_SIGNALS = (signal.SIGINT, *TERMINATION_SIGNALS)
#: default handlers
_DEFAULT_HANDLERS: dict[int, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    **dict.fromkeys(TERMINATION_SIGNALS, signal.SIG_DFL),
}


class Ended(SystemExit):
    """Exit caused by a signal; code that catches ``SystemExit`` must re-raise it."""


def unwind_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    """Handle a termination signal by an exception, which releases locks and ends children."""
    for stream in (1, 2):
        try:
            os.tcgetpgrp(stream)
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal is gone: later output must not fail
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    raise Ended(128 + number)


_Hook = Callable[["sys.UnraisableHookArgs"], object]


def resend_swallowed_signals(default_hook: _Hook) -> _Hook:
    """Return a hook for :data:`sys.unraisablehook` that resends a swallowed signal.

    Python swallows exceptions raised by a handler while a finaliser or the callback of a weak
    reference runs, which happens often in imports and h5py. ``default_hook`` gets all others.
    """

    def hook(event: sys.UnraisableHookArgs) -> None:
        error = event.exc_value
        code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "code", None)
        received = [number for number in _SIGNALS if code == 128 + number]
        if received:  # resend it after the hook has returned, else it would be swallowed again
            timer = threading.Timer(RESEND_SECONDS, os.kill, (os.getpid(), received[0]))
            timer.daemon = True
            timer.start()
        else:
            default_hook(event)

    return hook


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise ``SystemExit`` on SIGTERM (143) and SIGHUP (129), so that clean-up runs as for Ctrl-C.

    A signal takes effect even if Python swallows its exception or a library replaces it. Nothing
    changes outside the main thread, or for a signal that the program handles or ignores (``nohup``).
    The previous handlers are restored at the end.
    """
    handled = [
        number
        for number, handler in _DEFAULT_HANDLERS.items()
        if signal.getsignal(number) is handler
    ]
    if threading.current_thread() is not threading.main_thread() or not handled:
        yield
        return
    received = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if number in TERMINATION_SIGNALS:
            unwind_on_signal(number, frame)
        signal.default_int_handler(number, frame)

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
            signal.signal(number, _DEFAULT_HANDLERS[number])


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP until the block ends, here and in processes started inside.

    An exception from a handler must not interrupt clean-up or the start of processes. Ctrl-C on a
    terminal reaches every process of the group, so workers start with all signals blocked, and do
    not die with a traceback. loky's resource tracker never unblocks SIGHUP: it outlives the terminal.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    # The mask covers only this thread. The system may deliver a signal to another thread, and Python
    # then runs the handler in the main thread, so handlers are replaced as well.
    deferred = []
    handlers = []
    if threading.current_thread() is threading.main_thread():
        handlers = [(n, handler) for n in _SIGNALS if callable(handler := signal.getsignal(n))]
        for number, _ in handlers:
            signal.signal(number, lambda number, _: deferred.append(number))
    try:
        yield
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for deferred_number in deferred:
            signal.raise_signal(deferred_number)


def ignore_ending_signals() -> None:
    """Ignore SIGINT, SIGTERM and SIGHUP in a worker, which its parent stops."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
