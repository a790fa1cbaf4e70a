"""Memory that a step has freed goes back to the system, where that is asked for.

glibc takes tensors below a threshold from its heap, and what is freed there stays with the process,
in holes between blocks that live on. The threshold rises to 32 MiB by itself as larger blocks are freed.
With recomputed layers, whose tensors come and go all the time, that was 0.6 GiB of 1.7 (ADR 0226).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Final

_MMAP_THRESHOLD: Final = -3  #: parameter of glibc's ``mallopt``
LARGE: Final = 2**20  #: bytes from which a block is a mapping of its own
GLIBC_MOST: Final = 32 * 2**20  #: where glibc's own threshold ends up


def returns_memory(device: str, *, recompute: bool) -> bool:
    """Whether a run gives back what it frees: one on a CPU that recomputes its layers, as memory is short."""
    return device == "cpu" and recompute


@contextlib.contextmanager
def freed_at_once(wanted: bool = True) -> Iterator[None]:
    """Give blocks of a MiB and more back to the system as soon as they are freed.

    Does nothing where the C library is not glibc. Afterwards the threshold is the highest that glibc would
    choose: what it was cannot be asked.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if wanted else None
    if mallopt is None:
        yield
        return
    mallopt(_MMAP_THRESHOLD, LARGE)
    try:
        yield
    finally:
        mallopt(_MMAP_THRESHOLD, GLIBC_MOST)
