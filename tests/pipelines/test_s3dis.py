"""The S3DIS pipeline: equal to PyTorch Geometric's class on the same files, and every bad file an error."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from support.builds.raw_graphs import records_of, records_of_folder, refused_folder, unzip
from support.cases import check_each
from support.shared import shared_data
from torch_geometric import datasets as pyg

from kmip_data.format.writer import MAX_SHARD_BYTES
from kmip_data.graphs.reference import knn_table as exact_table
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline

PIPELINE = load_pipeline(load_manifest("s3dis"))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    return unzip(
        shared_data("indoor3d_sem_seg_hdf5_data_small.zip"), tmp_path_factory.mktemp("real")
    )


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    PIPELINE.write_sample(folder, limit=18)
    return folder


def split(keys, **parameters):
    return PIPELINE.split(records_of(keys), PIPELINE.SplitParams(**parameters), None)


# --- equal to the references ---------------------------------------------------------------------


def test_built_items_equal_pyg(real, tmp_path):
    """Items built from the archive have the dtypes, shapes, values and order of PyTorch Geometric's."""
    from kmip_data import S3DIS

    archive = shared_data("indoor3d_sem_seg_hdf5_data_small.zip")
    ours = {
        part: S3DIS(
            root=tmp_path,
            split=part,
            k=6,
            split_rule="room",
            archives=[archive],
            unpinned=True,
            jobs=1,
            quiet=True,
        )
        for part in ("train", "val", "test")
    }
    shutil.copytree(real, tmp_path / "pyg/raw")
    for train, parts in ((True, ("train", "val")), (False, ("test",))):
        theirs = list(pyg.S3DIS(str(tmp_path / "pyg"), test_area=6, train=train))
        items = [item for part in parts for item in ours[part]]
        assert len(items) == len(theirs)
        position = {data.pos.numpy().tobytes(): data for data in theirs}
        for item in items:
            data = position[item.pos.numpy().tobytes()]
            assert torch.equal(item.x, torch.cat([data.pos, data.x], dim=1))
            assert torch.equal(item.y, data.y)
            assert (item.x.dtype, item.y.dtype) == (torch.float32, torch.int64)
    item = ours["test"][0]
    sources = torch.as_tensor(exact_table(item.pos.numpy(), 6)).reshape(-1)
    assert torch.equal(
        item.edge_index, torch.stack([sources, torch.arange(4096).repeat_interleave(6)])
    )
    rooms = (real / "room_filelist.txt").read_text().split()
    keys = sorted(key for part in ours.values() for key in part.keys)
    assert keys == [f"{room}/{i:06d}" for i, room in enumerate(rooms)]


# --- schema, units, parameters -------------------------------------------------------------------


def test_units_of_the_full_set_are_whole_chunks_and_fit_in_a_shard():
    files = [[f"ply_data_all_{i}.h5", 1000 if i < 23 else 585, 4096, 63] for i in range(24)]
    prepared = type("Prepared", (), {"facts": {"files": files}, "path": None})()
    for parameters in ({}, {"k": 8}, {"k": 64}, {"knn_rule": "torch-cluster"}, {"k": 4095}):
        params = PIPELINE.Params(**parameters)
        units = PIPELINE.units(prepared, params)
        assert sum(len(unit.selection["rows"]) for unit in units) == 23_585
        edges = params.k if params.edge_layout == "neighbor" else 2 * (params.k + 1)
        per_block = 4096 * (9 * 4 + 1 + 2 * edges)
        for unit in units:
            start, stop = unit.selection["rows"][0], unit.selection["rows"][-1] + 1
            assert (stop - start) * per_block <= MAX_SHARD_BYTES
            assert start % 63 == 0 or 63 * per_block > MAX_SHARD_BYTES


# --- splits --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full_keys():
    rooms = shared_data("s3dis_meta", "room_filelist.txt").read_text().split()
    return [f"{room}/{i:06d}" for i, room in enumerate(rooms)]


@pytest.mark.parametrize("seed", [0, 1])
def test_full_size_split_equals_upstream(full_keys, seed):
    drawn = split(full_keys, split_seed=seed)
    assert drawn.name == f"upstream-area6-seed{seed}"
    state = random.getstate()
    try:  # upstream's own lines, in its order of calls
        random.seed(seed)
        train_ids, test_ids = list(range(20_291)), list(range(20_291, 23_585))
        random.shuffle(train_ids)
        random.shuffle(test_ids)
    finally:
        random.setstate(state)
    assert drawn.parts["val"] == train_ids[:3_294]
    assert drawn.parts["train"] == train_ids[3_294:]
    assert drawn.parts["test"] == test_ids
    expected = load_manifest("s3dis").expected
    assert expected.graphs == len(full_keys)
    assert expected.splits["upstream-area6-seed0"] == {
        part: len(rows) for part, rows in drawn.parts.items()
    }


def test_rules_and_limits_choose_other_parts(full_keys):
    drawn = split(full_keys, split_rule="room", split_seed=3)
    rooms = {part: {full_keys[i].split("/")[0] for i in rows} for part, rows in drawn.parts.items()}
    assert not rooms["train"] & rooms["val"]
    assert len(drawn.parts["val"]) == 3_294
    assert drawn.parts["val"] != split(full_keys, split_rule="room", split_seed=4).parts["val"]
    quarter = split(full_keys, val_fraction=0.25, test_area=1)
    assert quarter.name == "upstream-area1-seed0-val0.25"
    assert (len(quarter.parts["val"]), len(quarter.parts["test"])) == (4_975, 3_687)
    for limit in (8, 100):
        keys = [
            full_keys[i] for i in PIPELINE.Params(limit=limit).positions_to_build(len(full_keys))
        ]
        assert len(set(keys)) == limit
        assert all(all(split(keys, test_area=area).parts.values()) for area in (1, 5, 6))


# --- what can be wrong with the files ------------------------------------------------------------


@pytest.fixture
def copy(sample, tmp_path):
    return Path(shutil.copytree(sample, tmp_path / "raw"))


fails = partial(refused_folder, "s3dis", k=1)


def replace(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    with h5py.File(folder / "ply_data_all_0.h5", "r+") as file:
        for name, array in arrays.items():
            del file[name]
            empty = {"chunks": (1,) * array.ndim, "maxshape": (18, None, 9)[: array.ndim]}
            file.create_dataset(
                name, data=array, compression="gzip", **({} if array.size else empty)
            )


def test_wrong_arrays_are_named(copy):
    path = copy / "ply_data_all_0.h5"
    sound = path.read_bytes()
    with h5py.File(path) as file:
        data, label = file["data"][...], file["label"][...]

    def changed(array, index, value):
        array = array.copy()
        array[index] = value
        return array

    def check(case):
        arrays, *named = case
        path.write_bytes(sound)
        replace(copy, arrays)
        fails(copy, "ply_data_all_0.h5", *named)

    wide = {"data": data.repeat(2, 1)[:, :4097], "label": label.repeat(2, 1)[:, :4097]}
    check_each(
        check,
        [
            ({"data": changed(data, (11, 77, 4), np.nan)}, "block 11"),
            ({"label": changed(label, (3, 5), 13)}, "block 3", 13),
            ({"data": data[:, :, :6]}, "[18, 4096, 6]"),
            ({"data": data.astype(np.float64)}, "float64"),
            ({"label": label[:, :100]},),
            ({"label": label.reshape(-1)}, "label"),
            (wide, 4097, 4096),
            ({"data": data[:, :0], "label": label[:, :0]}, 0),
        ],
    )
    middle = sound.index(b"\x78\x5e", len(sound) // 2)
    path.write_bytes(sound[:middle] + bytes(64) + sound[middle + 64 :])
    fails(copy, "ply_data_all_0.h5")


def test_too_few_points_for_k_are_refused(copy):
    few = np.random.default_rng(0).random((18, 32, 9), dtype=np.float32)
    replace(copy, {"data": few, "label": np.zeros((18, 32), np.uint8)})
    fails(copy, "000000", 32, k=32)
    _, skipped = records_of_folder("s3dis", copy, k=32, short_graphs="skip")
    assert skipped == []
    for rule in ("exact", "torch-cluster"):
        _, kept = records_of_folder("s3dis", copy, k=32, short_graphs="keep", knn_rule=rule)
        assert {record.num_edges for record in kept} == {32 * 31}


def test_lists_of_files_and_rooms_are_checked(copy):
    files, rooms = copy / "all_files.txt", copy / "room_filelist.txt"
    lines = rooms.read_text().splitlines()
    reference = [record.key for record in records_of_folder("s3dis", copy, k=1)[1]]
    files.write_bytes(b"some/other/folder/ply_data_all_0.h5\r\n")
    rooms.write_bytes("\r\n".join(lines).encode())
    assert [record.key for record in records_of_folder("s3dis", copy, k=1)[1]] == reference
    for path, text, *named in (
        (rooms, "\n".join(lines[:-1]), 17, 18),
        (rooms, "\n".join(["Area_7_office_1", *lines[1:]]), "line 1", "Area_7_office_1"),
        (rooms, "\n".join([*lines[:4], "Area_1_../x", *lines[5:]]), "line 5"),
        (files, "", "all_files.txt"),
        (files, "a/ply_data_all_0.h5\na/ply_data_all_0.h5\n", "line 2"),
        (files, "a/ply_data_all_0.h5\na/ply_data_all_1.h5\n", "line 2", "ply_data_all_1.h5"),
        (files, "a/../..\n", "line 1"),
        (files, "ply_data_all_\u00e4.h5\n", "all_files.txt"),
    ):
        sound = path.read_bytes()
        path.write_text(text, encoding="utf-8")
        fails(copy, *named)
        path.write_bytes(sound)
    files.unlink()
    fails(copy, "all_files.txt")
