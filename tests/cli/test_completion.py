"""Completion by click: scripts for each shell, and what they complete."""

from __future__ import annotations

import shutil
import subprocess

from support.cases import check_each

from kmip_data.cli.main import COMMANDS, COMPLETE, run


def test_completion_scripts_are_valid_shell(tmp_path, monkeypatch, capfd):
    def check(shell):
        monkeypatch.setenv(COMPLETE, f"{shell}_source")
        script = tmp_path / shell
        assert run([]) == 0
        script.write_text(capfd.readouterr().out)
        assert COMPLETE in script.read_text()
        if program := shutil.which(shell):
            subprocess.run([program, "-n", str(script)], check=True)

    check_each(check, ["bash", "zsh", "fish"])


def test_commands_names_options_and_folders_are_completed(home, monkeypatch, capfd):
    (home / "raw/s3dis").mkdir(parents=True)
    cases = {
        "kmip-data ": set(COMMANDS),
        "kmip-data build s": {"s3dis", "shapenet-part"},
        "kmip-data train --dataset sh": {"shapenet-part"},
        "kmip-data build s3dis --te": {"--test-area"},
        "kmip-data remove r": {"raw/s3dis"},
    }
    monkeypatch.setenv(COMPLETE, "bash_complete")

    def check(words):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        assert run([]) == 0
        assert cases[words] <= {line.partition(",")[2] for line in capfd.readouterr().out.splitlines()}

    check_each(check, cases)
