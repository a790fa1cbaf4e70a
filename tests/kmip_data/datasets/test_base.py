"""Signatures of the dataset classes: each argument, declared once, with its default."""

import inspect
from dataclasses import fields

from support.raises import raises

import kmip_data
from kmip_data import manifest
from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.build import build_dataset, build_own
from kmip_data.pipelines.find_builds import find_build, find_or_build

OPTIONS = [field.name for field in fields(ExecutionOptions)]
CLASSES = sorted(
    {load_manifest(name).dataset_class for name in dataset_names()} & set(kmip_data.__all__)
)


def test_the_signature_names_every_argument_with_its_default():
    assert list(BuildArguments.__annotations__) == OPTIONS
    for name in CLASSES:
        parameters = inspect.signature(getattr(kmip_data, name)).parameters
        shared = {"root", "home", "transform", "columns", "build", "sample", "limit"}
        assert shared | {"split_rule", "split_seed", *OPTIONS} <= set(parameters), name
        assert all(entry.kind is not entry.VAR_KEYWORD for entry in parameters.values())
        assert (
            parameters["build"].default,
            parameters["sample"].default,
            parameters["limit"].default,
        ) == (
            True,
            False,
            None,
        )
        assert ("split" in parameters) == getattr(kmip_data, name).has_parts


def test_an_unknown_part_is_refused_before_building(tmp_path):
    with raises(UsageError, naming="trains"):
        kmip_data.S3DIS(split="trains", sample=True, root=tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_part_passed_as_root_is_refused_unless_it_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in ("train", "valid", "trainval"):
        with raises(UsageError, naming=part):
            kmip_data.S3DIS(part, build=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "train").mkdir()
    with raises(UsageError, naming=tmp_path / "train/built"):
        kmip_data.S3DIS("train", build=False)


def test_root_and_home_name_the_same_folder(tmp_path):
    arguments = {"sample": True, "limit": 2, "quiet": True}
    by_root = kmip_data.S3DIS(root=tmp_path, **arguments)
    by_home = kmip_data.S3DIS(home=Home(tmp_path), build=False, **arguments)
    assert by_home.build.path == by_root.build.path
    assert find_build("s3dis", {"limit": 2}, root=tmp_path, sample=True).path == by_root.build.path
    opened = kmip_data.open("s3dis", root=tmp_path, sample=True, limit=2)
    assert opened.build.path == by_root.build.path

    calls = {
        kmip_data.open: "s3dis",
        find_build: "s3dis",
        find_or_build: "s3dis",
        build_dataset: "s3dis",
        kmip_data.CityNetwork: "rome",
        kmip_data.GeomGCN: "texas",
    }
    for call, name in calls.items():
        with raises(UsageError, naming="home"):
            call(name, root=tmp_path, home=tmp_path)
    with raises(UsageError, naming="home"):
        build_own("points", "mine", {"path": tmp_path}, root=tmp_path, home=tmp_path)


def test_a_user_subclass_keeps_its_signature():
    class Mine(kmip_data.S3DIS):
        def __init__(self, level, **others):
            super().__init__(**others)

    assert list(inspect.signature(Mine).parameters) == ["level", "others"]


def test_faults_of_a_manifest_are_named_by_their_keys(monkeypatch):
    wrong = {"name": "mine", "layout": {"fold": 10}}
    monkeypatch.setattr(manifest, "read_shipped", lambda *_: wrong)
    with raises(DamagedInput, naming=["layout.fold", "title"]):
        manifest.load_manifest.__wrapped__("helsinki")
