"""``doctor``: what this machine has, and what is missing."""

from __future__ import annotations

import importlib.metadata

import pytest
from support.cli import kmip

from kmip_data.cli import doctor
from kmip_data.models.search import trial


@pytest.mark.slow
def test_doctor_finds_this_machine_sound(home, monkeypatch):
    outcome = kmip("doctor", "--json")
    assert outcome.code == 0, outcome.err
    findings = {(entry["section"], entry["name"]): entry for entry in outcome.json["findings"]}
    assert findings["Packages", "torch"]["detail"] == importlib.metadata.version("torch")
    assert findings["Search backends", "dense (cpu)"]["status"] == "ok"
    assert findings["HDF5", "gzip"]["status"] == "ok"
    assert str(home) in findings["Home", "folder"]["detail"]
    assert all(entry["detail"] for entry in findings.values() if entry["status"] == "no"), "a reason for each"
    monkeypatch.setattr(trial, "failures", lambda _: {("dense", "cpu"): "its process died"})
    text = kmip("doctor").out
    assert "its process died" in text
    assert all(entry["name"] in text for entry in findings.values())


def test_doctor_names_what_is_missing_or_too_old(home, monkeypatch):
    monkeypatch.setattr(trial, "failures", lambda _: {})
    needed = ["torch>=99.0", "numpy>=1.0", "no-such-package>=1.2", 'no-chem>=3; extra == "chem"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: needed)
    outcome = kmip("doctor")
    assert outcome.code == 1
    assert "torch" in outcome.err
    assert "at least 99.0 is needed" in outcome.err
    assert "no-such-package" in outcome.err
    assert "numpy" not in outcome.err
    assert "no-chem" not in outcome.err
    assert "not installed, pip install 'kmip-data[chem]'" in outcome.out


def test_doctor_names_a_home_that_cannot_be_written(home, monkeypatch):
    monkeypatch.setattr(trial, "failures", lambda _: {})
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    outcome = kmip("doctor")
    assert outcome.code == 1
    assert f"{home}" in outcome.err
