"""Check edges and node numbers of graphs from untrusted files.

Errors are ``DamagedInput`` and begin with ``where``: the file, and the number of the graph.
"""

from __future__ import annotations

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput

MAX_NODES = 2**32  #: largest graph that a shard can store


def all_in_range(values: Array, count: int) -> bool:
    """True if all values, of any shape, are in the range 0 to ``count - 1``."""
    return not values.size or bool(0 <= values.min() <= values.max() < count)


def count_nodes(edges: Array) -> int:
    """Return the number of nodes implied by edges (2, E)."""
    return int(edges.max()) + 1 if edges.size else 0


def check_raw_edges(edges: Array, nodes: int, where: str) -> None:
    """Refuse too many nodes, and edges (2, E) of nodes that do not exist."""
    if nodes > MAX_NODES:
        raise DamagedInput(f"{where}: {nodes:,} nodes, of at most {MAX_NODES:,}.")
    if not all_in_range(edges, nodes):
        raise DamagedInput(
            f"{where}: edges of nodes {edges.min():,} to {edges.max():,}, of {nodes:,}."
        )
