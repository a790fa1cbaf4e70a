"""Sampled neighbourhoods to draw instead of a graph that is too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from kmip_data.drawing.layouts import MAX_NODES
from kmip_data.errors import UsageError
from kmip_data.graphs.neighbor_sampling import Neighborhoods

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.reading.numpy_records import Records

FANOUTS = (12, 4)  #: maximum number of incoming edges sampled per node, by hop


def drawable_dataset(dataset: ShardedDataset, part: str | None) -> ShardedDataset:
    """Return the dataset, or :class:`NeighborhoodDataset` for one large graph without positions."""
    if not is_drawn_by_neighborhoods(dataset):
        return dataset
    return cast("ShardedDataset", NeighborhoodDataset(dataset, part))


def is_drawn_by_neighborhoods(dataset: ShardedDataset | Records) -> bool:
    """True for a single large graph without positions."""
    schema = dataset.schema
    attributes = {*schema.attributes}
    attributes |= {view.attribute for view in schema.views}
    return len(dataset) == 1 and int(dataset.nodes[0]) > MAX_NODES and "pos" not in attributes


class NeighborhoodDataset:
    """A dataset of sampled neighbourhoods, one for each node of ``part`` or of the whole graph.

    Rows are read from the mapped files, so memory grows by 8 bytes per node, not with edges or
    features. All other attributes are the dataset's.
    """

    def __init__(self, dataset: ShardedDataset, part: str | None) -> None:
        self._dataset = dataset
        edges = dataset.mapped_edges(0)
        if edges is None:
            raise UsageError(
                f"{dataset.card.dataset} is too large to be drawn, and cannot be read node by node.",
                steps="use a local build",
            )
        nodes = int(dataset.nodes[0])
        self._neighborhoods = Neighborhoods(edges, nodes)
        #: Node at the centre of each item.
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

        seeds = np.array([self.records[position]])
        generator = np.random.Generator(np.random.PCG64(0))
        sampled = self._neighborhoods.sample_around(seeds, FANOUTS, generator)
        data = self._dataset.select_rows(0, sampled.nodes, sampled.edges)
        data.edge_index = torch.from_numpy(np.stack([sampled.source, sampled.target]))
        return data


class _LazyKeys:
    """Names of the items, formatted on access."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, position: int) -> str:
        return f"sample around node {self._nodes[position]}"
