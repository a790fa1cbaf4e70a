"""Local eccentricity: groups of balls at once, against one search a node, on a road-like graph."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from benchmarks.table import Row, compare, thread_count
from numpy.typing import NDArray

from kmip_data.runtime.threads import njit_nogil

SIDE = 755  #: of the grid: 570,025 nodes, as London has
STREETS = 756_502  #: London's
HOPS = 16
SAMPLED = 12  #: nodes that networkx searches for
WHAT = "16-hop eccentricity"

Graph = tuple[NDArray[np.int64], NDArray[np.float32], int]


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on a grid that has lost a third of its sides, as large as London."""
    from kmip_data.graphs.eccentricity import local_eccentricity
    from kmip_data.runtime.threads import available_cores, set_num_threads

    graph = road_like(150 if quick else SIDE)
    small = graph if quick else road_like(150)
    edges, lengths, n = graph
    repeats = 1 if quick else 3
    local_eccentricity(*small, HOPS, quiet=True)  # compiles
    straightforward(*small)
    most = min(2, available_cores())

    def ours(threads: int) -> NDArray[np.float32]:
        set_num_threads(threads)
        return local_eccentricity(edges, lengths, n, HOPS, quiet=True)

    try:
        if not np.array_equal(ours(most), straightforward(edges, lengths, n)):
            msg = "the two sides do not agree"
            raise AssertionError(msg)
        whole = f"{WHAT} of {n:,} nodes and {edges.shape[1] // 2:,} streets"
        mine, other, ratio, spread = compare(
            lambda: ours(most), lambda: straightforward(edges, lengths, n), repeats=repeats, warmup=0
        )
        found = [
            _against_networkx(graph),
            Row(
                what=f"{whole}, {most} threads",
                against="one compiled search and Dijkstra with a heap a node, as many threads",
                ours=mine,
                theirs=other,
                unit="s",
                ratio=ratio,
                spread=spread,
                target="1× (aim 2.5×)",
                met=ratio >= 1,
            ),
        ]
        if most > 1:
            mine, other, ratio, spread = compare(lambda: ours(2), lambda: ours(1), repeats=repeats, warmup=0)
            found.append(
                Row(
                    what=f"{whole}, 2 threads",
                    against="itself with one thread",
                    ours=mine,
                    theirs=other,
                    unit="s",
                    ratio=ratio,
                    spread=spread,
                    target="1.7×",
                    met=ratio >= 1.7,
                )
            )
        peak = _peak_memory(lambda: ours(most)) / 2**30
        what = f"{whole}: memory beside the graph"
        found.append(
            Row(
                what=what,
                against="",
                ours=peak,
                theirs=None,
                unit="GiB",
                ratio=None,
                target="1 GiB",
                met=peak < 1,
            )
        )
        return found
    finally:
        set_num_threads(None)


def road_like(side: int, seed: int = 0) -> Graph:
    """Return a grid that keeps as many of its sides as a network of London's size has streets.

    Returns
    -------
    edge_index, lengths, num_nodes
        Both directions, sorted; lengths in metres; nodes numbered at random.
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


def straightforward(edges: NDArray[np.int64], lengths: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """Search for each node by itself, on the threads that kernels use."""
    from kmip_data.runtime.threads import for_ranges

    pointer = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(edges[0], minlength=n), out=pointer[1:])
    neighbor, weight, out = edges[1].astype(np.int32), lengths.astype(np.float64), np.empty(n)
    for_ranges(lambda a, b: _search_each(pointer, neighbor, weight, HOPS, out, a, b), n, grain=256)
    return out.astype(np.float32)


def _against_networkx(graph: Graph) -> Row:
    """Compare with what City-Networks' own generator does, on a few nodes."""
    import networkx as nx
    import torch
    from torch_geometric.utils import k_hop_subgraph

    from kmip_data.graphs.eccentricity import local_eccentricity

    edges, lengths, n = graph
    index = torch.from_numpy(edges)
    nodes = np.linspace(0, n - 1, SAMPLED).astype(int).tolist()

    def upstream(node: int) -> float:
        _, inside, _, mask = k_hop_subgraph(node, HOPS, index, num_nodes=n)
        ball = nx.Graph()
        ball.add_node(node)
        kept = zip(inside.T.tolist(), lengths[mask.numpy()].tolist(), strict=True)
        ball.add_weighted_edges_from((u, v, length) for (u, v), length in kept)
        return float(nx.eccentricity(ball, node, weight="weight"))

    with thread_count(1):
        found = local_eccentricity(edges, lengths, n, HOPS, quiet=True)
        if [np.float32(upstream(node)) for node in nodes] != found[nodes].tolist():
            msg = "the two sides do not agree"
            raise AssertionError(msg)
        mine, other, _, _ = compare(
            lambda: local_eccentricity(edges, lengths, n, HOPS, quiet=True),
            lambda: [upstream(node) for node in nodes],
            repeats=3,
            warmup=0,
        )
    ours, theirs = mine / n, other / SAMPLED
    return Row(
        what=f"{WHAT}, one node, one thread",
        against=f"k_hop_subgraph and networkx.eccentricity, {SAMPLED} nodes of {n:,}",
        ours=ours,
        theirs=theirs,
        unit="s",
        ratio=theirs / ours,
        target="1,500×",
        met=theirs / ours >= 1_500,
    )


def _peak_memory(function: Any) -> int:
    """Return by how many bytes the process grows at most while ``function`` runs (looked at each 2 ms)."""
    import psutil

    process = psutil.Process()
    before = peak = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, process.memory_info().rss)
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        function()
    finally:
        done.set()
        thread.join()
    return int(peak - before)


@njit_nogil()
def _search_each(
    pointer: Any, neighbor: Any, weight: Any, hops: int, out: Any, start: int, stop: int
) -> None:
    """Breadth-first search for the ball, Dijkstra's algorithm with a binary heap in it; node by node."""
    n = len(pointer) - 1
    hop, distance, ball = np.full(n, -1, np.int32), np.full(n, np.inf), np.empty(n, np.int32)
    heap_key, heap_node = np.empty(len(neighbor) + 1), np.empty(len(neighbor) + 1, np.int32)
    for source in range(start, stop):
        ball[0], hop[source], found, seen = source, 0, 1, 0
        while seen < found:
            u = ball[seen]
            seen += 1
            if hop[u] < hops:
                for e in range(pointer[u], pointer[u + 1]):
                    v = neighbor[e]
                    if hop[v] < 0:
                        hop[v], ball[found] = hop[u] + 1, v
                        found += 1
        distance[source], heap_key[0], heap_node[0], size, farthest = 0.0, 0.0, source, 1, 0.0
        while size > 0:
            key, u = heap_key[0], heap_node[0]
            size -= 1
            last_key, last_node, hole = heap_key[size], heap_node[size], 0
            while 2 * hole + 1 < size:
                child = 2 * hole + 1
                if child + 1 < size and heap_key[child + 1] < heap_key[child]:
                    child += 1
                if heap_key[child] >= last_key:
                    break
                heap_key[hole], heap_node[hole] = heap_key[child], heap_node[child]
                hole = child
            heap_key[hole], heap_node[hole] = last_key, last_node
            if key > distance[u]:
                continue
            farthest = max(farthest, key)
            for e in range(pointer[u], pointer[u + 1]):
                v, other = neighbor[e], key + weight[e]
                if hop[v] >= 0 and other < distance[v]:
                    distance[v], hole = other, size
                    size += 1
                    while hole > 0 and heap_key[(hole - 1) // 2] > other:
                        parent = (hole - 1) // 2
                        heap_key[hole], heap_node[hole] = heap_key[parent], heap_node[parent]
                        hole = parent
                    heap_key[hole], heap_node[hole] = other, v
        out[source] = farthest
        for i in range(found):
            hop[ball[i]], distance[ball[i]] = -1, np.inf
