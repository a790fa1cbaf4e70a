"""Croissant metadata of builds: valid to its own validator, and true of the build."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from support.builds import s3dis_records, s3dis_schema, write_build

from kmip_data.builds.home import Build
from kmip_data.format.build_files import CROISSANT_NAME, build_croissant, write_card
from kmip_data.manifest import dataset_names, load_manifest


def check(found: dict, caplog: pytest.LogCaptureFixture, folder: Path) -> None:
    """Read it by mlcroissant: no error and no warning, neither kept nor logged."""
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    file = folder / "found.json"
    file.write_text(json.dumps(found))
    metadata = mlcroissant.Dataset(file).metadata
    assert not metadata.ctx.issues.errors
    assert not metadata.ctx.issues.warnings
    assert not caplog.records
    assert metadata.ctx.conforms_to.value == "http://mlcommons.org/croissant/1.1"
    assert all((metadata.data_collection, metadata.data_biases, metadata.data_use_cases))
    assert metadata.personal_sensitive_information
    assert len(metadata.distribution) == len(found["distribution"])


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A finished build of two shards and a split."""
    parts = {"train": [0, 1, 2], "test": [3, 8]}
    return write_build(tmp_path / "s3dis-k4", s3dis_records(10), s3dis_schema(4), parts=parts)


def test_a_build_of_every_dataset_is_valid(tmp_path, caplog, build) -> None:
    for name in dataset_names():
        card = build.card.model_copy(update={"dataset": name, "manifest": name, "license": {"name": "MIT"}})
        found = build_croissant(card)
        check(found, caplog, tmp_path)
        assert found["datePublished"] >= (load_manifest(name).published or "2026"), name
        assert "Not stated" not in json.dumps(found), name


@pytest.mark.parametrize("title", ["", 'A "title"\n of two lines \\ é'])
def test_a_saved_build_that_states_nothing_is_valid(title, tmp_path, caplog, build) -> None:
    states = {"manifest": "", "license": {}, "citation": "", "title": title}
    found = build_croissant(build.card.model_copy(update=states))
    check(found, caplog, tmp_path)
    assert found["license"] == found["rai:dataCollection"] == "Not stated."


def test_the_check_sees_what_the_validator_says(tmp_path, caplog, build) -> None:
    found = build_croissant(build.card)
    short = {key: value for key, value in found["@context"].items() if key != "repeated"}
    for worse in ({"version": "one"}, {"datePublished": None}, {"@context": short}):
        caplog.clear()
        with pytest.raises((AssertionError, ValueError)):
            check({**found, **worse}, caplog, tmp_path)


def test_a_sample_is_called_generated(build) -> None:
    found = build_croissant(build.card.model_copy(update={"sample": True}))
    assert found["rai:dataCollection"].startswith("Generated")
    assert "sample" in found["description"]


def test_files_are_those_of_the_build(build) -> None:
    write_card(build.path, build.card)
    found = json.loads((build.path / CROISSANT_NAME).read_text())
    assert found == json.loads(json.dumps(build_croissant(build.card)))
    names = {file["contentUrl"] for file in found["distribution"]}
    assert names == {"shards/00000.h5", "shards/00001.h5", "splits/default.h5"}
    for file in found["distribution"]:
        data = (build.path / file["contentUrl"]).read_bytes()
        assert file["encodingFormat"] == "application/x-hdf5"
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
        assert file.get("contentSize", f"{len(data)} B") == f"{len(data)} B"
