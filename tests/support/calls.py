"""Calls of one batch of the training loop, counted by PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined] # of C++
from torch.profiler import ProfilerActivity, profile

#: Names of the profiler.
LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"}
LAUNCHES |= {"cudaGraphLaunch"}
WAITS = {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"}
OWN_WAITS = 1  #: of the profiler, which waits for the GPU when it stops
_RECORDING = ("cudaStreamBeginCapture", "cudaGraphInstantiate")


@dataclass(frozen=True)
class Calls:
    """Calls of one batch; on a CPU all but ``operators`` are 0."""

    operators: int  #: not called by other operators
    launches: int  #: by the host: of a kernel, or of a CUDA graph with all of its kernels
    kernels: int  #: that ran on the GPU, those in graphs too; no copies
    synchronisations: int  #: of the host with the GPU
    replayed: bool  #: whether a CUDA graph was launched, and none recorded

    @classmethod
    def of(cls, events: Iterable[Any]) -> Calls:
        """Count the events of a profiler."""
        events = list(events)
        names = [event.name for event in events]
        return cls(
            operators=sum(_is_operator(event) and not _inside_operator(event) for event in events),
            launches=sum(name in LAUNCHES for name in names),
            kernels=sum(map(_is_kernel, events)),
            synchronisations=max(0, sum(name in WAITS for name in names) - OWN_WAITS),
            replayed="cudaGraphLaunch" in names and not any(name.startswith(_RECORDING) for name in names),
        )


class CallCounter:
    """Counts the calls of one batch, as ``watch`` of a training loop: ``found``.

    It is the first one after ``before`` others; with ``replayed`` the first that a CUDA graph replays, and
    ``None`` if no batch of the run is.
    """

    def __init__(self, device: str, *, before: int = 1, replayed: bool = False) -> None:
        self._cuda, self._left, self._replayed = device == "cuda", before, replayed
        self.found: Calls | None = None

    @contextmanager
    def __call__(self, batch: Any, last: bool) -> Iterator[None]:
        """Count the calls inside the block, if it is the right one."""
        self._left -= 1
        if self._left >= 0 or self.found is not None:
            yield
            return
        if self._cuda:
            torch.cuda.synchronize()  # kernels of the batch before are not this one's
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._cuda else [])]
        with profile(activities=activities) as profiler:
            yield
        calls = Calls.of(profiler.events() or ())
        if calls.replayed or not self._replayed:
            self.found = calls


def _is_kernel(event: Any) -> bool:
    on_gpu = event.device_type == DeviceType.CUDA and not event.is_user_annotation
    return on_gpu and not event.name.startswith(("Memcpy", "Memset"))


def _is_operator(event: Any) -> bool:
    return "::" in event.name and not event.name.startswith("autograd::")


def _inside_operator(event: Any) -> bool:
    while (event := event.cpu_parent) is not None:
        if _is_operator(event):
            return True
    return False
