"""A small graph like those of a batch, to measure a training step on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from kmip_data.models.training.data.run_data import BatchSize

CUT = 512  #: nodes of a cut


def cut_of(batch: Any, size: BatchSize, numbers: Collection[str] = ()) -> Data:
    """Return a graph of :data:`CUT` nodes with the columns of ``batch`` and edges in the ratio of ``size``.

    Rows are repeated where the batch has fewer, and edges connect arbitrary nodes. Columns in ``numbers``
    hold numbers of nodes: there each node has its own.
    """
    n = min(CUT, max(1, size.nodes))
    rows = torch.arange(n) % batch.num_nodes
    values: dict[str, Any] = {}
    neighbor = getattr(batch, "neighbor", None)
    edge_attr, edges = getattr(batch, "edge_attr", None), 0
    if neighbor is not None:
        values["neighbor"] = neighbor[rows].long() % n
        if edge_attr is not None:
            values["edge_attr"] = edge_attr.view(*neighbor.shape, -1)[rows].flatten(0, 1)
    else:
        edges = round(n * size.edges / max(1, size.nodes))
        there = batch.edge_index.shape[1]
        columns = torch.arange(edges) % max(1, there)
        values["edge_index"] = batch.edge_index[:, columns] % n if there else torch.zeros(2, 0).long()
        if edge_attr is not None:
            values["edge_attr"] = edge_attr[columns] if there else edge_attr
    for name, value in batch.to_dict().items():
        done = name in {"edge_index", "edge_attr", "neighbor", "ptr", "batch", "y"}
        if not done and isinstance(value, Tensor) and value.ndim:
            # One row per node, or (eigenvalues) per graph: the cut is one graph.
            values[name] = value[rows] if len(value) == batch.num_nodes else value[:1]
            if name in numbers:
                values[name] = torch.arange(n)[:, None].expand(-1, value.shape[1])
    return Data(**values)
