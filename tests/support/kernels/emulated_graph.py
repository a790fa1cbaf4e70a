"""A CUDA graph on the CPU: operators are recorded with their tensors, and replayed on the same memory.

As with a graph, what is recorded has not happened yet, replaying runs no Python of the model, and
each number that the host had is what it was. Operators that have the host wait for a GPU are
refused.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter

from kmip_data.models.attention.overflow import check_attention_weights, check_inner_products
from kmip_data.models.training.capture.cuda_graphs import CapturableWork, StepOutput

#: Operators that have the host wait for a GPU.
WAITS = {"_local_scalar_dense", "nonzero", "bincount", "masked_select", "unique_dim", "_unique2"}


#: Operations that only a mask makes wait, which is looked up where they run.
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}


def calls_of(func: Any, args: Any) -> list[str]:
    """The operator, and ``nonzero`` where it does that to a mask that is its index."""
    name = func.name().partition("::")[2].partition(".")[0]
    masks = (
        [t for t in _tensors(args[1]) if t.dtype in (torch.bool, torch.uint8)]
        if name in _INDEXED
        else []
    )
    return [name, "nonzero"] if masks else [name]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_iter(values) if isinstance(value, torch.Tensor)]


_CHECKS = {
    inspect.unwrap(check).__code__ for check in (check_inner_products, check_attention_weights)
}


def _of_a_cpu() -> bool:
    """True within a check that is left out on a GPU."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _CHECKS:
            return True
        frame = frame.f_back
    return False


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, dict[str, Any], list[torch.Tensor]]] = []
        self.before: dict[
            int, tuple[torch.Tensor, torch.Tensor]
        ] = {}  # what was there, and as it was
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if WAITS.intersection(calls_of(func, args)):
            if _of_a_cpu():
                return func(*args, **kwargs)
            raise RuntimeError("operation not permitted when stream is capturing")
        storages = {
            t.untyped_storage().data_ptr(): t.untyped_storage() for t in _tensors((args, kwargs))
        }
        for place in storages.keys() - self._made - self.before.keys():
            # Whether an operator writes to it is not always said: batch norm's schema does not.
            whole = torch.empty(0, dtype=torch.uint8).set_(storages[place])
            self.before[place] = whole, whole.clone()
        result = func(*args, **kwargs)
        self._made |= {t.untyped_storage().data_ptr() for t in _tensors(result)} - storages.keys()
        self.calls.append((func, args, kwargs, _tensors(result)))
        return result


class EmulatedGraphs:
    """Stand-in for :class:`~kmip_data.models.training.capture.cuda_graphs.CudaGraphs`."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0
        self.free, self.peak = 2, 1  #: bytes

    def free_and_peak_memory(self) -> tuple[int, int]:
        return self.free, self.peak

    def run(self, work: CapturableWork) -> StepOutput:
        """Do the work."""
        return work(False)

    def capture(self, work: CapturableWork) -> tuple[Callable[[], None], StepOutput]:
        """Capture, and undo what that did to memory and random numbers."""
        chances, recording = torch.get_rng_state(), _Recording()
        try:
            with recording:
                learned = work(False)  # what it keeps alive is in the recorded calls
        finally:
            for whole, before in recording.before.values():
                whole.copy_(before)
            torch.set_rng_state(chances)
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            with torch.no_grad(), _disable_current_modes():
                for func, args, kwargs, memory in recording.calls:
                    for there, now in zip(memory, _tensors(func(*args, **kwargs)), strict=True):
                        if there.data_ptr() != now.data_ptr():
                            there.copy_(now)

        return replay, learned
