"""Sets of benchmarking-gnns: equal to PyG's class on the same raw file, and every bad file an error."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import prepare, records_of_folder
from support.builds.same import assert_same
from support.cases import check_each
from support.cli import kmip
from torch_geometric.datasets import GNNBenchmarkDataset

import kmip_data
from kmip_data import CIFAR10Superpixels
from kmip_data.errors import DamagedInput
from kmip_data.format.splits import PARTS
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline

FILE = "CIFAR10_v2.pt"


def pyg_dataset(root: Path, file: Path, part: str) -> GNNBenchmarkDataset:
    """PyG's class on a raw file."""
    name = file.name.removesuffix("_v2.pt")
    raw = root / name / "raw"
    if not raw.exists():
        raw.mkdir(parents=True)
        shutil.copy(file, raw)
    return GNNBenchmarkDataset(str(root), name, split=part)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    load_pipeline(load_manifest("cifar10")).sample(folder, limit=40)
    return folder


@pytest.fixture
def lists(raw):
    return torch.load(raw / FILE, weights_only=True)


@pytest.mark.parametrize("archive", ["", FILE])  # a folder, or the file itself
def test_items_equal_pyg(raw, tmp_path, archive):
    build = {"home": tmp_path / "home", "archives": [raw / archive], "jobs": 1, "quiet": True}
    for part in PARTS:
        ours = CIFAR10Superpixels(split=part, **build)
        theirs = pyg_dataset(tmp_path / "pyg", raw / FILE, part)
        assert len(ours) == len(theirs)
        for item, data in zip(ours, theirs, strict=True):
            assert torch.equal(item.x, torch.cat([data.x, data.pos], dim=1))
            assert torch.equal(item.pos, data.pos)
            assert torch.equal(item.edge_index, data.edge_index)
            assert torch.equal(item.edge_attr, data.edge_attr.view(-1, 1))
            assert torch.equal(item.y, data.y)
        assert (ours.num_classes, ours.num_node_features, ours.num_edge_features) == (10, 5, 1)


@pytest.mark.parametrize("name", ["mnist", "pattern", "cluster"])
def test_items_of_the_others_equal_pyg(name, tmp_path):
    manifest = load_manifest(name)
    load_pipeline(manifest).sample(tmp_path, limit=20)
    file = tmp_path / manifest.content.anchor
    for part in PARTS:
        build = {"home": tmp_path / "home", "archives": [file], "jobs": 1, "quiet": True}
        ours = kmip_data.GNNBenchmarkDataset(None, name.upper(), part, **build)
        theirs = pyg_dataset(tmp_path / "pyg", file, part)
        for item, data in zip(ours, theirs, strict=True):
            if name == "mnist":  # as GraphGPS joins them
                data.x = torch.cat([data.x, data.pos], dim=1)
                data.edge_attr = data.edge_attr.view(-1, 1)
            assert_same(item, data, ordered=False)
    assert ours.num_classes == manifest.expected.classes


def test_limit_and_units(raw, tmp_path):
    pipeline, records = records_of_folder("cifar10", raw, tmp_path / "all")
    _, some = records_of_folder("cifar10", raw, tmp_path / "some", limit=8)
    keys = [record.key for record in records]
    sizes = {"train": 30, "val": 3, "test": 7}
    assert keys == [f"{part}/{i:06d}" for part, count in sizes.items() for i in range(count)]
    assert [record.key for record in some] == [keys[i * 40 // 8] for i in range(8)]
    assert pipeline.schema(pipeline.Params()).column("node/x").stored == "float32"


def test_other_dtypes_are_cast(lists, tmp_path):
    for graph in lists[0]:
        graph.update({name: graph[name].double() for name in ("x", "pos", "edge_attr")})
        graph["edge_attr"] = graph["edge_attr"].view(-1, 1)
        graph["y"] = int(graph["y"])
    torch.save(lists, tmp_path / FILE)
    _, records = records_of_folder("cifar10", tmp_path, tmp_path / "work")
    assert records[0].columns["node/x"].dtype == np.float32
    assert records[0].columns["edge/attr"].shape == (len(lists[0][0]["edge_attr"]), 1)


FAULTS = [
    ("x", None),
    ("x", np.zeros((5, 4), np.float32)),
    ("x", np.full((5, 3), np.nan, np.float32)),
    ("pos", np.zeros((1, 2), np.float32)),
    ("edge_index", np.zeros((3, 8), np.int64)),
    ("edge_index", np.full((2, 1), 10_000)),
    ("edge_index", np.full((2, 1), -1)),
    ("edge_attr", np.zeros(3, np.float32)),
    ("edge_attr", "text"),
    ("y", np.array([10])),
    ("y", np.array([1, 2])),
    ("y", np.array([0.5], np.float32)),
]


def test_bad_graphs_are_named(lists, tmp_path, new_folder):
    def check(case):
        name, value = case
        value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        graphs = [list(part) for part in lists]
        graphs[0][2] = {**graphs[0][2], name: value}
        torch.save(graphs, tmp_path / FILE)
        with pytest.raises(DamagedInput, match=f"{FILE}, train 2"):
            prepare("cifar10", tmp_path, new_folder())

    check_each(check, FAULTS)


NODE_FAULTS = [
    ("x", torch.zeros(5, 4)),
    ("y", torch.tensor([0, 1])),
    ("y", lambda y: y + 2),
    ("y", lambda y: -1 - y),
    ("y", lambda y: y + 0.5),
    ("edge_index", lambda edges: edges + 1_000),
]


def test_bad_classes_of_nodes_are_named(tmp_path, new_folder):
    load_pipeline(load_manifest("pattern")).sample(tmp_path, limit=5)
    file = tmp_path / "PATTERN_v2.pt"
    lists = torch.load(file, weights_only=True)

    def check(case):
        name, fault = case
        graph = lists[2][0]
        value = fault(graph[name]) if callable(fault) else fault
        torch.save([*lists[:2], [{**graph, name: value}]], file)
        with pytest.raises(DamagedInput, match=r"PATTERN_v2\.pt, test 0"):
            prepare("pattern", tmp_path, new_folder())

    check_each(check, NODE_FAULTS)


def test_other_cut_and_malicious_files_are_refused(raw, tmp_path, new_folder):
    class Call:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'executed'}",)

    whole = (raw / FILE).read_bytes()
    for content in (
        {},
        [[], [], {}],
        None,
        [[], [], [3]],
        [[], [], [Call()]],
        whole[: len(whole) // 2],
        b"",
    ):
        if isinstance(content, bytes):
            (tmp_path / FILE).write_bytes(content)
        else:
            torch.save(content, tmp_path / FILE)
        with pytest.raises(DamagedInput, match="CIFAR10_v2"):
            prepare("cifar10", tmp_path, new_folder())
    assert not (tmp_path / "executed").exists()
    outcome = kmip(
        "build", "cifar10", "--archive", tmp_path / FILE, "--home", tmp_path / "home", "--jobs", 1
    )
    assert outcome.code == 4
    assert not list((tmp_path / "home").glob("built/*"))
