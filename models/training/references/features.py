"""Features of the rows of each part: their own, and the same with means over one and two hops.

A row is a node or a graph, as in the targets. The columns do not depend on the network: they are the
features and edge features that are stored, whether or not a network reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected

from kmip_data.arrays import F64, I64, Array
from kmip_data.models.scaling import Moments
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.tasks import is_known
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader

ROWS_PER_READ = 2**18  #: nodes or edges whose features are aggregated at a time
#: Largest number of values of an integer column that is read as categories.
MAX_CATEGORIES = 64


class PartFeatures(NamedTuple):
    """Rows of a part with a known target."""

    features: F64  #: (N, c) own features
    with_neighbors: F64  #: (N, d) own features and means over one and two hops
    targets: Tensor  #: (N,) classes, or (N, T) labels or numbers


class ColumnValues:
    """Columns of an attribute as standardised numbers; an integer column becomes indicators.

    Statistics and categories are those of the train rows, which are added block by block. A missing
    number becomes the mean.
    """

    def __init__(self, width: int) -> None:
        self.moments = Moments(width)
        #: train values of each column; ``None`` for numbers
        self.values: list[Array] | None = [np.empty(0, np.int64) for _ in range(width)]

    def add(self, rows: Tensor) -> None:
        """Add train rows (n, C)."""
        self.moments.add(_finite_or_nan(rows))
        if rows.is_floating_point():
            self.values = None
        if self.values is not None:
            columns = zip(self.values, rows.numpy().T, strict=True)
            self.values = [np.union1d(values, column) for values, column in columns]

    def transform(self, rows: Tensor) -> F64:
        """Return rows (n, C) as numbers (n, c)."""
        if self.values is not None and max(map(len, self.values)) <= MAX_CATEGORIES:
            columns = zip(self.values, rows.numpy().T, strict=True)
            return np.hstack([column[:, None] == values for values, column in columns]).astype(
                float
            )
        mean, deviation = self.moments.statistics()
        scaled = (_finite_or_nan(rows) - mean.double()) / deviation.double()
        return scaled.nan_to_num(nan=0.0).numpy()


def _finite_or_nan(rows: Tensor) -> Tensor:
    values = rows.double()
    return values.where(values.isfinite(), torch.nan)


def averaging(groups: I64, members: I64, shape: tuple[int, int]) -> csr_array:
    """Return the matrix (G, N) whose product averages the rows ``members`` (m,) of each group (m,)."""
    counts = np.bincount(groups, minlength=shape[0])
    return csr_array((1 / counts[groups], (groups, members)), shape=shape)


def row_features(
    graphs: Data, x: F64, edge_attr: F64 | None, *, of_graphs: bool, both_ways: bool
) -> list[F64]:
    """Return own features (N, c) and those of the neighbourhood (N, d) of the nodes or graphs of a batch.

    ``x`` (nodes, C) and ``edge_attr`` (edges, E) are the features as numbers. Graphs have the mean
    and the sum of the features of their nodes, the mean of their edges, and their sizes. A node has
    the mean of its edges, and their number, among the features of its neighbourhood, which consists
    of the nodes that send edges to it and, ``both_ways``, also of those that it sends edges to.
    """
    # 1. Average over one and two hops, in each direction.
    nodes = len(x)
    source, target = graphs.edge_index.numpy()
    edges = np.arange(len(target))
    neighborhood = []
    for senders, receivers in [(source, target), (target, source)][: 1 + both_ways]:
        hop = averaging(receivers, senders, (nodes, nodes))
        first_hop = hop @ x
        neighborhood += [first_hop, hop @ first_hop]
        if of_graphs:
            continue
        if edge_attr is not None:
            neighborhood.append(averaging(receivers, edges, (nodes, len(edges))) @ edge_attr)
        neighborhood.append(np.bincount(receivers, minlength=nodes)[:, None].astype(float))
    if not of_graphs:
        return [x, np.hstack(neighborhood)]

    # 2. Pool the nodes and edges of each graph.
    graph = graphs.batch.numpy()
    count = graphs.num_graphs
    pool = averaging(graph, np.arange(nodes), (count, nodes))
    sizes = np.bincount(graph, minlength=count)[:, None].astype(float)
    edge_counts = np.bincount(graph[target], minlength=count)[:, None].astype(float)
    features = [pool @ x, sizes * (pool @ x), sizes, edge_counts]
    if edge_attr is not None:
        features.append(averaging(graph[target], edges, (count, len(edges))) @ edge_attr)
    return [np.hstack(features), pool @ np.hstack(neighborhood)]


def read_parts(data: RunData) -> dict[str, PartFeatures]:
    """Return the labelled rows of each part."""
    # 1. See the train rows: their columns, and edges without a reverse.
    columns: dict[str, ColumnValues] = {}
    both_ways = False
    for graphs in _batches(data, "train"):
        both_ways = both_ways or not is_undirected(graphs.edge_index, num_nodes=graphs.num_nodes)
        for attribute in ["x", *_edge_attributes(data)]:
            rows = _rows(graphs, attribute)
            if attribute == "x" and "train_mask" in graphs:
                rows = rows[graphs.train_mask]
            columns.setdefault(attribute, ColumnValues(rows.shape[1])).add(rows)

    # 2. Compute the features of each part.
    parts = {}
    for part in data.parts:
        blocks = list(_blocks_of_part(data, part, columns, both_ways=both_ways))
        features, neighbors, targets = zip(*blocks, strict=True)
        own_features = np.concatenate(features)
        with_neighbors = np.hstack([own_features, np.concatenate(neighbors)])
        parts[part] = PartFeatures(own_features, with_neighbors, torch.cat(targets))
    return parts


def _blocks_of_part(
    data: RunData, part: str, columns: dict[str, ColumnValues], *, both_ways: bool
) -> Iterator[tuple[F64, F64, Tensor]]:
    for graphs in _batches(data, part):
        values = {name: column.transform(_rows(graphs, name)) for name, column in columns.items()}
        of_graphs = data.task.level == "graph"
        features, neighbors = row_features(
            graphs,
            values["x"],
            values.get("edge_attr"),
            of_graphs=of_graphs,
            both_ways=both_ways,
        )
        targets = data.task.targets(graphs).reshape(len(features), -1)
        selected = is_known(targets).any(dim=1)
        if f"{part}_mask" in graphs:
            selected &= graphs[f"{part}_mask"]
        if data.task.target_type == "classification":
            targets = targets[:, 0]
        yield features[selected.numpy()], neighbors[selected.numpy()], targets[selected]


def _rows(graphs: Data, attribute: str) -> Tensor:
    rows: Tensor = graphs[attribute]
    return rows.reshape(len(rows), -1)


def _edge_attributes(data: RunData) -> list[str]:
    return [name for name in data.build.card.schema_.attributes if name == "edge_attr"]


def open_records(data: RunData, part: str, attributes: Sequence[str]) -> ShardedDataset:
    """Open a part, or all nodes of a single graph, with features as a network reads them."""
    return ShardedDataset(
        data.build,
        None if data.part_members == "nodes" else part,
        data.inputs.transform,
        split_name=data.split_name,
        columns=[*attributes, "edge_index", "y"],
        views=data.inputs.views,
    )


def _batches(data: RunData, part: str) -> Iterable[Data]:
    attributes = [*data.inputs.attributes, *_edge_attributes(data)]
    records = open_records(data, part, attributes)
    if data.part_members == "nodes":
        return [records[0]]
    largest = max(int(records.nodes.max()), int(records.edges.max()), 1)
    return GraphLoader(records, -(-ROWS_PER_READ // largest), prefetch=0, rank=0, world_size=1)
