"""Edges that are handed over: compiled code follows them without another look."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput


def check_edges(edge_index: NDArray[np.integer[Any]], num_nodes: int) -> None:
    """Raise DamagedInput if an edge leads to a node that is not there."""
    if edge_index.size and (edge_index.min() < 0 or edge_index.max() >= num_nodes):
        raise DamagedInput(
            "An edge leads to a node that is not there.",
            expected=f"nodes 0 to {num_nodes - 1}",
            found=f"{edge_index.min()} to {edge_index.max()}",
        )
