"""Local degree profile: five features of a node, from its out-degree and its targets' out-degrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from kmip_data.arrays import F32, Array
from kmip_data.errors import UsageError
from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import ConcatenatedGraphs, Encoding, check_edge_bounds

Rule = Literal["2.0", "2.8"]
FIELDS = (
    "out-degree",
    "least out-degree of its targets",
    "most out-degree of its targets",
    "mean out-degree of its targets",
    "deviation of the out-degrees of its targets",
)


class DegreeProfile(Encoding):
    """Local degree profile, by the rule of PyTorch Geometric 2.0 or 2.8."""

    prefix = "degree-profile-"
    parameter_choices = get_args(Rule)
    help = "Local degree profile, by the rule of that PyTorch Geometric.  [default rule: 2.0]"
    definition_template = "local degree profile as PyTorch Geometric {parameter} has it"

    def columns(self) -> tuple[Column, ...]:
        """``degree_profile`` (N, 5)."""
        return (self.column("node", "degree_profile", len(FIELDS), fields=FIELDS, low=0.0),)

    def compute(self, graphs: ConcatenatedGraphs, check: Callable[[], None]) -> dict[str, Array]:
        """Compute all graphs at once."""
        check()
        profile = local_degree_profile(
            graphs.edges_over_all_graphs(), int(graphs.node_ptr[-1]), self.parameter
        )
        return {"node/degree_profile": profile}


def local_degree_profile(edge_index: ArrayLike, num_nodes: int, rule: Rule = "2.0") -> F32:
    """Return the local degree profile of each node (Cai and Wang, arXiv 1811.03508).

    ``edge_index`` (2, E) has sources and targets; the result is float32 (N, 5), with the columns
    :data:`FIELDS`. Degrees count out-edges, and each out-edge counts its target once. Without
    out-edges, the last four values are 0. Raises ``UsageError`` if the rule is unknown;
    ``DamagedInput`` if an edge leads to a missing node.

    ``rule`` defines the deviation. ``"2.0"``: as in PyTorch Geometric 2.0 with torch-scatter, the
    square root of the sum of squared differences over max(n − 1, 1) + 10⁻⁶. ``"2.8"``: as in
    PyTorch Geometric since 2.1, the square root of the mean square minus the squared mean, or 0 if
    that is at most 10⁻⁵. Sums are exact here, but float32 in PyTorch Geometric.
    """
    rules = get_args(Rule)
    if rule not in rules:
        raise UsageError(f"There is no degree profile {rule!r}.", expected=", ".join(rules))
    edges = np.asarray(edge_index)
    check_edge_bounds(edges, num_nodes)
    source, target = edges.astype(np.int64, copy=False)

    # Exact minima, maxima and sums of the targets' degrees over the out-edges of each node.
    degree = np.bincount(source, minlength=num_nodes)
    target_degree = degree[target]
    minimum = np.where(degree > 0, len(source), 0)
    maximum = np.zeros(num_nodes, np.int64)
    total = np.zeros(num_nodes, np.int64)
    sum_of_squares = np.zeros(num_nodes, np.int64)
    np.minimum.at(minimum, source, target_degree)
    np.maximum.at(maximum, source, target_degree)
    np.add.at(total, source, target_degree)
    np.add.at(sum_of_squares, source, target_degree * target_degree)

    count = np.maximum(degree, 1)
    squared_deviations = (count * sum_of_squares - total * total) / count
    if rule == "2.0":
        variance = squared_deviations / (np.maximum(degree - 1, 1) + 1e-6)
    else:
        variance = squared_deviations / count
        variance[variance <= 1e-5] = 0
    profile = np.stack([degree, minimum, maximum, total / count, np.sqrt(variance)], axis=1)
    return profile.astype(np.float32)


ENCODING = DegreeProfile
