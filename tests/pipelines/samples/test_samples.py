"""Samples have the exact upstream layout and every class, of every size, and depend on the seed alone."""

from __future__ import annotations

import json
import re

import h5py
import numpy as np
import pytest
from h5py._hl.filters import guess_chunk
from rdkit import Chem
from support.cases import contents
from support.pyg_point_clouds import pipeline_records, records_of
from support.small_graphs import records_of_folder

from kmip_data.format.writer import encode_shard
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.samples import s3dis, shapenet_part
from kmip_data.pipelines.samples.peptides import SIDE_CHAINS, smiles
from kmip_data.pipelines.shapenet_part import CATEGORIES

SMALL = [
    "cifar10",
    "coco-sp",
    "pascalvoc-sp",
    "malnet-tiny",
    "pcqm-contact",
    "peptides-func",
    "peptides-struct",
]


def write(name, folder, **options):
    folder.mkdir()
    load_pipeline(load_manifest(name)).sample(folder, **options)
    return folder


@pytest.mark.parametrize("name", [*SMALL, "s3dis", "shapenet-part"])
def test_samples_depend_on_the_seed_alone(name, tmp_path):
    np.random.seed(len(name))  # noqa: NPY002 -- the global generator must not matter
    one, same = (contents(write(name, tmp_path / place, limit=7)) for place in "ab")
    other = contents(write(name, tmp_path / "c", limit=7, seed=1))
    assert one == same
    assert one != other


@pytest.mark.parametrize("limit", [1, 2, 3, 30])
@pytest.mark.parametrize("name", SMALL)
def test_samples_of_every_size_can_be_built(name, limit, tmp_path):
    folder = write(name, tmp_path / "raw", limit=limit)
    pipeline, records = records_of_folder(name, folder, tmp_path / "work")
    assert len(records) == limit
    shard = encode_shard(records, pipeline.schema(pipeline.Params()), dataset=name, build_key="0" * 12)
    assert shard.graphs == limit
    keys = [record.key for record in records]
    parts = pipeline.split(records_of(keys), pipeline.SplitParams(), folder).parts
    assert sorted(row for part in parts.values() for row in part) == list(range(limit))
    assert parts["train"]
    if limit == 30:
        assert all(parts.values())


def test_sample_peptides_are_molecules_of_every_residue():
    mol = Chem.MolFromSmiles(smiles("".join(SIDE_CHAINS), np.random.default_rng(0)))
    assert mol is not None
    assert mol.GetNumAtoms() > 140
    assert len(Chem.FindMolChiralCenters(mol)) >= 19


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
