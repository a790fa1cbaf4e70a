"""No interrupt is lost: one that Python would print and forget is sent again."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

AGAIN_AFTER = 0.05  #: seconds
_SIGNALS = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}


def repeating(
    shown: Callable[[sys.UnraisableHookArgs], object],
) -> Callable[[sys.UnraisableHookArgs], object]:
    """Return a hook for :data:`sys.unraisablehook` that sends a swallowed SIGINT or SIGTERM again.

    Python swallows what a handler raises while a callback of a weak reference or a finaliser runs; imports
    and h5py are full of them.

    Parameters
    ----------
    shown
        The hook for everything else.
    """

    def hook(event: sys.UnraisableHookArgs) -> None:
        number = _SIGNALS.get(event.exc_type)
        if number is None:
            shown(event)
            return
        again = threading.Timer(AGAIN_AFTER, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()

    return hook


@contextlib.contextmanager
def insisting() -> Iterator[None]:
    """Have that hook inside the block; the old one is back afterwards."""
    before = sys.unraisablehook
    sys.unraisablehook = repeating(before)
    try:
        yield
    finally:
        sys.unraisablehook = before
