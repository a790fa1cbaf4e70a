"""Local degree profile: five node features from the out-degrees of its targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from kmip_data.arrays import F32, Array
from kmip_data.errors import UsageError
from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import Encoding, Graphs, check_edge_bounds

Rule = Literal["2.0", "2.8"]
FIELDS = (
    "out-degree",
    "least out-degree of its targets",
    "most out-degree of its targets",
    "mean out-degree of its targets",
    "deviation of the out-degrees of its targets",
)


class DegreeProfile(Encoding):
    """Local degree profile by one of its two rules."""

    stem = "degree-profile-"
    choices = get_args(Rule)
    help = "Local degree profile, by the rule of that PyTorch Geometric.  [default rule: 2.0]"
    about = "local degree profile as PyTorch Geometric {parameter} has it"

    def columns(self) -> tuple[Column, ...]:
        """``degree_profile`` (N, 5)."""
        return (self.column("node", "degree_profile", len(FIELDS), fields=FIELDS, low=0.0),)

    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, Array]:
        """Compute all graphs at once."""
        check()
        profile = local_degree_profile(
            graphs.joined_edges(), int(graphs.node_ptr[-1]), self.parameter
        )
        return {"node/degree_profile": profile}


def local_degree_profile(edge_index: ArrayLike, num_nodes: int, rule: Rule = "2.0") -> F32:
    """Return the local degree profile of each node (Cai and Wang, arXiv 1811.03508).

    Degrees are numbers of out-edges; the neighbours of a node are the targets of its out-edges, one
    per edge. Without any, the four values are 0. ``edge_index`` (2, E) has sources and targets; the
    result is float32 (N, 5), :data:`FIELDS`. Raises ``UsageError`` if there is no such rule;
    ``DamagedInput`` if an edge leads to a missing node.

    ``rule`` says what the deviation is. ``"2.0"``: as PyTorch Geometric 2.0 with torch-scatter, the
    square root of the sum of squared differences over max(n − 1, 1) + 10⁻⁶. ``"2.8"``: as PyTorch
    Geometric since 2.1, the square root of the mean square minus the squared mean, 0 where that is
    at most 10⁻⁵. Sums are exact here, and float32 there.
    """
    rules = get_args(Rule)
    if rule not in rules:
        raise UsageError(f"There is no degree profile {rule!r}.", expected=", ".join(rules))
    edges = np.asarray(edge_index)
    check_edge_bounds(edges, num_nodes)
    source, target = edges.astype(np.int64, copy=False)

    # Exact sums over the out-edges of each node, of the degrees of their targets and the squares of
    # these.
    degree = np.bincount(source, minlength=num_nodes)
    around = degree[target]
    least = np.where(degree > 0, len(source), 0)
    most = np.zeros(num_nodes, np.int64)
    total = np.zeros(num_nodes, np.int64)
    square = np.zeros(num_nodes, np.int64)
    np.minimum.at(least, source, around)
    np.maximum.at(most, source, around)
    np.add.at(total, source, around)
    np.add.at(square, source, around * around)

    count = np.maximum(degree, 1)
    spread = (count * square - total * total) / count  # sum of squared differences from the mean
    if rule == "2.0":
        variance = spread / (np.maximum(degree - 1, 1) + 1e-6)
    else:
        variance = spread / count
        variance[variance <= 1e-5] = 0
    profile = np.stack([degree, least, most, total / count, np.sqrt(variance)], axis=1)
    return profile.astype(np.float32)


ENCODING = DegreeProfile
