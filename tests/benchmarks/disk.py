"""Disk: bytes of a build against PyTorch Geometric's ``.pt`` of the same graphs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.table import Row, bytes_below

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from kmip_data.builds.home import Build

#: Dataset, its mean number of nodes, the columns of ``x`` that PyG's own class keeps there, least ratio.
CASES = (("s3dis", 4096, slice(3, 9), 5.0), ("shapenet-part", 2616, slice(0, 3), 3.5))


def rows(*, quick: bool = False) -> list[Row]:
    """Count the bytes of generated graphs in both layouts.

    PyTorch Geometric's side holds what its own ``S3DIS`` and ``ShapeNet`` classes hold (positions
    once, in ``pos``) and the same edges, in the one file of an ``InMemoryDataset``.
    """
    from torch_geometric.data import InMemoryDataset

    from kmip_data.reading.dataset import ShardedDataset

    graphs = 16 if quick else 128
    found = []
    for name, nodes, columns, target in CASES:
        with tempfile.TemporaryDirectory() as folder:
            build = write_generated(Path(folder) / "build", graphs, name=name, nodes=nodes)
            file = Path(folder) / "data.pt"
            InMemoryDataset.save([_as_pyg(item, columns) for item in ShardedDataset(build)], str(file))
            ours, theirs = bytes_below(build.path), file.stat().st_size
        what, against = f"bytes on disk a graph, {name}", "PyG InMemoryDataset.save, PyG's class with edges"
        note = f"generated {name} graphs: {graphs} of {nodes} nodes, k = {build.card.parameters['k']}"
        found.append(Row.of(what, against, ours / graphs, theirs / graphs, "B", target=target, note=note))
    return found


def _as_pyg(item: Data, columns: slice) -> Data:
    item.x = item.x[:, columns].contiguous()
    return item


def write_generated(folder: Path, graphs: int, *, name: str, nodes: int) -> Build:
    """Write a build of random graphs with the schema that the pipeline of a dataset has."""
    from support.builds import write_build

    from kmip_data.format.schema import bytes_per
    from kmip_data.format.writer import MAX_SHARD_BYTES, GraphRecord
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.base import load_pipeline

    pipeline = load_pipeline(load_manifest(name))
    schema = pipeline.schema(pipeline.Params())
    k = schema.k or 0
    generator = np.random.Generator(np.random.PCG64(0))

    def record(number: int) -> GraphRecord:
        columns: dict[str, Any] = {}
        for column in schema.columns:
            shape = (nodes, *column.shape) if column.level == "node" else column.shape
            if column.stored == "float32":
                columns[column.key] = generator.random(shape, dtype=np.float32)
            else:
                columns[column.key] = generator.integers(0, int(column.high or 0) + 1, shape, column.stored)
        table = generator.integers(0, nodes, (nodes, k), schema.index_dtype)
        return GraphRecord(key=f"generated/{number:06d}", num_nodes=nodes, columns=columns, neighbor=table)

    per_graph, per_node, per_edge = bytes_per(schema)
    step = max(1, MAX_SHARD_BYTES // (per_graph + nodes * (per_node + k * per_edge)))
    records = [record(number) for number in range(graphs)]
    return write_build(folder, records, schema, dataset=name, per_shard=step, sample=True, complete=False)
