"""Refusals whose advice is typed as it was printed, from the first command of a user on."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from support.cli import expect_success, kmip
from support.typed_advice import commands_in

TINY = ["--set", "model.parameter_budget=none", "--set", "model.layers=1", "--epochs", "1"]
TINY += ["--set", "model.hidden_dim=8", "--device", "cpu", "-q"]


@pytest.fixture(scope="module")
def trained_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the build ``assay`` of a table, and the run ``assay/gcn/one``."""
    folder = tmp_path_factory.mktemp("trained")
    rows = (f"{'C' * (row % 7 + 1)}{'ON'[row % 2]},{row % 2}\n" for row in range(24))
    (folder / "assay.csv").write_text("smiles,toxic\n" + "".join(rows))
    home = ("--home", folder / "home")
    build = ("build", "graphs", "--name", "assay", "--archive", folder / "assay.csv", "-q")
    expect_success(*build, "--set", "label=toxic", *home)
    expect_success("train", "assay", "--model", "gcn", *TINY, "--name", "one", *home)
    return folder


@pytest.fixture
def user(trained_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the table, whose home has the build and the run."""
    shutil.copytree(trained_home, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    return tmp_path


#: Command -> what is put for the placeholders of its advice.
VALUES = {"NAME": "assay", "PATH": "assay.csv", "FILE": "assay.csv", "BUILD": "assay"}
VALUES |= {"RUN": "assay/gcn/one", "ADDRESS": "shared"}
#: Command of an advice -> words that make it cheap.
CHEAP = {
    "train": TINY,
    "build": ["-q"],
    "explore": ["--no-open", "--output", "page.html", "--force"],
    "sweep": ["--dry-run"],
    "pull": ["--output", "copy"],
}


def type_advice(line: str, *, code: int | None = None) -> list[str]:
    """Type a line, then each command that its output advises; return these commands."""
    outcome = kmip(*shlex.split(line))
    text = outcome.out if outcome.code == 0 else outcome.err.rpartition("next: ")[2]
    if code is not None:
        assert outcome.code == code, outcome.err
    typed = []
    for command in commands_in(text):
        words = [VALUES.get(word, word) for word in shlex.split(command)[1:]]
        more = [] if {"--help", "--resume"} & {*words} else CHEAP.get(words[0], [])
        expect_success(*words, *more)
        typed.append(" ".join(words))
    return typed


@pytest.mark.parametrize(
    ("line", "advised"),
    [
        # Names of something else.
        ("info asay", "info assay"),
        ("info zzzzzz", "list"),
        ("fetch zzzzzz", "list --all"),
        ("evaluate zzzzzz", "runs"),
        ("sweep zzzzzz", "sweep --help"),
        ("explore", "list"),
        ("evaluate assay/gcn/two", "evaluate assay/gcn/one"),
        ("train assay/gcn/one", "train --resume assay/gcn/one"),
        ("preview assay/gcn/one", "explore assay/gcn/one"),
        ("export assay/gcn/one", "evaluate assay/gcn/one"),
        ("preview assay/gcn", "train assay --model gcn"),
        ("preview home", "list"),
        ("train assay --dataset assay", "train assay"),
        # Options and parameters.
        ("train", "train --help"),
        ("build cora --dry-run", "build graphs --archive assay.csv --dry-run"),
        ("build cora --name mine", "info cora"),
        ("build cora --set zzzz=1", "info cora"),
        ("build superpixels --name a --archive a --archive b", "info superpixels"),
        ("build city --name a --archive assay.csv", "info city"),
        ("bench attention --methods zzzz", "bench attention --help"),
        ("build graphs --archive assay.csv", "build graphs --archive assay.csv --name assay-2"),
        ("train assay --set zzzz=1", "info assay --model gps-kmip"),
        ("train assay --set model.attention.zzzz=1", "train assay --set model.attention.k=1"),
        ("train assay --model zzzz", ""),
        ("train assay --preset zzzz/gcn", ""),
        ("train assay --preset cora/zzzz", ""),
        ("train assay --set model.attention.search=zzzz", "doctor"),
        ("report small-cities", "sweep small-cities"),
        ("encode assay zzzz", "encode --help"),
        ("sweep", ""),
        # Results that lead on.
        ("list", "runs"),
        ("list --all", "info assay"),
        ("runs --dataset cora", "runs"),
        ("report", "explore assay/gcn/one"),
        ("push assay shared", "pull shared"),
        ("info assay", ""),
    ],
)
def test_advice_is_typed(user, line, advised):
    typed = type_advice(line)
    if advised:
        assert any(command.startswith(advised) for command in typed), typed
