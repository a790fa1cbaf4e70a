"""The page for coding agents says of JSON, exit codes and links what is true."""

from __future__ import annotations

import re
import shlex

import pytest
from support.cli import kmip
from support.shared import ROOT

from kmip_data.models.training import self_check

DOCS = ROOT / "docs"
PAGE = (DOCS / "agents.md").read_text("utf-8")
ROWS = re.findall(r"^\| \*\*`(.+)`\*\* \| ([^;\n]+?)(?:;.*)? \|$", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_documented_keys_equal_the_keys_of_json_output(home, monkeypatch):
    monkeypatch.chdir(home.parent)
    monkeypatch.setattr(
        self_check, "check_gpu_features", lambda *_: {}
    )  # tests of doctor try each search
    assert len(ROWS) == 16
    for command, keys in ROWS:
        outcome = kmip(*shlex.split(command), "--json")
        assert outcome.code in ({0, 1} if command == "doctor" else {0}), outcome.out + outcome.err
        assert set(outcome.json) == {"steps", *re.findall(r"`(\w+)`", keys)}, command
