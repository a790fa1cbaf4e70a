"""Disk: bytes of a build against PyTorch Geometric's ``.pt`` of the same graphs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kmip_data.cli.benchmarks import Row

if TYPE_CHECKING:
    from torch_geometric.data import Data

#: Dataset, its mean number of nodes, the columns of ``x`` that PyG's own class keeps there, least ratio.
CASES = (("s3dis", 4096, slice(3, 9), 5.0), ("shapenet-part", 2616, slice(0, 3), 3.5))


def rows(*, quick: bool = False) -> list[Row]:
    """Count the bytes of generated graphs in both layouts.

    PyTorch Geometric's side holds what its own ``S3DIS`` and ``ShapeNet`` classes hold (positions
    once, in ``pos``) and the same edges, in the one file of an ``InMemoryDataset``.
    """
    from torch_geometric.data import InMemoryDataset

    from kmip_data.cli.benchmarks.reading import write_generated
    from kmip_data.reading.dataset import ShardedDataset

    graphs = 16 if quick else 128
    found = []
    for name, nodes, columns, target in CASES:
        with tempfile.TemporaryDirectory() as folder:
            build = write_generated(Path(folder) / "build", graphs, name=name, nodes=nodes)
            file = Path(folder) / "data.pt"
            InMemoryDataset.save([_as_pyg(item, columns) for item in ShardedDataset(build)], str(file))
            ours = sum(path.stat().st_size for path in build.path.rglob("*") if path.is_file())
            theirs = file.stat().st_size
        k = build.card.parameters["k"]
        found.append(
            Row(
                what=f"bytes on disk a graph, {name}",
                against="PyG InMemoryDataset.save, items of PyG's class with edges",
                ours=ours / graphs,
                theirs=theirs / graphs,
                unit="B",
                ratio=theirs / ours,
                target=f"≥ {target:g}×",
                met=theirs / ours >= target,
                note=f"generated {name} graphs: {graphs} of {nodes} nodes, k = {k}",
            )
        )
    return found


def _as_pyg(item: Data, columns: slice) -> Data:
    item.x = item.x[:, columns].contiguous()
    return item
