"""One graph in memory, on its way from raw bytes into a shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Skipped:
    """A record that was skipped on purpose; the card counts and lists it."""

    key: str  #: upstream identity of the record
    reason: str  #: the fault, in one line


@dataclass(frozen=True, kw_only=True)
class GraphRecord:
    """One graph as numpy arrays."""

    key: str  #: upstream identity (shape id, ``Area_1_office_1/000016``), unique inside a dataset, ASCII
    num_nodes: int  #: number of nodes N
    #: Column key (``node/x``) to array: [N, …] for node columns, [E, …] for edge columns, one row ([…]
    #: without a leading axis) for graph columns. Dtypes are the schema's stored ones
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    #: [N, k] integer, sources of each target, nearest first; only with edge layout ``neighbor``
    neighbor: NDArray[np.integer[Any]] | None = None
    #: [2, E] integer, row 0 sources and row 1 targets; only with edge layout ``index``
    edge_index: NDArray[np.integer[Any]] | None = None

    @property
    def num_edges(self) -> int:
        """Number of stored edges E."""
        if self.neighbor is not None:
            return int(self.neighbor.size)
        return 0 if self.edge_index is None else int(self.edge_index.shape[1])
