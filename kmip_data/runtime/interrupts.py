"""A signal to end unwinds like an exception, and none that Python would print and forget is lost."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

AGAIN_AFTER = 0.05  #: seconds
#: What asks a program to end, beside Ctrl-C: ``kill``, and a terminal or connection that closes.
ENDING = (signal.SIGTERM, signal.SIGHUP)


def end(number: int, _frame: FrameType | None) -> NoReturn:
    """Handle a signal of :data:`ENDING`: locks are freed and children ended on the way out."""
    for stream in (1, 2):
        try:
            os.tcgetpgrp(stream)
        except OSError as error:
            if error.errno == errno.EIO:  # a terminal that is gone: what is still said must not fail
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    raise SystemExit(128 + number)


def repeating(
    shown: Callable[[sys.UnraisableHookArgs], object],
) -> Callable[[sys.UnraisableHookArgs], object]:
    """Return a hook for :data:`sys.unraisablehook` that resends a swallowed signal; ``shown`` takes all else.

    Python swallows what a handler raises while a callback of a weak reference or a finaliser runs; imports
    and h5py are full of them.
    """

    def hook(event: sys.UnraisableHookArgs) -> None:
        number = _signal_of(event.exc_value)
        if number is None:
            shown(event)
            return
        ready = threading.Event()

        def again() -> None:
            ready.wait()  # what comes before this hook is left would be swallowed, too
            time.sleep(AGAIN_AFTER)
            os.kill(os.getpid(), number)

        threading.Thread(target=again, daemon=True).start()
        ready.set()

    return hook


def _signal_of(error: BaseException | None) -> int | None:
    """Which signal raised ``error``, if one did."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    code = error.code if isinstance(error, SystemExit) else None
    return next((number for number in ENDING if code == 128 + number), None)


@contextlib.contextmanager
def resend_swallowed() -> Iterator[None]:
    """Have the hook of :func:`repeating` inside the block; the old one is back afterwards."""
    before = sys.unraisablehook
    sys.unraisablehook = repeating(before)
    try:
        yield
    finally:
        sys.unraisablehook = before
