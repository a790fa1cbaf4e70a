"""The dataset classes, over builds of generated samples and of real blocks."""

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from support.builds.same import assert_same_data
from support.raises import raises
from torch_geometric.loader import DataLoader

from kmip_data import S3DIS, CityNetwork, GraphLoader, ShapeNetPart
from kmip_data.errors import UsageError

QUIET = {"sample": True, "quiet": True, "jobs": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home where a small sample of each is built."""
    folder = tmp_path_factory.mktemp("home")
    S3DIS(folder, k=4, limit=24, **QUIET)
    ShapeNetPart(folder, k=4, limit=32, **QUIET)
    return folder


def s3dis(home, **arguments):
    return S3DIS(home, **{"k": 4, "limit": 24, "build": False, "sample": True, **arguments})


def test_s3dis_has_its_parts_records_and_arguments(home):
    parts = {part: s3dis(home, split=part) for part in ("train", "val", "test")}
    whole = s3dis(home, split=None)
    assert len(whole) == 24
    assert sorted(np.concatenate([part.records for part in parts.values()]).tolist()) == list(
        range(24)
    )
    assert all(key.startswith("Area_6") for key in parts["test"].keys)
    item = parts["train"][0]
    assert repr(item) == "Data(x=[4096, 9], edge_index=[2, 16384], y=[4096], pos=[4096, 3])"
    assert torch.equal(item.pos, item.x[:, :3])
    assert item.edge_index[1].tolist() == torch.arange(4096).repeat_interleave(4).tolist()
    assert (whole.num_classes, whole.num_features, whole.num_edge_features) == (13, 9, 0)
    assert whole.class_names[12] == "clutter"
    assert repr(parts["val"]).startswith("S3DIS('s3dis' sample, ")
    assert "k=4" in repr(parts["val"])
    assert (
        parts["val"].split_digest == whole.card.splits["upstream-area6-seed0"].parts["val"].digest
    )


def test_features_and_lengths_of_edges_are_chosen(home):
    whole = s3dis(home, split="val")[0]
    dataset = s3dis(
        home, split="val", features="position-color", edge_attr=True, transform=T.NormalizeScale()
    )
    assert float(dataset[:2][0].pos.abs().max()) <= 1
    dataset.transform = None
    assert torch.equal(dataset[0].x, whole.x[:, :6])
    assert torch.allclose(dataset[0].edge_attr, T.Distance(norm=False)(whole).edge_attr, rtol=1e-6)
    for batch, other in zip(GraphLoader(dataset, 2), DataLoader(dataset, 2), strict=True):
        assert_same_data(batch, other)
    with raises(UsageError, naming="colour"):
        s3dis(home, features="colour")


def test_categories_choose_shapes_by_name(home):
    for categories in ("Chair", ["Chair"], ("chair",)):
        dataset = ShapeNetPart(home, split=None, k=4, categories=categories, **QUIET)
        assert set(dataset.card.parameters["category"]) == {"Chair"}
        assert 12 <= int(dataset[0].y.min()) <= int(dataset[0].y.max()) <= 15
    with raises(UsageError, naming="Chiar"):
        ShapeNetPart(home, categories="Chiar", **QUIET)


def test_shapenet_part_has_the_stratified_rule(home):
    arguments = {"k": 4, "limit": 32, **QUIET}
    usual, drawn, again = (
        ShapeNetPart(home, split="train", **arguments, **rule)
        for rule in ({}, *2 * [{"split_rule": "stratified", "split_seed": 3}])
    )
    assert drawn.split_name == "stratified-seed3"
    assert len(drawn) == len(usual)
    assert drawn.keys == again.keys != usual.keys
    with raises(UsageError, naming="upstream"):
        ShapeNetPart(home, split="train", **arguments, split_seed=3)


def test_an_unknown_argument_is_named_with_the_nearest(tmp_path):
    for argument in ("kk", "log"):
        with raises(UsageError, naming=argument):
            S3DIS(tmp_path, **{argument: 3})
    with raises(UsageError, naming="train_mask"):
        CityNetwork("helsinki", root=tmp_path, split="train")
    with pytest.raises(TypeError):
        CityNetwork(root=tmp_path)
    assert not list(tmp_path.iterdir())


def test_root_may_be_the_build_folder(home):
    folder = s3dis(home).build.path
    # Nothing has to be repeated, and what is typed must agree, even if it is the default.
    for arguments in ({}, {"k": 4}, {"sample": True, "limit": 24}, {"train": False}):
        assert S3DIS(folder, **arguments).build.path == folder
    with raises(UsageError, naming=[32, 4]):
        S3DIS(folder, k=32)
    assert S3DIS(folder, split_rule="room").split_name == "room-area6-seed0"
    with raises(UsageError, naming="shapenet-part"):
        ShapeNetPart(folder, sample=True)


def test_build_false_names_the_command(home):
    with pytest.raises(UsageError) as error:
        s3dis(home, k=5)
    assert "kmip-data build s3dis --limit 24 --k 5 --sample" in str(error.value)
    with pytest.raises(UsageError):  # a sample is never a substitute
        S3DIS(home, k=4, limit=24, build=False)
    with raises(UsageError, naming="ofline"):
        S3DIS(home, ofline=True)


def test_a_part_without_graphs_is_warned_about(tmp_path):
    with pytest.warns(UserWarning, match="val"):
        dataset = ShapeNetPart(root=tmp_path, split="val", sample=True, limit=1, quiet=True)
    assert len(dataset) == 0
