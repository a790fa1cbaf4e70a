"""Time spent compiling Numba kernels, which is subtracted from training times.

Numba compiles a kernel on its first use on a machine and caches the code. For a k-MIP network this
takes about ten seconds, more than the whole training of a small one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

COMPILING_NOTICE = "Compiling kernels for this machine: some seconds, on first use only."
NOTICE_AFTER_SECONDS = 1.0

_seconds = 0.0  #: total time of finished compilations
_announce: Callable[[str], object] | None = None


def announce_compiling(function: Callable[[str], object]) -> None:
    """Call ``function`` once with :data:`COMPILING_NOTICE` after :data:`NOTICE_AFTER_SECONDS` of compiling."""
    global _announce
    _announce = function


def time_without_compiling() -> float:
    """Return the time of a clock, in seconds, that stops while kernels are compiled."""
    return time.perf_counter() - _seconds


def _announce_if_slow(start: float) -> None:
    """Announce compilation if it has taken long; ``start`` is when the outermost kernel started."""
    global _announce
    if _announce is not None and _seconds + time.perf_counter() - start > NOTICE_AFTER_SECONDS:
        _announce(COMPILING_NOTICE)
        _announce = None


def watch_numba() -> None:
    """Start measuring compilations; must be called before the first kernel is defined."""
    from numba.core import event

    class CompilationTimer(event.Listener):
        """Measure compilations; nested ones count once."""

        depth = 0
        start = 0.0

        def on_start(self, event: Any) -> None:
            if self.depth == 0:
                self.start = time.perf_counter()
            _announce_if_slow(self.start)
            self.depth += 1

        def on_end(self, event: Any) -> None:
            global _seconds
            self.depth -= 1
            if self.depth == 0:
                _seconds += time.perf_counter() - self.start

    # Numba compiles under a lock, so events of two threads never interleave.
    event.register("numba:compile", CompilationTimer())  # type: ignore[no-untyped-call]
