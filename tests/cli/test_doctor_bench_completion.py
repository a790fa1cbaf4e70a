"""``doctor``, ``bench``, ``completion``."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess

import pytest
from support.cli import kmip, kmip_process

from kmip_data.cli import benchmarks, doctor
from kmip_data.cli.benchmarks import Row
from kmip_data.cli.main import COMMANDS, COMPLETE


def test_doctor_finds_this_machine_sound(home):
    outcome = kmip("doctor", "--json")
    assert outcome.code == 0, outcome.err
    findings = {(entry["section"], entry["name"]): entry for entry in outcome.json["findings"]}
    assert findings["Packages", "torch"]["detail"] == importlib.metadata.version("torch")
    assert findings["Search backends", "dense (cpu)"]["status"] == "ok"
    assert findings["HDF5", "gzip"]["status"] == "ok"
    assert str(home) in findings["Home", "folder"]["detail"]
    assert all(entry["detail"] for entry in findings.values() if entry["status"] == "no"), "a reason for each"
    text = kmip("doctor").out
    assert all(entry["name"] in text for entry in findings.values())


def test_doctor_names_what_is_missing_or_too_old(home, monkeypatch):
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
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    outcome = kmip("doctor")
    assert outcome.code == 1
    assert f"{home}" in outcome.err


@pytest.fixture
def one_topic(monkeypatch, tmp_path):
    """A topic ``pace`` beside the real ones, found by being there."""
    (tmp_path / "pace.py").write_text(
        "def rows(*, quick=False):\n    from kmip_data.cli import benchmarks\n    return benchmarks.MADE\n"
    )
    monkeypatch.setattr(benchmarks, "__path__", [str(tmp_path)])
    rows = [
        Row(
            what="ours",
            against="theirs",
            ours=0.002,
            theirs=0.01,
            unit="s",
            ratio=5.0,
            spread=(4.5, 5.5),
            target="4×",
            met=True,
        ),
        Row(
            what="slow",
            against="",
            ours=3.0,
            theirs=None,
            unit="s",
            ratio=None,
            target="< 1 s",
            met=False,
            note="a note",
        ),
    ]
    monkeypatch.setattr(benchmarks, "MADE", rows, raising=False)
    yield
    import sys

    sys.modules.pop("kmip_data.cli.benchmarks.pace", None)


def test_bench_table(one_topic):
    outcome = kmip("bench", "all", "--quick")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[1].split() == [
        "ours",
        "theirs",
        "2",
        "ms",
        "10",
        "ms",
        "5.00×",
        "4.50",
        "to",
        "5.50",
        "4×",
        "yes",
    ]
    assert "NO" in lines[2]
    assert "a note" in outcome.out
    assert "quick: not the figures of a full run" in outcome.out


def test_bench_json_and_markdown(one_topic):
    found = kmip("bench", "pace", "--json", "--quiet").json
    assert found["quick"] is False
    assert found["rows"][0]["ratio"] == 5.0
    assert found["rows"][0]["topic"] == "pace"
    assert "cores" in found["machine"]
    text = kmip("bench", "pace", "--markdown").out
    assert (
        "| ours | theirs | 4× | **5.00×** (4.50 to 5.50); 2 ms against 10 ms | `make bench TOPIC=pace` |"
        in text
    )


def test_startup_is_measured():
    from benchmarks import startup

    rows = startup.rows(quick=True)
    assert [row.target for row in rows] == ["< 0.1 s", "< 0.3 s"]
    assert all(row.ours >= 0 for row in rows)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid_shell(shell, tmp_path):
    outcome = kmip("completion", shell)
    assert outcome.code == 0
    assert COMPLETE in outcome.out
    program = shutil.which(shell)
    if program is not None:
        script = tmp_path / "script"
        script.write_text(outcome.out)
        subprocess.run([program, "-n", str(script)], check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kmip-data ", set(COMMANDS)),
        ("kmip-data build s", {"s3dis", "shapenet-part"}),
        ("kmip-data train --dataset sh", {"shapenet-part"}),
        ("kmip-data build s3dis --te", {"--test-area"}),
    ],
)
def test_completions(words, expected):
    outcome = kmip_process(
        **{COMPLETE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    )
    found = {line.partition(",")[2] for line in outcome.out.splitlines()}
    assert expected <= found
