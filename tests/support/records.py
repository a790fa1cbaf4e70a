"""Random schemas and records, a build folder of them, and their comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.builds import put_build

from kmip_data.format.build_files import write_split_file
from kmip_data.format.card import Card
from kmip_data.format.reader import Shard
from kmip_data.format.schema import EDGE_INDEX, NEIGHBOR, STORED_DTYPES, Column, Schema
from kmip_data.format.splits import encode_split
from kmip_data.format.writer import GraphRecord

POINT_SCHEMA = Schema(
    columns=(
        Column(key="node/x", attribute="x", stored="float32", presented="float32", shape=(6,)),
        Column(
            key="node/y", attribute="y", stored="uint8", presented="int64", low=0, high=12, num_classes=13
        ),
        Column(key="graph/category", attribute="category", stored="uint8", presented="int64", low=0, high=15),
    ),
    edges="neighbor",
    k=4,
    max_nodes=4096,
)
EDGE_SCHEMA = Schema(
    columns=(
        Column(key="node/x", attribute="x", stored="float16", presented="float32", shape=(3,)),
        Column(key="edge/attr", attribute="edge_attr", stored="float32", presented="float32", shape=(2,)),
        Column(key="graph/y", attribute="y", stored="int32", presented="int64", shape=(2,)),
    ),
    edges="index",
    max_nodes=70_000,
)


def make_record(schema: Schema, key: str, nodes: int, edges: int, random: np.random.Generator) -> GraphRecord:
    """A record of ``schema`` with values inside its bounds; ``edges`` only counts for edge lists."""
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


def make_build(
    folder: Path,
    shards: Sequence[Sequence[GraphRecord]],
    schema: Schema,
    *,
    compression: Any = None,
) -> Card:
    """Write a complete build folder (shards, one split, card) by the writers of the package; sample data."""
    (folder / "splits").mkdir(parents=True)
    everything = [record for records in shards for record in records]
    positions = np.arange(len(everything))
    parts = {"train": positions[::2], "val": positions[1::4], "test": positions[3::4]}
    rule: dict[str, Any] = {"rule": "stride", "parameters": {"step": 2}}
    encoded = encode_split(parts, keys=[record.key for record in everything], **rule)
    rows = np.array([(1, record.num_nodes, record.num_edges) for record in everything]).reshape(-1, 3)
    sizes = {name: tuple(rows[part].sum(axis=0).tolist()) for name, part in parts.items()}
    return put_build(
        folder,
        shards,
        schema,
        dataset="sample-points",
        key="0123456789ab",
        compression=compression,
        sample=True,
        complete=False,
        parameters={"k": schema.k},
        splits={"stride": write_split_file(folder, "stride", encoded, sizes, **rule)},
        statistics={"mean": 0.1},
        notes=["letters beyond ASCII: ä, ö, ü"],
    ).card


def read_records(shard: Shard) -> list[GraphRecord]:
    """All records of a shard through its reader, the slow and obvious way."""
    found = []
    for graph, key in enumerate(shard.keys):
        nodes, edges = shard.node_ptr[graph : graph + 2].tolist(), shard.edge_ptr[graph : graph + 2].tolist()
        rows = {"node": nodes, "edge": edges, "graph": [graph, graph + 1]}
        columns: dict[str, Any] = {}
        for column in shard.schema.columns:
            values = shard.read(column.key, *rows[column.level])
            columns[column.key] = values[0] if column.level == "graph" else values
        layout = shard.schema.edges
        found.append(
            GraphRecord(
                key=key,
                num_nodes=nodes[1] - nodes[0],
                columns=columns,
                neighbor=shard.read(NEIGHBOR, *nodes) if layout == "neighbor" else None,
                edge_index=shard.read(EDGE_INDEX, *edges) if layout == "index" else None,
            )
        )
    return found


def assert_same_records(found: Sequence[GraphRecord], wanted: Sequence[GraphRecord]) -> None:
    """Fail unless both are equal to the last bit (indices by value: they are stored narrower)."""
    assert [record.key for record in found] == [record.key for record in wanted]
    for left, right in zip(found, wanted, strict=True):
        assert (left.num_nodes, left.num_edges) == (right.num_nodes, right.num_edges)
        forms = [
            {key: (array.dtype, array.shape, array.tobytes()) for key, array in record.columns.items()}
            for record in (left, right)
        ]
        assert forms[0] == forms[1]
        np.testing.assert_equal((left.neighbor, left.edge_index), (right.neighbor, right.edge_index))


def random_schema(random: np.random.Generator) -> Schema:
    """Any schema that the format can hold: all dtypes, row shapes, edge layouts and index widths."""
    edges = str(random.choice(["neighbor", "index", "none"]))
    levels = ["node", "graph"] if edges == "none" else ["node", "graph", "edge"]
    shapes = [(), (1,), (3,), (2, 2), (0,)]
    columns = [
        Column(
            key=f"{random.choice(levels)}/{name}",
            attribute=name,
            stored=(dtype := str(random.choice(sorted(STORED_DTYPES)))),
            presented=dtype,
            shape=shapes[random.integers(len(shapes))],
        )
        for name in "abcdxy"[: random.integers(6)]
    ]
    k = int(random.integers(1, 6)) if edges == "neighbor" else None
    most = int(random.choice([64, 65_536, 65_537, 200_000]))
    return Schema(columns=tuple(columns), edges=edges, k=k, max_nodes=most)


def random_records(schema: Schema, random: np.random.Generator) -> list[GraphRecord]:
    """Records of ``schema``: empty graphs, single nodes, no edges, arbitrary bits, extremes, NaN."""
    records = []
    for number in range(random.integers(6)):
        nodes, edges = random.choice([0, 1, 2, 7, 40]), random.choice([0, 1, 9])
        record = make_record(schema, f"{number}: ~ {'k' * number}", int(nodes), int(edges), random)
        for key, array in record.columns.items():
            info: Any = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
            odd = [info.max, info.min]
            odd += [info.tiny, np.nan, np.inf, -np.inf, -0.0] if array.dtype.kind == "f" else []
            bits = np.frombuffer(random.bytes(array.nbytes), array.dtype).reshape(array.shape)
            filled = np.full(array.shape, odd[random.integers(len(odd))], array.dtype)
            record.columns[key] = bits if random.random() < 0.6 else filled
        for index in (record.neighbor, record.edge_index):
            if index is not None and random.random() < 0.3:
                index[...] = max(nodes - 1, 0)
        records.append(record)
    return records
