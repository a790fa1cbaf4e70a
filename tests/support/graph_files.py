"""Files of graphs for tests, and what a build makes of them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from support.cli import kmip
from support.own_graphs import PIPELINE, build_in_memory, with_edges

from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.writer import SkippedRecord


def write_files(folder: Path, **files: str | bytes) -> Path:
    """Write files; ``edges_csv`` is called ``edges.csv``."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / ".".join(name.rsplit("_", 1))).write_bytes(data)
    return folder


def read_folder(path: Path, **parameters) -> tuple[object, list[GraphRecord | SkippedRecord]]:
    """Schema and records of a folder, without the engine."""
    params, records = build_in_memory(path, **parameters)
    return PIPELINE.schema(params), [with_edges(record) for record in records]


def masks_of(path: Path) -> np.ndarray:
    """Parts of the nodes of a single graph."""
    params, _ = build_in_memory(path)
    return params.masks


EDGES = "graph,source,target,weight\na,5,7,0.5\na,7,9,1.5\nb,1,1,2\nc,3,1,4\n"


NODES = "graph,node,mass,kind\na,7,1,x\na,5,2,y\na,9,3,x\nb,1,4,y\nc,1,5,x\nc,3,6,y\n"


GRAPHS = "graph,label,fold\na,good,train\nb,bad,valid\nc,good,\n"


def assert_same_graph(record: GraphRecord, data) -> None:
    """Compare a record with PyTorch Geometric's ``Data``."""
    assert record.num_nodes == data.num_nodes
    np.testing.assert_array_equal(record.edge_index, data.edge_index.numpy())
    for attribute, key in (("x", "node/x"), ("edge_attr", "edge/edge_attr")):
        if data.get(attribute) is not None:
            np.testing.assert_allclose(record.columns[key], data[attribute].numpy())
    if data.y is not None:
        np.testing.assert_allclose(record.columns["graph/y"], data.y.numpy()[0])


def pyg_graphs() -> list:
    import torch
    from torch_geometric.data import Data

    generator = torch.Generator().manual_seed(0)
    graphs = []
    for nodes in (3, 5, 4):
        edges = torch.randint(nodes, (2, 6), generator=generator)
        x = torch.rand(nodes, 2, generator=generator)
        graphs.append(
            Data(x=x, edge_index=edges, edge_attr=x[edges[0]], y=torch.tensor([nodes % 2]))
        )
    return graphs


def tu_files(folder: Path, *, targets: str) -> Path:
    rng = np.random.default_rng(1)
    sizes = rng.integers(2, 6, 7)
    graph = np.repeat(np.arange(7), sizes)
    first = np.repeat(np.cumsum(sizes) - sizes, 6)
    ends = first[:, None] + rng.integers(0, np.repeat(sizes, 6)[:, None], (42, 2))
    files = {
        "A": ends + 1, "graph_indicator": graph[:, None] + 1,
        "node_labels": rng.integers(3, 6, (len(graph), 2)), "edge_labels": rng.integers(0, 3, (42, 1)),
        "node_attributes": rng.integers(0, 9, (len(graph), 2)) / 2,
    }  # fmt: skip
    if targets == "graph_labels":
        files[targets] = rng.choice([-1, 1, 4], (7, 1))
    else:
        files[targets] = rng.integers(0, 9, (7, 2)) / 4
    folder.mkdir()
    for name, rows in files.items():
        lines = [", ".join(map(str, row)) for row in rows.tolist()]
        (folder / f"D_{name}.txt").write_text("\n".join([*lines, ""]))
    return folder


def npz_bytes(**arrays):
    """Bytes of ``numpy.savez``."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def build_files(home, *options, **files):
    """Build files by the command line, as JSON."""
    folder = write_files(home.with_suffix(".files"), **files)
    line = ["build", "graphs", "--name=own", f"--archive={folder}", "--quiet", *options]
    done = kmip(*line, f"--home={home}", "--json")
    assert done.code == 0, done.err
    return done
