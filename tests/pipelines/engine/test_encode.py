"""Columns added to a build: same bytes with any number of workers, resumed, verified, repaired, joined."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.attacks import crash_points
from support.attacks.crash_points import Fault
from support.builds.toy_pipeline import build_toy, digests, write_raw
from support.builds.written import numbered_build
from support.cases import flip_bit
from support.cli import python
from support.raises import raises

from kmip_data.builds.home import Build, added_column_names
from kmip_data.builds.verify import verify_build
from kmip_data.errors import Command, DamagedInput, UsageError
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.graphs.encodings.edge_rwse import edge_walk_encoding
from kmip_data.pipelines.engine import encode
from kmip_data.pipelines.engine.encode import encode_build
from kmip_data.pipelines.engine.repair import repair_build
from kmip_data.pipelines.engine.unfinished_builds import UNITS_STEP
from kmip_data.reading.dataset import ShardedDataset

NAMES = ("rwse5", "lappe4", "degree-profile-2.0", "edge-rwse3")
ENCODINGS = [parse_encoding(name) for name in NAMES]


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("encoded")
    write_raw(folder / "raw", 20)
    build = build_toy(folder, jobs=1, quiet=True)
    encode_build(build, ENCODINGS, jobs=1, quiet=True)
    return build


@pytest.fixture
def copy(encoded: Build, tmp_path: Path) -> Build:
    """A build of its own, to be broken."""
    folder = tmp_path / encoded.path.name
    shutil.copytree(encoded.path, folder)
    for path in folder.rglob("*.h5"):
        path.chmod(0o644)
    return Build(folder, encoded.card)


def test_names_select_attributes_and_join_columns(encoded: Build) -> None:
    assert set(ShardedDataset(encoded)[0].keys()) == {"x", "y", "edge_index"}
    assert set(ShardedDataset(encoded, columns=["x", "rwse5"])[0].keys()) == {"x", "rwse"}
    assert "rwse" in ShardedDataset(encoded, columns="rwse5")[0]
    graph = ShardedDataset(encoded, columns=["x", "edge_index", "edge-rwse3"])[1]
    walks = edge_walk_encoding(graph.edge_index.numpy(), len(graph.x), 3)
    np.testing.assert_array_equal(graph.edge_rwse.numpy(), walks)
    with pytest.raises(UsageError) as error:
        ShardedDataset(encoded, columns=["rwse9"])
    assert "rwse5" in error.value.expected.split(", ")
    assert error.value.steps == [Command("kmip-data", "encode", encoded.path, "rwse9")]
    with raises(UsageError, naming="xx") as error:
        ShardedDataset(encoded, columns=["xx"])
    assert "rwse5" in error.value.expected.split(", ")


@pytest.mark.slow
@pytest.mark.real_workers
def test_bytes_do_not_depend_on_the_number_of_workers(copy: Build) -> None:
    before = digests(copy.path)
    shutil.rmtree(copy.path / "columns")
    cards = encode_build(copy, ENCODINGS, jobs=2, quiet=True)
    assert digests(copy.path) == before
    assert [card.name for card in cards] == list(NAMES)
    assert cards == encode_build(copy, ENCODINGS, jobs=1, quiet=True)


def test_an_interrupted_encoding_resumes(copy: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digests(copy.path)
    shutil.rmtree(copy.path / "columns")
    done: list[int] = []
    finish = encode.StepResults.finish

    def interrupt(steps: Any, step: str, result: Any) -> None:
        finish(steps, step, result)
        if step != UNITS_STEP:
            done.append(1)
        if len(done) == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encode.StepResults, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            encode_build(copy, ENCODINGS, jobs=1, quiet=True)
    assert added_column_names(copy.path) == []
    assert verify_build(copy.path).ok  # what is unfinished has no card and disturbs nobody
    kept = {path: path.stat().st_mtime_ns for path in copy.path.glob("columns/*/*.h5")}
    assert len(kept) >= 4
    encode_build(copy, ENCODINGS, jobs=1, quiet=True)
    assert len([path for path in kept if path.stat().st_mtime_ns == kept[path]]) == 4
    assert digests(copy.path) == before


@pytest.mark.real_workers
def test_a_worker_that_dies_while_writing_leaves_no_file(copy: Build, tmp_path: Path) -> None:
    """As if the system killed it, or another worker found the disk full."""
    (copy.path / "columns/rwse5/card.json").unlink()
    fault = Fault(str(copy.path), "worker", "fsync", 1, within="/columns/rwse5")
    variables = crash_points.environment(tmp_path / "bootstrap", fault)
    python("-m", "kmip_data", "encode", copy.path, "rwse5", "--jobs", 1, code=6, **variables)
    assert not list(copy.path.rglob("*.partial"))
    encode_build(copy, ENCODINGS, jobs=1, quiet=True)
    assert verify_build(copy.path).ok


def test_verify_finds_and_repair_computes_columns_that_are_broken(copy: Build) -> None:
    before = digests(copy.path)
    assert verify_build(copy.path).checked["columns"] == len(NAMES)
    flip_bit(copy.path / "columns/rwse5/00001.h5")
    (copy.path / "columns/lappe4/00003.h5").unlink()
    (copy.path / "columns/lappe4/00099.h5").write_bytes(b"stray")
    files = {problem.file for problem in verify_build(copy.path).problems}
    assert files == {"columns/rwse5/00001.h5", "columns/lappe4/00003.h5"}
    before["columns/lappe4/00099.h5"] = digests(copy.path)["columns/lappe4/00099.h5"]
    kept = copy.path / "columns/degree-profile-2.0/00000.h5"
    untouched = kept.stat()
    written = repair_build(copy.path, jobs=1, quiet=True)  # without any raw files
    assert sorted(written) == ["columns/lappe4/00003.h5", "columns/rwse5/00001.h5"]
    assert verify_build(copy.path).ok
    assert kept.stat() == untouched, "a sound column stays"
    assert digests(copy.path) == before


def test_files_of_the_user_among_columns_stay(copy: Build) -> None:
    names = ("mine.txt", "rwse5/mine.partial", "rwse5/mine.h5")
    for name in names:
        (copy.path / "columns" / name).parent.mkdir(exist_ok=True)
        (copy.path / "columns" / name).write_text("mine")
    (copy.path / "columns/rwse5/card.json").unlink()
    encode_build(copy, ENCODINGS, jobs=1, quiet=True)
    assert {(copy.path / "columns" / name).read_text() for name in names} == {"mine"}
    assert not (copy.path / "columns/work").exists()


def test_a_column_of_another_build_is_not_joined(copy: Build, tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", 20, nodes=9)
    other = build_toy(tmp_path, jobs=1, quiet=True)
    shutil.copytree(copy.path / "columns/rwse5", other.path / "columns/rwse5")
    with pytest.raises(DamagedInput) as caught:
        ShardedDataset(other, columns=["rwse5"])
    assert caught.value.found == f"rwse5 of build {copy.card.key}"
    assert not verify_build(other.path).ok
    encode_build(other, [parse_encoding("rwse5")], jobs=1, quiet=True)  # takes its place
    assert verify_build(other.path).ok
    assert ShardedDataset(other, columns=["rwse5"])[0].rwse.shape == (9, 5)


def test_a_build_without_edges_can_be_encoded(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        encode_build(numbered_build(tmp_path / "numbers", 3), ENCODINGS, jobs=1)
