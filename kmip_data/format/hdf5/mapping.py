"""Map a file read-only without keeping a file descriptor open."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
import weakref
from typing import Any


def map_file(descriptor: int, size: int) -> memoryview | mmap.mmap:
    """Map ``size`` bytes of an open file, read-only; the caller may close the descriptor at once.

    A build can have more shards than a process may have open files, and ``mmap.mmap`` keeps a
    duplicate of the descriptor until Python 3.13. Before that, ``mmap(2)`` is called directly.
    The mapping ends when the last array over it goes.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, trackfd=False)
    library = _library()
    address = library.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    buffer = (ctypes.c_ubyte * size).from_address(address)
    release = weakref.finalize(buffer, library.munmap, address, size)
    release.atexit = False  # arrays may be in use until the process is gone
    return memoryview(buffer).toreadonly()


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    off_t = ctypes.c_long
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, off_t]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library
