"""A package that is missing is named before anything is fetched, copied or made."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset, build_own
from kmip_data.pipelines.raw import obtain as raw
from kmip_data.runtime.presence import MODULES, install_command

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
    assert NEEDY == ["pcqm-contact", "peptides-func", "peptides-struct", "superpixels"]


def test_molecules_without_rdkit(without, tmp_path: Path) -> None:
    without("chem")
    for sample in (True, False):
        with pytest.raises(UsageError, match="rdkit, which is not installed") as caught:
            build_dataset("peptides-func", home=Home(tmp_path), sample=sample, jobs=1, quiet=True)
        assert caught.value.parts["next"] == install_command("chem")
    assert not any(tmp_path.iterdir())


def test_pictures_without_their_packages(monkeypatch, tmp_path: Path) -> None:
    for module in MODULES["images"]:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(UsageError, match=f"{module}, which is not installed") as caught:
                build_own("superpixels", "photos", {"images": tmp_path}, home=Home(tmp_path / "home"))
        assert caught.value.parts["next"] == install_command("images")
    assert not (tmp_path / "home").exists()


def test_a_cluster_without_dask(without, tmp_path: Path) -> None:
    without("distributed")
    file = tmp_path / "scan.npy"
    np.save(file, np.zeros((9, 3)))
    for recipe, source in (("points", {"path": file}), ("city", {"osm_file": file})):
        with pytest.raises(UsageError, match="dask, which is not installed"):
            build_own(recipe, "mine", source, home=Home(tmp_path / "home"), engine="dask")
    assert not (tmp_path / "home").exists()
