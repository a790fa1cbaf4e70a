"""Commands on a build with a damaged shard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import expect_refusal, expect_success

from kmip_data.files.small_files import sealed_json


@pytest.mark.parametrize(
    ("fact", "code"),
    [
        ({"columns": "a text"}, 4),
        ({"columns": {"columns": "a text"}}, 1),
        ({"columns": {"columns": [{"column": "y", "level": "node", "use": "nothing"}]}}, 1),
        ({"parameters": "a text"}, 4),
        (None, 4),
    ],
)
def test_a_sealed_card_with_other_facts_than_this_version_writes_is_damaged(
    home, tmp_path, fact, code
):
    """``verify`` finds what ``info`` cannot read; it reads the card itself first."""
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    words = ("--name", "mine", "--archive", tmp_path / "edges.csv", "--json")
    folder = Path(expect_success("build", "graphs", *words).json["path"])
    content = json.loads((folder / "card.json").read_text())
    content["statistics"]["files"] = fact
    (folder / "card.json").write_text(sealed_json(content))
    expect_refusal("info", folder, code=4)
    expect_refusal("verify", folder, code=code)
