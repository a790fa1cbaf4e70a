"""Edge RWSE: probabilities that a walk from an edge's source is at its target after 1, 2, … T steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmip_data.arrays import F32, Array, Integers
from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import ConcatenatedGraphs, Encoding, check_edge_bounds
from kmip_data.runtime.parallel import run_in_ranges

_MIN_SOURCES_PER_THREAD = 64  #: minimum work for which another thread pays off
_NODES_PER_RANGE = 5_000  #: source nodes per range; an interrupt takes effect between ranges


class EdgeRandomWalk(Encoding):
    """Edge RWSE: probabilities of T steps of a random walk from source to target of each edge."""

    prefix = "edge-rwse"
    parameter_letter = "T"
    help = "Probabilities of T steps of a random walk from source to target of each edge."
    definition_template = (
        "entries of P, P², … to the power {parameter} at the edges; P = D⁻¹A of the stored edges"
    )

    def columns(self) -> tuple[Column, ...]:
        """``edge_rwse`` (E, T)."""
        return (self.column("edge", "edge_rwse", self.parameter, low=0.0),)

    def compute(self, graphs: ConcatenatedGraphs, check: Callable[[], None]) -> dict[str, Array]:
        """Compute all graphs at once, as components of one graph."""
        check()
        nodes = int(graphs.node_ptr[-1])
        return {
            "edge/edge_rwse": edge_walk_encoding(
                graphs.edges_over_all_graphs(), nodes, self.parameter
            )
        }


def edge_walk_encoding(edge_index: Integers, num_nodes: int, steps: int = 32) -> F32:
    """Return the entries of P, P², … Pᵀ at each edge, where P is the transition matrix of the walk.

    These are the relative walk probabilities that GNN⁺ (Luo et al., arXiv 2502.09263) appends to
    edge features. ``get_rw_landing_probs_and_edge_features`` of LUOyk1999/GNNPlus multiplies dense
    matrices; here each walk is followed over the nodes that it reaches, in float64, and rounded
    once. Repeated edges and loops count.

    ``edge_index`` (2, E) has sources and targets; ``steps`` is T, at least 1. Returns float32 (E,
    T), in the order of the edges. Raises ``DamagedInput`` if an edge leads to a missing node.
    """
    from kmip_data.graphs.kernels.random_walk import walk_to_targets

    check_edge_bounds(edge_index, num_nodes)
    source = np.ascontiguousarray(edge_index[0], np.int64)
    target = np.ascontiguousarray(edge_index[1], np.int64)

    # Sort the edges, so that no sum depends on their order.
    order = np.argsort(source * num_nodes + target, kind="stable")
    first = np.searchsorted(source[order], np.arange(num_nodes + 1))
    targets = target[order]

    sorted_rows = np.zeros((len(order), steps), np.float32)
    run_in_ranges(
        lambda a, b: walk_to_targets(first, targets, sorted_rows, a, b),
        num_nodes,
        grain=_MIN_SOURCES_PER_THREAD,
        max_rows=_NODES_PER_RANGE,
    )
    out = np.empty_like(sorted_rows)
    out[order] = sorted_rows
    return out


ENCODING = EdgeRandomWalk
