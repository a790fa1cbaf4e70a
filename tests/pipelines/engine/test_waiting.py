"""After a wait for the lock the folder may hold another build: that is an error, never the result."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.builds.toy_pipeline import build_toy, raw_folder, toy_pipeline, write_raw
from support.raises import raises

from kmip_data.builds.home import Build
from kmip_data.builds.verify import verify_build
from kmip_data.errors import UsageError
from kmip_data.files.atomic_writes import folder_lock
from kmip_data.format.card import read_card
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.pipelines import added_splits as splits_module
from kmip_data.pipelines import build as build_module
from kmip_data.pipelines.added_splits import ensure_split
from kmip_data.pipelines.engine import encode as encode_module
from kmip_data.pipelines.engine import repair as repair_module
from kmip_data.pipelines.engine.encode import encode_build
from kmip_data.pipelines.engine.repair import repair_build


def _wait_for(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, other: Callable[[Path], object]
) -> None:
    """Make the next lock that ``module`` takes wait while another process does ``other`` to the folder."""

    @contextlib.contextmanager
    def waiting(folder: Path, **options: bool) -> Iterator[None]:
        monkeypatch.setattr(module, "folder_lock", folder_lock)
        other(folder)
        with folder_lock(folder, **options):
            yield

    monkeypatch.setattr(module, "folder_lock", waiting)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    write_raw(tmp_path / "raw", 6)
    return build_toy(tmp_path, jobs=1, quiet=True, output=tmp_path / "here")


def _replace(tmp_path: Path) -> Callable[[Path], object]:
    """Return a function that makes the folder a build of k = 5."""

    def other(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        build_toy(tmp_path, jobs=1, quiet=True, output=folder, parameters={"k": 5})

    return other


def test_a_waiting_build_refuses_a_build_with_other_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_raw(tmp_path / "raw", 6)
    _wait_for(monkeypatch, build_module, _replace(tmp_path))
    with pytest.raises(UsageError) as caught:
        build_toy(tmp_path, jobs=1, quiet=True, output=tmp_path / "there", parameters={"k": 3})
    assert caught.value.found.startswith("build key ")
    again = build_toy(tmp_path, jobs=1, quiet=True, output=tmp_path / "there", parameters={"k": 5})
    assert again.card.parameters["k"] == 5


ADD: dict[ModuleType, Callable[[Build], object]] = {
    splits_module: lambda build: ensure_split(build, {"fold": 3}, quiet=True),
    encode_module: lambda build: encode_build(build, [parse_encoding("rwse3")], jobs=1, quiet=True),
}


@pytest.mark.parametrize("module", ADD, ids=lambda module: module.__name__.rpartition(".")[2])
def test_nothing_is_added_to_the_build_of_another(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    monkeypatch.setattr(splits_module, "pipeline_of_card", lambda _: toy_pipeline())
    _wait_for(monkeypatch, module, _replace(tmp_path))
    with raises(UsageError, naming=build.card.key):
        ADD[module](build)
    assert not (build.path / "columns").exists()
    assert verify_build(build.path).ok
    assert list(read_card(build.path).splits) == ["graph-fold0"]


def test_repair_writes_no_shard_of_a_removed_build(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = build.path / "shards/00001.h5"
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-1])
    raw = raw_folder(tmp_path / "raw")
    monkeypatch.setattr(repair_module, "obtain_raw", lambda *_, **__: raw)
    monkeypatch.setattr(repair_module, "pipeline_of_card", lambda _: toy_pipeline())
    _wait_for(monkeypatch, repair_module, _replace(tmp_path))
    with raises(UsageError, naming=build.card.key):
        repair_build(build.path, quiet=True)
    assert verify_build(build.path).ok
