"""ZINC: equal to PyG's class on the same raw files, written by any protocol, and every bad file an error."""

from __future__ import annotations

import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import prepare, records_of_folder
from support.builds.same import assert_same
from support.cases import check_each
from support.cli import kmip
from torch_geometric import datasets

from kmip_data import ZINC
from kmip_data.errors import DamagedInput
from kmip_data.format.splits import PARTS
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.datasets.zinc import ATOMS, BONDS, TARGET

NAMES = {True: "zinc", False: "zinc-full"}


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    load_pipeline(load_manifest("zinc")).sample(folder, limit=30)
    return folder


@pytest.fixture
def copy(raw, tmp_path):
    return shutil.copytree(raw, tmp_path / "copy")


def load(path):
    return pickle.loads(path.read_bytes())


def dump(path, molecules, protocol=pickle.DEFAULT_PROTOCOL):
    path.write_bytes(pickle.dumps(molecules, protocol))


@pytest.mark.parametrize("subset", [True, False])
def test_items_equal_pyg(subset, raw, tmp_path):
    """The subset in the order of its lists; more molecules lie in the pickles."""
    shutil.copytree(raw, tmp_path / "pyg/raw")
    for part in PARTS:
        theirs = datasets.ZINC(tmp_path / "pyg", subset, part)
        build = {"home": tmp_path, "archives": [raw], "jobs": 1, "quiet": True}
        ours = ZINC(subset=subset, split=part, **build)
        assert len(ours) == len(theirs)
        for item, data in zip(ours, theirs, strict=True):
            assert_same(item, data, ordered=False)


@pytest.mark.parametrize("protocol", [2, 3, 5])
def test_other_protocols_and_types_give_the_same_records(protocol, raw, copy, tmp_path):
    for part in PARTS:
        molecules = load(copy / f"{part}.pickle")
        for molecule in molecules[::2]:
            molecule[ATOMS] = molecule[ATOMS].long().view(-1, 1)
            molecule[BONDS] = molecule[BONDS].int()
            molecule[TARGET] = molecule[TARGET].double()
        dump(copy / f"{part}.pickle", molecules, protocol)
    for name in NAMES.values():
        _, wanted = records_of_folder(name, raw, tmp_path / f"a-{name}")
        _, found = records_of_folder(name, copy, tmp_path / f"b-{name}")
        for one, other in zip(found, wanted, strict=True):
            assert one.key == other.key
            np.testing.assert_array_equal(one.edge_index, other.edge_index)
            for key, values in other.columns.items():
                assert one.columns[key].dtype == values.dtype
                np.testing.assert_array_equal(one.columns[key], values)


FAULTS = [
    (ATOMS, lambda atoms: atoms + 28, "type of atom"),
    (ATOMS, lambda atoms: -1 - atoms, "type of atom"),
    (ATOMS, lambda atoms: atoms[1:], BONDS),
    (ATOMS, lambda atoms: atoms.float(), "float32"),
    (ATOMS, lambda atoms: atoms.repeat(9), BONDS),
    (BONDS, lambda bonds: bonds * 4, "type of bond"),
    (BONDS, lambda bonds: bonds.triu(), "not back"),
    (BONDS, lambda bonds: bonds[0], "shape"),
    (TARGET, lambda target: target * float("nan"), "NaN"),
    (TARGET, lambda target: target.repeat(2), "2 targets"),
    (TARGET, lambda target: 3.0, f"{TARGET} is float"),
    ("num_atom", lambda count: count + 1, "num_atom"),
]


def test_bad_molecules_are_named(copy, new_folder):
    molecules = load(copy / "val.pickle")

    def check(case):
        name, fault, message = case
        bad = {**molecules[1], name: fault(molecules[1][name])}
        dump(copy / "val.pickle", [molecules[0], bad])
        with pytest.raises(DamagedInput, match=r"val\.pickle, molecule 1") as caught:
            prepare("zinc-full", copy, new_folder())
        assert message in str(caught.value)

    check_each(check, FAULTS)


def test_lists_of_numbers(copy, new_folder):
    count = len(load(copy / "val.pickle"))
    for text, message in (
        ("0,1,x", r"val\.index, entry 3: 'x'"),
        ("0,-1", r"val\.index, entry 2"),
        ("2,0,2", r"val\.index, entry 3: 2 stands in entry 1"),
        (f"0,{count}", rf"val\.index lists molecule {count}, which val\.pickle"),
        ("", "val.index is empty"),
        ("0,1\n2", None),
    ):
        (copy / "val.index").write_text(text, "ascii")
        work = new_folder()
        if message is None:
            assert prepare("zinc", copy, work)[2].plan["sizes"]["val"] == 3
        else:
            with pytest.raises(DamagedInput, match=message):
                prepare("zinc", copy, work)


def test_cut_and_malicious_files_are_refused(copy, new_folder, tmp_path):
    class Call:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'executed'}",)

    whole = (copy / "test.pickle").read_bytes()
    molecule = load(copy / "test.pickle")[0]
    for content in (
        whole[: len(whole) // 2],
        whole[:-1],
        b"",
        pickle.dumps({"a": 1}),
        pickle.dumps([{**molecule, "more": Call()}]),
        pickle.dumps([molecule, 3]),
    ):
        (copy / "test.pickle").write_bytes(content)
        with pytest.raises(DamagedInput, match=r"test\.pickle"):
            prepare("zinc-full", copy, new_folder())
    assert not (tmp_path / "executed").exists()
    home = tmp_path / "home"
    outcome = kmip("build", "zinc-full", "--archive", copy, "--home", home, "--jobs", 1)
    assert outcome.code == 4
    assert "test.pickle" in outcome.err
    assert not list(home.glob("built/*"))


def test_a_mirrored_tensor_is_what_torch_reads(raw):
    molecule = load(raw / "train.pickle")[0]
    assert molecule[BONDS].dtype == molecule[ATOMS].dtype == torch.int8
    assert molecule["num_atom"] == len(molecule[ATOMS])
