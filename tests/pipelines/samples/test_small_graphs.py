"""Samples of molecules, superpixels and call graphs: the upstream layout, from the seed alone, learnable."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from rdkit import Chem
from sklearn.tree import DecisionTreeClassifier
from support.small_graphs import records_of_folder
from support.split_records import records_of

from kmip_data.format.writer import encode_shard
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.samples.peptides import SIDE_CHAINS, smiles

NAMES = [
    "cifar10",
    "coco-sp",
    "pascalvoc-sp",
    "malnet-tiny",
    "pcqm-contact",
    "peptides-func",
    "peptides-struct",
]


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(name, folder, **options):
    folder.mkdir()
    load_pipeline(load_manifest(name)).sample(folder, **options)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_samples_depend_on_the_seed_alone(name, tmp_path):
    one, same = (digests(write(name, tmp_path / place, limit=7)) for place in "ab")
    other = digests(write(name, tmp_path / "c", limit=7, seed=1))
    assert one == same
    assert one != other


@pytest.mark.parametrize("limit", [1, 2, 3, 30])
@pytest.mark.parametrize("name", NAMES)
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


def test_call_graphs_can_be_told_apart(tmp_path):
    folder = write("malnet-tiny", tmp_path / "raw", limit=100)
    pipeline, records = records_of_folder("malnet-tiny", folder, tmp_path / "work")
    parts = pipeline.split(
        records_of([record.key for record in records]), pipeline.SplitParams(), folder
    ).parts
    x = np.array([[record.num_nodes, record.num_edges / record.num_nodes] for record in records])
    y = np.array([int(record.columns["graph/y"]) for record in records])
    tree = DecisionTreeClassifier(max_depth=6, random_state=0).fit(x[parts["train"]], y[parts["train"]])
    assert tree.score(x[parts["test"]], y[parts["test"]]) > 0.5
