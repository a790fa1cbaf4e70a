"""Shared by tests of a layer's kernels: device, dropout mask, and a norm in use."""

from __future__ import annotations

import os

import numba
import numpy as np
import torch
from torch import Tensor

from kmip_data.models.layers.batch import Edges, GraphBatch, NeighborTable
from kmip_data.models.layers.cpu.gate_kernels import drop_lanes, store_lanes
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.search.cpu.simd import splat_lanes

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda")


def make_batch(edges: Edges | GraphBatch) -> GraphBatch:
    """One graph with these edges."""
    if isinstance(edges, GraphBatch):
        return edges
    index = edges.neighbor if isinstance(edges, NeighborTable) else edges.source
    nodes = len(edges.neighbor) if isinstance(edges, NeighborTable) else edges.num_nodes
    x, graph = torch.zeros(nodes, 1, device=index.device), index.new_zeros(nodes, dtype=torch.int64)
    return GraphBatch(x, edges, None, torch.tensor([0, nodes]), graph)


@numba.njit
def draw(seed, start, dropped, y) -> None:
    for i in range(0, len(y), 16):
        store_lanes(
            y,
            i,
            min(16, len(y) - i),
            drop_lanes(seed, start + i, dropped, splat_lanes(np.float32(1))),
        )


def draw_on_cpu(seed: int, edges: int, d: int, p: float) -> Tensor:
    """(E, d) of 1 where the CPU's kernels keep an element, else 0."""
    rows = np.empty((edges, d), np.float32)
    for number, row in enumerate(rows):
        draw(seed, number * d, round(p * 2**32), row)
    return torch.from_numpy(rows)


def make_norm(d: int, dtype: torch.dtype, *, training: bool) -> BatchNorm:
    norm = BatchNorm(d)
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            tensor.copy_(torch.rand(d, generator=generator) + 0.3)
        norm.bias -= 0.8
    return norm.to(DEVICE, dtype).train(training)
