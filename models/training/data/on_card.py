"""Batches on their way to a GPU: copied by a stream of their own while the one before is in work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from kmip_data.format.parts import PARTS


def rows_of(part: str) -> str:
    """Name of the attribute of a batch with the rows of a part, int64: where its mask is true."""
    return f"{part}_rows"


class OnCard:
    """Train batches on ``device``, a GPU, each brought there before it is asked for.

    The copy runs beside the step where the batch's memory is page-locked, as that of
    ``GraphLoader(pin_memory=True)``. The rows of masks are looked up before, on the host, because on the GPU
    the host waits to learn how many there are. ``tell`` is told how long the first batch took.
    """

    def __init__(self, batches: Iterable[Any], device: torch.device, tell: Callable[[str], None]) -> None:
        self._batches, self._device, self._tell = batches, device, tell
        self._told = False
        # One for all epochs: what the allocator keeps for a stream it gives to no other.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type] # lists and loaders

    def __iter__(self) -> Iterator[Any]:
        begun = time.perf_counter()
        coming = None
        for batch in self._batches:
            ahead = self._sent(batch)
            if coming is not None:
                yield self._arrived(*coming)
            elif not self._told:
                ahead[1].synchronize()
                self._told = True
                self._tell(f"first batch: on the GPU after {time.perf_counter() - begun:.1f} s")
            coming = ahead
        if coming is not None:
            yield self._arrived(*coming)

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
