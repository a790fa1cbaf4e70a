"""CUDA graphs: record the work on a batch and replay it."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from kmip_data.models.layers.batch import COUNTED, EDGE_COLUMNS
from kmip_data.models.training.tasks import PADDING
from kmip_data.runtime.memory import keeping


class Learned(NamedTuple):
    """Result of learning from a batch."""

    #: (rows, outputs).
    logits: Tensor
    target: Tensor
    #: Scalar.
    loss: Tensor
    #: Norm of the gradient before clipping; the loss where the optimiser did not step.
    norm: Tensor


#: Work on a batch; True if it is captured.
Work = Callable[[bool], Learned]
Results = TypeVar("Results", bound=tuple[Tensor, ...])


class CudaGraphs:
    """CUDA graphs of one device, recorded and warmed up on one stream, in one pool of memory.

    They share the pool because they are replayed one after another, and results are copied in
    between.
    """

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        # A weak reference: the graph is dropped with its steps.
        self._newest: Callable[[], torch.cuda.CUDAGraph | None] = lambda: None

    def memory(self) -> tuple[int, int]:
        """Return the free bytes of the device, and the peak of allocated ones."""
        free, _total = torch.cuda.mem_get_info(self._device)
        return free, torch.cuda.max_memory_allocated(self._device)

    def run(self, work: Callable[[bool], Results]) -> Results:
        """Run the work on that stream, so that libraries and the search allocate their workspaces for it."""
        caller = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            results = work(False)
        caller.wait_stream(self._stream)
        for tensor in results:
            tensor.record_stream(caller)
        return results

    def record(self, work: Callable[[bool], Results]) -> tuple[Callable[[], None], Results]:
        """Record the work without running it.

        Return a function that replays it, and its future results.

        After a failure the random generator continues as before.
        """
        graph = torch.cuda.CUDAGraph()
        objects = list[Any]()
        # A new pool unless a graph has one: that of a graph that is gone cannot be shared.
        newest = self._newest()
        pool = torch.cuda.graph_pool_handle() if newest is None else newest.pool()
        generator = torch.cuda.default_generators[self._device.index]
        before = generator.clone_state()
        failed = []
        # Threads of the loader may allocate meanwhile, which only a recording of all threads
        # forbids.
        recording = torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local")
        try:
            with torch.cuda.stream(self._stream), recording, keeping(objects):
                try:
                    results = work(True)
                except BaseException as error:
                    failed.append(error)
                    raise
        except BaseException as error:  # noqa: BLE001 -- raised again
            # A recording without an end leaves its generator waiting for one, and refusing
            # everything else; likewise the allocator, which then takes back no batch that came by
            # another stream.
            generator.graphsafe_set_state(before)
            with contextlib.suppress(RuntimeError):  # if it has ended
                torch._C._cuda_endAllocateToPool(self._device.index, pool)  # noqa: SLF001 -- no other way
                torch._C._cuda_releasePool(self._device.index, pool)  # noqa: SLF001
            # The end of the capture raises a second error, which says less.
            raise (failed or [error])[0] from None

        self._newest = weakref.ref(graph)

        def replay(_: list[Any] = objects) -> None:
            graph.replay()

        return replay, results


#: Nodes for each node of padding: with fewer of these each would have too many of the edges of
#: padding.
SPARE = 16
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32}


def rounded(count: int) -> int:
    """Round up to one of few sizes: four from a power of two to the next one, all multiples of 16.

    >>> [rounded(count) for count in (1, 50, 1000, 1025, 20_000)]
    [16, 64, 1024, 1280, 20480]
    """
    size = 1 << max(4, (count - 1).bit_length() - 3)
    return -(-count // size) * size


def padded(batch: Any) -> Any | None:
    """Return the batch with padding, on its device, which the host does not wait for.

    ``None`` where it has too few nodes or edges for the statistics of a batch norm, or the host
    does not know which attributes belong to nodes.
    """
    # 1. Sizes.
    slices = getattr(batch, "_slice_dict", {})
    if "x" not in slices or "ptr" not in batch:
        return None
    nodes = len(batch.x)
    graphs = batch.num_graphs
    table = batch.neighbor if "neighbor" in batch else None
    edges = batch.edge_index.shape[1] if table is None else table.numel()
    if nodes <= graphs or edges < 2:
        return None
    all_nodes = rounded(nodes + nodes // SPARE + 1)
    more = all_nodes - nodes

    # 2. Edges of padding, from its nodes to themselves.
    out = copy.copy(batch)
    device = batch.x.device
    numbers = torch.arange(more, device=device)
    if table is None:
        all_edges = rounded(edges)
        loops = torch.arange(all_edges - edges, device=device) % more + nodes
        out.edge_index = torch.cat([batch.edge_index, loops.expand(2, -1)], 1)
    else:
        k = table.shape[1]
        all_edges = all_nodes * k
        signed = _SIGNED.get(table.dtype)
        if signed is None:
            rows = table
            loops = numbers + nodes
        else:  # an unsigned table numbers the nodes inside each graph
            rows = table.view(signed)
            loops = numbers % 2**15
        loops = loops[:, None].expand(-1, k)
        out.neighbor = torch.cat([rows, loops.to(rows.dtype)]).view(table.dtype)

    # 3. Every other attribute: repeated rows, and no targets.
    node_slices = slices["x"].tolist()
    done = {"edge_index", "neighbor", "batch", "ptr"}
    for name, value in batch.to_dict().items():
        if name in done or not isinstance(value, Tensor) or name not in slices:
            continue
        if name in EDGE_COLUMNS:
            length = all_edges
        elif slices[name].tolist() == node_slices:
            length = all_nodes
        else:
            length = len(value) // graphs * (graphs + 1)
        enlarge = _without_targets if name == "y" else _repeated
        out[name] = enlarge(value, length)

    # 4. The padding is one more graph.
    out.batch = pad(batch.batch, (0, more), value=graphs)
    out.ptr = pad(batch.ptr, (0, 1), value=all_nodes)
    out[COUNTED] = torch.full((2,), nodes, device=device)
    out[COUNTED][1:] = edges
    return out


def _repeated(rows: Tensor, length: int) -> Tensor:
    """Return ``length`` rows, repeated from the first one."""
    numbers = torch.arange(length, device=rows.device)
    return rows.index_select(0, numbers % len(rows))


def _without_targets(targets: Tensor, length: int) -> Tensor:
    fill: float = torch.nan
    if not targets.is_floating_point():
        targets = targets.long()
        fill = PADDING
    missing = targets.new_full((length - len(targets), *targets.shape[1:]), fill)
    return torch.cat([targets, missing])


def without_padding(learned: Learned, batch: Any, larger: Any) -> Learned:
    """Return the result of ``larger``, the padded batch, for the rows of ``batch``."""
    by_node = len(learned.logits) == len(larger.x)
    rows = len(batch.x) if by_node else batch.num_graphs
    return learned._replace(logits=learned.logits[:rows], target=learned.target[: len(batch.y)])
