"""Capture the work on a batch as a CUDA graph, and replay it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from kmip_data.runtime.memory import keeping_alive_for_capture


class StepOutput(NamedTuple):
    """Result of training on a batch."""

    logits: Tensor  #: (rows, outputs)
    target: Tensor
    loss: Tensor  #: scalar
    #: norm of the gradient before clipping; the loss if the optimizer did not step
    grad_norm: Tensor


#: Work on a batch; the argument is True while it is captured.
CapturableWork = Callable[[bool], StepOutput]
Results = TypeVar("Results", bound=tuple[Tensor, ...])


class CudaGraphs:
    """CUDA graphs of a device, warmed up and captured on one stream, in one memory pool.

    They can share the pool, because only one is replayed at a time and its results are copied.
    """

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        # A weak reference lets the graph be freed with its steps.
        self._newest: Callable[[], torch.cuda.CUDAGraph | None] = lambda: None

    def free_and_peak_memory(self) -> tuple[int, int]:
        """Return the device's free bytes, and its peak of allocated bytes."""
        free, _total = torch.cuda.mem_get_info(self._device)
        return free, torch.cuda.max_memory_allocated(self._device)

    def run(self, work: Callable[[bool], Results]) -> Results:
        """Run work uncaptured on the stream, so that libraries and the search allocate their workspaces."""
        caller = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            results = work(False)
        caller.wait_stream(self._stream)
        for tensor in results:
            tensor.record_stream(caller)
        return results

    def capture(self, work: Callable[[bool], Results]) -> tuple[Callable[[], None], Results]:
        """Capture work without running it; return a function to replay it, and its future results.

        After a failure, the random generator has its previous state.
        """
        graph = torch.cuda.CUDAGraph()
        objects = list[object]()
        # A deleted graph's pool cannot be shared, so use a new pool unless a graph is alive.
        newest = self._newest()
        pool = torch.cuda.graph_pool_handle() if newest is None else newest.pool()
        generator = torch.cuda.default_generators[self._device.index]
        previous_state = generator.clone_state()
        work_errors = []
        # Loader threads may allocate during the capture, so restrict it to this thread.
        capturing = torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local")
        try:
            with torch.cuda.stream(self._stream), capturing, keeping_alive_for_capture(objects):
                try:
                    results = work(True)
                except BaseException as error:
                    work_errors.append(error)
                    raise
        except BaseException as error:  # noqa: BLE001 -- raised again
            # An unfinished capture blocks its generator, and keeps the allocator from freeing batches
            # of other streams.
            generator.graphsafe_set_state(previous_state)
            with contextlib.suppress(RuntimeError):  # if it has ended
                torch._C._cuda_endAllocateToPool(self._device.index, pool)  # noqa: SLF001 -- no other way
                torch._C._cuda_releasePool(self._device.index, pool)  # noqa: SLF001
            # Ending the capture raises a second, less specific error: prefer the first.
            raise (work_errors or [error])[0] from None

        self._newest = weakref.ref(graph)

        def replay(_: list[object] = objects) -> None:
            graph.replay()

        return replay, results
