"""Neighbourhoods of nodes, to draw instead of a graph that is too large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.columns.position_columns import stored_positions
from kmip_data.drawing.layouts import MAX_NODES
from kmip_data.errors import UsageError

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.reading.numpy_records import Records

#: Nodes that are one and two edges away; of more, some are drawn at random.
MAX_NEIGHBORS = (24, 36)
BLOCK = 2**23  #: edges read at a time


def drawable_dataset(dataset: ShardedDataset, part: str | None) -> ShardedDataset:
    """Return the dataset, or :class:`NeighborhoodDataset` for one large graph without positions."""
    if not is_drawn_by_neighborhoods(dataset):
        return dataset
    return cast("ShardedDataset", NeighborhoodDataset(dataset, part))


def is_drawn_by_neighborhoods(dataset: ShardedDataset | Records) -> bool:
    """True for a single large graph without positions."""
    if len(dataset) > 1 or int(dataset.nodes[0]) <= MAX_NODES:
        return False
    schema = dataset.schema
    row = {column.attribute: np.zeros((1, *column.shape)) for column in schema.columns}
    row |= {view.attribute: np.zeros((1, view.stop - view.start)) for view in schema.views}
    return stored_positions(schema, row, 1) is None


class NeighborhoodDataset:
    """A dataset of neighbourhoods, one for each node of ``part`` or of the whole graph.

    The first node of an item is the middle, and ``n_id`` are the numbers of its nodes in the graph. Edges
    are read from the mapped file in either direction. All other attributes are the dataset's.
    """

    def __init__(self, dataset: ShardedDataset, part: str | None) -> None:
        self._dataset = dataset
        edges = dataset.mapped_edges(0)
        if edges is None:
            raise UsageError(
                f"{dataset.card.dataset} is too large to be drawn, and cannot be read node by node.",
                steps="use a local build",
            )
        self._edges = edges
        nodes = int(dataset.nodes[0])
        self.edge_count = edges.shape[1]
        self.loop_count = int(np.count_nonzero(edges[0] == edges[1]))
        #: (2, N) outgoing and incoming edges of each node of the graph
        self.degrees = np.zeros((2, nodes), np.int64)
        for start in self._block_starts():
            for row, ends in enumerate(edges[:, start : start + BLOCK]):
                self.degrees[row] += np.bincount(ends, minlength=nodes)
        #: Node in the middle of each item.
        self.records: Sequence[int] = range(nodes)
        if part is not None:
            self.records = np.flatnonzero(dataset.masks[f"{part}_mask"].numpy())  # type: ignore[assignment]
        self.keys = _LazyKeys(self.records)

    def __getattr__(self, name: str) -> object:
        return getattr(self._dataset, name)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, position: int) -> Data:
        import torch

        # 1. Collect the nodes, and all edges between them.
        nodes = np.array([self.records[position]])
        generator = np.random.Generator(np.random.PCG64(0))
        for most in MAX_NEIGHBORS:
            reached = np.setdiff1d(self._edges[:, self._edges_at(nodes, np.any)], nodes)
            if len(reached) > most:
                reached = generator.choice(reached, most, replace=False)
            nodes = np.concatenate([nodes, reached.astype(np.int64)])
        edges = self._edges_at(nodes, np.all)

        # 2. Read their rows.
        data = self._dataset.select_rows(0, nodes, edges)
        data.n_id = torch.from_numpy(nodes)
        number = np.zeros(self.degrees.shape[1], np.int64)
        number[nodes] = np.arange(len(nodes))
        data.edge_index = torch.from_numpy(number[self._edges[:, edges]])
        for name, mask in self._dataset.masks.items():
            data[name] = mask[data.n_id]
        return data

    def typical_positions(self, positions: Sequence[int]) -> list[int]:
        """Return the nearest item to each position whose middle has the median degree, without repeats."""
        degrees = self.degrees.sum(axis=0)[self.records]
        off = np.abs(degrees - np.median(degrees))
        typical = np.flatnonzero(off == off.min())
        nearest = [typical[np.abs(typical - position).argmin()] for position in positions]
        return sorted({int(position) for position in nearest})

    def _block_starts(self) -> range:
        return range(0, max(1, self.edge_count), BLOCK)

    def _edges_at(self, nodes: I64, choose: Callable[..., Array]) -> I64:
        """Return the edges of which any or all ends are among ``nodes``."""
        is_member = np.zeros(self.degrees.shape[1], bool)
        is_member[nodes] = True
        found = [
            start + np.flatnonzero(choose(is_member[self._edges[:, start : start + BLOCK]], axis=0))
            for start in self._block_starts()
        ]
        return np.concatenate(found)


class _LazyKeys:
    """Names of the items, formatted on access."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, position: int) -> str:
        return f"sample around node {self._nodes[position]}"
