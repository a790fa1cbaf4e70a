"""Seconds that go into compiling kernels, so that no time of a training contains them.

Numba compiles a kernel on its first use on a machine and caches the code. That takes about ten
seconds for a k-MIP network, more than the whole training of a small one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

NOTICE = "Compiling kernels for this machine: some seconds, on first use only."
SILENT = 1.0  #: seconds of compiling that pass without a notice

_seconds = 0.0  #: seconds of the finished compilations
_announce: Callable[[str], object] | None = None


def announce_compiling(function: Callable[[str], object]) -> None:
    """Call ``function`` with :data:`NOTICE` once, when this process has compiled for :data:`SILENT` seconds."""
    global _announce
    _announce = function


def time_without_compiling() -> float:
    """Return the seconds of a clock that stands still while kernels are compiled."""
    return time.perf_counter() - _seconds


def _notify(begun: float) -> None:
    """Announce that kernels are compiled, if that takes long, and more are to come.

    ``begun`` is the time at which the outermost kernel began.
    """
    global _announce
    if _announce is not None and _seconds + time.perf_counter() - begun > SILENT:
        _announce(NOTICE)
        _announce = None


def watch_numba() -> None:
    """Listen to numba, which is imported: called before the first kernel is defined."""
    from numba.core import event

    class Listener(event.Listener):
        """Measure compilations; one that calls for others counts once."""

        depth = 0
        begun = 0.0

        def on_start(self, event: Any) -> None:
            if self.depth == 0:
                self.begun = time.perf_counter()
            _notify(self.begun)
            self.depth += 1

        def on_end(self, event: Any) -> None:
            global _seconds
            self.depth -= 1
            if self.depth == 0:
                _seconds += time.perf_counter() - self.begun

    # Numba compiles under a lock, so events of two threads never interleave.
    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]
