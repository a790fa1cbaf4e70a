"""``make real`` against servers on this machine: steps, a dead mirror, other counts, resumed runs."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.attacks.http_server import status
from support.shared import ROOT

import tools.real.__main__ as command
from tools.real import dry, results, steps

NAME = "peptides-struct"


@pytest.fixture
def without_training(monkeypatch) -> None:
    """Leave out the epoch, which imports torch."""
    every = steps.steps_of
    monkeypatch.setattr(steps, "steps_of", lambda *arguments: every(*arguments)[:-1])


def statuses(rows: list[dict]) -> dict[str, str]:
    return {row["step"]: row["status"] for row in rows}


@pytest.mark.usefixtures("without_training")
def test_a_dead_mirror_is_named_and_only_failed_steps_are_repeated(tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with dry.served([NAME], tmp_path / "samples", dead=[NAME]):
        rows = command.run_all([NAME], out, limit=300)
    table = "peptide_structure_normalized_dataset.csv.gz"
    assert statuses(rows)[f"mirror 1 of {table}"] == "ok"
    assert statuses(rows)[f"mirror 2 of {table}"] == "failed"
    assert [statuses(rows)[step] for step in results.STEPS[:-1]] == ["ok"] * 4
    assert "SourceUnavailable" in next(row["note"] for row in rows if row["status"] == "failed")
    text = results.table(rows, dry=True)
    assert text.startswith(results.DRY)
    assert re.search(rf"\| {NAME} \| 2 of 4 \| \d+ s \|", text)

    # The mirrors are back: what passed is not done again.
    before = (out / results.FILE).read_text()
    with dry.served([NAME], tmp_path / "samples") as server:
        rows = command.run_all([NAME], out, limit=300)
        asked = {path for path, _ in server.requests}
    assert set(statuses(rows).values()) == {"ok"}
    assert asked
    assert all(path.startswith(f"/{NAME}/2/") for path in asked)
    added = (out / results.FILE).read_text().removeprefix(before).splitlines()
    assert len(added) == 2
    # Each second mirror sends what the first did, which is said; its copy is gone.
    notes = [row["note"] for row in rows if row["step"].startswith("mirror 2")]
    assert all("the same bytes as in the home" in note for note in notes)
    assert not list((out / "home" / "mirrors").rglob("*.gz"))


@pytest.mark.usefixtures("without_training")
def test_other_counts_than_the_published_ones_fail(tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with dry.served([NAME], tmp_path / "samples", published=True):
        rows = command.run_all([NAME], out, limit=300)
    [row] = [row for row in rows if row["step"] == "counts"]
    assert row["status"] == "failed"
    assert "64 graphs" in row["note"]
    assert "published: 15,535, 150.9404" in row["note"]
    assert statuses(rows)["verify"] == "ok"
    # A line that was cut off is left out, and the last of several counts.
    with (out / results.FILE).open("a") as file:
        file.write('{"dataset": "peptides')
    assert results.read(out)[NAME, "counts"]["status"] == "failed"
    [seconds] = [row["seconds"] for row in rows if row["step"] == "verify"]
    assert f"| failed | {seconds:.0f} s | – |" in results.table(rows, dry=False)


@pytest.mark.usefixtures("without_training")
def test_failed_downloads_are_not_built(tmp_path) -> None:
    with dry.served([NAME], tmp_path / "samples") as server:
        for path in server.routes:
            server.route(path, status(404))
        rows = command.run_all([NAME], tmp_path, limit=300)
    assert [statuses(rows)[step] for step in results.STEPS[:3]] == ["failed", "not run", "not run"]
    assert {row["note"] for row in rows if row["status"] == "not run"} == {"fetch failed"}


def test_steps_that_hang_or_die_are_recorded() -> None:
    hangs = command.in_process(lambda: str(time.sleep(1_000)), 0.5)
    assert (hangs["status"], hangs["note"]) == ("stopped", "after 0 s")
    died = command.in_process(lambda: str(os.kill(os.getpid(), signal.SIGKILL)), 100)
    assert (died["status"], died["note"]) == ("died", "exit status -9")
    failed = command.in_process(lambda: str(1 // 0), 100)
    assert failed["note"].startswith("ZeroDivisionError")


def test_every_dataset_with_sources_has_a_step_per_mirror() -> None:
    from kmip_data.builds.home import Home
    from kmip_data.manifest import dataset_names, load_manifest

    home = Home(Path("nowhere"))
    for name in dataset_names():
        manifest = load_manifest(name)
        mirrors = [
            mirror
            for source in manifest.sources
            for mirror in source.mirrors
            if not source.is_packaged
        ]
        names = [step for step, _ in steps.steps_of(name, home)]
        assert sum(step.startswith("mirror ") for step in names) == len(mirrors)
        assert names[-4:] == list(results.STEPS[1:])
        assert len(set(names)) == len(names)


@pytest.mark.slow
def test_a_dry_run_writes_the_summary(tmp_path) -> None:
    """Runs in this process, whose forks already have PyTorch, which a new process would import again."""
    importlib.import_module("kmip_data.models.training.run.train")
    done = CliRunner().invoke(
        command.main, ["--out", str(tmp_path), NAME], env={"DRY": "1"}, catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(results.DRY)
    assert f"| {NAME} | 4 of 4 |" in done.stdout
    assert len(results.read(tmp_path)) == 9
    assert (tmp_path / "summary.md").read_text().strip() == done.stdout.strip()


def test_the_real_command_starts_from_a_clone() -> None:
    words = [sys.executable, "-m", "tools.real"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "Missing option '--out'" in done.stderr) == (2, True)
