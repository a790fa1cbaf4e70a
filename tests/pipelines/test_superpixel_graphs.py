"""PascalVOC-SP and COCO-SP: equal to PyG's class on the same files, of every protocol and as .pt."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import records_of_folder, refused_folder, write_sample
from support.builds.records import assert_same_records
from support.cases import check_each
from support.cli import expect_refusal, kmip
from support.raises import raises
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import LRGBDataset

from kmip_data import COCOSP, PascalVOCSP
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import PARTS
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.datasets.superpixel_graphs import COCO_IDS, classes_from_ids

CLASSES = {"pascalvoc-sp": PascalVOCSP, "coco-sp": COCOSP}


@pytest.fixture(scope="module", params=list(CLASSES))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def raw(name, tmp_path_factory):
    return write_sample(name, tmp_path_factory.mktemp(name), limit=30)


@pytest.fixture(scope="module")
def pyg(name, raw, tmp_path_factory):
    root = tmp_path_factory.mktemp("pyg")
    shutil.copytree(raw, root / name / "raw")
    return {
        part: LRGBDataset(str(root), name, split=part) for part in PARTS
    }, root / name / "processed"


def load(raw: Path) -> dict:
    return {part: pickle.loads((raw / f"{part}.pickle").read_bytes()) for part in PARTS}


def dump(folder: Path, lists, protocol=4) -> Path:
    folder.mkdir(exist_ok=True)
    for part, graphs in lists.items():
        (folder / f"{part}.pickle").write_bytes(pickle.dumps(graphs, protocol))
    return folder


def test_columns_are_standardised(name, raw, tmp_path):
    ours = CLASSES[name](root=tmp_path, split="test", archives=[raw], jobs=1, quiet=True)
    constants = load_manifest(name).standardisation
    assert ours.build.card.statistics["standardisation"]["node/x"]["mean"][12] > 190
    scaled = CLASSES[name](root=tmp_path, split="test", standardise=True, build=False)
    for one, other in zip(scaled, ours, strict=True):
        for key, value, wanted in (
            ("node/x", one.x, other.x),
            ("edge/attr", one.edge_attr, other.edge_attr),
        ):
            mean, std = (np.array(numbers) for numbers in (constants[key].mean, constants[key].std))
            np.testing.assert_allclose(value, (wanted.numpy() - mean) / std, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["protocol 2", "strides", "pt", "old pt"])
def test_other_forms_give_the_same_records(name, raw, pyg, tmp_path, form):
    """The ``.pt`` files of the mirrors: ``(dict, slices, class)`` of PyG 2.8, ``(Data, slices)`` before."""
    folder, lists = tmp_path / "raw", load(raw)
    if form == "strides":  # and other dtypes
        for graphs in lists.values():
            for i, (x, attr, edges, y) in enumerate(graphs):
                wide = edges.repeat_interleave(2, 1)[:, ::2]
                graphs[i] = [x.t().contiguous().t(), attr.double(), wide, np.asarray(y, ">i8")]
    dump(folder, {} if "pt" in form else lists, 2 if form == "protocol 2" else 4)
    for part in PARTS if "pt" in form else ():
        if form == "pt":
            shutil.copy(pyg[1] / f"{part}.pt", folder)
        else:
            data, slices = InMemoryDataset.collate(
                [Data.from_dict(item.to_dict()) for item in pyg[0][part]]
            )
            torch.save((data, slices), folder / f"{part}.pt")
    _, wanted = records_of_folder(name, raw, tmp_path / "a")
    _, records = records_of_folder(name, folder, tmp_path / "b")
    assert_same_records(records, wanted)


def test_labels_of_coco_are_renumbered_as_in_pyg():
    pyg = LRGBDataset.label_remap_coco(None)
    assert {number: int(classes_from_ids(np.array([number]), "")[0]) for number in COCO_IDS} == pyg
    for number in sorted(set(range(-1, 256)) - set(COCO_IDS)):
        with raises(DamagedInput, naming=["graph 3", number]):
            classes_from_ids(np.array([1, number]), "graph 3")


FAULTS = [
    (slice(None), lambda g: g[:3]),
    (0, lambda x: x[:, :13], 13),
    (0, lambda x: x.float() + 1e-5, "float16"),
    (0, lambda x: x * float("nan")),
    (1, lambda attr: attr[1:]),
    (1, lambda attr: attr / 0),
    (2, lambda edges: edges + edges.max() + 1),
    (2, lambda edges: edges - 1, -1),
    (3, lambda y: y.astype("i4") * 0 + 95, 95),
    (3, lambda y: y.astype("i8") + 2**40),
    (slice(None), lambda g: (g[0][:0], g[1][:0], g[2][:, :0], g[3][:0])),
]


def test_bad_graphs_are_named(name, raw, tmp_path):
    def check(case):
        slot, problem, *named = case
        lists = load(raw)
        graph = list(next(graph for graph in lists["val"][1:] if len(graph[3]) > 1))
        graph[slot] = problem(graph[slot])
        lists["val"][1] = tuple(graph)
        refused_folder(name, dump(tmp_path / "raw", lists), "val.pickle, graph 1", *named)

    check_each(check, FAULTS)


def test_bad_files_end_a_build_with_nothing_left(raw, name, tmp_path):
    home = tmp_path / "home"
    for problem in ("cut", "mixed"):
        folder = tmp_path / problem
        shutil.copytree(raw, folder)
        file = folder / "train.pickle"
        if problem == "cut":
            file.write_bytes(file.read_bytes()[:-5_000])
        else:
            file.rename(folder / "train.pt")
        line = ("build", name, "--archive", folder, "--jobs", 1, "--quiet", "--home", home)
        message = expect_refusal(*line, code=4)
        assert "train" in message
        assert problem == "mixed" or "--archive PATH" in message
        assert not list((home / "built").glob("*")) if (home / "built").exists() else True
    assert kmip("build", name, "--archive", raw, "--jobs", 1, "--quiet", "--home", home).code == 0


PT_FAULTS = [
    lambda data, slices: [data, slices],
    lambda data, slices: ({**data, "x": None}, slices),
    lambda data, slices: ({**data, "edge_index": data["edge_index"][0]}, slices),
    lambda data, slices: (data, {name: end[:0] for name, end in slices.items()}),
    lambda data, slices: (data, None),
    lambda data, slices: (data, {**slices, "y": slices["y"][:-1]}),
    lambda data, slices: (data, {**slices, "x": slices["x"] + 1}),
    lambda data, slices: (data, {**slices, "edge_index": slices["edge_index"].flip(0)}),
]


def test_a_pt_file_with_other_contents_is_refused(name, pyg, tmp_path):
    folder = Path(shutil.copytree(pyg[1], tmp_path / "pt"))
    data, slices, _ = torch.load(folder / "val.pt", weights_only=False)
    for problem in PT_FAULTS:
        torch.save(problem(data, slices), folder / "val.pt")
        refused_folder(name, folder, "val.pt")


def test_the_published_partition_of_voc_is_the_stratified_one(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("KMIP_DATA_HOME", str(home))
    options = ["pascalvoc-sp", "--sample", "--jobs", 1]
    upstream = kmip("build", *options, "--json").json["splits"]
    again = kmip("build", *options, "--split-rule", "stratified", "--json").json["splits"]
    assert again == upstream
    other = kmip("build", *options, "--split-rule", "stratified", "--split-seed", 1, "--json").json[
        "splits"
    ]
    assert other["train"] == upstream["train"]
    assert other["val"]["digest"] != upstream["val"]["digest"]
    assert [part["graphs"] for part in other.values()] == [
        part["graphs"] for part in upstream.values()
    ]
    expect_refusal("build", *options, "--split-seed", 1)
    assert "not stratified" in kmip("info", "coco-sp").out
