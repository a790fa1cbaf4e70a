"""Completion by click: scripts for each shell, and what they complete."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from support.cli import kmip_process

from kmip_data.cli.main import COMMANDS, COMPLETE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid_shell(shell, tmp_path):
    outcome = kmip_process(**{COMPLETE: f"{shell}_source"})
    assert outcome.code == 0
    assert COMPLETE in outcome.out
    program = shutil.which(shell)
    if program is not None:
        script = tmp_path / "script"
        script.write_text(outcome.out)
        subprocess.run([program, "-n", str(script)], check=True)


def test_completions():
    cases = {
        "kmip-data ": set(COMMANDS),
        "kmip-data build s": {"s3dis", "shapenet-part"},
        "kmip-data train --dataset sh": {"shapenet-part"},
        "kmip-data build s3dis --te": {"--test-area"},
    }
    for words, expected in cases.items():
        place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        outcome = kmip_process(**{COMPLETE: "bash_complete"}, **place)
        assert expected <= {line.partition(",")[2] for line in outcome.out.splitlines()}, words


def test_what_may_be_removed_is_completed(home):
    (home / "raw/s3dis").mkdir(parents=True)
    words = {"COMP_WORDS": f"kmip-data remove --home {home} r", "COMP_CWORD": "4"}
    assert kmip_process(**{COMPLETE: "bash_complete"}, **words).out == "plain,raw/s3dis\n"
