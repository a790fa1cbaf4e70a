"""Licenses: always shown, agreed to only before a download, by an option or the environment."""

from __future__ import annotations

import json

import pytest

from kmip_data.builds.home import Home
from kmip_data.errors import LicenseNotAccepted
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.raw.licenses import accepted_licenses, require_accepted_license

VARIABLE = "KMIP_DATA_ACCEPT_LICENSE"
SHAPENET = load_manifest("shapenet-part")


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def expect_license_refusal(home, manifest=SHAPENET, accept=None) -> str:
    with pytest.raises(LicenseNotAccepted) as caught:
        require_accepted_license(manifest, home, accept)
    assert caught.value.exit_code == 5
    return str(caught.value)


def test_the_refusal_has_the_terms_and_the_ways_to_agree(home):
    text, terms = expect_license_refusal(home), SHAPENET.license
    for part in (terms.notice, terms.url, "--accept-license", f"{VARIABLE}=1", "as archive"):
        assert part in text
    require_accepted_license(load_manifest("s3dis"), home)  # which needs none
    assert not home.path.exists()


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_each_way_to_agree_is_recorded_once(home, monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv(VARIABLE, "1")
    require_accepted_license(SHAPENET, home, True if how == "flag" else None)
    record = json.loads((home.path / "licenses.json").read_text())
    assert record["shapenet-part"]["how"] == how
    assert record == accepted_licenses(home)
    monkeypatch.delenv(VARIABLE, raising=False)
    require_accepted_license(SHAPENET, home)
    assert json.loads((home.path / "licenses.json").read_text()) == record
    changed = SHAPENET.license.model_copy(update={"url": "https://example.com/terms-2"})
    expect_license_refusal(home, SHAPENET.model_copy(update={"license": changed}))


def test_any_answer_but_yes_is_a_refusal(home, monkeypatch):
    for value in ("0", "no", ""):
        monkeypatch.setenv(VARIABLE, value)
        expect_license_refusal(home)
    monkeypatch.setenv(VARIABLE, "1")
    expect_license_refusal(home, accept=False)
    assert accepted_licenses(home) == {}
