"""Spring layout for graphs without node positions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import F32, F64, I64, Array
from kmip_data.errors import UsageError
from kmip_data.runtime.parallel import njit_nogil, run_in_ranges

if TYPE_CHECKING:
    from scipy.sparse import csr_array

COMPONENT_GAP = 0.8  #: distance between connected components
MAX_NODES = 20_000
MAX_PAIRS = 500_000_000  #: maximum number of node pairs compared over all steps


def spring_layout(edge_index: I64, nodes: int) -> F64:
    """Return a position for each node, (N, 2), with the largest component at the bottom.

    Components are laid out by springs (Fruchterman and Reingold, 1991) from a fixed start, so that
    results are reproducible, and placed in rows. Raises ``UsageError`` for more than
    :data:`MAX_NODES` nodes.
    """
    from scipy.sparse import csgraph

    if nodes > MAX_NODES:
        raise UsageError(
            f"The graph cannot be drawn: it has {nodes:,} nodes without a position, "
            f"more than {MAX_NODES:,}.",
            next="choose smaller graphs with --records",
        )
    pos = np.zeros((nodes, 2))
    if not nodes:
        return pos

    adjacency = adjacency_matrix(edge_index[:, edge_index[0] != edge_index[1]], nodes)
    adjacency = (adjacency + adjacency.T).tocsr()
    _, component_of = csgraph.connected_components(adjacency, directed=False)

    left = bottom = width = row_height = 0.0
    for number in np.argsort(-np.bincount(component_of), kind="stable"):
        members = np.flatnonzero(component_of == number)
        component_pos = _spring_positions(adjacency[members][:, members])
        size = np.ptp(component_pos, axis=0)
        if left + size[0] > max(width, 3.0):  # the row is full
            left = 0.0
            bottom = bottom + row_height + COMPONENT_GAP
            row_height = 0.0
        pos[members] = component_pos - component_pos.min(axis=0) + (left, bottom)
        left = left + size[0] + COMPONENT_GAP
        row_height = max(row_height, size[1])
        width = max(width, left - COMPONENT_GAP)
    return pos


def adjacency_matrix(edge_index: I64, nodes: int) -> csr_array:
    """Return the sparse bool matrix (N, N) that is True for each edge from row to column."""
    from scipy import sparse

    entries = (np.ones(edge_index.shape[1], bool), (edge_index[0], edge_index[1]))
    return sparse.coo_array(entries, shape=(nodes, nodes)).tocsr()


def _spring_positions(adjacency: csr_array) -> F64:
    """Return positions (M, 2), about one apart, for a connected component with symmetric adjacency."""
    count = adjacency.shape[0]
    if count < 3:
        return np.column_stack([np.arange(count), np.zeros(count)])
    adjacency.sort_indices()
    generator = np.random.Generator(np.random.PCG64(0))
    spread = np.float32(np.sqrt(count))
    pos = (generator.random((count, 2), np.float32) - np.float32(0.5)) * spread
    force = np.empty_like(pos)
    steps = int(np.clip(MAX_PAIRS // count**2, 40, 400))
    fill = partial(_write_forces, pos, adjacency.indptr, adjacency.indices, force)
    for step in range(steps):
        run_in_ranges(fill, count, grain=64)
        length = np.linalg.norm(force, axis=1, keepdims=True)
        # The maximum displacement per step decreases.
        max_displacement = spread * np.float32(0.15) * np.float32(1 - step / steps)
        pos += force / np.maximum(length, np.float32(1e-6)) * np.minimum(length, max_displacement)
    width = float(np.ptp(pos, axis=0).max()) / float(spread)
    return np.asarray(pos / max(width, 1e-6), np.float64)


@njit_nogil(fastmath=True)  # the last bits of positions are invisible
def _write_forces(
    pos: F32,
    start: Array,
    neighbors: Array,
    out: F32,
    first: int,
    last: int,
) -> None:  # pragma: no cover -- compiled
    """Write the forces on nodes ``first:last``: all nodes repel (1/d), neighbours attract (d²).

    These are Fruchterman and Reingold's forces for springs of length 1. The neighbours of node i are
    ``neighbors[start[i]:start[i + 1]]``.
    """
    for i in range(first, last):
        x = pos[i, 0]
        y = pos[i, 1]
        fx = np.float32(0.0)
        fy = np.float32(0.0)
        for j in range(pos.shape[0]):
            dx = x - pos[j, 0]
            dy = y - pos[j, 1]
            push = np.float32(1.0) / (dx * dx + dy * dy + np.float32(1e-4))
            fx += dx * push
            fy += dy * push
        for position in range(start[i], start[i + 1]):
            j = neighbors[position]
            dx = pos[j, 0] - x
            dy = pos[j, 1] - y
            pull = np.sqrt(dx * dx + dy * dy)
            fx += dx * pull
            fy += dy * pull
        out[i, 0] = fx
        out[i, 1] = fy
