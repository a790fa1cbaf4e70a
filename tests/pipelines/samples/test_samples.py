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
from support.small_graphs import records_of, records_of_folder

from kmip_data.format.writer import encode_shard
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.samples import s3dis, shapenet_part
from kmip_data.pipelines.samples.peptides import SIDE_CHAINS, smiles
from kmip_data.pipelines.shapenet_part import CATEGORIES, list_name

SMALL = ["cifar10", "coco-sp", "malnet-tiny", "pascalvoc-sp", "pcqm-contact"]
SMALL += ["peptides-func", "peptides-struct", "echo-sssp", "echo-energy"]


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


@pytest.mark.parametrize("name", SMALL)
def test_samples_of_every_size_can_be_built(name, tmp_path):
    for limit in (1, 2, 3, 30):
        folder = write(name, tmp_path / f"raw{limit}", limit=limit)
        pipeline, records = records_of_folder(name, folder, tmp_path / f"work{limit}")
        shard = encode_shard(records, pipeline.schema(pipeline.Params()), dataset=name, build_key="0" * 12)
        assert shard.facts["graphs"] == len(records) == limit
        keys = [record.key for record in records]
        parts = pipeline.split(records_of(keys), pipeline.SplitParams(), folder).parts
        assert sorted(row for part in parts.values() for row in part) == list(range(limit))
        assert parts["train"]
    assert all(parts.values())


def test_sample_peptides_are_molecules_of_every_residue():
    mol = Chem.MolFromSmiles(smiles("".join(SIDE_CHAINS), np.random.default_rng(0)))
    assert mol is not None
    assert mol.GetNumAtoms() > 140
    assert len(Chem.FindMolChiralCenters(mol)) >= 19


def test_rooms_have_the_upstream_layout_every_class_area_and_duplicate(tmp_path, monkeypatch):
    monkeypatch.setattr(s3dis, "BLOCKS_PER_FILE", 20)
    s3dis.write_sample(tmp_path)
    sizes = {f"ply_data_all_{i}.h5": size for i, size in enumerate((20, 20, 8))}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all_files.txt", *sizes, "room_filelist.txt"]
    listed = "".join(f"indoor3d_sem_seg_hdf5_data/{name}\n" for name in sizes)
    assert (tmp_path / "all_files.txt").read_bytes() == listed.encode()
    rooms = (tmp_path / "room_filelist.txt").read_bytes().decode()
    assert re.fullmatch(r"(Area_[1-6]_[A-Za-z]+_\d+\n){48}", rooms)
    areas = [line[5] for line in rooms.splitlines()]
    assert areas == sorted(areas)
    assert set(areas) == set("123456")
    assert len(set(rooms.splitlines())) >= 12  # enough rooms to hold some out
    parts = []
    for name, blocks in sizes.items():
        with h5py.File(tmp_path / name) as file:
            parts.append((file["data"][...], file["label"][...]))
            for key, level, columns in (("data", 4, (9,)), ("label", 1, ())):
                found = file[key]
                assert found.shape == (blocks, 4096, *columns)
                assert (found.compression, found.compression_opts, found.shuffle) == ("gzip", level, False)
                assert found.chunks == guess_chunk(found.shape, None, found.dtype.itemsize)
    data, label = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    assert (data.dtype, label.dtype) == (np.float32, np.uint8)
    assert set(np.unique(label)) == set(range(13))
    assert max(len(np.unique(block, axis=0)) for block in data) < 4096  # with replacement, or filled up
    assert np.abs(data[:, :, :2]).max() <= 0.501
    assert 0 <= data[:, :, 2:].min() <= data[:, :, 3:].max() <= 1
    colours = data[:, :, 3:6] * 255
    assert np.allclose(colours, np.round(colours), atol=1e-4)


def test_shapes_have_the_upstream_layout_every_part_and_unit_normals(tmp_path):
    shapes = write("shapenet-part", tmp_path / "shapes", limit=None)
    real = [f"{c.name}\t{c.synset}\n" for c in CATEGORIES]
    assert (shapes / "synsetoffset2category.txt").read_text() == "".join(real)
    texts = [(shapes / list_name(part)).read_text() for part in ("train", "val", "test")]
    assert texts == [json.dumps(json.loads(text)) for text in texts]  # one line, as upstream's
    listed = [name for text in texts for name in json.loads(text)]
    assert len(listed) == len(set(listed)) == shapenet_part.DEFAULT_SHAPES
    files = {path.relative_to(shapes).as_posix() for path in shapes.glob("*/*.txt")}
    assert files == {f"{path.removeprefix('shape_data/')}.txt" for path in listed}
    line = rb"(-?\d+\.\d{6} ){6}\d+\.000000\n"
    assert all(re.fullmatch(rb"(?:%b){1500,4000}" % line, (shapes / name).read_bytes()) for name in files)
    _, records = records_of_folder("shapenet-part", shapes)
    x, y = (np.concatenate([record.columns[key] for record in records]) for key in ("node/x", "node/y"))
    assert set(np.unique(y)) == set(range(50))
    assert np.bincount(y).min() >= 100
    assert np.abs(np.linalg.norm(x[:, :3], axis=1) - 1).max() < 1e-5
    assert np.abs(x[:, 3:]).max() < 1
    assert {int(record.columns["graph/category"]) for record in records} == set(range(16))
