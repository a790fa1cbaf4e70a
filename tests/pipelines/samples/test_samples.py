"""Samples have the exact upstream layout, hold every class, can be learned, and depend on the seed alone."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from h5py._hl.filters import guess_chunk
from sklearn.tree import DecisionTreeClassifier
from support.cases import check_each
from support.pyg_point_clouds import pipeline_records
from support.shared import shared_data
from support.split_records import records_of

from kmip_data.manifest import load_manifest
from kmip_data.pipelines.samples import s3dis, shapenet_part
from kmip_data.pipelines.samples.writers import part_sizes
from kmip_data.pipelines.shapenet_part import CATEGORIES


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def part_columns(name: str, folder: Path, train: list[str], test: list[str]):
    """Features and labels of two parts of a raw folder (every eighth point)."""
    pipeline, records = pipeline_records(name, folder, k=1)
    parts = pipeline.split(
        records_of([record.key for record in records]), pipeline.SplitParams(), folder
    ).parts
    for wanted in (train, test):
        rows = [records[i].columns for part in wanted for i in parts[part]]
        yield (
            np.concatenate([row["node/x"][::8] for row in rows]),
            np.concatenate([row["node/y"][::8] for row in rows]),
        )


# --- S3DIS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rooms")
    s3dis.write_sample(folder)
    return folder


def test_rooms_have_the_upstream_layout(tmp_path, monkeypatch):
    monkeypatch.setattr(s3dis, "BLOCKS_PER_FILE", 10)
    s3dis.write_sample(tmp_path, limit=25)
    names = [f"ply_data_all_{i}.h5" for i in range(3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all_files.txt", *names, "room_filelist.txt"]
    listed = "".join(f"indoor3d_sem_seg_hdf5_data/{name}\n" for name in names)
    assert (tmp_path / "all_files.txt").read_bytes() == listed.encode()
    rooms = (tmp_path / "room_filelist.txt").read_bytes()
    assert rooms.endswith(b"\n")
    lines = rooms.decode().splitlines()
    assert len(lines) == 25
    assert all(re.fullmatch(r"Area_[1-6]_[A-Za-z]+_\d+", line) for line in lines)
    assert [line[5] for line in lines] == sorted(line[5] for line in lines)
    for name, blocks in zip(names, (10, 10, 5), strict=True):
        with h5py.File(tmp_path / name) as file:
            assert sorted(file) == ["data", "label"]
            data, label = file["data"], file["label"]
            assert (data.shape, data.dtype) == ((blocks, 4096, 9), np.float32)
            assert (label.shape, label.dtype) == ((blocks, 4096), np.uint8)
            assert (data.compression, data.compression_opts) == ("gzip", 4)
            assert (label.compression, label.compression_opts) == ("gzip", 1)
            assert data.chunks == guess_chunk(data.shape, None, 4)
            assert label.chunks == guess_chunk(label.shape, None, 1)
            assert not data.shuffle
            assert not data.attrs


def test_rooms_have_the_layout_of_the_real_lists(rooms):
    real = shared_data("s3dis_meta")
    assert (rooms / "all_files.txt").read_text().splitlines() == (
        real / "all_files.txt"
    ).read_text().splitlines()[:1]
    pattern = re.compile(r"Area_\d_(\w+)_\d+")
    kinds = {pattern.fullmatch(room)[1] for room in set((rooms / "room_filelist.txt").read_text().split())}
    assert kinds <= {
        pattern.fullmatch(room)[1] for room in set((real / "room_filelist.txt").read_text().split())
    }


def test_rooms_hold_every_class_area_and_duplicate(rooms):
    with h5py.File(rooms / "ply_data_all_0.h5") as file:
        data, label = file["data"][...], file["label"][...]
    assert len(data) == s3dis.DEFAULT_BLOCKS
    assert set(np.unique(label)) == set(range(13))
    names = (rooms / "room_filelist.txt").read_text().split()
    assert {name[5] for name in names} == set("123456")
    distinct = [len(np.unique(block, axis=0)) for block in data]
    assert max(distinct) < 4096  # with replacement, or filled up
    assert np.abs(data[:, :, :2]).max() <= 0.5 + 0.001
    assert (data[:, :, 2] >= 0).all()
    assert (data[:, :, 2] < 4).all()
    assert (data[:, :, 3:] >= 0).all()
    assert (data[:, :, 3:] <= 1).all()
    assert np.allclose(data[:, :, 3:6] * 255, np.round(data[:, :, 3:6] * 255), atol=1e-4)
    assert len(set(names)) >= 12  # enough rooms to hold some out


def test_rooms_can_be_learned(rooms):
    (x, y), (x_test, y_test) = part_columns("s3dis", rooms, ["train"], ["test"])
    majority = (y_test == np.bincount(y).argmax()).mean()
    tree = DecisionTreeClassifier(max_depth=12, random_state=0).fit(x, y)
    assert tree.score(x_test, y_test) > majority + 0.25
    assert tree.score(x_test, y_test) < 0.99  # not by a giveaway


def test_areas_are_dealt_as_published():
    def check(total):
        sizes = s3dis.area_sizes(total)
        assert sum(sizes) == total
        assert sizes[0] >= 1
        assert total == 1 or sizes[5] >= 1
        if total == 23_585:
            assert tuple(sizes) == s3dis.AREA_BLOCKS
        elif total >= 6:
            assert min(sizes) >= 1

    check_each(check, [*range(1, 20), 48, 1000, 23_585])


def test_published_shares_are_those_of_the_real_list():
    rooms = shared_data("s3dis_meta", "room_filelist.txt").read_text().split()
    assert (
        tuple(sum(room.startswith(f"Area_{area}_") for room in rooms) for area in range(1, 7))
        == s3dis.AREA_BLOCKS
    )


# --- ShapeNet-Part -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    shapenet_part.write_sample(folder)
    return folder


def test_shapes_have_the_upstream_layout(shapes):
    real = [f"{c.name}\t{c.synset}\n" for c in CATEGORIES]
    assert (shapes / "synsetoffset2category.txt").read_text() == "".join(real)
    listed = []
    for part in ("train", "val", "test"):
        text = (shapes / f"train_test_split/shuffled_{part}_file_list.json").read_text()
        assert text == json.dumps(json.loads(text))  # one line, as upstream's
        listed += json.loads(text)
    assert len(listed) == len(set(listed)) == shapenet_part.DEFAULT_SHAPES
    files = {path.relative_to(shapes).as_posix() for path in shapes.glob("*/*.txt")}
    assert files == {f"{path.removeprefix('shape_data/')}.txt" for path in listed}
    number = rb"-?\d+\.\d{6}"
    line = re.compile(rb" ".join([number] * 7))
    for name in files:
        data = (shapes / name).read_bytes()
        assert data.endswith(b"\n")
        lines = data.split(b"\n")[:-1]
        assert 1_500 < len(lines) < 4_000
        assert all(line.fullmatch(row) for row in lines)
        assert all(row.endswith(b".000000") for row in lines)


def test_shapes_hold_every_part_and_unit_normals(shapes):
    _, records = pipeline_records("shapenet-part", shapes)
    x = np.concatenate([record.columns["node/x"] for record in records])
    y = np.concatenate([record.columns["node/y"] for record in records])
    assert set(np.unique(y)) == set(range(50))
    assert np.bincount(y).min() >= 100
    assert np.abs(np.linalg.norm(x[:, :3], axis=1) - 1).max() < 1e-5
    assert np.abs(x[:, 3:]).max() < 1
    assert {int(record.columns["graph/category"]) for record in records} == set(range(16))


def test_shapes_can_be_learned(shapes):
    (x, y), (x_test, y_test) = part_columns("shapenet-part", shapes, ["train", "val"], ["test"])
    majority = (y_test == np.bincount(y).argmax()).mean()
    tree = DecisionTreeClassifier(max_depth=20, random_state=0).fit(x, y)
    assert tree.score(x_test, y_test) > majority + 0.15


@pytest.mark.parametrize("total", [1, 2, 3, 10, 48, 16_881])
def test_lists_have_the_published_shares(total):
    sizes = part_sizes(total, shapenet_part.PUBLISHED)
    assert sum(sizes.values()) == total
    assert total < 3 or min(sizes.values()) >= 1
    if total == 16_881:
        assert sizes == load_manifest("shapenet-part").expected.splits["upstream"]


# --- both ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [s3dis, shapenet_part])
def test_the_seed_alone_decides(module, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        np.random.seed(len(name + str(seed)))  # noqa: NPY002 -- the global generator must not matter
        module.write_sample(tmp_path / name, limit=7, seed=seed)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert digests(tmp_path / "a") != digests(tmp_path / "c")
