"""Generated graphs whose targets depend on nodes many edges away.

Six topologies (line, ladder, grid, tree, caterpillar, lobster) and five tasks. Record ``i`` is a
pure function of the seed and ``i``; no files are read. Topologies and the tasks ``sssp``, ``ecc``
and ``diam`` follow the ECHO benchmark (ICLR 2026), ``max-retrieval`` follows Veličković et al.
(arXiv 2410.01104), with 8 classes; ``retrieval`` is our own. Facts:
``docs/datasets/long-range.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

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
SOURCES_PER_BLOCK = 64  #: nodes whose distances to all others are in memory together
PART_CYCLE = (*["train"] * 8, "val", "test")  #: parts of consecutive rounds through the topologies


class LongRangeParams(BuildParams):
    """Parameters that change the records."""

    task: Literal["retrieval", "sssp", "ecc", "diam", "max-retrieval"] = Field(
        default="retrieval",
        description="retrieval: value of the only other node with the same key; sssp: distance from "
        "a marked node; ecc: largest distance from each node; diam: largest distance in the graph; "
        "max-retrieval: value of the node of highest priority, in graphs without edges",
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
        le=65_536,
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


def no_edges(_nodes: int, _rng: Rng) -> I64:
    """Return no edges, (2, 0)."""
    return np.empty((2, 0), np.int64)


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
        stored = "int8"
        target = class_column("node/y", NUM_VALUES, "value of the other node with this key")
        if params.task == "max-retrieval":
            stored = "float32"
            target = class_column("graph/y", NUM_VALUES, "value of the node of highest priority")
        elif params.task != "retrieval":
            # Distances are regression targets.
            target = Column(
                key="graph/y" if params.task == "diam" else "node/y", attribute="y", stored="float32",
                presented="float32", shape=(1,), unit="edges", doc="target",
            )  # fmt: skip
        distance = Column(
            key="node/distance", attribute="distance", stored="uint16", presented="int64", unit="edges",
            doc="to the node that is asked for",
        )  # fmt: skip
        columns = [feature_column("node/x", fields, "input of the task", stored=stored), target]
        columns += [distance] if params.task in {"retrieval", "sssp"} else []
        return Schema(
            columns=tuple(columns),
            max_nodes=max(self.manifest.max_nodes, params.nodes),
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
_VALUE_NAMES = tuple(f"value {i}" for i in range(NUM_VALUES))
FEATURE_NAMES = {
    "retrieval": (*(f"key bit {i} [-1, 1]" for i in range(KEY_BITS)), *_VALUE_NAMES),
    "max-retrieval": ("priority [0, 1]", *_VALUE_NAMES),
    "sssp": ("source",),
}


def make_record(row: int, params: LongRangeParams) -> GraphRecord:
    """Return graph ``row``, drawing size, numbering, edges and targets in this order."""
    topologies = {"items": no_edges} if params.task == "max-retrieval" else TOPOLOGIES
    names = list(topologies)
    name = names[row % len(names)]
    rng = np.random.default_rng([params.seed, row])
    # Draw an even number of nodes, because keys are shared by pairs.
    nodes = 2 * int(rng.integers(params.nodes // 4, params.nodes // 2, endpoint=True))
    # Shuffle nodes, so that their numbers do not reveal positions.
    number = rng.permutation(nodes)
    edges = number[topologies[name](nodes, rng)]
    both_directions = append_reverse_edges(edges)
    edge_index = both_directions[:, np.lexsort(both_directions)]

    part = PART_CYCLE[row // len(names) % len(PART_CYCLE)]
    return GraphRecord(
        key=f"{part}/{name}/{row:07d}",
        num_nodes=nodes,
        columns=_task_columns(params.task, edge_index, nodes, rng),
        edge_index=edge_index.astype(np.uint16),
    )


def hop_distances(edge_index: I64, nodes: int, sources: I64) -> F64:
    """Return the number of edges on a shortest path from S sources to each node, (S, N)."""
    ones = np.ones(edge_index.shape[1], np.int8)
    adjacency = coo_array((ones, tuple(edge_index)), shape=(nodes, nodes))
    distance: F64 = dijkstra(adjacency.tocsr(), indices=sources, unweighted=True)
    return distance


def _reduce_distances(edge_index: I64, nodes: int, reduce: Callable[[I64, F64], Array]) -> Array:
    """Return ``reduce(sources, distances)`` of all nodes, (N,), without all distances in memory."""
    bounds = range(SOURCES_PER_BLOCK, nodes, SOURCES_PER_BLOCK)
    blocks = np.split(np.arange(nodes), bounds)
    reduced = [reduce(block, hop_distances(edge_index, nodes, block)) for block in blocks]
    return np.concatenate(reduced)


def _task_columns(task: str, edge_index: I64, nodes: int, rng: Rng) -> dict[str, Array]:
    """Return the columns of a task."""
    if task == "retrieval":
        return _retrieval_columns(edge_index, nodes, rng)
    if task == "max-retrieval":
        priority = rng.random((nodes, 1), np.float32)
        value = rng.integers(0, NUM_VALUES, nodes)
        return {
            "node/x": np.hstack([priority, np.eye(NUM_VALUES, dtype=np.float32)[value]]),
            "graph/y": value[priority.argmax()].astype(np.uint8),
        }
    if task == "sssp":
        source = int(rng.integers(nodes))
        is_source = np.arange(nodes) == source
        distance = hop_distances(edge_index, nodes, np.array([source]))[0]
        return {
            "node/x": is_source.astype(np.int8)[:, None],
            "node/y": distance[:, None].astype(np.float32),
            "node/distance": distance.astype(np.uint16),
        }
    constant = np.ones((nodes, 1), np.int8)
    farthest = _reduce_distances(edge_index, nodes, lambda _, distance: distance.max(1))
    if task == "ecc":
        return {"node/x": constant, "node/y": farthest[:, None].astype(np.float32)}
    return {"node/x": constant, "graph/y": farthest.max()[None].astype(np.float32)}


def _retrieval_columns(edge_index: I64, nodes: int, rng: Rng) -> dict[str, Array]:
    """Pair the nodes, with a unique key per pair and a value per node."""
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
    distance = _reduce_distances(
        edge_index,
        nodes,
        lambda sources, distance: distance[np.arange(len(sources)), partner[sources]],
    )
    return {
        "node/x": np.hstack([bits, one_hot]).astype(np.int8),
        "node/y": value[partner].astype(np.uint8),
        "node/distance": distance.astype(np.uint16),
    }
