"""Folders of clouds as people keep them: annotated rooms, a folder per class, and their splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.cli import expect_refusal, expect_success

import kmip_data
from kmip_data.pipelines.companion_files.item_columns import class_folders
from kmip_data.pipelines.datasets.points.layouts import find_clouds


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))


def write_points(path: Path, points: int, seed: int, form: str = "%.3f") -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.random.default_rng(seed).uniform(0, 9, (points, 3)).round(3)
    np.savetxt(path, rows, fmt=form)
    return rows


def build(tmp_path: Path, *options: str, name: str = "own") -> kmip_data.Dataset:
    words = [
        "build",
        "points",
        f"--name={name}",
        f"--archive={tmp_path / 'clouds'}",
        "--k=2",
        "-q",
        "--jobs=1",
    ]
    expect_success(*words, "--set=picture=false", *options)
    return kmip_data.open(name)


@pytest.fixture
def rooms(tmp_path):
    """Two areas with two rooms each; chairs and a floor, with the room's own file beside."""
    for number, room in enumerate(("A/1", "A/2", "B/1", "B/2")):
        folder = tmp_path / "clouds" / room
        parts = [
            write_points(folder / "Annotations" / f"{name}.txt", 4 + number, 9 * number + row)
            for row, name in enumerate(("arm_chair_1", "arm_chair_12", "floor_1"))
        ]
        np.savetxt(folder / f"{folder.name}.txt", np.concatenate(parts), fmt="%.3f")
    return tmp_path


def test_annotated_rooms_are_clouds_with_areas_as_folds(rooms):
    data = build(rooms)
    assert tuple(data.card.class_names) == ("arm_chair", "floor")
    assert [item.num_nodes for item in data] == [12, 15, 18, 21]
    for number, item in enumerate(data):
        points = 4 + number
        assert item.y.tolist() == [0] * 2 * points + [1] * points
    splits = data.card.splits
    assert [entry.rule for entry in splits.values()] == ["folders", "folders"]
    keys = {}
    for fold, name in enumerate(splits):
        parts = ("train", "val", "test")
        keys[fold] = {part: kmip_data.open("own", part, split_name=name).keys for part in parts}
    assert keys[0]["test"] == ["A/1", "A/2"]
    assert keys[1]["test"] == ["B/1", "B/2"]
    assert sorted(keys[0]["train"] + keys[0]["val"]) == ["B/1", "B/2"]
    assert all(map(len, keys[0].values()))


CLASSES = {
    "a folder per class": (["a/1.txt", "a/2.txt", "b/1.txt", "b/2.txt"], "aabb", True),
    "inside parts": (
        ["train/a/1.txt", "train/b/2.txt", "test/a/3.txt", "dev/b/4.txt"],
        "abab",
        True,
    ),
    "few clouds": (["a/1.txt", "a/2.txt", "b/3.txt"], "aab", False),
    "one folder": (["a/1.txt", "a/2.txt"], "aa", False),
    "parts": (["train/1.txt", "train/2.txt", "test/3.txt", "test/4.txt"], "", False),
    "no folder": (["a/1.txt", "a/2.txt", "b/1.txt", "2.txt"], "", False),
    "deeper": (["a/x/1.txt", "a/x/2.txt", "b/x/1.txt", "b/x/2.txt"], "", False),
}


@pytest.mark.parametrize("case", CLASSES)
def test_a_folder_is_a_class_if_each_cloud_is_in_one(case):
    names, classes, is_default = CLASSES[case]
    assert "".join(class_folders(names).values()) == classes
    assert bool(class_folders(names, by_default=True)) == is_default


def test_a_folder_per_class_labels_clouds(tmp_path):
    for number in range(8):
        write_points(tmp_path / "clouds" / "ab"[number % 2] / f"{number}.txt", 9, number)
    data = build(tmp_path)
    assert [int(item.y) for item in data] == [0] * 4 + [1] * 4
    assert tuple(data.card.class_names) == ("a", "b")
    assert data[0].y.shape == (1,)
    assert build(tmp_path, "--set=label=none", name="bare")[0].y is None

    # Test is a folder, if this is asked for.
    build(tmp_path, "--split-rule=folders", "--set=fold=1")
    split = next(name for name in kmip_data.open("own").card.splits if name.startswith("folders"))
    assert {key[0] for key in kmip_data.open("own", "test", split_name=split).keys} == {"b"}
    words = ["build", "points", "--name=own", "--k=2", "-q", "--jobs=1"]
    message = expect_refusal(
        *words, f"--archive={tmp_path / 'clouds'}", "--split-rule=folders", "--set=fold=2"
    )
    assert "fold 2" in message
    folder = tmp_path / "clouds/a"
    message = expect_refusal(*words, "--archive", folder, "--set=label=folder", code=4)
    assert "next: kmip-data build points" in message


def test_every_file_is_a_part_of_one_cloud_or_ignored():
    names = [
        "A/1/Annotations/x_1.txt", "A/1/Annotations/x_2.TXT", "A/1/1.txt", "a.npy", "a_labels.npy",
        "b.label",
    ]  # fmt: skip
    folder = find_clouds(names)
    assert folder.files == {
        "A/1": ("A/1/Annotations/x_1.txt", "A/1/Annotations/x_2.TXT"),
        "a.npy": ("a.npy",),
    }
    assert folder.labels == {"a.npy": "a_labels.npy"}
    assert folder.ignored.keys() == {"A/1/1.txt", "b.label"}
    assert find_clouds(["Annotations/x_1.txt"]).files == {"room": ("Annotations/x_1.txt",)}
