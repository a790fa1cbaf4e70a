"""The ShapeNet-Part pipeline: equal to PyTorch Geometric's class, and every bad file an error."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from support.builds.raw_graphs import records_of, records_of_folder, refused_folder, unzip
from support.cases import check_each
from support.oracles.knn_oracle import torch_cluster_edges
from support.raises import raises
from support.shared import shared_data
from torch_geometric.datasets import ShapeNet

from kmip_data.errors import DamagedInput
from kmip_data.format.writer import MAX_SHARD_BYTES
from kmip_data.graphs.reference import knn_table as exact_table
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import RawCopy, RawNeededError, load_pipeline
from kmip_data.pipelines.datasets.shapenet_part import CATEGORIES, read_part_lists

MANIFEST = load_manifest("shapenet-part")
PIPELINE = load_pipeline(MANIFEST)
SPLIT = PIPELINE.SplitParams()


def pyg_shapenet(folder, root, **options):
    """PyG's class on a raw folder of ours."""
    if not root.exists():
        shutil.copytree(folder, root / "raw")
        for synset in ShapeNet.category_ids.values():
            (root / "raw" / synset).mkdir(exist_ok=True)
    return ShapeNet(str(root), **options)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    return unzip(shared_data("shapenet_part_16_shapes.zip"), tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    PIPELINE.write_sample(folder, limit=36)
    return folder


# --- equal to the references ---------------------------------------------------------------------


def test_built_items_equal_pyg(real, tmp_path):
    """Items built from the archive have the dtypes, shapes, values and order of PyTorch Geometric's."""
    from kmip_data import ShapeNetPart

    archive = shared_data("shapenet_part_16_shapes.zip")
    for part in ("train", "val", "test"):
        ours = ShapeNetPart(
            root=tmp_path / "home", split=part, archives=[archive], unpinned=True, quiet=True
        )
        theirs = pyg_shapenet(real, tmp_path / "pyg", split=part)
        assert len(ours) == len(theirs)
        for item, data in zip(ours, theirs, strict=True):
            assert torch.equal(item.x, torch.cat([data.x, data.pos], dim=1))
            assert torch.equal(item.pos, data.pos)
            assert torch.equal(item.y, data.y)
            assert torch.equal(item.category, data.category)
            assert item.edge_index.shape == (2, 8 * item.num_nodes)


def test_edges_equal_brute_force(real):
    _, records = records_of_folder("shapenet-part", real, limit=2)
    _, upstream = records_of_folder("shapenet-part", real, limit=2, knn_rule="torch-cluster")
    for record, other in zip(records, upstream, strict=True):
        pos = record.columns["node/x"][:, 3:]
        assert np.array_equal(record.neighbor[::7], exact_table(pos, 8, step=7))
        edges = other.edge_index[:, other.edge_index[1] % 7 == 0]
        assert np.array_equal(edges, torch_cluster_edges(pos, 8, every=7))


def test_categories_equal_pyg():
    assert {c.name: c.synset for c in CATEGORIES} == ShapeNet.category_ids
    assert {c.name: list(range(c.first, c.last + 1)) for c in CATEGORIES} == ShapeNet.seg_classes
    names = [
        f"{c.name}/{label - c.first}" for c in CATEGORIES for label in range(c.first, c.last + 1)
    ]
    assert list(MANIFEST.class_names) == names


# --- schema, units, parameters -------------------------------------------------------------------


def test_category_is_order_and_case_insensitive(sample):
    params = PIPELINE.Params(category=("table", "Airplane", "TABLE"))
    assert params.category == ("Airplane", "Table")
    assert (
        PIPELINE.Params(category=tuple(c.name for c in reversed(CATEGORIES))) == PIPELINE.Params()
    )
    assert PIPELINE.schema(params).column("graph/category").high == 1
    _, records = records_of_folder("shapenet-part", sample, category=("table", "airplane"))
    assert {record.key[:8] for record in records} == {"02691156", "04379243"}
    everything = [record.key for record in records_of_folder("shapenet-part", sample, k=1)[1]]
    keys = [record.key for record in records]
    assert keys == [key for key in everything if key in keys]
    assert PIPELINE.folder_name_pieces(params) == ["k8", "airplane-table"]
    assert PIPELINE.folder_name_pieces(PIPELINE.Params(category=("Mug", "Bag", "Car"))) == [
        "k8",
        "3-categories",
    ]
    with raises(ValidationError, naming="'Motorbike'"):
        PIPELINE.Params(category=("motorbyke",))


def units_of(folder: Path, **parameters):
    params = PIPELINE.Params(**parameters)
    prepared = PIPELINE.prepare(RawCopy(folder, {}, ()), params, folder)
    return prepared, params, PIPELINE.units(prepared, params)


def test_units_fit_in_a_shard(tmp_path):
    folder = tmp_path / "raw"
    PIPELINE.write_sample(folder, limit=3)
    keys = [f"02691156/{number}" for number in range(60)]
    for part, listed in (("train", keys[:50]), ("val", []), ("test", keys[50:])):
        text = json.dumps([f"shape_data/{key}" for key in listed])
        (folder / f"train_test_split/shuffled_{part}_file_list.json").write_text(text)
    for key in keys:  # sparse files: nothing is read but their size
        with (folder / f"{key}.txt").open("wb") as file:
            file.truncate(4_000_000)
    for parameters in ({}, {"limit": 30}, {"k": 40, "knn_rule": "torch-cluster"}):
        _, params, units = units_of(folder, **parameters)
        shapes = [key for unit in units for key in unit.selection["shapes"]]
        assert shapes == (keys[::2] if "limit" in parameters else keys)
        edges = params.k * 2 if params.edge_layout == "neighbor" else 4 * (params.k + 1)
        most = max(len(unit.selection["shapes"]) for unit in units) * 4_000_000 / 14
        assert most * (25 + edges) <= MAX_SHARD_BYTES
        assert len(units) > 1


# --- splits --------------------------------------------------------------------------------------


@pytest.fixture
def published(tmp_path):
    """The complete layout with the published lists and shapes of one line."""
    folder = tmp_path / "raw"
    PIPELINE.write_sample(folder, limit=0)
    for part in ("train", "val", "test"):
        name = f"shuffled_{part}_file_list.json"
        data = shared_data("shapenet_part_splits", name).read_bytes()
        (folder / "train_test_split" / name).write_bytes(data)
    for keys in read_part_lists(folder).values():
        for key in keys:
            (folder / f"{key.partition('@')[0]}.txt").touch()
    return folder


def test_the_published_set_has_all_shapes_and_parts(published):
    _, _, units = units_of(published)
    keys = [key for unit in units for key in unit.selection["shapes"]]
    assert len(keys) == len(set(keys)) == 16_881
    twice = [key for key in keys if "@" in key]
    assert len(twice) == 35
    assert {key.partition("@")[0] for key in twice} <= set(keys)
    parts = PIPELINE.split(records_of(keys), SPLIT, published).parts
    assert {part: len(rows) for part, rows in parts.items()} == MANIFEST.expected.splits["upstream"]
    assert keys[parts["train"][0]] == "03624134/3d2cb9d291ec39dc58a42593b26221da"
    _, _, chairs = units_of(published, category=("Chair",))
    chosen = [key for unit in chairs for key in unit.selection["shapes"]]
    parts = PIPELINE.split(records_of(chosen), SPLIT, published).parts
    assert {part: len(rows) for part, rows in parts.items()} == {
        "train": 2658,
        "val": 396,
        "test": 704,
    }
    with pytest.raises(RawNeededError):
        PIPELINE.split(records_of(chosen), SPLIT, None)
    # A sample of that size is no claim to be it, but the published lists are not disjoint.
    params = PIPELINE.Params()
    with pytest.raises(DamagedInput):
        PIPELINE.prepare(RawCopy(published, {}, (), sample=True), params, published)


# --- what can be wrong with the files ------------------------------------------------------------


@pytest.fixture
def copy(sample, tmp_path):
    return Path(shutil.copytree(sample, tmp_path / "raw"))


fails = partial(refused_folder, "shapenet-part", k=1)


def test_bad_shapes_name_file_and_line(copy):
    key = read_part_lists(copy)["train"][0]
    path = copy / f"{key}.txt"
    sound = path.read_bytes().split(b"\n")

    def check(case):
        change, *named = case
        lines = list(sound)
        lines[122] = change(*lines[122].rsplit(b" ", 1))
        path.write_bytes(b"\n".join(lines))
        fails(copy, f"{key}.txt, line 123", *named)

    check_each(
        check,
        [
            (lambda xyz, label: b"nan" + xyz[xyz.index(b" ") :] + b" 0",),
            (lambda xyz, label: xyz,),
            (lambda xyz, label: xyz + b" 50.000000", 50),
            (lambda xyz, label: xyz + b" -1.000000", -1),
            (lambda xyz, label: xyz + b" 0.500000", 0.5),
            (lambda xyz, label: xyz + b" wing", "wing"),
        ],
    )
    path.write_bytes(b"")
    fails(copy, f"{key}.txt, line 1")
    path.write_bytes((sound[0] + b"\n") * 65_537)
    fails(copy, f"{key}.txt", 65_537)
    path.write_bytes((sound[0] + b"\n") * 8)
    fails(copy, key, 8, k=8)
    _, skipped = records_of_folder("shapenet-part", copy, k=8, short_graphs="skip")
    assert len(skipped) == 35
    assert skipped[0].key != key
    _, kept = records_of_folder("shapenet-part", copy, k=8, short_graphs="keep", limit=1)
    assert (kept[0].num_nodes, kept[0].num_edges) == (8, 56)


def test_faulty_lists_of_shapes_are_refused(copy):
    path = copy / "train_test_split/shuffled_val_file_list.json"
    listed = json.loads(path.read_bytes())
    train = json.loads((copy / "train_test_split/shuffled_train_file_list.json").read_bytes())
    for more, *named in (
        ([listed[0]],),
        ([train[3]],),
        (["shape_data/02691156/absent"], "val", "02691156/absent.txt"),
        (["shape_data/12345678/a"], "12345678"),
        (["shape_data/02691156/../../etc"],),
        ([7],),
    ):
        path.write_text(json.dumps([*listed, *more]))
        fails(copy, *named)
    for text in ('{"val": []}', "[" * 100_000, ""):
        path.write_text(text)
        fails(copy, "train_test_split/shuffled_val_file_list.json")
    path.write_text(json.dumps(listed))
    categories = copy / "synsetoffset2category.txt"
    categories.write_bytes(categories.read_bytes().replace(b"\n", b"\r\n"))
    records_of_folder("shapenet-part", copy, limit=1)
    categories.write_text("Airplane\t02691156\nBag\t02954340\n")
    fails(copy, "synsetoffset2category.txt, line 2", "Bag")
