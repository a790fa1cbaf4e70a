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


class Learned(NamedTuple):
    """Result of learning from a batch."""

    logits: Tensor  #: (rows, outputs)
    target: Tensor
    loss: Tensor  #: scalar
    norm: (
        Tensor  #: of the gradient before clipping; the loss again where the optimiser did not step
    )


#: Work on a batch; given a list, it adds what a recorded graph must keep alive.
Work = Callable[[list[Any] | None], Learned]
Found = TypeVar("Found", bound=tuple[Tensor, ...])


class CudaGraphs:
    """CUDA graphs of one device, recorded and warmed up on one stream, in one pool of memory.

    They can share the pool because they are replayed one after the other, and results are copied in between.
    """

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        #: A weak reference: dropped with its steps.
        self._newest: Callable[[], torch.cuda.CUDAGraph | None] = lambda: None

    def memory(self) -> tuple[int, int]:
        """Return the free bytes of the device, and the most that was allocated."""
        return torch.cuda.mem_get_info(self._device)[0], torch.cuda.max_memory_allocated(
            self._device
        )

    def run(self, work: Callable[[list[Any] | None], Found]) -> Found:
        """Do the work on that stream, so that libraries and the search allocate their workspaces for it."""
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            found = work(None)
        here.wait_stream(self._stream)
        for tensor in found:
            tensor.record_stream(here)
        return found

    def record(self, work: Callable[[list[Any] | None], Found]) -> tuple[Callable[[], None], Found]:
        """Record the work without doing it; return a function that replays it, and its future results.

        After a failure the random generator continues as before.
        """
        graph = torch.cuda.CUDAGraph()
        objects = list[Any]()
        newest = self._newest()
        # The pool of a graph that is gone cannot be shared.
        pool = torch.cuda.graph_pool_handle() if newest is None else newest.pool()
        generator = torch.cuda.default_generators[self._device.index]
        before = generator.clone_state()
        failed = list[BaseException]()
        # Threads of the loader may allocate meanwhile, which only a recording of all threads forbids.
        recording = torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local")
        try:
            with torch.cuda.stream(self._stream), recording:
                try:
                    found = work(objects)
                except BaseException as error:
                    failed.append(error)
                    raise
        except BaseException as error:  # noqa: BLE001 -- raised again
            # A recording without an end leaves its generator waiting for one, and refusing all else; and the
            # allocator, which then takes back no batch that came by another stream.
            generator.graphsafe_set_state(before)
            with contextlib.suppress(RuntimeError):  # where it has ended
                torch._C._cuda_endAllocateToPool(self._device.index, pool)  # noqa: SLF001 -- no other way
                torch._C._cuda_releasePool(self._device.index, pool)  # noqa: SLF001
            # The end of the capture raises an error of its own, which says less.
            raise (failed or [error])[0] from None

        self._newest = weakref.ref(graph)

        def replay(_: list[Any] = objects) -> None:
            graph.replay()

        return replay, found


SPARE = 16  #: at least one node of padding for so many, or a few of them would have all edges of padding
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32}


def rounded(count: int) -> int:
    """Round up to one of few sizes: four from a power of two to the next one, all multiples of 16.

    >>> [rounded(count) for count in (1, 50, 1000, 1025, 20_000)]
    [16, 64, 1024, 1280, 20480]
    """
    size = 1 << max(4, (count - 1).bit_length() - 3)
    return -(-count // size) * size


def padded(batch: Any) -> Any | None:
    """Return the batch with padding, on its device, which nothing waits for.

    ``None`` where it has too few nodes or edges for the statistics of a batch norm, or the host does not
    know which attributes belong to nodes.
    """
    slices = getattr(batch, "_slice_dict", {})
    if "x" not in slices or "ptr" not in batch:
        return None
    nodes = len(batch.x)
    graphs = batch.num_graphs
    table = batch.neighbor if "neighbor" in batch else None
    edges = batch.edge_index.shape[1] if table is None else table.numel()
    if min(nodes - graphs, edges - 1) < 1:
        return None
    all_nodes = rounded(nodes + nodes // SPARE + 1)
    more = all_nodes - nodes
    out = copy.copy(batch)
    place = torch.arange(more, device=batch.x.device)
    if table is None:
        all_edges = rounded(edges)
        loops = torch.arange(all_edges - edges, device=place.device) % more + nodes
        out.edge_index = torch.cat([batch.edge_index, loops.expand(2, -1)], 1)
    else:
        all_edges = all_nodes * table.shape[1]
        kind = _SIGNED.get(table.dtype)  # numbered inside each graph, where there is one
        own = (place + nodes if kind is None else place % 2**15)[:, None].expand(-1, table.shape[1])
        rows = table if kind is None else table.view(kind)
        out.neighbor = torch.cat([rows, own.to(rows.dtype)]).view(table.dtype)
    of_nodes = slices["x"].tolist()
    done = {"edge_index", "neighbor", "batch", "ptr"}
    for name, value in batch.to_dict().items():
        if name in done or not isinstance(value, Tensor) or name not in slices:
            continue
        length = (
            all_nodes if slices[name].tolist() == of_nodes else len(value) // graphs * (graphs + 1)
        )
        length = all_edges if name in EDGE_COLUMNS else length
        out[name] = (_without_targets if name == "y" else _repeated)(value, length)
    out.batch = pad(batch.batch, (0, more), value=graphs)
    out.ptr = pad(batch.ptr, (0, 1), value=all_nodes)
    out[COUNTED] = torch.full((2,), nodes, device=place.device)
    out[COUNTED][1:] = edges
    return out


def _repeated(rows: Tensor, length: int) -> Tensor:
    """Return ``length`` rows: after the last one the first ones again."""
    return rows.index_select(0, torch.arange(length, device=rows.device) % len(rows))


def _without_targets(targets: Tensor, length: int) -> Tensor:
    if not targets.is_floating_point():
        targets = targets.long()
    fill = torch.nan if targets.is_floating_point() else PADDING
    return torch.cat([targets, targets.new_full((length - len(targets), *targets.shape[1:]), fill)])


def without_padding(learned: Learned, batch: Any, larger: Any) -> Learned:
    """Return the result of ``larger``, the padded batch, for the rows of ``batch``."""
    of_nodes = len(learned.logits) == len(larger.x)
    rows = len(batch.x) if of_nodes else batch.num_graphs
    return learned._replace(logits=learned.logits[:rows], target=learned.target[: len(batch.y)])
