"""One graph as numpy arrays: what readers return, and what the writer of shards stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kmip_data.arrays import Array, Integers


@dataclass(frozen=True, kw_only=True)
class GraphRecord:
    """One graph as numpy arrays."""

    key: str  #: upstream identity, such as ``Area_1_office_1/000016``: ASCII, unique in the dataset
    num_nodes: int  #: number of nodes N
    #: column key (``node/x``) -> array in the stored dtype: [N, …] for node columns, [E, …] for edge
    #: columns, one row […] for graph columns
    columns: Mapping[str, Array] = field(default_factory=dict)
    #: [N, k] integer, sources of each target, nearest first; only with edge layout ``neighbor``
    neighbor: Integers | None = None
    #: [2, E] integer, row 0 sources and row 1 targets; only with edge layout ``index``
    edge_index: Integers | None = None

    @property
    def num_edges(self) -> int:
        """Number of stored edges E."""
        if self.neighbor is not None:
            return int(self.neighbor.size)
        return 0 if self.edge_index is None else int(self.edge_index.shape[1])
