"""Seconds that go into compiling kernels, so that no time of a training contains them.

Numba compiles a kernel on its first use on a machine and caches the code. That takes about ten
seconds for a k-MIP network, more than the whole training of a small one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

NOTICE = "Compiling kernels{} for this machine: some seconds, on first use only."
#: Part of the package -> use of its kernels.
_USES = {
    "models": " of networks",
    "graphs": " of graph algorithms",
    "reading": " that read builds",
    "runtime": " that read builds",
    "pipelines": " that read raw files",
    "drawing": " that draw graphs",
}

_seconds = 0.0  #: seconds of the finished compilations
_announce: Callable[[str], object] | None = None
_announced = set[str]()


def announce_first_compilation(function: Callable[[str], object]) -> None:
    """Call ``function`` with :data:`NOTICE` when this process compiles the first kernel of a part."""
    global _announce
    _announce = function


def time_without_compiling() -> float:
    """Return the seconds of a clock that stands still while kernels are compiled."""
    return time.perf_counter() - _seconds


def _notify(module: str) -> None:
    """Announce the kernels of the part of the package that a module belongs to, once."""
    _, _, inside = module.partition("kmip_data.")
    use = _USES.get(inside.partition(".")[0], "")
    if _announce is not None and use not in _announced:
        _announced.add(use)
        _announce(NOTICE.format(use))


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
                _notify(event.data["dispatcher"].py_func.__module__)
            self.depth += 1

        def on_end(self, event: Any) -> None:
            global _seconds
            self.depth -= 1
            if self.depth == 0:
                _seconds += time.perf_counter() - self.begun

    # Numba compiles under a lock, so events of two threads never interleave.
    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]
