"""Batches of graphs that differ in size, padded to few sizes, so that one recorded step serves many of them.

Padding is one more graph after the others: nodes with the features of real ones, and edges from each of
them to itself. Real nodes see none of it, and it has no targets, so all its gradients are zero. Operations
over all rows of a batch read how many count (``COUNTED``).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from kmip_data.models.layers.batch import COUNTED
from kmip_data.models.training.capture.graphs import Learned
from kmip_data.models.training.tasks import PADDING

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
    nodes, graphs = len(batch.x), batch.num_graphs
    table = batch.neighbor if "neighbor" in batch else None
    edges = batch.edge_index.shape[1] if table is None else table.numel()
    if min(nodes - graphs, edges - 1) < 1:
        return None
    all_nodes = rounded(nodes + nodes // SPARE + 1)
    more, out = all_nodes - nodes, copy.copy(batch)
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
        length = all_nodes if slices[name].tolist() == of_nodes else len(value) // graphs * (graphs + 1)
        length = all_edges if name == "edge_attr" else length
        out[name] = (_without_targets if name == "y" else _repeated)(value, length)
    out.batch, out.ptr = pad(batch.batch, (0, more), value=graphs), pad(batch.ptr, (0, 1), value=all_nodes)
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
