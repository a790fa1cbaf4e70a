"""Type the commands that an output advises, with values for their placeholders."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.cli import expect_success, kmip
from support.typed_advice import commands_in

from kmip_data.errors import Step

#: Options that make a training cheap.
TINY = ["--set", "model.parameter_budget=none", "--set", "model.layers=1", "--epochs", "1"]
TINY += ["--set", "model.hidden_dim=8", "--device", "cpu", "-q"]

#: Command -> what is put for the placeholders of its advice.
VALUES = {"NAME": "assay", "PATH": "assay.csv", "FILE": "assay.csv", "BUILD": "assay"}
VALUES |= {"RUN": "assay/gcn/one", "ADDRESS": "shared", "FOLDER": "./moved"}
#: Command of an advice -> words that make it cheap.
CHEAP = {
    "train": TINY,
    "build": ["-q"],
    "explore": ["--no-open", "--output", "page.html", "--force"],
    "sweep": ["--dry-run"],
    "pull": ["--output", "copy"],
}


#: Published datasets that are advised without a source: their samples need no network, and are small.
SAMPLED = {"cora", "long-range", "paris", "s3dis"}


def write_assay(folder: Path) -> None:
    """Write ``assay.csv``: 24 molecules of two classes."""
    rows = (f"{'C' * (row % 7 + 1)}{'ON'[row % 2]},{row % 2}\n" for row in range(24))
    (folder / "assay.csv").write_text("smiles,toxic\n" + "".join(rows))


def work_in_copy(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy a folder with a ``home`` to ``tmp_path``, and make both the user's own."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))


def type_advice(line: str, *, code: int | None = None) -> list[str]:
    """Type a line, then each command that its output advises; return these commands."""
    outcome = kmip(*shlex.split(line))
    if code is not None:
        assert outcome.code == code, outcome.err
    return type_commands(outcome.out + outcome.err if outcome.code == 0 else outcome.err)


def type_commands(advised: str | Iterable[Step], **values: str) -> list[str]:
    """Type each command of a text or of steps, with values for placeholders; return these commands."""
    known = VALUES | values
    typed = []
    for command in commands_in(advised):
        words = [
            re.sub(r"[A-Z]{3,}", lambda match: known.get(match[0], match[0]), word)
            for word in shlex.split(command)[1:]
        ]
        is_sampled = words[0] in {"build", "train"} and not SAMPLED.isdisjoint(words)
        if is_sampled and "--sample" not in words:
            words.append("--sample")
        more = [] if {"--help", "--resume"} & {*words} else CHEAP.get(words[0], [])
        if "long-range" in words:
            more = [*more, "--limit", "12"]  # its sample is the dataset itself
        expect_success(*words, *more)
        typed.append(" ".join(words))
    return typed
