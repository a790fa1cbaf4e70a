"""Bytes of a build on disk against PyTorch Geometric's ``.pt`` of the same graphs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row, bytes_below

#: Dataset, columns of ``x`` in PyG's class, target ratio.
CASES = (("s3dis", slice(3, 9), 5.0), ("shapenet-part", slice(0, 3), 3.5))


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Count the bytes of sample graphs in both layouts.

    PyTorch Geometric's file has the attributes of its ``S3DIS`` and ``ShapeNet`` classes (positions
    only in ``pos``) and the same edges.
    """
    from torch_geometric.data import InMemoryDataset

    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_dataset
    from kmip_data.reading.dataset import ShardedDataset

    graphs = 16 if quick else 128
    for name, columns, target in CASES:
        with tempfile.TemporaryDirectory() as place:
            home, parameters = Home(Path(place)), {"limit": graphs}
            build = build_dataset(name, home=home, sample=True, parameters=parameters, quiet=True)
            items = list(ShardedDataset(build))
            for item in items:
                item.x = item.x[:, columns].contiguous()
            file = Path(place) / "data.pt"
            InMemoryDataset.save(items, str(file))
            sizes = bytes_below(build.path) / len(items), file.stat().st_size / len(items)
        what, against = (
            f"bytes on disk a graph, {name}",
            "PyG InMemoryDataset.save, PyG's class with edges",
        )
        nodes = sum(item.num_nodes for item in items) / len(items)
        note = f"{name}: {len(items)} sample graphs of {nodes:,.0f} nodes, k = {build.card.parameters['k']}"
        yield Row.from_figures(what, against, *sizes, "B", target=target, note=note)
