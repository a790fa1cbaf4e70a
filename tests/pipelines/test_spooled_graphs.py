"""Your own files are parsed once; shards are written from a spool, resumed or not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from support.own_graphs import build_in_memory, write_files
from support.raises import raises
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.columns.attribute_levels import AttributeLevels
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.datasets.graphs import OwnGraphsPipeline, file_formats, inference
from kmip_data.pipelines.datasets.points import first_pass
from kmip_data.pipelines.engine import pool, resumable_build
from kmip_data.pipelines.graph_arrays import spooled_graphs
from kmip_data.pipelines.graph_arrays.spooled_graphs import SpooledGraphs, spool_graphs
from kmip_data.reading.dataset import ShardedDataset

GRAPHS = 40


def write_tables(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = {"nodes": ["graph,id,size,kind"], "edges": ["graph,source,target,weight"]}
    labels = ["graph,label"]
    for graph in range(GRAPHS):
        nodes = int(rng.integers(2, 9))
        for node in range(nodes):
            rows["nodes"].append(f"{graph},{node},{rng.random():.3f},{'ab'[node % 2]}")
        for source, target in rng.integers(0, nodes, (12, 2)).tolist():
            rows["edges"].append(f"{graph},{source},{target},{rng.integers(9)}")
        labels.append(f"{graph},{'good' if graph % 3 else 'bad'}")
    files = {f"{name}_csv": "\n".join(lines) for name, lines in {**rows, "graphs": labels}.items()}
    return write_files(folder, **files)


def write_list(folder: Path) -> Path:
    """A list whose graphs have masks, a string, a number, and integers of two widths."""
    rng = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(GRAPHS):
        nodes = 2 + number % 7
        x = torch.randint(0, 200, (nodes, 3), generator=rng)
        graph = Data(
            x=x.int() if number % 5 else x,
            edge_index=torch.randint(0, nodes, (2, 11), generator=rng),
            y=torch.tensor([number % 3]),
            train_mask=torch.arange(nodes) % 2 == 0,
            name="a" * (number % 4),
            scale=number / 4,
        )
        graphs.append(graph)
    folder.mkdir()
    torch.save(graphs, folder / "graphs.pt")
    return folder / "graphs.pt"


def write_molecules(folder: Path) -> Path:
    lines = [f"{'C' * (1 + row % 9)}O,{row % 2}" for row in range(GRAPHS)]
    return write_files(folder, mols_csv="\n".join(["smiles,label", *lines])) / "mols.csv"


SOURCES = {"tables": write_tables, "list": write_list, "molecules": write_molecules}


@pytest.fixture(params=SOURCES)
def source(request, tmp_path) -> Path:
    return SOURCES[request.param](tmp_path / "source")


@pytest.fixture
def parsed(monkeypatch) -> list[str]:
    """Small shards, built in this process; the list has an entry for each time files are parsed."""
    calls = []
    read_graphs = file_formats.read_graphs

    def counted(*arguments):
        calls.append("parsed")
        return read_graphs(*arguments)

    monkeypatch.setattr(file_formats, "read_graphs", counted)
    monkeypatch.setattr(inference, "MAX_SHARD_BYTES", 700)
    monkeypatch.setattr(resumable_build, "needs_no_worker", lambda *_: True)
    return calls


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("shards/*.h5"))
    }


def build(source: Path, home: Path, **options) -> Path:
    return build_own("graphs", "own", {"path": source}, home=Home(home), quiet=True, **options).path


def test_files_are_parsed_once_for_all_shards_and_not_again(source, tmp_path, parsed):
    folder = build(source, tmp_path / "home")
    assert len(digests(folder)) > 3
    assert parsed == ["parsed"]
    assert not (folder / "work").exists()
    before = digests(folder)
    assert build(source, tmp_path / "home") == folder
    assert (parsed, digests(folder)) == (["parsed"], before)


def test_a_stopped_build_resumes_without_parsing(source, tmp_path, parsed, monkeypatch):
    whole = digests(build(source, tmp_path / "whole"))
    write_shard = pool.writer.write_shard

    def stop_at_the_third(path, *arguments, **options):
        if path.name.startswith("00002"):
            raise KeyboardInterrupt
        return write_shard(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pool.writer, "write_shard", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            build(source, tmp_path / "home")
    (unfinished,) = (tmp_path / "home/built").glob("own-*")
    assert len(digests(unfinished)) == 2
    assert len(parsed) == 2
    assert digests(build(source, tmp_path / "home")) == whole
    assert len(parsed) == 2


@pytest.mark.real_workers
def test_shards_do_not_depend_on_the_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(OwnGraphsPipeline, "max_bytes_in_process", 0)
    monkeypatch.setattr(inference, "MAX_SHARD_BYTES", 700)
    source = write_list(tmp_path / "source")
    by_jobs = [digests(build(source, tmp_path / str(jobs), jobs=jobs)) for jobs in (1, 2)]
    assert len(by_jobs[0]) > 3
    assert by_jobs[0] == by_jobs[1]


def test_an_unusable_file_leaves_nothing(tmp_path, parsed):
    source = write_files(tmp_path / "t", edges_csv="source,target\n0,1\n1,\n")
    with pytest.raises(DamagedInput):
        build(source, tmp_path / "home")
    assert parsed == ["parsed"]
    assert not [*(tmp_path / "home").glob("built/*"), *(tmp_path / "home").glob("raw/own/*")]


def random_graphs(seed: int) -> list[GraphRecord]:
    """Graphs whose columns change in name, dtype and shape, with strings and numbers."""
    rng = np.random.default_rng(seed)
    graphs = []
    kind = 0
    for number in range(30):
        kind = kind if rng.random() < 0.7 else int(rng.integers(4))
        nodes = int(rng.integers(0, 5))
        edges = int(rng.integers(0, 4)) if nodes else 0
        columns = {
            "node/x": rng.integers(0, 9, (nodes, 2)).astype("i8" if kind else "i2"),
            "empty": np.zeros((nodes, 0)),
            "text": rng.integers(97, 122, int(rng.integers(0, 4))).astype(np.uint8),
            "words": np.array(["a", "ö", ""], object)[rng.integers(0, 3, nodes)],
        }
        if kind == 2:
            columns["scalar"] = np.array(rng.random())
        index = rng.integers(0, max(nodes, 1), (2, edges)) if kind != 3 else None
        graphs.append(
            GraphRecord(key=f"g{number}", num_nodes=nodes, columns=columns, edge_index=index)
        )
    return graphs


def graphs_of_blocks(blocks: Iterator[GraphBlock]) -> Iterator[GraphRecord]:
    """Take blocks apart, graph by graph."""
    for block in blocks:
        ends = np.cumsum(block.edge_counts)
        arrays = {name: block.arrays(name) for name in block.columns}
        for number, key in enumerate(block.keys):
            columns = {name: parts[number] for name, parts in arrays.items()}
            columns |= {name: columns[name][0] for name in block.scalars}
            edges = block.edge_index
            if edges is not None:
                edges = edges[:, ends[number] - block.edge_counts[number] : ends[number]]
            nodes = int(block.node_counts[number])
            yield GraphRecord(key=key, num_nodes=nodes, columns=columns, edge_index=edges)


def assert_equal(graph: GraphRecord, other: GraphRecord) -> None:
    assert (graph.key, graph.num_nodes) == (other.key, other.num_nodes)
    pairs = [(graph.columns[name], other.columns[name]) for name in graph.columns]
    assert graph.columns.keys() == other.columns.keys()
    assert (graph.edge_index is None) == (other.edge_index is None)
    if graph.edge_index is not None:
        pairs.append((graph.edge_index, other.edge_index))
    for first, second in pairs:
        assert first.dtype == np.asarray(second).dtype
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("seed", range(8))
def test_a_spool_returns_the_graphs_at_any_positions(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(spooled_graphs, "_GRAPHS_PER_BATCH", 1 + seed)
    monkeypatch.setattr(spooled_graphs, "_ROWS_PER_BLOCK", 2 ** (4 + seed))
    graphs = random_graphs(seed)
    spool_graphs(tmp_path / "spool", iter(graphs))
    spool = SpooledGraphs(tmp_path / "spool")
    assert len(spool) == len(graphs)
    rows = np.flatnonzero(np.random.default_rng(seed).random(len(graphs)) < 0.6).tolist()
    for chosen in (None, rows):
        expected = graphs if chosen is None else [graphs[row] for row in chosen]
        for graph, other in zip(expected, graphs_of_blocks(spool.blocks(chosen)), strict=True):
            assert_equal(graph, other)


@pytest.mark.parametrize("seed", range(8))
def test_columns_of_a_union_are_those_of_its_graphs(tmp_path, seed):
    """Taking the union of graphs and giving its edges back changes nothing."""
    graphs = [graph for graph in random_graphs(seed) if graph.edge_index is not None]
    spool_graphs(tmp_path / "spool", iter(graphs))
    again = (
        block.with_edges_of(block.union()) for block in SpooledGraphs(tmp_path / "spool").blocks()
    )
    for graph, other in zip(graphs, graphs_of_blocks(again), strict=True):
        assert_equal(graph, other)


#: Shapes of an attribute in graphs of 2, 3 and 3 nodes and 3, 4 and 4 edges; its level, or what its error names.
SHAPES = [
    ("x", [(2, 5), (3, 5), (3, 5)], "node"),
    ("w", [(3,), (4,), (4,)], "edge"),
    ("t", [(7, 2), (7, 2), (7, 2)], "graph"),
    ("s", [(), (), ()], "graph"),
    ("y", [(2,), (9,), (3,)], "y"),  # of neither nodes nor edges: of the graph
    ("y", [(1,), (1,), (1,)], "graph"),
    ("u", [(2,), (2,), (2,)], "graph"),
    ("v", [(2,), (3,), (5,)], "g2"),
    ("v", [(2,), (4,), (3,)], "g1"),
    ("v", [(2, 1), (3, 2), (3, 2)], "g1"),
    ("v", [(), (3,), (3,)], "g1"),
]


@pytest.mark.parametrize(("name", "shapes", "expected"), SHAPES)
def test_the_level_of_an_attribute_fits_all_graphs(tmp_path, name, shapes, expected):
    sizes = [(2, 3), (3, 4), (3, 4)]
    graphs = []
    for number, ((nodes, edges), shape) in enumerate(zip(sizes, shapes, strict=True)):
        columns = {name: np.zeros(shape)}
        edge_index = np.zeros((2, edges), np.int64)
        graphs.append(
            GraphRecord(key=f"g{number}", num_nodes=nodes, columns=columns, edge_index=edge_index)
        )
    spool_graphs(tmp_path / "spool", iter(graphs))
    levels = AttributeLevels()
    for block in SpooledGraphs(tmp_path / "spool").blocks():
        levels.add(block, {})
    if expected in {"node", "edge", "graph"}:
        assert levels.levels_by_attribute() == {name: expected}
    else:
        with raises(DamagedInput, naming=expected):
            levels.levels_by_attribute()


def test_each_cloud_is_read_once(tmp_path, monkeypatch):
    """Labels are strings, some are missing; a cloud that cannot be read is skipped with its reason."""
    folder = tmp_path / "clouds"
    folder.mkdir()
    for number, labels in enumerate((["car", "tree"], ["tree", "NA"])):
        rows = [f"{row},0,{number},{row % 3},{labels[row % 2]}" for row in range(6)]
        (folder / f"{number}.csv").write_text("\n".join(["x,y,z,size,label", *rows]))
    (folder / "bad.csv").write_text("x,y,z,size,label\n1,2,none,4,car\n")
    read = []
    read_point_columns = first_pass.read_point_columns

    def counted(path, *arguments):
        read.append(path.name)
        return read_point_columns(path, *arguments)

    monkeypatch.setattr(first_pass, "read_point_columns", counted)
    monkeypatch.setattr(resumable_build, "needs_no_worker", lambda *_: True)
    parameters = {"k": 2, "feature": ("size",), "on_error": "skip"}
    for _ in range(2):
        built = build_own(
            "points",
            "own",
            {"path": folder},
            parameters=parameters,
            home=Home(tmp_path),
            quiet=True,
        )
    assert sorted(read) == ["0.csv", "1.csv", "bad.csv"]
    assert built.card.class_names == ["car", "tree"]
    ((key, reason),) = built.card.statistics["skipped"]
    assert key == "bad.csv"
    assert "bad.csv" in reason
    assert ShardedDataset(built)[1].y.tolist() == [1, -1, 1, -1, 1, -1]


@pytest.mark.parametrize("name", ["node/w", "graph/w", "text/w", "a/b"])
def test_an_attribute_with_the_key_of_a_column_is_refused(tmp_path, name):
    """Its level would not be checked."""
    graph = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2, **{name: torch.zeros(3)})
    torch.save([graph], tmp_path / "a.pt")
    with raises(DamagedInput, naming=name):
        build_in_memory(tmp_path, "a.pt")
    with raises(UsageError, naming=name):
        kmip_data.save([graph], tmp_path / "saved")
