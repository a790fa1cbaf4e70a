"""Results of finished steps: whole or not there; a shard also needs the digest in its result."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.builds.toy_pipeline import build_toy, built_units, digests, write_raw
from support.cases import flip_bit

from kmip_data.pipelines.engine import resumable_build
from kmip_data.pipelines.engine.unfinished_builds import StepResults


def test_a_truncated_result_is_not_reused(tmp_path: Path) -> None:
    steps = StepResults(tmp_path)
    steps.finish("00000", {"name": "graphs 0", "graphs": 3})
    text = (tmp_path / "00000.json").read_bytes()
    for other in (*(text[:cut] for cut in range(len(text))), b"7", b"[]", b"\xff{]", b"[" * 10**5):
        (tmp_path / "00000.json").write_bytes(other)
        assert steps.finished_result("00000") == {}
    steps.finish("00000", {"graphs": 4})
    assert steps.finished_result("00000") == {"graphs": 4}
    assert [path.name for path in tmp_path.iterdir()] == ["00000.json"]


def test_a_result_beyond_256_mib_is_not_read(tmp_path: Path) -> None:
    steps = StepResults(tmp_path)
    steps.finish("facts", {"graphs": 3})
    with (tmp_path / "facts.json").open("ab") as file:
        file.write(b" " * (2**24 + 1))  # beyond the limit of a run's result
        file.flush()
        assert steps.finished_result("facts") == {"graphs": 3}
        file.truncate(2**28 + 1)
        assert steps.finished_result("facts") == {}


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a build that was interrupted after its last shard."""
    write_raw(tmp_path / "raw", 12)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resumable_build, "finish_build", interrupt)
        with pytest.raises(KeyboardInterrupt):
            build_toy(tmp_path, jobs=1, quiet=True)
    (folder,) = (tmp_path / "built").glob("toy-*")
    return folder


@pytest.mark.parametrize("damage", ["shard", "missing", "result", "another version"])
def test_a_damaged_step_is_repeated(tmp_path: Path, stopped: Path, damage: str) -> None:
    shard = stopped / "shards/00001.h5"
    result = stopped / "work/00001.json"
    before = digests(stopped)["shards/00001.h5"]
    if damage == "shard":
        flip_bit(shard)
    elif damage == "missing":
        shard.unlink()
    elif damage == "result":
        result.write_bytes(result.read_bytes()[:-5])
    else:
        result.write_bytes(result.read_bytes().replace(b'"graphs":', b'"records":'))
    begun = len(built_units(tmp_path))
    build = build_toy(tmp_path, jobs=1, quiet=True)
    assert built_units(tmp_path)[begun:] == [1]
    assert digests(build.path)["shards/00001.h5"] == before
    assert not (stopped / "work").exists()


def test_a_preparation_of_another_version_is_repeated(tmp_path: Path, stopped: Path) -> None:
    before = digests(stopped)["shards/00001.h5"]
    (stopped / "work/prepared.json").write_text('{"facts": {}}')
    build = build_toy(tmp_path, jobs=1, quiet=True)
    assert digests(build.path)["shards/00001.h5"] == before
