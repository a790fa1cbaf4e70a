"""Batches of sampled neighbourhoods with features, against GraphBolt and PyG's loader.

All sides read the mapped shard from a warm cache.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch_geometric import typing as pyg
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

import kmip_data
from benchmarks import peers
from benchmarks.table import Row, compare_all, thread_count
from kmip_data.builds.home import Build
from kmip_data.graphs.neighbor_sampling import Neighborhoods
from kmip_data.models.training.config.run_config import TrainingConfig
from kmip_data.models.training.data.neighbor_batches import NeighborBatches
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.runtime.parallel import available_cores

NODES, DEGREE, WIDTH = 2_400_000, 25, 100
BATCH = 1_024
FANOUTS = ((10, 10), (15, 10, 5))
GRAPHBOLT = (
    *("dgl==2.1.0", "torch==2.2.1", "numpy<2", "torchdata==0.7.1"),
    *("pandas", "pydantic", "pyyaml", "lazy_loader"),
)
PYG_UNAVAILABLE = "PyG's loader needs pyg-lib or torch-sparse, which torch {} has no wheel of"


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure each fan-out on a generated graph."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = generate_graph(folder / "graph", 100_000 if quick else NODES)
        dataset = ShardedDataset(build.path, columns=["x", "y", "edge_index"])
        with thread_count(available_cores()):
            for fanouts in FANOUTS:
                yield from compare_fanouts(dataset, fanouts, folder)


def generate_graph(folder: Path, nodes: int) -> Build:
    """Generate a graph with power-law in- and out-degrees, and edges sorted by target."""
    random = np.random.default_rng(0)
    weight = np.minimum((1 - random.random(nodes)) ** (-1 / 1.5), 1e4)
    degree = np.floor(weight * DEGREE / weight.mean() + random.random(nodes)).astype(np.int64)
    edges = int(degree.sum())
    edge_index = np.empty((2, edges), np.int64)
    edge_index[0] = (random.random(edges) ** 3 * nodes).astype(np.int64) * 2_654_435_761 % nodes
    edge_index[1] = np.repeat(np.arange(nodes), degree)
    x = random.standard_normal((nodes, WIDTH), np.float32)
    train = torch.from_numpy(random.random(nodes) < 0.1)
    graph = Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(edge_index),
        y=torch.arange(nodes) % 47,
        train_mask=train,
        val_mask=~train,
        test_mask=torch.zeros(nodes, dtype=torch.bool),
    )
    return kmip_data.save(graph, folder, name="sampled")


def compare_fanouts(dataset: ShardedDataset, fanouts: Sequence[int], folder: Path) -> Iterator[Row]:
    """Check the batch sizes of all sides, then time them in turn on the same seeds."""
    edges = dataset.mapped_edges(0)
    assert edges is not None, "the build is mapped"
    nodes = int(dataset.nodes[0])
    graph = Neighborhoods(edges, nodes)
    train = dataset.masks["train_mask"].numpy().nonzero()[0]
    seeds = np.random.default_rng(0).permutation(train)[: 8 * BATCH]
    np.save(folder / "seeds.npy", seeds)

    def sample_around(seeds: Any, hops: Sequence[int], generator: np.random.Generator) -> Data:
        sampled = graph.sample_around(seeds, hops, generator)
        batch = dataset.select_rows(0, sampled.nodes, sampled.edges)
        ends = np.stack([sampled.source, sampled.target])
        return Data(**batch.to_dict(), edge_index=torch.from_numpy(ends))

    options: dict[str, Any] = {"neighbors": tuple(fanouts), "batch_size": BATCH}
    ours = NeighborBatches(sample_around, seeds, TrainingConfig(**options), pin_memory=False)
    sizes = {"ours": totals(ours)}

    sides: dict[str, Callable[[], object]] = {}
    with GraphBolt(dataset, fanouts, folder) as run_graphbolt:
        versions = run_graphbolt.versions
        sizes["GraphBolt"] = run_graphbolt()
        sides["GraphBolt, on-disk features"] = run_graphbolt
        if pyg.WITH_PYG_LIB or pyg.WITH_TORCH_SPARSE:
            versions += f", torch-sparse {importlib.metadata.version('torch-sparse')}"
            options = {"num_neighbors": list(fanouts), "batch_size": BATCH, "is_sorted": True}
            theirs = NeighborLoader(dataset[0], input_nodes=torch.from_numpy(seeds), **options)
            sizes["PyG"] = totals(theirs)
            sides["PyG NeighborLoader"] = partial(totals, theirs)
        note = f"sampling: {versions}; nodes and edges of all batches: {sizes}"
        # GraphBolt resamples the nodes of earlier hops, which adds a few nodes and edges.
        for side in sizes.values():
            assert abs(sizes["ours"][0] / side[0] - 1) < 0.1, note
        if len(sides) == 1:
            note += "; " + PYG_UNAVAILABLE.format(torch.__version__)
        times = compare_all(partial(totals, ours), sides)
    what = f"a seed with {fanouts} neighbours: {nodes:,} nodes, {edges.shape[1]:,} edges"
    for name, time in times.items():
        yield Row.from_times(what, name, time, per=len(seeds), target=1.5, note=note)


def totals(batches: Any) -> tuple[int, int]:
    """Return the total nodes and edges of all batches."""
    nodes = 0
    edges = 0
    for batch in batches:
        nodes += len(batch.x)
        edges += batch.edge_index.shape[1]
    return nodes, edges


class GraphBolt:
    """GraphBolt in a separate process; a call samples all seeds and returns nodes and edges."""

    def __init__(self, dataset: ShardedDataset, fanouts: Sequence[int], folder: Path) -> None:
        shard = dataset._store.shards[0]
        offsets = shard._offsets
        config = {
            "files": [str(file) for file in shard.files],
            "shape": [shard.nodes, dataset.num_node_features],
            "x": offsets["node/x"],
            "y": offsets["node/y"],
            "labels": dataset.schema.column("node/y").stored,
            "edges": offsets["edge/index"],
            "count": shard.edges,
            "fanouts": list(fanouts),
            "batch_size": BATCH,
            "threads": available_cores(),
        }
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        self._folder = folder

    def __enter__(self) -> Self:
        python = peers.environment("graphbolt", GRAPHBOLT)
        program = Path(__file__).with_name("graphbolt.py")
        command = [str(python), str(program), str(self._folder / "config.json")]
        pipe = subprocess.PIPE
        paths = {"PYTHONPATH": str(peers.ROOT / "src")}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=paths)
        self.versions = self._answer()["versions"]
        return self

    def __call__(self) -> tuple[int, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._folder / 'seeds.npy'}\n")
        self._process.stdin.flush()
        values = self._answer()
        return values["nodes"], values["edges"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    peers.print_rows(rows(**vars(parser.parse_args())))
