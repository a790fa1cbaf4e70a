"""``doctor``: what this machine has, and what is missing."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import time

import pytest
from support.cli import kmip

from kmip_data.cli import doctor
from kmip_data.models.search import trial


@pytest.mark.parametrize(("broken", "code"), [(True, 1), (False, 0)])
def test_a_broken_backend_is_a_problem_and_a_slow_one_is_not(home, monkeypatch, broken, code):
    monkeypatch.setattr(trial, "failures", lambda _: {("dense", "cpu"): trial.Failure("no result", broken)})
    outcome = kmip("doctor")
    assert (outcome.code, "no result" in outcome.out) == (code, True)


SLOW = "import time; time.sleep(60)"


def test_preparing_and_searching_have_limits_of_their_own(tmp_path, monkeypatch):
    """A search that hangs is broken; imports and compilation that take long are slow."""
    monkeypatch.setattr(trial, "SEARCHING", 0.5)
    programs = {
        SLOW: False,
        "import time; print('ready', flush=True); time.sleep(60)": True,
        "raise SystemExit('wrong')": True,
        "import os; os.kill(os.getpid(), 11)": True,
        "print('ready')": None,
    }
    found = {}
    for program in programs:
        output = tmp_path / "output"
        with output.open("wb") as file:
            process = subprocess.Popen([sys.executable, "-c", program], stdout=file, stderr=file)
        limit = 2 if program == SLOW else 120
        failure = trial._failure(process, time.monotonic() + limit, output)
        found[program] = failure and failure.broken
    assert found == programs


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
    monkeypatch.setattr(trial, "failures", lambda _: {})
    text = kmip("doctor").out
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
    assert "not installed, pip install " in outcome.out


def test_doctor_names_a_home_that_cannot_be_written(home, monkeypatch):
    monkeypatch.setattr(trial, "failures", lambda _: {})
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    outcome = kmip("doctor")
    assert outcome.code == 1
    assert f"{home}" in outcome.err
