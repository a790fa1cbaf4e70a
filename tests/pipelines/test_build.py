"""Builds by name: reuse, build keys, added splits, and repair of broken files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.builds.toy_pipeline import (
    InProcessPipeline,
    ToyParams,
    ToyPipeline,
    built_units,
    digests,
    raw_folder,
    toy_manifest,
    write_raw,
)
from support.cases import damage_file, flip_bit, read_contents
from support.raises import raises

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.builds.home import Build, Home, list_builds
from kmip_data.builds.verify import verify_build
from kmip_data.errors import CheckFailed, DamagedInput, UsageError
from kmip_data.format.card import read_card
from kmip_data.manifest import load_manifest
from kmip_data.pipelines import base as base_module
from kmip_data.pipelines import build as build_module
from kmip_data.pipelines import find_builds
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.engine import repair as repair_module
from kmip_data.pipelines.engine.plan import BuildPlan, build_key
from kmip_data.pipelines.engine.repair import repair_build
from kmip_data.pipelines.find_builds import find_build


class Toy:
    """The toy dataset as if it were shipped, with its raw files in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder)
        self.pipeline: ToyPipeline = InProcessPipeline(toy_manifest())
        self.raw_calls: list[tuple[Any, ExecutionOptions]] = []
        write_raw(folder / "raw", 20)

    def obtain_raw(
        self, _: Any, params: Any, __: Home, options: ExecutionOptions, *, sample: bool
    ) -> Any:
        self.raw_calls.append((params, options))
        return raw_folder(self.folder / "raw", sample=sample)

    def build(self, **options: Any) -> Build:
        return build_dataset("toy", home=self.home, jobs=1, **options)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """A shipped toy dataset."""
    toy = Toy(tmp_path)
    for module in (build_module, base_module):
        monkeypatch.setattr(module, "load_manifest", lambda name: toy.pipeline.manifest)
        monkeypatch.setattr(module, "load_pipeline", type(toy.pipeline))
    for module in (build_module, repair_module):
        monkeypatch.setattr(module, "obtain_raw", toy.obtain_raw)
    return toy


def test_a_finished_build_is_found_without_raw_files(toy: Toy) -> None:
    first = toy.build()
    assert len(toy.raw_calls) == 1
    again = toy.build()
    assert len(toy.raw_calls) == 1
    assert again.path == first.path
    assert again.card == read_card(first.path)
    toy.build(archives=[Path("given")])  # an archive decides which build is meant
    assert len(toy.raw_calls) == 2
    assert sorted(built_units(toy.folder)) == list(range(7))


def test_other_parameters_use_another_folder(toy: Toy) -> None:
    wanted: dict[str, dict[str, Any]] = {
        "toy-k2": {},
        "toy-k3": {"parameters": {"k": 3}},
        "toy-k2-limit4": {"parameters": {"limit": 4}},
        "toy-sample-k2-limit4": {"sample": True, "parameters": {"limit": 4}},
    }
    paths = {name: toy.build(**options).path for name, options in wanted.items()}
    assert [path.name.rsplit("-", 1)[0] for path in paths.values()] == list(wanted)
    colored = toy.build(parameters={"colors": ["red"]}).path
    assert colored not in paths.values()
    assert toy.build(parameters={"colors": ("red",)}).path == colored
    calls = len(toy.raw_calls)
    assert {name: toy.build(**options).path for name, options in wanted.items()} == paths
    assert len(toy.raw_calls) == calls


def test_the_key_follows_content_not_container(toy: Toy) -> None:
    params, raw, moved = ToyParams(), raw_folder(toy.folder / "raw"), toy.folder / "elsewhere"
    key = build_key(toy.pipeline, params, raw)
    write_raw(moved, 20)
    assert build_key(toy.pipeline, params, raw_folder(moved)) == key
    write_raw(moved, 21)
    others = {
        key,
        build_key(toy.pipeline, params, raw_folder(moved)),
        build_key(toy.pipeline, params, raw_folder(toy.folder / "raw", sample=True)),
        build_key(toy.pipeline, ToyParams(k=3), raw),
    }
    assert len(others) == 4
    plan = BuildPlan(toy.pipeline, params, raw, Home(toy.folder), ExecutionOptions())
    assert (plan.key, plan.folder.name) == (key, f"toy-k2-{key}")
    assert len(key) == 12


#: Keys of builds that users have, with the defaults, of no files.
KEYS = """
cifar10 77cfd0dfd70b, city 52b1c4ad3766, graphs 1c177dcda3bc, la 0b8be31d39c1,
long-range 624af9d58b57, malnet-tiny 2dd3518180b0, ogbn-arxiv 06ee649b549a, points 6ad28c927d7b,
s3dis ef5c912f415a, superpixels 3cc3d715e801, zinc f440afd4d831
"""


def test_keys_of_existing_builds_stay() -> None:
    for line in KEYS.split(","):
        name, key = line.split()
        pipeline = base_module.load_pipeline(load_manifest(name))
        assert build_key(pipeline, pipeline.Params(), RawCopy(Path(), {}, ())) == key, name


def test_a_parameter_added_later_keeps_builds(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(ToyParams):
        added_later = frozenset({"shade"})
        shade: bool = False

    old = toy.build()
    monkeypatch.setattr(ToyPipeline, "Params", Later)
    monkeypatch.setattr(find_builds, "dataset_names", lambda: {"toy"})
    monkeypatch.setattr(find_builds, "load_manifest", base_module.load_manifest)
    assert find_build("toy", home=toy.home).path == old.path
    for shade in (True, False):
        build = toy.build(parameters={"shade": shade})
        assert (build.path == old.path, build.card == old.card) == (not shade, not shade)
    assert toy.build(output=old.path).path == old.path
    shutil.rmtree(old.path)
    assert toy.build().card == old.card


def test_wrong_parameters_are_named_all_at_once(toy: Toy) -> None:
    with raises(UsageError, naming=["'per_unit'", "k = 0"]):
        toy.build(parameters={"per_units": 3, "k": 0})
    with raises(UsageError, naming="fold = 'x'"):
        toy.build(split_parameters={"fold": "x"})
    assert toy.raw_calls == []


def test_output_is_the_build_folder(toy: Toy, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "mine"
    build = toy.build(output=place)
    assert build.path == place
    assert digests(place) == digests(toy.build().path)
    assert toy.build(output=place).path == place
    with raises(UsageError, naming="'k': 3"):
        toy.build(output=place, parameters={"k": 3})
    write_raw(toy.folder / "raw", 8)
    with raises(UsageError, naming=build.card.key):
        toy.build(output=place, archives=[Path("another")])


def test_a_rule_that_reads_raw_files_gets_them(toy: Toy) -> None:
    first = toy.build()
    build = toy.build(split_parameters={"from_raw": True}, offline=True)
    assert build.path == first.path
    assert set(build.card.splits) == {"graph-fold0", "graph-fold0-raw"}
    assert len(toy.raw_calls) == 2
    assert toy.raw_calls[-1][1].offline
    assert sorted(built_units(toy.folder)) == list(range(7))  # no shard was built again
    assert verify_build(build.path).ok
    write_raw(toy.folder / "raw", 21)
    with raises(UsageError, naming=[build.path, toy.folder / "raw"]):
        toy.build(split_parameters={"from_raw": True, "fold": 1})


def test_work_left_by_a_crash_is_removed_and_a_damaged_card_refused(toy: Toy) -> None:
    build = toy.build()
    before = digests(build.path)
    (build.path / "work").mkdir()
    (build.path / "work/units.json").write_text(
        json.dumps({"files": [f"shards/{n:05}.h5" for n in range(7)]})
    )
    assert toy.build().path == build.path
    assert digests(build.path) == before
    card = build.path / "card.json"
    card.write_text("{")
    # It had the default split: with another one asked for, other records would be read in silence.
    with raises(DamagedInput, naming=card):
        toy.build(split_parameters={"fold": 1})
    card.rename(toy.folder / "moved.json")
    assert toy.build().path == build.path
    assert digests(build.path) == before


def test_a_repair_that_was_stopped_resumes(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    build = toy.build()
    before, begun = digests(build.path), len(built_units(toy.folder))
    flip_bit(build.path / "shards/00001.h5")
    (build.path / "splits/graph-fold0.h5").unlink()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kmip_data.pipelines.engine.resumable_build.finish_build", stop)
        with pytest.raises(KeyboardInterrupt):
            repair_build(build.path, home=toy.home)
    count = len(build.card.shards)
    assert len(built_units(toy.folder)) - begun == count
    assert read_card(build.path).digest == build.card.digest, "it is there until the new one is"
    assert repair_build(build.path, home=toy.home) == ["splits/graph-fold0.h5"]
    assert len(built_units(toy.folder)) - begun == count, "no shard is built twice"
    assert digests(build.path) == before


def test_repair_refuses_other_raw_files_and_an_unreadable_card(toy: Toy) -> None:
    build = toy.build()
    flip_bit(build.path / "shards/00000.h5")
    broken = digests(build.path)
    write_raw(toy.folder / "raw", 21)
    with raises(CheckFailed, naming=[build.path, toy.folder / "raw"]):
        repair_build(build.path, home=toy.home)
    assert digests(build.path) == broken
    (build.path / "card.json").write_text("{")
    with raises(DamagedInput, naming="card.json"):
        repair_build(build.path, home=toy.home)


def _make_newer(build: Build) -> dict[str, str]:
    """Give the build a card as a later version could write it; return its digests."""
    card = json.loads((build.path / "card.json").read_text())
    (build.path / "card.json").write_text(json.dumps({**card, "version": 4, "unheard_of": True}))
    return digests(build.path)


def test_a_build_of_a_newer_version_is_left_alone(toy: Toy) -> None:
    build = toy.build()
    newer = _make_newer(build)
    for attempt in (
        toy.build,
        lambda: toy.build(archives=[Path("given")]),
        lambda: toy.build(output=build.path),
        lambda: repair_build(build.path, home=toy.home),
        lambda: verify_build(build.path),
        lambda: read_card(build.path),
    ):
        with raises(UsageError, naming=4):
            attempt()
        assert digests(build.path) == newer
    assert list_builds(toy.home) == []
    with raises(UsageError, naming=4):
        find_build("toy", home=toy.home)
    assert toy.build(parameters={"k": 3}).card.parameters["k"] == 3
    assert digests(build.path) == newer


def test_repair_of_a_card_with_impossible_parameters_says_so(toy: Toy) -> None:
    build = toy.build()
    card = read_card(build.path)
    card.parameters["k"] = 0
    (build.path / "card.json").write_text(card.to_json())
    flip_bit(build.path / "shards/00001.h5")
    broken = digests(build.path)
    with raises(DamagedInput, naming="k = 0"):
        repair_build(build.path, home=toy.home)
    # What follows from the card alone is written again: it fits the card.
    derived = {"README.md", "croissant.json"}
    left = digests(build.path)
    assert {name for name in left | broken if left.get(name) != broken.get(name)} <= derived


#: Files of the user in a build.
STRAYS = ["shards/00007.h5", "shards/mine.txt", "splits/mine.h5", "columns/mine/card.json"]
STRAYS += ["shards/00000.h5.partial"]


def test_repair_leaves_other_files(toy: Toy, tmp_path: Path, subtests: pytest.Subtests) -> None:
    build = toy.build()
    for broken in (False, True):
        for name in STRAYS:
            with subtests.test(f"{name}, {'a broken build' if broken else 'a sound one'}"):
                folder = tmp_path / f"{name.replace('/', '-')}-{broken}"
                shutil.copytree(build.path, folder)
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(b"a file of the user")
                before = read_contents(folder)
                if broken:
                    damage_file(folder / "shards/00000.h5", before["shards/00000.h5"], "cut")
                repair_build(folder, home=toy.home, quiet=True)
                assert read_contents(folder) == before
                assert verify_build(folder).ok
                if name.startswith("shards"):
                    assert any(note.startswith(name) for note in verify_build(folder).notes)
