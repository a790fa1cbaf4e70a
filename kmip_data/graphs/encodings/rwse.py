"""RWSE: return probabilities of a random walk after 1, 2, … T steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmip_data.arrays import F32, I64, Array, Integers
from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import ConcatenatedGraphs, Encoding, check_edge_bounds
from kmip_data.runtime.parallel import run_in_ranges

_MIN_NODES_PER_THREAD = 256  #: minimum work for which another thread pays off
_NODES_PER_RANGE = 20_000  #: nodes per range; an interrupt takes effect between ranges


class RandomWalk(Encoding):
    """RWSE: return probabilities of T steps of a random walk."""

    prefix = "rwse"
    parameter_letter = "T"
    help = "Return probabilities of T steps of a random walk."
    definition_template = (
        "diagonals of P, P², … to the power {parameter}; P = D⁻¹A of the stored edges"
    )

    def columns(self) -> tuple[Column, ...]:
        """``rwse`` (N, T)."""
        return (self.column("node", "rwse", self.parameter, low=0.0),)

    def compute(self, graphs: ConcatenatedGraphs, check: Callable[[], None]) -> dict[str, Array]:
        """Compute all graphs at once, as components of one graph."""
        check()
        edges = graphs.edges_over_all_graphs()
        nodes = int(graphs.node_ptr[-1])
        return {
            "node/rwse": random_walk_encoding(
                edges, nodes, self.parameter, node_ptr=graphs.node_ptr
            )
        }


def random_walk_encoding(
    edge_index: Integers,
    num_nodes: int,
    steps: int = 20,
    *,
    node_ptr: I64 | None = None,
) -> F32:
    """Return the diagonals of P, P², … Pᵀ, where P is the transition matrix of the walk.

    The walk takes one of a node's out-edges at random; repeated edges and loops count. A node
    without out-edges has a row of 0. The result equals upstream's ``get_rw_landing_probs`` (times
    1…T, no factor of dimension) and, if no edge is repeated, PyTorch Geometric's
    ``AddRandomWalkPE``, which multiply matrices. Here each walk is followed over the nodes that it
    reaches, in float64, and rounded once.

    ``edge_index`` (2, E) has sources and targets; ``steps`` is T, at least 1. For several graphs,
    ``node_ptr`` int64 (G + 1) has the first node of each, and the rows of one graph do not depend
    on the others. Returns float32 (N, T), whose bytes depend only on the arguments. Raises
    ``DamagedInput`` if an edge leads to a missing node.
    """
    from kmip_data.graphs.kernels.random_walk import return_probabilities

    check_edge_bounds(edge_index, num_nodes)
    bounds = np.array([0, num_nodes], np.int64) if node_ptr is None else node_ptr
    source, target = (np.ascontiguousarray(row, np.int64) for row in edge_index)
    # 1. Sort the edges, so that no sum depends on their order.
    edges = np.sort(source * num_nodes + target)
    reversed_edges = np.sort(target * num_nodes + source)
    first = np.searchsorted(edges, np.arange(num_nodes + 1) * num_nodes)
    targets = edges % num_nodes
    # 2. A reversible graph, whose sorted edges equal its sorted reversed edges, needs half the
    #    steps. Both arrays are sorted by graph, so a position belongs to the same graph in both.
    unmatched_sources = edges[edges != reversed_edges] // num_nodes
    reversible = np.ones(len(bounds) - 1, bool)
    reversible[np.searchsorted(bounds, unmatched_sources, side="right") - 1] = False
    reversible = np.repeat(reversible, np.diff(bounds))
    out = np.zeros((num_nodes, steps), np.float32)
    run_in_ranges(
        lambda a, b: return_probabilities(first, targets, reversible, out, a, b),
        num_nodes,
        grain=_MIN_NODES_PER_THREAD,
        max_rows=_NODES_PER_RANGE,
    )
    return out


ENCODING = RandomWalk
