"""Memory of a piece of work as torch's own allocator counts it, which no other process changes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from kmip_data.models.attention import cpu_kernels
from kmip_data.runtime import reused_buffers


def measure_peak(work: Callable[[], object]) -> int:
    """Most bytes that ``work`` has allocated at one time, beyond what there was before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    events = [
        event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    events.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate(event.nbytes() for event in events))


@contextlib.contextmanager
def saved_for_backward() -> Iterator[dict[int, int]]:
    """Bytes of each memory that a forward pass inside keeps for its backward pass, by address."""
    sizes: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        memory = tensor.untyped_storage()
        sizes[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield sizes


def count_numpy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch allocate what the compiled passes of layers and attention else take from NumPy.

    The kernels must have been compiled before: run the work once.
    """

    def empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
        return torch.from_numpy(np.empty(0, dtype)).new_empty(tuple(shape)).numpy()

    def zeros(shape: Sequence[int], dtype: Any) -> np.ndarray:
        return torch.from_numpy(np.empty(0, dtype)).new_zeros(tuple(shape)).numpy()

    monkeypatch.setattr(cpu_kernels, "np", SimpleNamespace(empty=empty, zeros=zeros))
    monkeypatch.setattr(reused_buffers, "reused_array", empty)
