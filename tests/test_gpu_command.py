"""``make gpu`` without a GPU: every section runs, what ends one is recorded, each figure is a row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from support.kernels.cuda_emulator import COMPILER
from support.kernels.interpreted import needs_interpreter
from support.shared import ROOT

import tools.gpu.__main__ as command
from tools.gpu.page import DRY, page, summary
from tools.gpu.results import FILE, Recorder, append, read


@needs_interpreter
@pytest.mark.skipif(COMPILER is None, reason="no g++: the search cannot be emulated")
@pytest.mark.slow
def test_a_dry_run_of_all_sections(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.gpu", "--out", str(tmp_path), "--minutes", "200"],
        cwd=ROOT, env={**os.environ, "DRY": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = read(tmp_path / FILE)
    assert [row for row in rows if row["status"] not in {"ok", "skipped"}] == []
    ends = [row["what"] for row in rows if row.get("kind") == "section"]
    assert ends == [section.name for section in command.SECTIONS]
    figures = [row["what"] for row in rows if row.get("kind") == "figure"]
    assert len(figures) >= 15
    assert {"step of s3dis, tf32", "step of london, tf32"} <= set(figures)
    assert all(f"| {name} |" in page(rows) for name in figures)
    assert page(rows).startswith(DRY)
    assert done.stdout.startswith(DRY)
    assert (tmp_path / "summary.md").read_text().strip() in done.stdout


def recorded(tmp_path, monkeypatch, function, limit: float) -> str:
    monkeypatch.setattr(command, "SECTIONS", (command.Section("a section", "page", "it", 1.0),))
    monkeypatch.setattr(sys.modules["tools.gpu.page"], "it", function, raising=False)
    return command._run(0, tmp_path, limit, dry=True)


def test_what_ends_a_section_is_recorded_with_what_it_found(tmp_path, monkeypatch) -> None:
    def hangs(record: Recorder) -> None:
        record("before", 1.0, "ms")
        time.sleep(10_000)

    def dies(_: Recorder) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fails(record: Recorder) -> None:
        with record.attempt("one of many"):
            raise ValueError("a reason\nmore")
        record("after", 3, "errors", target=0, kind="figure")
        raise RuntimeError("all of it")

    assert recorded(tmp_path, monkeypatch, hangs, 3.0) == "stopped after 3 s"
    assert recorded(tmp_path, monkeypatch, dies, 100.0) == "died: SIGKILL"
    assert recorded(tmp_path, monkeypatch, fails, 100.0) == "failed: see log.txt"
    with (tmp_path / FILE).open("a") as file:
        file.write('{"section": 0, "what": "cut o\n')
    rows = read(tmp_path / FILE)
    assert [row["what"] for row in rows] == ["before", "one of many", "after"]
    assert rows[1]["note"] == "ValueError: a reason"
    assert rows[2]["met"] is False
    assert "RuntimeError: all of it" in (tmp_path / "log.txt").read_text()
    ended = {"section": 0, "kind": "section", "what": "a section", "status": "ok"}
    append(tmp_path, {**ended, "value": 2.0, "unit": "s"})
    text = summary(read(tmp_path / FILE))
    assert "| 0 | a section | ok: 1 good, 2 not, 2.0 s |" in text
    assert "| | after | 3 errors, missed |" in text
