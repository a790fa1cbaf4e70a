"""Force-directed layout for graphs without node positions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import F32, F64, I64
from kmip_data.errors import UsageError
from kmip_data.runtime.parallel import njit_nogil, run_in_ranges

if TYPE_CHECKING:
    from scipy.sparse import csr_array

GRAVITY = 0.15  #: attraction of the origin, relative to that of a neighbour
LEAF_DISTANCE = 0.3  #: of up to :data:`RING` leaves from their hub, where nodes are about one apart
RING = 8
GOLDEN_RATIO = 0.618
MAX_NODES = 20_000
MAX_PAIRS = 500_000_000  #: maximum number of node pairs compared over all steps


def spring_layout(edge_index: I64, nodes: int) -> F64:
    """Return a position for each node, (N, 2), about one apart.

    Nodes are laid out by the forces of ForceAtlas2 (Jacomy et al., 2014), which move hubs apart and
    small components outwards. Leaves, nodes with a single neighbour, lie around it. The start is
    fixed, so that results are reproducible. Raises ``UsageError`` for more than :data:`MAX_NODES`
    nodes.
    """
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
    degrees = np.diff(adjacency.indptr)
    leaves = np.flatnonzero(degrees == 1)
    hubs = adjacency.indices[adjacency.indptr[leaves]]
    is_around = degrees[hubs] > 1  # two nodes that have only each other are no leaves
    leaves, hubs = leaves[is_around], hubs[is_around]

    inner = np.setdiff1d(np.arange(nodes), leaves)
    masses = (degrees[inner] + 1).astype(np.float32)
    inner_pos = _balanced_positions(adjacency[inner][:, inner], masses)
    pos[inner] = inner_pos * np.sqrt(nodes) / max(np.ptp(inner_pos, axis=0).max(), 1e-6)
    pos[leaves] = pos[hubs]
    for hub in np.unique(hubs):
        neighbors = adjacency.indices[adjacency.indptr[hub] : adjacency.indptr[hub + 1]]
        inwards = pos[neighbors].mean(axis=0) - pos[hub]
        members = leaves[hubs == hub]
        pos[members] += _leaf_positions(len(members), inwards)
    return _turned_across(pos)


def _turned_across(pos: F64) -> F64:
    """Turn positions (N, 2) to the angle at which they are least high, as pages are wide."""
    angles = np.linspace(0, np.pi, 36, endpoint=False)
    heights = np.ptp(pos @ [np.sin(angles), np.cos(angles)], axis=0)
    angle = angles[heights.argmin()]
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return np.asarray(pos @ turn)


def _leaf_positions(count: int, inwards: F64) -> F64:
    """Return positions (count, 2) on a ring around the origin, or a disc if there are many.

    They leave room for edges in the direction ``inwards``.
    """
    number = np.arange(1, count + 1)
    angle = np.arctan2(inwards[1], inwards[0]) + 2 * np.pi * number / (count + 1)
    area = 1 + max(count - RING, 0) * (GOLDEN_RATIO * number % 1)  # spreads them evenly
    radius = LEAF_DISTANCE * np.sqrt(area)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


def adjacency_matrix(edge_index: I64, nodes: int) -> csr_array:
    """Return the sparse bool matrix (N, N) that is True for each edge from row to column."""
    from scipy import sparse

    entries = (np.ones(edge_index.shape[1], bool), (edge_index[0], edge_index[1]))
    return sparse.coo_array(entries, shape=(nodes, nodes)).tocsr()


def _balanced_positions(adjacency: csr_array, masses: F32) -> F32:
    """Return positions (M, 2) in which the forces of a symmetric adjacency (M, M) are balanced.

    A node repels by its mass over the distance; its neighbours and, less, the origin attract it by
    the distance over its own mass.
    """
    count = len(masses)
    springs = adjacency.sum(axis=1) + GRAVITY
    generator = np.random.Generator(np.random.PCG64(0))
    spread = float(np.sqrt(masses.sum()))
    pos: F32 = (generator.random((count, 2), np.float32) - 0.5) * spread
    force = np.empty_like(pos)
    steps = int(np.clip(MAX_PAIRS // count**2, 40, 400))
    fill = partial(_write_repulsion, pos, masses, force)
    for step in range(steps):
        run_in_ranges(fill, count, grain=64)
        force += (adjacency @ pos - springs[:, None] * pos) / masses[:, None]
        length = np.linalg.norm(force, axis=1, keepdims=True)
        # The maximum displacement per step decreases.
        max_displacement = spread * 0.1 * (1 - step / steps)
        pos += force / np.maximum(length, 1e-6) * np.minimum(length, max_displacement)
    return pos


@njit_nogil(fastmath=True)  # the last bits of positions are invisible
def _write_repulsion(
    pos: F32,
    masses: F32,
    out: F32,
    first: int,
    last: int,
) -> None:  # pragma: no cover -- compiled
    """Write the accelerations of nodes ``first:last`` away from all nodes: mass over distance."""
    for i in range(first, last):
        x = pos[i, 0]
        y = pos[i, 1]
        fx = np.float32(0.0)
        fy = np.float32(0.0)
        for j in range(pos.shape[0]):
            dx = x - pos[j, 0]
            dy = y - pos[j, 1]
            push = masses[j] / (dx * dx + dy * dy + np.float32(1e-4))
            fx += dx * push
            fy += dy * push
        out[i, 0] = fx
        out[i, 1] = fy
