"""Transfer of batches to a GPU on a separate stream, during the previous step."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from kmip_data.format.splits import PARTS


def rows_of(part: str) -> str:
    """Name of the attribute of a batch with the rows of a part, int64: where its mask is true."""
    return f"{part}_rows"


def sent_ahead(
    batches: Iterable[Any], device: torch.device, tell: Callable[[str], None] | None = None
) -> Iterable[Any]:
    """Return what a loop reads; for a GPU, batches brought there while the one before is in work."""
    return SentAhead(batches, device, tell) if device.type == "cuda" else batches


def page_locked(wanted: str) -> bool:
    """True if batches for this ``system.device`` are page-locked, to be copied during a step."""
    return wanted != "cpu" and torch.cuda.is_available()


@functools.cache
def _copies(device: torch.device) -> torch.cuda.Stream:
    """One for all passes: what the allocator keeps for a stream it gives to no other."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class SentAhead:
    """Batches on ``device``, a GPU, each copied there ahead of its use.

    The copy overlaps the step where the batch's memory is :func:`page_locked`. The rows of masks are
    looked up before, on the host, because on the GPU the host waits to learn how many there are. ``tell``
    gets a line on how long the first batch took, for which the host then waits.
    """

    def __init__(
        self, batches: Iterable[Any], device: torch.device, tell: Callable[[str], None] | None = None
    ) -> None:
        self._batches, self._device, self._tell = batches, device, tell
        self._stream = _copies(device)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type] # lists and loaders

    def __iter__(self) -> Iterator[Any]:
        begun = time.perf_counter()
        coming = None
        for batch in self._batches:
            ahead = self._sent(batch)
            if coming is not None:
                yield self._arrived(*coming)
            elif self._tell is not None:
                ahead[1].synchronize()
                tell, self._tell = self._tell, None
                tell(f"first batch: on the GPU after {time.perf_counter() - begun:.1f} s")
            coming = ahead
        if coming is not None:
            yield self._arrived(*coming)

    @torch.inference_mode(False)  # an evaluation's graph may be trained on, too
    def _sent(self, batch: Any) -> tuple[Any, torch.cuda.Event]:
        """Begin the copy; the event is when it has ended."""
        for part in PARTS:
            mask = getattr(batch, f"{part}_mask", None)
            if mask is not None and rows_of(part) not in batch:  # one graph comes again every epoch
                batch[rows_of(part)] = mask.nonzero()[:, 0]
        with torch.cuda.stream(self._stream):
            return batch.to(self._device, non_blocking=True), self._stream.record_event()

    def _arrived(self, batch: Any, copied: torch.cuda.Event) -> Any:
        """Let the step wait on the GPU, not here, and keep the batch's memory until it is done with it."""
        here = torch.cuda.current_stream(self._device)
        here.wait_event(copied)
        return batch.apply_(lambda tensor: tensor.is_cuda and tensor.record_stream(here))
