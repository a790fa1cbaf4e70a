"""Commands on a build with a damaged shard."""

from __future__ import annotations

from pathlib import Path

from support.cli import kmip


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
