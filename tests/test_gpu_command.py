"""``make gpu`` without a GPU: every section runs, what ends one is recorded, a stopped run goes on."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner
from support.kernels.cuda_emulator import COMPILER
from support.kernels.interpreted import needs_interpreter

from tools.gpu import packing, sections, training
from tools.gpu.__main__ import main
from tools.gpu.page import DRY, page, summary
from tools.gpu.results import FILE, Recorder, append, read


@needs_interpreter
@pytest.mark.skipif(COMPILER is None, reason="no g++: the search cannot be emulated")
@pytest.mark.slow
@pytest.mark.parametrize("only", ["2", pytest.param("", marks=pytest.mark.torture)])
def test_a_dry_run_lists_its_sections(tmp_path, monkeypatch, only) -> None:
    """The first two sections emulate every kernel, as the tests of kernels do.

    The command runs in this process, whose forks already have PyTorch.
    """
    words = ["check", "--dry", "--out", str(tmp_path), "--minutes", "200"]
    words += ["--only", only] if only else []
    monkeypatch.setattr(sys, "path", [*sys.path])
    with mock.patch.dict(os.environ):
        done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = read(tmp_path / FILE)
    assert [row for row in rows if row["status"] not in {"ok", "skipped"}] == []
    ends = [row["what"] for row in rows if row.get("kind") == "section"]
    chosen = sections.SECTIONS[int(only) :] if only else sections.SECTIONS
    assert ends == [section.name for section in chosen]
    figures = [row["what"] for row in rows if row.get("kind") == "figure"]
    if not only:
        assert len(figures) >= 15
        for dataset in ("s3dis, tf32", "london, tf32", "peptides-func, 32"):
            step = f"step of {dataset}"
            assert {step, f"{step}: PyTorch", f"{step}: torch.compile"} <= set(figures)
    assert figures
    assert all(f"| {name} |" in page(rows) for name in figures)
    assert page(rows).startswith(DRY)
    assert done.stdout.startswith(DRY)
    assert (tmp_path / "summary.md").read_text().strip() in done.stdout


def recorded(tmp_path, monkeypatch, function, limit: float) -> str:
    monkeypatch.setattr(sections, "SECTIONS", (sections.Section("a section", "page", 1.0),))
    monkeypatch.setattr(sys.modules["tools.gpu.page"], "run", function, raising=False)
    return sections.process(0, tmp_path, limit, dry=True)


def test_errors_that_end_a_section_are_recorded_with_its_results(tmp_path, monkeypatch) -> None:
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


#: Stands in for training: prints its arguments, notes that it began, and trains for ever at first.
TRAINER = """
import pathlib, sys, time
print(*sys.argv[1:], flush=True)
run = pathlib.Path(sys.argv[-1], "runs/peptides-func/gps-kmip/row")
if run.exists():
    (run / "result.json").write_text("{}")
else:
    (run / "checkpoints").mkdir(parents=True)
    for name in ("config.toml", "checkpoints/last.ckpt", "checkpoints/previous.ckpt"):
        (run / name).write_text(name)
    time.sleep(10_000)
"""


def test_a_row_stopped_by_its_time_limit_resumes_elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(training, "TRAIN", (sys.executable, "-c", TRAINER))
    monkeypatch.setattr(training, "SAVE_SECONDS", 2.0)
    carried = tmp_path / "carried"
    packing.unpack(tmp_path / "machine 1", carried)  # nothing is there yet, so nothing is begun
    built = tmp_path / "home" / "built" / "peptides-func-0"
    built.mkdir(parents=True)
    (built / "card.json").write_text("a build")
    packing.archive(carried / packing.HOME, tmp_path / "home", [built.parent])

    def row(number: int) -> tuple[int, str, Path]:
        home, out = tmp_path / f"machine {number}", tmp_path / f"out {number}"
        packing.unpack(home, carried)
        assert (home / "built/peptides-func-0/card.json").read_text() == "a build"
        status = training.run(out, 10.0, home, ["--limit", "9"])
        return status, (out / "row.log").read_text(), out

    status, log, out = row(1)
    assert status == -signal.SIGTERM
    assert {"--offline", "--limit", "system.checkpoint_every=1"} <= set(log.split())
    assert not (out / "result.json").exists()

    shutil.copy(out / training.ARCHIVE, carried)
    status, log, out = row(2)
    assert status == 0
    assert log.startswith("--resume ")
    assert (out / "result.json").read_text() == "{}"
    run = tmp_path / "machine 2" / "runs/peptides-func/gps-kmip/row"
    assert (run / "checkpoints/last.ckpt").read_text() == "checkpoints/last.ckpt"
    assert not (run / "checkpoints/previous.ckpt").exists()
