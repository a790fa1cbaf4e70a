"""Builds of your own files, against hand-written code with pandas and PyTorch Geometric.

Times are CPU seconds of one process and one thread; ours builds without a worker process, so that
they count all of its work. Both sides read generated files from the page cache and write a file. Ours
also infers and checks the columns, and writes a card.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data, InMemoryDataset

from benchmarks.table import Row, bytes_below
from benchmarks.turns import compare, peak_bytes
from kmip_data.builds.home import Home
from kmip_data.files.atomic_writes import remove_tree
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.datasets.graphs import inference
from kmip_data.pipelines.engine import resumable_build

CLASSES = 3
SHARDS = 19  #: shards of the tables that are built in many


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure one large graph and many small ones."""
    edges = 20_000 if quick else 1_000_000
    graphs = 200 if quick else 10_000
    note = "own_files: generated files, CPU seconds, one process, no picture"

    cases: list[tuple[str, Callable[[Path], Path], Callable[[Path, Path], None], str, float]] = [
        (
            f"a CSV of {edges:,} edges with weights",
            partial(write_edge_table, edges=edges),
            edge_table_by_hand,
            "pandas.read_csv, factorize, PyG save",
            0.5,
        ),
        (
            f"tables of {graphs:,} graphs",
            partial(write_tables, graphs=graphs),
            tables_by_hand,
            "pandas.read_csv, groupby, PyG collate and save",
            8,
        ),
        (
            f"a .pt list of {graphs:,} graphs",
            partial(write_list, graphs=graphs),
            list_by_hand,
            "torch.load, PyG collate and save",
            0.9,
        ),
    ]
    for what, write, by_hand, peer, target in cases:
        with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
            folder = Path(place)
            source = write(folder)
            ours = partial(build, source, folder / "home")
            theirs = partial(by_hand, source, folder / "processed.pt")
            times = compare(ours, theirs, repeats=1 if quick else 3, clock=time.process_time)
            yield Row.from_times(what, peer, times, target=target, note=note)

            memory = [peak_bytes(function) / 2**20 for function in (ours, theirs)]
            yield Row.from_figures(f"peak memory of {what}", peer, *memory, "MiB", note=note)

            times = compare(
                partial(build_again, source, folder / "home"),
                ours,
                repeats=1 if quick else 3,
                clock=time.process_time,
            )
            yield Row.from_times(f"{what}, built before", "building it", times, note=note)

    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
        folder = Path(place)
        source = write_tables(folder, graphs=graphs * 3 // 5)
        build(source, folder / "home")
        shard_bytes = bytes_below(folder / "home/built") // SHARDS
        times = compare(
            partial(build, source, folder / "home", shard_bytes),
            partial(build, source, folder / "home"),
            repeats=1 if quick else 3,
            clock=time.process_time,
        )
        what = f"tables of {graphs * 3 // 5:,} graphs in {SHARDS} shards"
        yield Row.from_times(what, "the same in one shard", times, target=0.9, note=note)


def build(source: Path, home: Path, shard_bytes: int = inference.MAX_SHARD_BYTES) -> None:
    """Build our dataset in an empty home."""
    remove_tree(home)
    with mock.patch.object(inference, "MAX_SHARD_BYTES", shard_bytes):
        build_again(source, home)


def build_again(source: Path, home: Path) -> None:
    """Build our dataset, or find its finished build."""
    parameters = {"label": "none"} if source.suffix == ".csv" else {}
    with mock.patch.object(resumable_build, "needs_no_worker", return_value=True):
        build_own(
            "graphs",
            "measured",
            {"path": source},
            home=Home(home),
            parameters=parameters,
            jobs=1,
            quiet=True,
        )


def write_edge_table(folder: Path, *, edges: int) -> Path:
    """Write a weighted edge list whose ids have gaps."""
    random = np.random.default_rng(1)
    path = folder / "edges.csv"
    pd.DataFrame(
        {
            "source": random.integers(0, edges // 5, edges) * 7,
            "target": random.integers(0, edges // 5, edges) * 7,
            "weight": random.random(edges).round(4),
        }
    ).to_csv(path, index=False)
    return path


def edge_table_by_hand(source: Path, output: Path) -> None:
    """Renumber the ids of an edge list and save one graph."""
    table = pd.read_csv(source)
    codes, ids = pd.factorize(pd.concat([table["source"], table["target"]]), sort=True)
    graph = Data(
        edge_index=torch.from_numpy(codes.reshape(2, -1)),
        edge_attr=torch.tensor(table[["weight"]].to_numpy(), dtype=torch.float32),
        num_nodes=len(ids),
    )
    InMemoryDataset.save([graph], str(output))


def write_tables(folder: Path, *, graphs: int) -> Path:
    """Write tables with the nodes, edges and labels of small graphs."""
    random = np.random.default_rng(2)
    nodes = random.integers(10, 40, graphs)
    edges = random.integers(20, 100, graphs)
    graph_of_edge = np.repeat(np.arange(graphs), edges)
    tables = folder / "tables"
    tables.mkdir()
    pd.DataFrame(
        {
            "graph": np.repeat(np.arange(graphs), nodes),
            "id": np.concatenate([np.arange(count) for count in nodes]),
            "kind": random.integers(0, 5, nodes.sum()),
            "size": random.random(nodes.sum()).round(4),
        }
    ).to_csv(tables / "nodes.csv", index=False)
    pd.DataFrame(
        {
            "graph": graph_of_edge,
            "source": random.integers(0, nodes[graph_of_edge]),
            "target": random.integers(0, nodes[graph_of_edge]),
            "weight": random.random(edges.sum()).round(3),
        }
    ).to_csv(tables / "edges.csv", index=False)
    pd.DataFrame({"graph": np.arange(graphs), "label": random.integers(0, CLASSES, graphs)}).to_csv(
        tables / "graphs.csv", index=False
    )
    return tables


def tables_by_hand(source: Path, output: Path) -> None:
    """Group three tables by graph and save a list of graphs."""
    nodes = pd.read_csv(source / "nodes.csv").groupby("graph")
    edges = dict(iter(pd.read_csv(source / "edges.csv").groupby("graph")))
    labels = pd.read_csv(source / "graphs.csv").set_index("graph")["label"]
    graphs = []
    for key, table in nodes:
        ends = edges[key]
        graphs.append(
            Data(
                x=torch.tensor(table[["kind", "size"]].to_numpy(), dtype=torch.float32),
                edge_index=torch.tensor(ends[["source", "target"]].to_numpy().T),
                edge_attr=torch.tensor(ends[["weight"]].to_numpy(), dtype=torch.float32),
                y=torch.tensor([labels[key]]),
            )
        )
    InMemoryDataset.save(graphs, str(output))


def write_list(folder: Path, *, graphs: int) -> Path:
    """Write a list of PyTorch Geometric graphs."""
    random = np.random.default_rng(3)
    saved = []
    for _ in range(graphs):
        nodes, edges = int(random.integers(10, 40)), int(random.integers(20, 100))
        saved.append(
            Data(
                x=torch.from_numpy(random.integers(0, 5, (nodes, 4))),
                edge_index=torch.from_numpy(random.integers(0, nodes, (2, edges))),
                edge_attr=torch.from_numpy(random.integers(0, 5, (edges, 2))),
                y=torch.tensor([int(random.integers(0, CLASSES))]),
            )
        )
    path = folder / "graphs.pt"
    torch.save(saved, path)
    return path


def list_by_hand(source: Path, output: Path) -> None:
    """Collate a saved list."""
    InMemoryDataset.save(torch.load(source, weights_only=False), str(output))
