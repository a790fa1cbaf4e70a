"""Local eccentricity in groups of balls, against networkx, on a road-like graph."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.utils import k_hop_subgraph

from benchmarks.table import Row, thread_count
from benchmarks.turns import compare

SIDE = 755  #: side of the grid: 570,025 nodes, like London
STREETS = 756_502  #: London's
HOPS = 16
NETWORKX_NODES = 12  #: nodes measured with networkx
WHAT = "16-hop eccentricity"

Graph = tuple[NDArray[np.int64], NDArray[np.float32], int]


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on a grid as large as London, without a third of its edges."""
    from kmip_data.graphs.eccentricity import local_eccentricity
    from kmip_data.runtime.parallel import available_cores, set_num_threads

    graph = road_like(150 if quick else SIDE)
    edges, lengths, n = graph
    local_eccentricity(*(graph if quick else road_like(150)), HOPS, quiet=True)  # compiles
    most = min(2, available_cores())

    def ours(threads: int) -> NDArray[np.float32]:
        set_num_threads(threads)
        return local_eccentricity(edges, lengths, n, HOPS, quiet=True)

    try:
        whole = f"{WHAT} of {n:,} nodes and {edges.shape[1] // 2:,} streets"
        rows = [_against_networkx(graph)]
        if most > 1:
            times = compare(lambda: ours(2), lambda: ours(1), repeats=1 if quick else 3, warmup=0)
            rows.append(
                Row.from_times(f"{whole}, 2 threads", "itself with one thread", times, target=1.7)
            )
        return rows
    finally:
        set_num_threads(None)


def road_like(side: int, seed: int = 0) -> Graph:
    """Return a random part of a grid, with London's ratio of streets to grid edges.

    Returns
    -------
    edge_index, lengths, num_nodes
        Both directions, sorted; lengths in metres; nodes in random order.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    number = rng.permutation(side * side).reshape(side, side)
    pairs = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    sides = np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in pairs], axis=1)
    kept = round(sides.shape[1] * STREETS / (2 * SIDE * (SIDE - 1)))
    streets = sides[:, rng.permutation(sides.shape[1])[:kept]]
    length = rng.gamma(2.0, 40.0, kept).astype(np.float32)
    edges = np.concatenate([streets, streets[::-1]], axis=1)
    order = np.lexsort((edges[1], edges[0]))
    return edges[:, order], np.concatenate([length, length])[order], side * side


def upstream_label(node: int, index: Any, lengths: Any, num_nodes: int) -> float:
    """Label a node like City-Networks' generator."""
    inside, _, _, mask = k_hop_subgraph(node, HOPS, index, num_nodes=num_nodes)
    ball = nx.Graph()
    ball.add_nodes_from(inside.tolist())
    kept = zip(index[:, mask].T.tolist(), lengths[mask].tolist(), strict=True)
    ball.add_weighted_edges_from((u, v, length) for (u, v), length in kept)
    return float(nx.eccentricity(ball, node, weight="weight"))


def _against_networkx(graph: Graph) -> Row:
    """Compare with upstream's code on a few nodes."""
    from kmip_data.graphs.eccentricity import local_eccentricity

    edges, lengths, n = graph
    index, of_edges = torch.from_numpy(edges), torch.from_numpy(lengths)
    nodes = np.linspace(0, n - 1, NETWORKX_NODES).astype(int).tolist()

    def theirs() -> list[float]:
        return [upstream_label(node, index, of_edges, n) for node in nodes]

    def ours() -> NDArray[np.float32]:
        return local_eccentricity(edges, lengths, n, HOPS, quiet=True)

    with thread_count(1):
        assert np.float32(theirs()).tolist() == ours()[nodes].tolist()
        mine, other, _, _ = compare(ours, theirs, repeats=3, warmup=0)
    what = f"{WHAT}, one node, one thread"
    against = f"k_hop_subgraph and networkx.eccentricity, {NETWORKX_NODES} nodes of {n:,}"
    return Row.from_figures(what, against, mine / n, other / NETWORKX_NODES, "s", target=1_500)
