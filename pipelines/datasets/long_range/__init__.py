"""Generated graphs whose targets depend on nodes many edges away.

Six topologies (line, ladder, grid, tree, caterpillar, lobster) and four tasks. Record ``i`` is a
pure function of the seed and ``i``; no files are read. Topologies and the tasks ``sssp``, ``ecc``
and ``diam`` follow the ECHO benchmark (ICLR 2026); ``retrieval`` is our own. Facts:
``docs/datasets/long-range.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from kmip_data.arrays import F64, I64, Array
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.pipelines.base import CardAdditions, Pipeline, Prepared, Unit
from kmip_data.pipelines.common_columns import class_column, feature_column
from kmip_data.pipelines.graph_arrays.reverse_edges import append_reverse_edges
from kmip_data.pipelines.parameters import BuildParams, PublishedSplitParams
from kmip_data.pipelines.units_and_splits import units_of_rows

Rng = np.random.Generator
NUM_VALUES = 8  #: node values
KEY_BITS = 16  #: bits of the key shared by two nodes
RECORDS_PER_UNIT = 2_000
PART_CYCLE = (*["train"] * 8, "val", "test")  #: parts of consecutive rounds through the topologies


class LongRangeParams(BuildParams):
    """Parameters that change the records."""

    task: Literal["retrieval", "sssp", "ecc", "diam"] = Field(
        default="retrieval",
        description="retrieval: value of the only other node with the same key; sssp: distance from "
        "a marked node; ecc: largest distance from each node; diam: largest distance in the graph",
    )
    graphs: int = Field(
        default=3_000,
        ge=10,
        le=1_000_000,
        description="number of graphs, cycling through the topologies",
    )
    nodes: int = Field(
        default=64,
        ge=8,
        le=4_096,
        description="maximum nodes of a graph; the minimum is half as many",
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=2**32 - 1,
        description="seed of all graphs",
    )


def line_edges(nodes: int, _rng: Rng) -> I64:
    """Return the edges of a path, (2, nodes - 1)."""
    return np.stack([np.arange(nodes - 1), np.arange(1, nodes)])


def grid_edges(nodes: int, _rng: Rng, rows: int | None = None) -> I64:
    """Return the edges of a grid, square by default; the last row may be incomplete."""
    columns = -(-nodes // (rows or int(np.sqrt(nodes))))
    node = np.arange(nodes)
    right = node[(node % columns < columns - 1) & (node + 1 < nodes)]
    below = node[node + columns < nodes]
    horizontal = np.stack([right, right + 1])
    vertical = np.stack([below, below + columns])
    return np.concatenate([horizontal, vertical], axis=1)


def tree_edges(nodes: int, rng: Rng) -> I64:
    """Return the edges of a deep random tree, where each node's parent is one of the previous four."""
    child = np.arange(1, nodes)
    parent = rng.integers(np.maximum(child - 4, 0), child)
    return np.stack([parent, child])


def caterpillar_edges(nodes: int, rng: Rng) -> I64:
    """Return the edges of a path through half of the nodes, with the others attached to it."""
    return _attach_nodes(line_edges(nodes // 2, rng), nodes // 2, 0, nodes, rng)


def lobster_edges(nodes: int, rng: Rng) -> I64:
    """Return the edges of a caterpillar of 2/3 of the nodes, with the others attached to its legs."""
    spine = nodes // 3
    legs = 2 * nodes // 3
    edges = _attach_nodes(line_edges(spine, rng), spine, 0, legs, rng)
    return _attach_nodes(edges, legs, spine, nodes, rng)


def _attach_nodes(
    edges: I64,
    first: int,
    low: int,
    last: int,
    rng: Rng,
) -> I64:
    """Attach nodes ``first`` to ``last - 1`` to random nodes in ``low`` to ``first - 1``."""
    child = np.arange(first, last)
    parent = rng.integers(low, first, len(child))
    return np.concatenate([edges, np.stack([parent, child])], axis=1)


TOPOLOGIES: dict[str, Callable[[int, Rng], I64]] = {
    "line": line_edges,
    "ladder": partial(grid_edges, rows=2),
    "grid": grid_edges,
    "tree": tree_edges,
    "caterpillar": caterpillar_edges,
    "lobster": lobster_edges,
}


class LongRangePipeline(Pipeline[LongRangeParams, PublishedSplitParams]):
    """Pipeline of ``long-range``."""

    version = 1
    folder_name_templates = (("nodes", "n{}"),)
    Params = LongRangeParams

    def schema(self, params: LongRangeParams) -> Schema:
        """Return features by task, the target, and for node tasks the distance to the answer."""
        fields = FEATURE_NAMES.get(params.task, ("constant",))
        columns = [feature_column("node/x", fields, "input of the task", stored="int8")]
        target = class_column("node/y", NUM_VALUES, "value of the other node with this key")
        if params.task != "retrieval":
            # Distances are regression targets.
            target = Column(
                key="graph/y" if params.task == "diam" else "node/y", attribute="y", stored="float32",
                presented="float32", shape=(1,), unit="edges", doc="target",
            )  # fmt: skip
        distance = Column(
            key="node/distance", attribute="distance", stored="uint16", presented="int64", unit="edges",
            doc="to the node that is asked for",
        )  # fmt: skip
        columns += [target, distance] if params.task in {"retrieval", "sssp"} else [target]
        return Schema(
            columns=tuple(columns),
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=40,
        )

    def units(self, prepared: Prepared, params: LongRangeParams) -> list[Unit]:
        """Assign graphs in order; a limit keeps the first ones, with every topology and part."""
        rows = range(min(params.limit or params.graphs, params.graphs))
        return units_of_rows(rows, RECORDS_PER_UNIT, "graphs")

    def records(
        self, prepared: Prepared, unit: Unit, params: LongRangeParams
    ) -> Iterator[GraphRecord]:
        """Generate each graph from the seed and its number."""
        for row in unit.selection["rows"]:
            yield make_record(row, params)

    def card_additions(self, prepared: Prepared, params: LongRangeParams) -> CardAdditions:
        """State that the dataset is generated and complete."""
        note = f"Generated from seed {params.seed}: the dataset itself, not a sample of another."
        return CardAdditions(notes=[note])

    def folder_name_pieces(self, params: LongRangeParams) -> list[str]:
        """Return the task, and the largest graph if it is not the default."""
        return [params.task, *super().folder_name_pieces(params)]


PIPELINE = LongRangePipeline
FEATURE_NAMES = {
    "retrieval": (
        *(f"key bit {i} [-1, 1]" for i in range(KEY_BITS)),
        *(f"value {i}" for i in range(NUM_VALUES)),
    ),
    "sssp": ("source",),
}


def make_record(row: int, params: LongRangeParams) -> GraphRecord:
    """Return graph ``row``, drawing size, numbering, edges and targets in this order."""
    names = list(TOPOLOGIES)
    name = names[row % len(names)]
    rng = np.random.default_rng([params.seed, row])
    # Draw an even number of nodes, because keys are shared by pairs.
    nodes = 2 * int(rng.integers(params.nodes // 4, params.nodes // 2, endpoint=True))
    # Shuffle nodes, so that their numbers do not reveal positions.
    number = rng.permutation(nodes)
    edges = number[TOPOLOGIES[name](nodes, rng)]
    both_directions = append_reverse_edges(edges)
    edge_index = both_directions[:, np.lexsort(both_directions)]

    distance = hop_distances(edge_index, nodes).astype(np.uint16)
    part = PART_CYCLE[row // len(names) % len(PART_CYCLE)]
    return GraphRecord(
        key=f"{part}/{name}/{row:07d}",
        num_nodes=nodes,
        columns=_task_columns(params.task, distance, rng),
        edge_index=edge_index.astype(np.uint16),
    )


def hop_distances(edge_index: I64, nodes: int) -> F64:
    """Return the number of edges on a shortest path between any two nodes, (N, N)."""
    ones = np.ones(edge_index.shape[1], np.int8)
    adjacency = coo_array((ones, tuple(edge_index)), shape=(nodes, nodes))
    distance: F64 = shortest_path(adjacency.tocsr(), unweighted=True)
    return distance


def _task_columns(task: str, distance: NDArray[np.uint16], rng: Rng) -> dict[str, Array]:
    """Return the columns of a task from the distances between all nodes."""
    nodes = len(distance)
    if task == "retrieval":
        return _retrieval_columns(distance, rng)
    if task == "sssp":
        source = int(rng.integers(nodes))
        is_source = np.arange(nodes) == source
        return {
            "node/x": is_source.astype(np.int8)[:, None],
            "node/y": distance[source][:, None].astype(np.float32),
            "node/distance": distance[source],
        }
    constant = np.ones((nodes, 1), np.int8)
    if task == "ecc":
        return {"node/x": constant, "node/y": distance.max(1)[:, None].astype(np.float32)}
    return {"node/x": constant, "graph/y": distance.max()[None].astype(np.float32)}


def _retrieval_columns(distance: NDArray[np.uint16], rng: Rng) -> dict[str, Array]:
    """Pair the nodes, with a unique key per pair and a value per node."""
    nodes = len(distance)
    # Pair consecutive nodes of a random order.
    order = rng.permutation(nodes)
    partner = np.empty(nodes, np.int64)
    partner[order[0::2]] = order[1::2]
    partner[order[1::2]] = order[0::2]

    keys = rng.choice(2**KEY_BITS, nodes // 2, replace=False)
    code = np.empty(nodes, np.int64)
    code[order] = np.repeat(keys, 2)
    value = rng.integers(0, NUM_VALUES, nodes)
    # Encode the key in columns of -1 and 1.
    bits = 2 * (code[:, None] >> np.arange(KEY_BITS) & 1) - 1
    one_hot = np.eye(NUM_VALUES, dtype=np.int64)[value]
    return {
        "node/x": np.hstack([bits, one_hot]).astype(np.int8),
        "node/y": value[partner].astype(np.uint8),
        "node/distance": distance[np.arange(nodes), partner],
    }
