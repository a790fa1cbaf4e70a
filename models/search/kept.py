"""Results of searches kept for a second pass over the same layer, which then need not search again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor

from kmip_data.runtime.threads import set_within

Found = tuple[Tensor, Tensor]  #: scores and indices, as a search gives them

_local = threading.local()


class KeptSearches:
    """The searches of one forward pass, in order.

    A layer that is recomputed in the backward pass has the same queries and keys again, so its search
    has the same result: what takes most of the time need not be done twice. Kept are (H, N, k) float32
    scores and int32 indices, 8 bytes per chosen pair.
    """

    def __init__(self) -> None:
        self._found: list[Found] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within it this thread's searches are kept."""
        self._found.clear()
        with set_within(_local, "answer", self._record):
            yield

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Within it this thread's searches are answered by the kept ones, in the same order."""
        kept = iter(self._found)

        def replay(_: Callable[[], Found], _rows: int) -> Found:
            scores, indices = next(kept)
            return scores, indices.long()

        with set_within(_local, "answer", replay):
            yield

    def _record(self, search: Callable[[], Found], rows: int) -> Found:
        scores, indices = search()
        narrow = indices.int() if rows < 2**31 else indices
        self._found.append((scores, narrow))
        return scores, indices


def kept_or(search: Callable[[], Found], rows: int) -> Found:
    """Return the kept result of this search over ``rows`` keys, or search (and keep it, where asked for)."""
    answer = getattr(_local, "answer", None)
    found: Found = search() if answer is None else answer(search, rows)
    return found
