"""The same graphs by every door of one's own data are the same build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from support.cli import kmip
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build
from kmip_data.format.schema import NODE_ID, Schema

DOORS = ("save", "pt", "npz", "csv", "graphml", "pandas", "networkx")


def graphs_of(kind: str) -> list[Data]:
    """Graphs with features that are whole, half and single precision, labels, and parts for one graph."""
    rng = np.random.default_rng(0)
    graphs = []
    for number in range(1 if kind == "one" else 6):
        nodes = 9 + number
        x = np.column_stack([rng.integers(0, 2, nodes), rng.integers(0, 9, nodes) / 4])
        if kind == "fine":
            x[:, 1] = rng.random(nodes)
        edges = np.unique(rng.integers(0, nodes, (30, 2)), axis=0)
        graph = Data(
            x=torch.tensor(x, dtype=torch.float32),
            edge_index=torch.tensor(edges.T),
            edge_attr=torch.tensor(rng.integers(-3, 300, (len(edges), 1)), dtype=torch.float32),
        )
        y = torch.arange(nodes) % 3 if kind == "one" else torch.tensor([number % 2])
        if kind == "numbers":
            y = torch.tensor([number / 7], dtype=torch.float32)
        graph.y = y
        if kind == "one":
            for row, part in enumerate(("train", "val", "test")):
                graph[f"{part}_mask"] = torch.arange(nodes) % 4 == row
        graphs.append(graph)
    return graphs


def arrays(graph: Data) -> dict[str, Any]:
    return {name: value.numpy() for name, value in graph.to_dict().items()}


def tables_of(graphs: list[Data]) -> dict[str, pd.DataFrame]:
    """Tables of nodes, edges and, of several graphs, of graphs."""
    nodes = []
    edges = []
    for number, graph in enumerate(graphs):
        values = arrays(graph)
        of_nodes = {"graph": number, "node": range(graph.num_nodes)}
        of_nodes |= {f"x{column}": values["x"][:, column] for column in range(2)}
        of_nodes |= {name: values[name] for name in values if name.endswith("_mask")}
        if len(graphs) == 1:
            of_nodes["label"] = values["y"]
        nodes.append(pd.DataFrame(of_nodes))
        source, target = values["edge_index"]
        row = {"graph": number, "source": source, "target": target, "w": values["edge_attr"][:, 0]}
        edges.append(pd.DataFrame(row))
    dropped = ["graph"] if len(graphs) == 1 else []
    tables = {
        "nodes": pd.concat(nodes).drop(columns=dropped),
        "edges": pd.concat(edges).drop(columns=dropped),
    }
    if len(graphs) > 1:
        label = [graph.y.item() for graph in graphs]
        tables["graphs"] = pd.DataFrame({"graph": range(len(graphs)), "label": label})
    return tables


def networks_of(graphs: list[Data]) -> list[nx.DiGraph]:
    networks = []
    for data in graphs:
        values = arrays(data)
        graph = nx.DiGraph()
        if len(graphs) > 1:
            graph.graph["label"] = data.y.item()
        for node in range(data.num_nodes):
            row = {f"x{column}": float(values["x"][node, column]) for column in range(2)}
            row |= {name: int(values[name][node]) for name in values if name.endswith("_mask")}
            if len(graphs) == 1:
                row["label"] = int(values["y"][node])
            graph.add_node(node, **row)
        for edge, (source, target) in enumerate(values["edge_index"].T.tolist()):
            graph.add_edge(source, target, w=float(values["edge_attr"][edge, 0]))
        networks.append(graph)
    return networks


def built(door: str, graphs: list[Data], folder: Path) -> Build:
    """Build graphs through one door."""
    if door == "save":
        return kmip_data.save(graphs, folder / "saved")
    if door == "pandas":
        return kmip_data.save(tables_of(graphs), folder / "tables")
    if door == "networkx":
        return kmip_data.save(networks_of(graphs), folder / "networks")
    files = folder / door
    files.mkdir()
    if door == "pt":
        torch.save(graphs, files / "graphs.pt")
    elif door == "npz":
        for number, graph in enumerate(graphs):
            np.savez(files / f"{number}.npz", **arrays(graph))
    elif door == "csv":
        for name, table in tables_of(graphs).items():
            table.to_csv(files / f"{name}.csv", index=False)
    else:
        for number, graph in enumerate(networks_of(graphs)):
            nx.write_graphml(graph, files / f"{number}.graphml")
    line = ("build", "graphs", "--name=own", f"--archive={files}", f"--home={files}-home")
    done = kmip(*line, "--quiet", "--jobs=1")
    assert done.code == 0, done.err
    return kmip_data.open("own", split=None, home=f"{files}-home").build


def comparable(schema: Schema) -> Schema:
    """Return a schema without names of columns, presented dtypes, and the ids that files give nodes."""
    columns = []
    for column in sorted(schema.columns, key=lambda column: column.key):
        if column.key == NODE_ID:
            continue
        columns.append(replace(column, doc="", fields=(), presented=column.stored))
    return replace(schema, columns=tuple(columns), key_length=8)


@pytest.mark.parametrize("kind", ["one", "halves", "fine", "numbers"])
def test_equal_graphs_are_stored_equally_from_every_source(tmp_path: Path, kind: str) -> None:
    graphs = graphs_of(kind)
    first, *others = [built(door, graphs, tmp_path) for door in DOORS]
    expected = {"one": "uint8", "halves": "uint8", "fine": "uint8", "numbers": "float32"}[kind]
    assert first.card.schema_.y_column.stored == expected
    assert first.card.schema_.column("node/x").stored == (
        "float32" if kind == "fine" else "float16"
    )
    assert first.card.schema_.column("edge/edge_attr").stored in {"int16", "uint16", "float16"}
    for other in others:
        assert comparable(other.card.schema_) == comparable(first.card.schema_), other
        for stored, same in zip(other.card.shards, first.card.shards, strict=True):
            shard = other.open_shard(stored.file, stored)
            wanted = first.open_shard(same.file, same)
            counts = {"node": shard.nodes, "edge": shard.edges, "graph": shard.graphs}
            for column in first.card.schema_.columns:
                rows = shard.read(column.key, 0, counts[column.level])
                assert rows.dtype == column.stored
                assert np.array_equal(rows, wanted.read(column.key, 0, counts[column.level]))
        for split, same in zip(kmip_splits(other), kmip_splits(first), strict=kind == "one"):
            assert split == same


def kmip_splits(build: Build) -> list[dict[str, str]]:
    """Digests of the parts of each split that the files give."""
    splits = []
    for entry in build.card.splits.values():
        if entry.rule == "given":
            splits.append({name: part.digest for name, part in entry.parts.items()})
    return splits


def test_arrays_of_networkx_count_with_all_their_values(tmp_path):
    """A text of a long array leaves its middle out: two graphs would be one build."""
    digests = set()
    for value in (1.0, 2.0):
        graph = nx.cycle_graph(4)
        for node in graph:
            vector = np.zeros(1_200)
            vector[600] = value
            graph.nodes[node].update(f=vector, label="ab"[node % 2])
        build = kmip_data.save(graph, tmp_path / f"{value:.0f}", label="label")
        digests.add(build.card.content_digest)
        assert next(iter(kmip_data.open(build.path))).x[0, 600] == value
    assert len(digests) == 2
