"""Seconds that go into compiling kernels, so that no time of a training contains them.

Numba compiles a kernel on its first use on a machine and caches the code. That takes about ten
seconds for a k-MIP network, more than the whole training of a small one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

NOTICE = "Compiling kernels for this machine: about 10 s, on first use only."

_seconds = 0.0  #: seconds of the finished compilations
_announce: Callable[[str], object] | None = None


def announce(function: Callable[[str], object]) -> None:
    """Call ``function`` with :data:`NOTICE` when this process compiles its first kernel."""
    global _announce
    _announce = function


def working_time() -> float:
    """Return the seconds of a clock that stands still while kernels are compiled."""
    return time.perf_counter() - _seconds


def watch() -> None:
    """Listen to numba, which is imported: called before the first kernel is defined."""
    from numba.core import event

    class Listener(event.Listener):
        """Measure compilations; one that calls for others counts once."""

        depth = 0
        begun = 0.0

        def on_start(self, event: Any) -> None:
            global _announce
            if self.depth == 0:
                self.begun = time.perf_counter()
            self.depth += 1
            if _announce is not None:
                _announce(NOTICE)
                _announce = None

        def on_end(self, event: Any) -> None:
            global _seconds
            self.depth -= 1
            if self.depth == 0:
                _seconds += time.perf_counter() - self.begun

    # Numba compiles under a lock, so events of two threads never interleave.
    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]
