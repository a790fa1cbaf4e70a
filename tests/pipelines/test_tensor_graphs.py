"""Graphs of your own in files of tensors and arrays, against PyTorch Geometric and scipy."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy
import torch
import torch_geometric
import torch_geometric.transforms as T
from scipy import io, sparse
from support.cases import check_each, steps_of
from support.cli import kmip
from support.own_graphs import build_in_memory, parse_remedy, with_edges
from support.raises import raises
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset, TemporalData
from torch_geometric.utils import to_edge_index

import kmip_data
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.format.targets import target_type_of
from kmip_data.manifest import load_manifest
from kmip_data.models.training.run.predictions import evaluate_predictions, predict
from kmip_data.pipelines.base import load_pipeline
from kmip_data.reading.loader import GraphLoader

PIPELINE = load_pipeline(load_manifest("graphs"))
EDGES = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])


def read_records(file: Path, **parameters) -> tuple[Schema, list[GraphRecord], dict]:
    """Schema and records of one file, and what the card says of it."""
    params, records = build_in_memory(file.parent, file.name, **parameters)
    records = [with_edges(record) for record in records]
    return PIPELINE.schema(params), records, params.inferred.summary


def saved(folder: Path, value: object) -> Path:
    folder.mkdir(exist_ok=True)
    torch.save(value, folder / "graphs.pt")
    return folder / "graphs.pt"


def opened(path: Path, *options: str) -> kmip_data.ShardedDataset:
    """The build of a file by the command line, in a new home."""
    home = path.parent / f"home{len(list(path.parent.iterdir()))}"
    line = ("build", "graphs", "--name=own", f"--archive={path}", f"--home={home}", "--quiet")
    done = kmip(*line, *options)
    assert done.code == 0, done.err
    return kmip_data.open("own", split=None, home=home)


def graphs_with(**attributes) -> list[Data]:
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(3):
        x = torch.rand(4, 2, generator=generator)
        graph = Data(x=x, edge_index=EDGES[:, : 3 + number % 2])
        for name, value in attributes.items():
            graph[name] = value(number)
        graphs.append(graph)
    return graphs


#: Attributes of PyTorch Geometric and of its users: value by number of the graph.
ATTRIBUTES = {
    "face": lambda _: torch.tensor([[0, 1], [1, 2], [2, 3]]),
    "square_face_index": lambda _: torch.arange(16).reshape(4, 4) % 4,  # as many rows as nodes
    "edge_label_index": lambda n: torch.tensor([[0, n], [2, 2]]),
    "edge_label": lambda n: torch.tensor([1, n]),
    "root_index": lambda _: torch.tensor([2]),
    "parent_index": lambda _: torch.tensor([0, 0, 1, 2]),
    "u": lambda n: torch.tensor([0.5, n, 2]),
    "row": lambda n: torch.tensor([[0.5, n]]),
    "scalar": torch.tensor,
    "number": lambda n: n / 3,
    "truth": lambda n: n == 1,
    "extent": lambda n: [n, 2, 3],
    "flags": lambda n: torch.arange(4) < n,
    "half": lambda n: torch.full((4, 2), n).half(),
    "double": lambda n: torch.full((4,), n, dtype=torch.float64),
    "small": lambda n: torch.full((4,), n, dtype=torch.int8),
    "time": lambda n: torch.tensor([1_700_000_001 + n] * 4),
    "weight": lambda n: torch.nn.Parameter(torch.full((4, 1), float(n))),
}


def test_attributes_keep_shape_and_dtype_and_are_batched_as_by_pytorch_geometric(tmp_path):
    """All at once, so that none is taken for another; save and the file agree."""
    graphs = graphs_with(**ATTRIBUTES)
    batch = Batch.from_data_list(graphs)
    dense = [Data.from_dict({**graph.to_dict(), "extent": None}) for graph in graphs]
    kmip_data.save(dense, tmp_path / "saved")
    for dataset in (opened(saved(tmp_path / "a", graphs)), kmip_data.open(tmp_path / "saved")):
        whole = next(iter(GraphLoader(dataset, batch_size=3)))
        for name in ("x", "edge_index", *ATTRIBUTES):
            expected = batch[name]
            if name == "extent":  # which PyTorch Geometric leaves lists
                expected = torch.tensor([graph.extent for graph in graphs]).reshape(-1)
                if name not in whole:
                    continue
            assert torch.equal(whole[name], expected), name
            assert whole[name].dtype == expected.dtype, name
        for item, graph in zip(dataset, graphs, strict=True):
            for name in ("face", "u", "row", "scalar"):
                assert torch.equal(item[name], graph[name]), name
            assert item.number == graph.number


#: Target of three graphs -> its task by the dtype, as in PyTorch Geometric, and the dtype of ``y``.
TASKS = {
    "integers": (lambda n: torch.tensor(n % 2), "classification", torch.int64),
    "booleans": (lambda n: torch.tensor(n > 0), "classification", torch.bool),
    "floats": (lambda n: torch.tensor(float(n % 2)), "regression", torch.float32),
    "floats of nodes": (lambda n: torch.arange(4.0) % 2, "regression", torch.float32),
    "rows of 0 and 1": (lambda n: torch.tensor([[1.0, n > 0, 1]]), "multilabel", torch.float32),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_dtype_of_y_decides_its_task(tmp_path, name):
    value, task, dtype = TASKS[name]
    graphs = graphs_with(y=value)
    schema, _, summary = read_records(saved(tmp_path / "files", graphs))
    kmip_data.save(graphs, tmp_path / "saved")
    stored = kmip_data.open(tmp_path / "saved")
    for column in (schema.y_column, stored.card.schema_.y_column):
        assert target_type_of(column) == task
    assert stored[0].y.dtype == dtype
    assert torch.equal(stored[1].y, graphs[1].y)
    assert any("task='classification'" in text for text in summary["warnings"]) == (
        task == "regression"
    )
    if task == "regression":
        schema, _, _ = read_records(tmp_path / "files" / "graphs.pt", task="classification")
        assert schema.y_column.num_classes == 2


#: Target -> its level and the shape of one row, or of the tensor of a graph.
TARGETS = {
    "number": ("graph", ()),
    "vector of one": ("graph", (1,)),
    "matrix of one": ("graph", (1, 1)),
    "vector": ("graph", (3,)),
    "row": ("graph", (1, 3)),
    "rows": ("graph", (2, 3)),
    "numbers of nodes": ("node", ()),
    "columns of nodes": ("node", (1,)),
    "rows of nodes": ("node", (3,)),
    "numbers of edges": ("edge", ()),
    "columns of edges": ("edge", (1,)),
}

#: Level, dtype and number.
ATTRIBUTES_OF_ANY_SHAPE = [
    f"{level}_{dtype}_{number}"
    for level in ("graph", "node", "edge")
    for dtype in ("float64", "int64", "bool")
    for number in range(3)
]


def graphs_of_random_shapes(rng: np.random.Generator, target: str, dtype: str) -> list[Data]:
    """Graphs with attributes of random shapes at every level, and one target."""
    rows = {"y": (*TARGETS[target], dtype)}
    for name in ATTRIBUTES_OF_ANY_SHAPE:
        level, kind, _ = name.split("_")
        row = tuple(map(int, rng.integers(1, 4, size=rng.integers(0, 4))))
        rows[name] = (level, row, kind)
    graphs = []
    for nodes in (11, 13, 17):
        graph = Data(edge_index=torch.tensor(rng.integers(nodes, size=(2, 2 * nodes))))
        graph.num_nodes = nodes
        for name, (level, row, kind) in rows.items():
            shape = {"graph": (), "node": (nodes,), "edge": (2 * nodes,)}[level] + row
            high = 2 if kind != "float64" else 100
            values = rng.integers(high, size=shape) + 0.5 * (kind == "float64")
            graph[name] = torch.tensor(values).to(getattr(torch, kind))
        graphs.append(graph)
    return graphs


@pytest.mark.parametrize("dtype", ["float64", "int64", "bool"])
@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.torture)])
def test_targets_and_attributes_of_any_shape_are_those_of_pytorch_geometric(tmp_path, dtype, share):
    """Items and batches agree, of a build by ``save`` and of one by the command line."""
    for seed, target in enumerate(TARGETS):
        if share == 3 and seed % 3 != ["float64", "int64", "bool"].index(dtype):
            continue
        folder = tmp_path / str(seed)
        graphs = graphs_of_random_shapes(np.random.default_rng(seed), target, dtype)
        batch = Batch.from_data_list(graphs)
        kmip_data.save(graphs, folder / "saved")
        for door, dataset in (
            ("command line", opened(saved(folder, graphs))),
            ("save", kmip_data.open(folder / "saved")),
        ):
            loaded = next(iter(GraphLoader(dataset, batch_size=len(graphs))))
            pairs = [*zip(dataset, graphs, strict=True), (loaded, batch)]
            for item, expected in pairs:
                for name in ("edge_index", "y", *ATTRIBUTES_OF_ANY_SHAPE):
                    assert item[name].dtype == expected[name].dtype, (door, target, name)
                    assert torch.equal(item[name], expected[name]), (door, target, name)


@pytest.mark.parametrize("shape", [(4, 1), (1, 1)], ids=["nodes", "graphs"])
def test_integers_in_rows_of_one_keep_their_shape_unless_they_are_classes(tmp_path, shape):
    graphs = graphs_with(y=lambda number: torch.full(shape, number + 3))
    path = saved(tmp_path / "a", graphs)
    with pytest.raises(DamagedInput) as refused:
        read_records(path)
    assert Setting(task="classification") in refused.value.steps
    numbers = opened(path, "--set", "task=regression")
    assert [item.y.tolist() for item in numbers] == [graph.y.tolist() for graph in graphs]
    classes = opened(path, "--set", "task=classification")
    assert [item.y.tolist() for item in classes] == [graph.y[:, 0].tolist() for graph in graphs]


def test_bfloat16_becomes_the_float32_of_the_same_value(tmp_path):
    x = torch.randn(40, 3).bfloat16()
    for value in (x, x.T.contiguous().T):
        _, (record,), _ = read_records(saved(tmp_path / "a", Data(x=value, edge_index=EDGES)))
        assert np.array_equal(record.columns["node/x"], x.float().numpy())


def transformed() -> dict[str, Data]:
    torch.manual_seed(0)
    data = Data(x=torch.rand(9, 2), edge_index=torch.randint(0, 9, (2, 30)), y=torch.arange(9) % 3)
    both = T.ToUndirected()(data.clone())
    part, _, _ = T.RandomLinkSplit(add_negative_train_samples=False)(data.clone())
    read = data.clone()
    assert read.is_node_attr("x")
    return {"undirected": both, "links": part, "sorted": data.clone().sort(), "read": read}


@pytest.mark.parametrize("name", ["undirected", "links", "sorted", "read"])
def test_a_graph_is_read_after_a_transform_that_caches_names(tmp_path, name):
    graph = transformed()[name]
    path = saved(tmp_path / "a", graph)
    again = torch.load(path, weights_only=False)
    item = opened(path)[0]
    for attribute in again.keys():  # noqa: SIM118 -- a Data has no other
        assert torch.equal(item[attribute], again[attribute])


def test_labels_of_linked_pairs_stay_as_many_as_the_pairs(tmp_path):
    """Though as many as the edges: the reverse of an edge gets no label."""
    part = transformed()["links"]
    assert len(part.edge_label) == part.num_edges
    _, (record,), _ = read_records(saved(tmp_path / "a", part), undirected=True)
    assert record.num_edges > part.num_edges
    assert np.array_equal(record.columns["graph/edge_label"], part.edge_label)


def test_masks_of_several_graphs_are_attributes(tmp_path):
    masks = {
        f"{part}_mask": lambda n, row=row: torch.arange(4) == (9 if n == 1 else row)
        for row, part in enumerate(("train", "val", "test"))
    }
    graphs = graphs_with(y=lambda n: torch.arange(4) % 2, **masks)
    dataset = opened(saved(tmp_path / "a", graphs))
    for item, graph in zip(dataset, graphs, strict=True):
        for name in masks:
            assert torch.equal(item[name], graph[name])
    folder = tmp_path / "n"
    folder.mkdir()
    for number, graph in enumerate(graphs):
        arrays = {name: graph[name].numpy() for name in ("x", "edge_index", "y", *masks)}
        np.savez(folder / f"{number}.npz", **arrays)
    for item, graph in zip(opened(folder), graphs, strict=True):
        assert torch.equal(item.train_mask, graph.train_mask)
    # Of one graph, masks that are empty say nothing.
    schema, _, findings = read_records(saved(tmp_path / "b", graphs[1]))
    assert [column.attribute for column in schema.columns] == ["x", "y"]
    assert findings["ignored"] == [f"{name}: no node is in it" for name in masks]


def test_minus_one_is_no_class_and_a_number_in_a_regression(tmp_path):
    x = torch.rand(6, 2)
    missing = torch.tensor([0, 1, -1, 1, 0, -1])
    for y in (missing, missing.float(), torch.tensor([0, 1, float("nan"), 1, 0, float("nan")])):
        path = saved(tmp_path / "c", Data(x=x, edge_index=EDGES, y=y))
        item = opened(path, *["--set=task=classification"] * y.is_floating_point())[0]
        assert item.y.tolist() == missing.tolist()
        assert not (item.train_mask | item.val_mask | item.test_mask)[missing < 0].any()
    numbers = torch.tensor([-3, -1, 0, -1, 2, 1_700_000_001])
    for file in ("pt", "npz"):
        path = saved(tmp_path / "r", Data(x=x, edge_index=EDGES, y=numbers))
        if file == "npz":
            path.unlink()
            path = path.with_suffix(".npz")
            np.savez(path, x=x.numpy(), edge_index=EDGES.numpy(), y=numbers.numpy())
        with raises(DamagedInput, steps=Setting(task="regression")):
            read_records(path)
        dataset = opened(path, "--set=task=regression")
        item = dataset[0]
        assert item.y.tolist() == numbers.tolist()
        assert bool((item.train_mask | item.val_mask | item.test_mask).all())


def test_graphs_without_a_label_are_in_no_part(tmp_path):
    for y in (lambda n: [n, -1][n == 1], lambda n: [n / 3, float("nan")][n == 1]):
        graphs = graphs_with(y=lambda n, y=y: torch.tensor([y(n)]))
        path = saved(tmp_path / "a", graphs)
        build = opened(path, "--set=val_fraction=0", "--set=test_fraction=0").build
        train = kmip_data.open(build.path, "train")
        assert sorted(train.records.tolist()) == [0, 2]


def test_two_labels_including_minus_one_need_a_choice(tmp_path):
    y = torch.tensor([1, -1, 1, -1])
    path = saved(tmp_path / "a", Data(edge_index=EDGES, y=y, num_nodes=4))
    with pytest.raises(DamagedInput) as caught:
        read_records(path)
    assert caught.value.steps[-1] == Setting(task="regression")
    _, (record,), _ = read_records(path, task="regression")
    assert record.columns["node/y"].tolist() == y.tolist()


def test_texts_are_classes_or_ignored_with_their_reason(tmp_path):
    graphs = graphs_with(
        y=lambda n: "ab"[n % 2], name=lambda n: f"g{n}", words=lambda _: ["a", "b"]
    )
    dataset = opened(saved(tmp_path / "a", graphs))
    assert [int(item.y) for item in dataset] == [0, 1, 0]
    assert list(dataset.class_names) == ["a", "b"]
    ignored = dataset.build.card.statistics["files"]["ignored"]
    assert ignored == ["words: text"]
    assert [item.name for item in dataset] == ["g0", "g1", "g2"]
    file = tmp_path / "n" / "a.npz"
    file.parent.mkdir()
    np.savez(file, edge_index=EDGES.numpy(), labels=np.array(["x", "y", "x"]))
    _, (record,), _ = read_records(file)
    assert record.columns["node/y"].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "layout", ["pickle", "pickle of one", "tuple", "nested", "pair", "dicts", "old pair"]
)
def test_every_layout_of_a_file_has_the_same_graphs(tmp_path, layout):
    """Graphs whose number of nodes only ``num_nodes`` tells."""
    graphs = [Data(edge_index=EDGES, num_nodes=4 + number) for number in range(3)]
    data, slices = InMemoryDataset.collate(graphs)
    values = {
        "tuple": tuple(graphs),
        "nested": [graphs[:1], graphs[1:]],
        "dicts": (data.to_dict(), slices, dict),
        "pair": (data.to_dict(), slices, Data),
        "old pair": (data, slices),
    }
    if layout in values:
        path = saved(tmp_path / "a", values[layout])
    else:
        path = tmp_path / "a.pkl"
        graphs = graphs[: 1 if layout == "pickle of one" else None]
        path.write_bytes(pickle.dumps(graphs if len(graphs) > 1 else graphs[0]))
    _, records, _ = read_records(path)
    assert [record.num_nodes for record in records] == [graph.num_nodes for graph in graphs]


def test_attributes_shared_by_paired_graphs_are_ignored_with_a_reason(tmp_path):
    data, slices = InMemoryDataset.collate(graphs_with())
    data.num_classes = 7
    _, _, findings = read_records(saved(tmp_path / "a", (data, slices)))
    assert findings["ignored"] == ["num_classes: shared by all graphs"]


def test_dtypes_of_several_widths_become_the_wider(tmp_path):
    graphs = graphs_with(a=lambda n: torch.ones(4, dtype=[torch.float32, torch.float64][n % 2]))
    schema, records, _ = read_records(saved(tmp_path / "a", graphs))
    assert schema.column("node/a").presented == "float64"
    assert {record.columns["node/a"].dtype for record in records} == {np.dtype("uint8")}
    mixed = graphs_with(a=lambda n: torch.ones(4, dtype=[torch.float32, torch.int64][n % 2]))
    with raises(DamagedInput, naming="00000001"):
        read_records(saved(tmp_path / "b", mixed))


# --- advice ---------------------------------------------------------------------------------------


def hetero() -> HeteroData:
    data = HeteroData()
    data["a"].x = torch.rand(3, 2)
    data["b"].x = torch.rand(2, 2)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 2], [0, 1]])
    return data


def plain(**attributes) -> Data:
    return Data(edge_index=EDGES, num_nodes=4, **attributes)


#: Saved object, and nodes of the graphs that its remedy saves.
REFUSED = {
    "hetero": (hetero, 5),
    "batch": (lambda: Batch.from_data_list(graphs_with()), 12),
    "temporal": (
        lambda: TemporalData(src=EDGES[0], dst=EDGES[1], t=EDGES[0], msg=torch.rand(4, 1)),
        3,
    ),
    "sparse": (lambda: plain(x=torch.eye(4).to_sparse()), 4),
    "adjacency": (lambda: T.ToSparseTensor()(plain()), 4),
    "edges": (
        lambda: Data(edge_index=torch_geometric.EdgeIndex(EDGES), x=torch.rand(4, 2)),
        4,
    ),
    "complex": (lambda: plain(z=torch.complex(EDGES.T * 1.0, EDGES.T * 1.0)), 4),
    "rare": (lambda: plain(z=torch.zeros(4, dtype=torch.uint16)), 4),
    "set": (lambda: plain(z={1, 2}), 4),
    "nested": (lambda: plain(z=plain()), 4),
    "ragged list": (lambda: plain(z=[[1], [2, 3]]), 4),
    "ragged": (
        lambda: graphs_with(pair_index=lambda n: torch.zeros(2, n, dtype=torch.long), v=torch.rand),
        12,
    ),
    "float edges": (lambda: Data(edge_index=EDGES.float(), num_nodes=4), 4),
    "matrix": (lambda: torch.eye(5), 5),
    "few nodes": (lambda: Data(edge_index=EDGES, num_nodes=2), 3),
}


def test_refused_inputs_have_a_working_remedy(tmp_path):
    """The remedy is Python, typed where the object is called ``data``."""

    def check(case):
        make, nodes = case
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        data = make()
        path = saved(folder, data)
        with pytest.raises(DamagedInput) as caught:
            read_records(path)
        remedy, *settings = caught.value.steps
        if settings:
            _, records, _ = read_records(path, **parse_remedy(caught.value))
            assert sum(record.num_nodes for record in records) == nodes
        if remedy == "pad before torch.save":
            return
        for before in ("with one width of x for all types: ", "an adjacency matrix: "):
            remedy = remedy.removeprefix(before)
        remedy = remedy.removeprefix("before torch.save: ").replace(path.name, str(path))
        remedy = remedy.partition(" before torch.save")[0].partition(", of shape")[0]
        is_whole = "torch.save(" in remedy
        for item in data if isinstance(data, list) else [data]:
            names = {"data": item, "torch": torch, "Data": Data, "torch_geometric": torch_geometric}
            exec(remedy, names)
        if not is_whole:
            torch.save(data, path)
        _, records, _ = read_records(path)
        assert sum(record.num_nodes for record in records) == nodes

    check_each(check, REFUSED.values())


def test_edges_of_a_sparse_adjacency_are_read_unchanged(tmp_path):
    data = T.ToSparseTensor()(plain())
    edges, _ = to_edge_index(data.adj_t.t())
    assert {*zip(*edges.tolist(), strict=True)} == {*zip(*EDGES.tolist(), strict=True)}


# --- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_every_sparse_format_equals_scipy(tmp_path, form):
    rng = np.random.default_rng(0)
    for number in range(12):
        matrix = sparse.random_array((8, 8), density=0.3, format="csr", rng=rng)
        if number % 2:
            matrix.data = rng.integers(1, 2_000_000_000, matrix.nnz)
        folder = tmp_path / f"{number}"
        folder.mkdir()
        sparse.save_npz(folder / "a.npz", matrix.asformat(form))
        expected = sparse.load_npz(folder / "a.npz").toarray()
        _, (record,), _ = read_records(folder / "a.npz")
        weights = record.columns["edge/edge_attr"][:, 0]
        dense = np.zeros((8, 8), weights.dtype)
        dense[tuple(record.edge_index)] = weights
        assert np.array_equal(dense, expected.astype(weights.dtype))
        if number % 2:
            assert np.array_equal(dense, expected)  # no integer is rounded
        assert record.num_edges == np.count_nonzero(expected)


def test_attributes_of_edges_in_arrays_are_read_and_others_named(tmp_path):
    path = tmp_path / "a.npz"
    weights = np.array([1, 2, 3, 16_777_217])
    np.savez(path, edge_index=EDGES.numpy(), edge_weight=weights, other=np.eye(2))
    _, (record,), findings = read_records(path)
    assert record.columns["edge/edge_attr"][:, 0].tolist() == weights.tolist()
    assert [line.partition(":")[0] for line in findings["ignored"]] == ["other"]
    np.savez(path, edge_index=EDGES.numpy(), edge_weight=weights[:3])
    with raises(DamagedInput, naming="edge_weight"):
        read_records(path)


def rectangle(path: Path) -> None:
    io.mmwrite(path, sparse.random_array((4, 3), density=0.5, rng=0))


#: File -> what writes it, and nodes of the graph that its remedy saves.
CONVERTED = {
    "a.npy": (lambda path: np.save(path, np.eye(5)), 5),
    "a.mtx": (rectangle, 7),
    "a.npz": (lambda path: np.savez(path, edges=np.zeros((3, 4), int)), 3),
}


def test_arrays_of_other_kinds_come_with_lines_that_convert_them(tmp_path, monkeypatch):
    def check(case):
        name, (write, nodes) = case
        folder = tmp_path / name
        folder.mkdir()
        write(folder / name)
        with pytest.raises(DamagedInput) as caught:
            read_records(folder / name)
        remedy = (
            steps_of(caught.value).removeprefix("an adjacency matrix: ").partition("; edges: ")[0]
        )
        remedy = remedy.partition(", of (2, edges)")[0]
        monkeypatch.chdir(folder)
        names = {
            "numpy": np, "scipy": scipy, "edges": EDGES.numpy(), "features": np.eye(3),
            "labels": np.arange(3),
        }  # fmt: skip
        if name == "a.mtx":  # what is typed first stands behind it
            remedy, _, first = remedy.partition(", square and real; of two kinds of nodes: ")
            names["matrix"] = io.mmread(name)
            exec(first, names)
        exec(remedy, names)
        files = sorted(folder.iterdir(), key=lambda path: path.name == name)
        _, (record,), _ = read_records(files[0])
        assert record.num_nodes == nodes

    check_each(check, CONVERTED.items())


def test_indices_of_parts_count_from_0(tmp_path):
    path = tmp_path / "a.npz"
    arrays = {"edge_index": EDGES.numpy(), "labels": np.arange(6) % 3}
    np.savez(path, **arrays, test_idx=np.array([5, 6]))
    with raises(DamagedInput, naming=["test_idx", 6]):
        read_records(path)
    np.savez(path, **arrays, test_idx=np.array([4, 5]) + 0.5)
    with raises(DamagedInput, naming="float64"):
        read_records(path)


def test_arrays_with_unknown_names_are_a_warning(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(
        path, edge_index=EDGES.numpy(), feat=np.eye(6), labels=np.arange(6) % 2, readme="by Jo"
    )
    _, _, findings = read_records(path)
    assert any(
        line.startswith("feat (6, 6) is not read: if it is x,") for line in findings["warnings"]
    )
    assert [line.partition(":")[0] for line in findings["ignored"]] == ["feat", "readme"]


# --- training -------------------------------------------------------------------------------------


def test_nodes_without_a_class_are_left_out_of_training(tmp_path, monkeypatch):
    """The hidden labels of several graphs change neither losses nor metrics."""
    home = tmp_path / "home"
    monkeypatch.setenv("KMIP_DATA_HOME", str(home))
    graphs = []
    torch.manual_seed(0)
    for _ in range(12):
        y = torch.arange(6) % 2
        y[torch.randint(6, (2,))] = -1
        graphs.append(Data(x=torch.rand(6, 3), edge_index=torch.randint(6, (2, 20)), y=y))
    path = saved(tmp_path / "a", graphs)
    assert kmip("build", "graphs", "--name=own", f"--archive={path}", "--quiet").code == 0
    line = [
        "train",
        "own",
        "--model=gcn",
        "--epochs=2",
        "--quiet",
        "--set=model.layers=1",
    ]
    for options in ([], ["--set=training.task=multilabel"]):
        done = kmip(*line, f"--name=run{len(options)}", "--json", *options)
        assert done.code == 0, done.err
    run = "own/gcn/run0"
    predicted = predict(run, split="test")
    test = kmip_data.open("own", "test")
    y = torch.cat([graph.y for graph in test])
    assert len(predicted.logits) == len(y)
    known = (y >= 0).numpy()
    right = predicted.logits.argmax(axis=1) == y.numpy()
    measured = evaluate_predictions(predicted, "own", split="test").metrics
    assert measured["accuracy"] == pytest.approx(right[known].mean())
