"""Commands on a build with a damaged shard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import expect_refusal, expect_success, kmip

from kmip_data.files.small_files import sealed_json


def test_damaged_build_is_neither_pushed_exported_previewed_nor_trained(home, tmp_path):
    """One flipped bit of a shard: push, export, preview and training refuse, a repair mends it."""
    built = kmip("build", "malnet-tiny", "--sample", "--limit", 20, "--quiet", "--json")
    folder = Path(built.json["path"])
    shard = folder / "shards/00000.h5"
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(damaged)

    for command in (
        ("push", folder, tmp_path / "pushed"),
        ("export", folder, "--output", tmp_path / "exported"),
        ("preview", folder, "--output", tmp_path / "preview.png"),
        ("train", folder, "--epochs", 1, "--set", "model.layers=1"),
    ):
        refused = kmip(*command)
        assert refused.code == 4, refused.err
        assert "shards/00000.h5" in refused.err
        assert "--repair" in refused.err
    assert not any(tmp_path.glob("pushed/**/*.h5"))

    assert kmip("verify", folder, "--repair").code == 0
    assert kmip("push", folder, tmp_path / "pushed", "--quiet").code == 0


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
