"""Names and folders to builds: which one is meant, and what is said when none is."""

import os
import warnings
from pathlib import Path

import pytest
from support.builds.written import s3dis_records, s3dis_schema, write_build
from support.raises import raises

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.cli.shared.targets import BUILD
from kmip_data.errors import Command, IncompleteBuildWarning, Setting, UsageError
from kmip_data.pipelines.find_builds import find_or_build

S3DIS = {"knn_rule": "exact", "short_graphs": None}


@pytest.fixture
def home(tmp_path):
    """A home with two builds of S3DIS, a sample, a limited one, and one of your own."""

    def write(name, count, **options):
        write_build(tmp_path / "built" / name, s3dis_records(count), s3dis_schema(), **options)

    for k in (32, 4):
        write(f"s3dis-k{k}", 8, parameters={"k": k, **S3DIS})
    write("s3dis-sample", 3, sample=True, parameters={"k": 32, **S3DIS})
    write("s3dis-limit2", 2, parameters={"k": 32, "limit": 2, **S3DIS})
    write("mine", 5, dataset="mine")
    return tmp_path


def test_a_partial_build_is_labelled_and_yields_to_the_complete_one(tmp_path):
    options = {"parts": {"train": [0, 1], "val": [2], "test": []}, "parameters": {"k": 32, **S3DIS}}
    write_build(tmp_path / "built/a", s3dis_records(3), s3dis_schema(), complete=False, **options)
    with pytest.warns(IncompleteBuildWarning):
        part = kmip_data.open("s3dis", "train", home=tmp_path)
    assert repr(part).startswith("ShardedDataset('s3dis' part of the published set, 2 graphs")
    write_build(tmp_path / "built/b", s3dis_records(8), s3dis_schema(), complete=True, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kmip_data.open("s3dis", home=tmp_path).build.path.name == "b"
    # One of the published files goes before one that has their counts alone.
    options |= {"pinned": True, "complete": True}
    write_build(tmp_path / "built/c", s3dis_records(8), s3dis_schema(), **options)
    assert kmip_data.open("s3dis", home=tmp_path).build.path.name == "c"


def test_a_name_means_the_build_with_the_defaults(home, monkeypatch):
    for where in (home, str(home), Home.locate(home)):
        assert kmip_data.open("s3dis", home=where).build.path == home / "built/s3dis-k32"
    monkeypatch.setenv("KMIP_DATA_HOME", str(home))
    assert kmip_data.open("s3dis").build.path.name == "s3dis-k32"


def test_parameters_choose_the_build(home):
    for arguments, folder in (
        ({"k": "4"}, "k4"),
        ({"limit": 2}, "limit2"),
        ({"sample": True}, "sample"),
    ):
        assert kmip_data.open("s3dis", home=home, **arguments).build.path.name == f"s3dis-{folder}"


def test_a_folder_or_a_user_name_selects_a_build(home, monkeypatch):
    assert len(kmip_data.open(home / "built/s3dis-limit2")) == 2
    assert len(kmip_data.open(str(home / "built/mine"))) == 5
    assert len(kmip_data.open("mine", home=home)) == 5
    monkeypatch.chdir(home / "built")
    assert len(kmip_data.open("./mine", home="/nowhere")) == 5
    with raises(UsageError, naming="./mine"):
        kmip_data.open("mine", home="/nowhere")


def test_no_match_names_the_command(home):
    with pytest.raises(UsageError) as error:
        kmip_data.open("s3dis", home=home, k=5)
    assert error.value.steps[-1] == Command("kmip-data build s3dis --k 5")
    with raises(UsageError, naming="'s3dis'"):
        kmip_data.open("s3di", home=home)
    with raises(UsageError, naming="'knn_rule'"):
        kmip_data.open("s3dis", home=home, knn_rul=5)
    with raises(UsageError, naming="card.json"):
        kmip_data.open(home / "built")


def _age(folder, seconds):
    """Set when the shards of a build were written, in seconds since 1970."""
    for shard in (folder / "shards").iterdir():
        os.utime(shard, (seconds, seconds))


def test_the_name_of_your_own_data_means_their_newest_build(home, capsys):
    old = home / "built/mine"
    write_build(home / "built/mine2", s3dis_records(6), s3dis_schema(), dataset="mine")
    _age(old, 1_000_000_000)
    assert len(kmip_data.open("mine", home=home)) == 6
    line = capsys.readouterr().err
    assert line.startswith("mine has 2 builds: uses the newest, mine2 of 20")
    assert line.endswith("; name mine to use another.\n")
    # Each is selected by its folder, and the line is printed once.
    for selector, graphs in ((str(old), 5), ("mine2", 6), ("mine", 6)):
        assert len(kmip_data.open(selector, home=home)) == graphs
    assert not capsys.readouterr().err
    # An added split writes a card again, and makes no build newer.
    os.utime(old / "card.json", (4_000_000_000, 4_000_000_000))
    assert len(kmip_data.open("mine", home=home)) == 6
    _age(old, 4_000_000_000)
    assert len(kmip_data.open("mine", home=home)) == 5


def test_obtaining_without_building_names_the_command(home):
    where = Home.locate(home)
    assert find_or_build("s3dis", {"k": 4}, home=where, build=False).path.name == "s3dis-k4"
    built = home / "built"
    with raises(UsageError, naming=[built, "s3dis-k32"]) as error:
        find_or_build("s3dis", {"k": 5, "limit": None}, home=where, sample=True, build=False)
    words, command = error.value.steps
    assert "'s3dis-sample'" in words
    assert "s3dis-k" not in words  # no real data
    assert command == Command("kmip-data build s3dis --k 5 --sample")
    with raises(UsageError, naming=built, steps=Command("kmip-data build helsinki")):
        find_or_build("helsinki", home=where, build=False)
    with raises(UsageError, naming="'jobs'"):
        find_or_build("s3dis", home=where, job=2)


def test_a_folder_must_have_the_values_given(home):
    folder = home / "built/s3dis-k32"
    for values in (
        {"k": 32},
        {"k": "32"},
        {"limit": None},
        {"knn_rule": "exact"},
    ):
        assert kmip_data.open(folder, **values).build.path == folder
    with raises(UsageError, steps=Setting(sample=None)):
        kmip_data.open(folder, sample=True)
    for values in ({"k": 16}, {"limit": 2}):
        with raises(UsageError, naming=folder) as error:
            kmip_data.open(folder, **values)
        name, value = next(iter(values.items()))
        assert error.value.expected == f"{name} = {value!r}"
    with raises(UsageError, naming="'knn_rule'"):
        kmip_data.open(folder, knn_rul="exact")
    assert kmip_data.open(home / "built/s3dis-sample").card.sample
    with raises(UsageError, naming="k = 5"):
        kmip_data.open(home / "built/mine", k=5)
    with raises(UsageError, steps=Setting(radius=None)):
        kmip_data.open(home / "built/mine", radius=5)
    chairs = home / "built/chairs"
    write_build(
        chairs,
        s3dis_records(2),
        s3dis_schema(),
        dataset="shapenet-part",
        parameters={"category": ["Chair"]},
    )
    assert kmip_data.open(chairs, category=("chair",)).build.path == chairs


def test_a_published_name_and_a_folder_are_known_without_listing_the_home(home, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(home))
    listed = []
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda *args: listed.append(args) or glob(*args))
    for word in ("s3dis", str(home / "built/mine")):
        assert BUILD.convert(word, None, None) == word
        assert not listed
    assert BUILD.convert("mine", None, None) == "mine"
    assert listed == [(home / "built", "*/card.json")]
