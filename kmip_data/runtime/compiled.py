"""The one way kernels are compiled: without the GIL, and kept on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def njit_nogil(**options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles with :func:`numba.njit` and ``options``, releasing the GIL.

    The machine code is cached beside the source or in the user's cache folder. Where neither can be
    written to (a read-only install and no home folder) numba refuses to cache at all; then the function
    is compiled once per process.
    """

    def compile_it(function: F) -> F:
        try:
            return cast("F", njit(nogil=True, cache=True, **options)(function))
        except RuntimeError:  # "no locator available"
            return cast("F", njit(nogil=True, **options)(function))

    return compile_it
