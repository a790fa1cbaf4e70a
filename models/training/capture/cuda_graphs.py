"""CUDA graphs: capture the work on a batch and replay it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from kmip_data.runtime.memory import keeping_alive_for_capture


class StepOutput(NamedTuple):
    """Result of learning from a batch."""

    #: (rows, outputs).
    logits: Tensor
    target: Tensor
    #: Scalar.
    loss: Tensor
    #: Norm of the gradient before clipping; the loss if the optimizer did not step.
    norm: Tensor


#: Work on a batch; True if it is captured.
StepFunction = Callable[[bool], StepOutput]
Results = TypeVar("Results", bound=tuple[Tensor, ...])


class CudaGraphs:
    """CUDA graphs of a device, warmed up and captured on one stream, in one memory pool.

    They share the pool because they are replayed one after another, and results are copied in
    between.
    """

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        # A weak reference: the graph is dropped with its steps.
        self._newest: Callable[[], torch.cuda.CUDAGraph | None] = lambda: None

    def free_and_peak_memory(self) -> tuple[int, int]:
        """Return the free bytes of the device, and the peak of allocated ones."""
        free, _total = torch.cuda.mem_get_info(self._device)
        return free, torch.cuda.max_memory_allocated(self._device)

    def run(self, work: Callable[[bool], Results]) -> Results:
        """Run the work on that stream, so that libraries and the search allocate workspaces for it."""
        caller = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            results = work(False)
        caller.wait_stream(self._stream)
        for tensor in results:
            tensor.record_stream(caller)
        return results

    def capture(self, work: Callable[[bool], Results]) -> tuple[Callable[[], None], Results]:
        """Capture the work without running it.

        Return a function that replays it, and its future results.

        After a failure the random generator continues as before.
        """
        graph = torch.cuda.CUDAGraph()
        objects = list[object]()
        # Use a new pool unless a graph is alive: the pool of a deleted graph cannot be shared.
        newest = self._newest()
        pool = torch.cuda.graph_pool_handle() if newest is None else newest.pool()
        generator = torch.cuda.default_generators[self._device.index]
        before = generator.clone_state()
        failed = []
        # Loader threads may allocate meanwhile, so do not capture all threads.
        capturing = torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local")
        try:
            with torch.cuda.stream(self._stream), capturing, keeping_alive_for_capture(objects):
                try:
                    results = work(True)
                except BaseException as error:
                    failed.append(error)
                    raise
        except BaseException as error:  # noqa: BLE001 -- raised again
            # An unfinished capture blocks its generator, and the allocator, which no longer frees
            # batches from other streams.
            generator.graphsafe_set_state(before)
            with contextlib.suppress(RuntimeError):  # if it has ended
                torch._C._cuda_endAllocateToPool(self._device.index, pool)  # noqa: SLF001 -- no other way
                torch._C._cuda_releasePool(self._device.index, pool)  # noqa: SLF001
            # Ending the capture raises a second, less specific error.
            raise (failed or [error])[0] from None

        self._newest = weakref.ref(graph)

        def replay(_: list[object] = objects) -> None:
            graph.replay()

        return replay, results
