"""Schemas, random records of them, and their comparison."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.reader import Shard
from kmip_data.format.schema import EDGE_INDEX, NEIGHBOR, Column, Schema, ShardStructure
from kmip_data.format.writer import write_shard


def column_of(key: str, stored: str = "float32", presented: str = "", **more: Any) -> Column:
    """A column that is named by the end of its key, and presented as it is stored."""
    name = more.pop("attribute", key.rpartition("/")[2])
    return Column(key=key, attribute=name, stored=stored, presented=presented or stored, **more)


POINT_SCHEMA = Schema(
    columns=(
        column_of("node/x", shape=(6,)),
        column_of("node/y", "uint8", "int64", low=0, high=12, num_classes=13),
        column_of("graph/category", "uint8", "int64", low=0, high=15),
    ),
    edges="neighbor",
    k=4,
    max_nodes=4096,
)
EDGE_SCHEMA = Schema(
    columns=(
        column_of("node/x", "float16", "float32", shape=(3,)),
        column_of("edge/attr", attribute="edge_attr", shape=(2,)),
        column_of("graph/y", "int32", "int64", shape=(2,)),
    ),
    edges="index",
    max_nodes=70_000,
)


class EncodedShard(NamedTuple):
    """The bytes of one shard file, its entry on a card, and its structure."""

    data: bytes
    facts: dict[str, Any]
    structure: ShardStructure


def encode_shard(
    records: Sequence[GraphRecord],
    schema: Schema,
    *,
    dataset: str,
    build_key: str,
) -> EncodedShard:
    """Return what ``write_shard`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shard.h5"
        facts, structure = write_shard(
            path, records, schema, root=path.parent, dataset=dataset, build_key=build_key
        )
        return EncodedShard(path.read_bytes(), facts, structure)


def make_record(
    schema: Schema, key: str, nodes: int, edges: int, random: np.random.Generator
) -> GraphRecord:
    """A record of ``schema`` with values inside its bounds.

    ``edges`` only counts for edge lists.
    """
    neighbor = edge_index = None
    if schema.edges == "neighbor":
        neighbor = random.integers(0, max(nodes, 1), (nodes, schema.k), dtype=np.int64)
    elif schema.edges == "index":
        edge_index = random.integers(0, max(nodes, 1), (2, edges if nodes else 0), dtype=np.int64)
    empty = GraphRecord(key=key, num_nodes=nodes, neighbor=neighbor, edge_index=edge_index)
    count = {"node": nodes, "edge": empty.num_edges}
    columns = {}
    for column in schema.columns:
        shape = (*((count[column.level],) if column.level != "graph" else ()), *column.shape)
        low = 0 if column.low is None else int(column.low)
        high = 100 if column.high is None else int(column.high)
        values = (
            random.integers(low, high + 1, shape)
            if column.num_classes
            else random.random(shape) * (high - low) + low
        )
        columns[column.key] = np.asarray(values).astype(column.stored)
    return dataclasses.replace(empty, columns=columns)


def make_records(schema: Schema, sizes: Sequence[int], seed: int = 0) -> list[GraphRecord]:
    """Records ``g0``, ``g1`` … with the given numbers of nodes and up to three edges a node."""
    random = np.random.default_rng(seed)
    return [
        make_record(schema, f"g{i}", n, int(random.integers(0, 3 * n + 1)), random)
        for i, n in enumerate(sizes)
    ]


def read_records(shard: Shard) -> list[GraphRecord]:
    """All records of a shard through its reader, the slow and obvious way."""
    records = []
    for graph, key in enumerate(shard.keys):
        nodes, edges = (
            shard.node_ptr[graph : graph + 2].tolist(),
            shard.edge_ptr[graph : graph + 2].tolist(),
        )
        rows = {"node": nodes, "edge": edges, "graph": [graph, graph + 1]}
        columns: dict[str, Any] = {}
        for column in shard.schema.columns:
            values = shard.read(column.key, *rows[column.level])
            columns[column.key] = values[0] if column.level == "graph" else values
        layout = shard.schema.edges
        records.append(
            GraphRecord(
                key=key,
                num_nodes=nodes[1] - nodes[0],
                columns=columns,
                neighbor=shard.read(NEIGHBOR, *nodes) if layout == "neighbor" else None,
                edge_index=shard.read(EDGE_INDEX, *edges) if layout == "index" else None,
            )
        )
    return records


def assert_same_records(records: Sequence[GraphRecord], wanted: Sequence[GraphRecord]) -> None:
    """Fail unless both are equal to the last bit (indices by value: they are stored narrower)."""
    assert [record.key for record in records] == [record.key for record in wanted]
    for left, right in zip(records, wanted, strict=True):
        assert (left.num_nodes, left.num_edges) == (right.num_nodes, right.num_edges)
        forms = [
            {
                key: (array.dtype, array.shape, array.tobytes())
                for key, array in record.columns.items()
            }
            for record in (left, right)
        ]
        assert forms[0] == forms[1]
        np.testing.assert_equal(
            (left.neighbor, left.edge_index), (right.neighbor, right.edge_index)
        )
