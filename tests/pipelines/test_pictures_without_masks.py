"""Pictures with labels of their own, and tables beside pictures."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.cli import expect_success, kmip

import kmip_data

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("skimage")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))


def write(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint8)).save(path)


def write_pictures(folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        rng = np.random.default_rng(number)
        write(folder / name, rng.integers(0, 255, (2, 2, 3)).repeat(8, 0).repeat(8, 1))


def build(tmp_path: Path, *options: str, name: str = "own", code: int = 0):
    words = ("build", "superpixels", "--name", name, "--images", tmp_path / "images", "--jobs=1")
    done = kmip(*words, "-q", "--set=picture=false", "--set=superpixels=4", *options)
    assert done.code == code, done.err
    return done


def test_a_folder_for_each_class_labels_pictures(tmp_path):
    names = [f"{'ab'[number % 2]}/{number}.png" for number in range(8)]
    write_pictures(tmp_path / "images", names)
    done = build(tmp_path)
    assert "the folder of each file, by its name; none: label='none'" in done.out
    data = kmip_data.open("own")
    assert tuple(data.card.class_names) == ("a", "b")
    assert [int(item.y) for item in data] == [0] * 4 + [1] * 4
    assert data[0].y.shape == (1,)
    build(tmp_path, "--set=label=none", name="bare")
    assert kmip_data.open("bare")[0].y is None
    assert "void=3" in build(tmp_path, "--set=void=3", code=2).err


def test_a_table_beside_pictures_has_labels_groups_and_parts(tmp_path):
    names = [f"{number}.png" for number in range(8)]
    write_pictures(tmp_path / "images", names)
    rows = "".join(f"{name},{n / 4},p{n % 4}\n" for n, name in enumerate(names))
    (tmp_path / "table.csv").write_text("file,score,patient\n" + rows)
    (tmp_path / "notes.txt").write_text("not about pictures\n")
    done = build(tmp_path, "--set=label=score", "--set=group=patient")
    assert "parameters     edges=" in done.out, "the default number of classes is not shown"
    assert "notes" not in done.out
    data = kmip_data.open("own")
    assert [float(item.y) for item in data] == [n / 4 for n in range(8)]
    parts = [
        {int(key) % 4 for key in kmip_data.open("own", part).keys}
        for part in ("train", "val", "test")
    ]
    assert sum(map(len, parts)) == 4
    message = build(tmp_path, "--set=label=mark", code=2).err
    assert "'mark'" in message
    assert "score, patient" in message
    unknown = ("--set=group=patients", "--set=label=none")
    message = build(tmp_path, *unknown, name="groups", code=2).err
    expect_success(*shlex.split(message.rpartition("kmip-data ")[2]))
    assert kmip_data.open("groups").card.schema_.column("graph/group").fields == ("patient",)


def test_the_only_target_of_tables_beside_pictures_labels_them(tmp_path):
    """A table with several targets, or none, is reported."""
    names = [f"{number}.png" for number in range(8)]
    write_pictures(tmp_path / "images", names)
    table = pd.DataFrame({"id": range(8), "leaf": [*"ab"] * 4})
    table.to_excel(tmp_path / "leaves.xlsx", index=False)
    done = build(tmp_path)
    assert "the column 'leaf' of leaves.xlsx, Sheet1" in done.out
    assert [int(item.y) for item in kmip_data.open("own")] == [0, 1] * 4
    assert kmip_data.open("own").keys[1] == "1"

    table.assign(age=table["id"] / 2).to_excel(tmp_path / "leaves.xlsx", index=False)
    assert "label='age'" in build(tmp_path, name="several", code=4).err

    (tmp_path / "leaves.xlsx").unlink()
    table.iloc[[0, 0, 1]].to_csv(tmp_path / "leaves.csv", index=False)
    message = build(tmp_path, "--set=label=leaf", name="twice", code=2).err
    assert "beside/leaves.csv" in message


def test_a_legend_beside_masks_is_ignored_and_classes_are_given(tmp_path):
    names = [f"{number}.png" for number in range(4)]
    write_pictures(tmp_path / "images", names)
    for name in names:
        write(tmp_path / "masks" / name, np.array([[0, 7], [9, 255]]).repeat(8, 0).repeat(8, 1))
    (tmp_path / "legend.txt").write_text("0 soil\n7 leaf\n9 stone\n255 unknown\n")
    names = [f"--set=class_name={name}" for name in ("soil", "leaf", "stone")]
    done = build(tmp_path, "--masks", str(tmp_path / "masks"), "--set=classes=0,7,9", *names)
    assert "legend.txt: no legend of the labels" in done.out
    data = kmip_data.open("own")
    assert tuple(data.card.class_names) == ("soil", "leaf", "stone")
    assert {-1, 1} <= set(data[0].y.tolist()) <= {-1, 0, 1, 2}  # a quarter of the mask has no class


def test_new_pictures_are_built_like_earlier_ones(tmp_path):
    """Of pictures with a class, a subset keeps its classes; of pictures with masks, masks may be missing."""
    write_pictures(tmp_path / "images", [f"{'ab'[number % 2]}/{number}.png" for number in range(4)])
    description = tmp_path / "pictures.toml"
    done = build(tmp_path, "--dry-run", "--describe", str(description))
    assert "classes      a,b\n" in done.out
    assert f"--images {tmp_path / 'images'} --like {description}" in done.out
    write_pictures(tmp_path / "b/images", ["b/1.png", "b/3.png"])
    build(tmp_path / "b", "--like", str(description), name="subset")
    data = kmip_data.open("subset")
    assert [int(item.y) for item in data] == [1, 1]
    write_pictures(tmp_path / "c/images", ["1.png", "3.png"])
    build(tmp_path / "c", "--like", "subset", name="bare")
    assert kmip_data.open("bare")[0].y is None

    for name in ("1.png", "3.png"):
        write(tmp_path / "masks" / name, np.arange(4).reshape(2, 2).repeat(8, 0).repeat(8, 1))
    build(tmp_path / "c", "--masks", str(tmp_path / "masks"), "--set=classes=4", name="masked")
    build(tmp_path / "c", "--like", "masked", name="unmasked")
    assert kmip_data.open("unmasked")[0].y is None
