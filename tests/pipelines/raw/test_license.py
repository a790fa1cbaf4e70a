"""Licences: always shown, agreed to only before a download, never a question without a terminal."""

from __future__ import annotations

import io
import json
import sys

import pytest

from kmip_data.builds.home import Home
from kmip_data.errors import LicenseNotAccepted
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.raw.license import accepted_licenses, require_agreement


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("KMIP_DATA_ACCEPT_LICENSE", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    return Home(tmp_path / "home")


@pytest.fixture
def shapenet():
    return load_manifest("shapenet-part")


def at_terminal(monkeypatch, answer: str) -> Terminal:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", Terminal())
    return sys.stderr


def test_off_a_terminal_nobody_is_asked(home, shapenet):
    with pytest.raises(LicenseNotAccepted) as caught:
        require_agreement(shapenet, home)
    assert caught.value.exit_code == 5
    terms = shapenet.license
    for text in (terms.notice, terms.url, "--accept-license", "KMIP_DATA_ACCEPT_LICENSE=1", "--archive PATH"):
        assert text in str(caught.value)
    assert sys.stdin.read() == "y\n"
    assert not home.root.exists()
    require_agreement(load_manifest("s3dis"), home)  # which needs none


@pytest.mark.parametrize("how", ["flag", "environment", "terminal"])
def test_each_way_to_agree_is_recorded_once(home, shapenet, monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv("KMIP_DATA_ACCEPT_LICENSE", "1")
    if how == "terminal":
        screen = at_terminal(monkeypatch, "y\n")
    require_agreement(shapenet, home, True if how == "flag" else None)
    if how == "terminal":
        assert shapenet.license.notice in screen.getvalue()
        assert shapenet.license.url in screen.getvalue()
    record = json.loads((home.root / "licences.json").read_text())
    assert record["shapenet-part"]["how"] == how
    assert record == accepted_licenses(home)
    monkeypatch.delenv("KMIP_DATA_ACCEPT_LICENSE", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    require_agreement(shapenet, home)
    assert json.loads((home.root / "licences.json").read_text()) == record


def test_anything_but_yes_is_no(home, shapenet, monkeypatch):
    for value in ("0", "no", ""):
        monkeypatch.setenv("KMIP_DATA_ACCEPT_LICENSE", value)
        with pytest.raises(LicenseNotAccepted):
            require_agreement(shapenet, home)
    for answer in ("n\n", "\n", "", "later\n"):
        at_terminal(monkeypatch, answer)
        with pytest.raises(LicenseNotAccepted):
            require_agreement(shapenet, home)
    at_terminal(monkeypatch, "y\n")
    monkeypatch.setenv("KMIP_DATA_ACCEPT_LICENSE", "1")
    with pytest.raises(LicenseNotAccepted):
        require_agreement(shapenet, home, accept=False)
    assert accepted_licenses(home) == {}


def test_new_terms_are_asked_about_again(home, shapenet):
    require_agreement(shapenet, home, accept=True)
    changed = shapenet.license.model_copy(update={"url": "https://example.org/terms-2"})
    with pytest.raises(LicenseNotAccepted):
        require_agreement(shapenet.model_copy(update={"license": changed}), home)
