"""Point clouds of your own: every format the same graphs, blocks by S3DIS's rule, bad files their errors."""

from __future__ import annotations

import io
import re
import struct
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.builds.raw_graphs import records_of
from support.cases import check_each, steps_of
from support.cli import expect_refusal, kmip
from support.own_graphs import build_in_memory, parse_remedy
from support.raises import raises

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, MissingExtra, OpenQuestions, Setting, UsageError
from kmip_data.graphs.reference import knn_table as exact_table
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.datasets.points.files import label_files, read_point_columns
from kmip_data.pipelines.datasets.points.first_pass import Survey
from kmip_data.pipelines.datasets.points.pcd import decompress_lzf
from kmip_data.pipelines.domains.cloud_columns import CloudOptions
from kmip_data.pipelines.domains.point_clouds import (
    block_rows,
    normalised_positions,
    window_corners,
)

ROW = np.dtype(
    [
        ("x", "f8"),
        ("y", "f8"),
        ("z", "f8"),
        ("red", "u1"),
        ("green", "u1"),
        ("blue", "u1"),
        ("class", "u1"),
    ]
)
PIPELINE = load_pipeline(load_manifest("points"))
COLOURS = ("red/255", "green/255", "blue/255")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home of tests"))


def cloud(points: int = 60, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = np.zeros(points, ROW)
    for axis in "xyz":
        rows[axis] = np.round(rng.uniform(-3, 3, points), 3)
    for name in ("red", "green", "blue"):
        rows[name] = rng.integers(0, 256, points)
    rows["class"] = rng.integers(0, 4, points)
    return rows


def table(rows: np.ndarray) -> np.ndarray:
    return np.column_stack([rows[name].astype(np.float64) for name in rows.dtype.names])


# --- formats -------------------------------------------------------------------------------------


def write(folder: Path, kind: str, rows: np.ndarray) -> Path:
    path = folder / f"cloud.{kind.rpartition(' ')[2]}"
    numbers, names = table(rows), rows.dtype.names
    lines = [" ".join(f"{value:.6g}" for value in row) for row in numbers]
    kinds = {"f8": "double", "u1": "uchar"}
    properties = [f"property {kinds[rows.dtype[name].str[1:]]} {name}" for name in names]
    header = [f"element vertex {len(rows)}", *properties]
    header += ["element face 0", "property list uchar int i", "end_header"]
    texts = {
        "csv": [",".join(names), *(line.replace(" ", ",") for line in lines)],
        "commented txt": ["# " + " ".join(names), *lines, ""],
        "txt": lines,
        "pts": [str(len(lines)), *lines],
        "xyz": [line.replace(" ", "\t") for line in lines],
        "ascii ply": ["ply", "format ascii 1.0", "comment made here", *header, *lines, ""],
    }
    pcd = ["# .PCD v0.7 - Point Cloud Data file format", "VERSION 0.7", f"FIELDS {' '.join(names)}"]
    pcd += ["SIZE 8 8 8 1 1 1 1", "TYPE F F F U U U U", "COUNT 1 1 1 1 1 1 1"]
    pcd += [f"WIDTH {len(rows)}", "HEIGHT 1", "VIEWPOINT 0 0 0 1 0 0 0", f"POINTS {len(rows)}"]
    texts["ascii pcd"] = [*pcd, "DATA ascii", *lines]
    if path.suffix in {".las", ".laz"}:
        write_las(path, rows)
    elif kind == "binary pcd":
        path.write_bytes("\n".join([*pcd, "DATA binary", ""]).encode() + rows.tobytes())
    elif kind in texts:
        path.write_text(("\r\n" if kind == "commented txt" else "\n").join(texts[kind]))
    elif path.suffix == ".npy":
        np.save(path, rows if kind == "npy" else numbers.astype(np.float32))
    else:
        head = "\n".join(["ply", f"format binary_{kind.split()[0]}_endian 1.0", *header, ""])
        order = "<" if kind.startswith("little") else ">"
        path.write_bytes(head.encode() + rows.astype(rows.dtype.newbyteorder(order)).tobytes())
    return path


def write_las(path: Path, rows: np.ndarray) -> None:
    laspy = pytest.importorskip("laspy", reason="laspy (extra lidar) is not installed")
    header = laspy.LasHeader(point_format=7, version="1.4")
    header.scales = [0.001, 0.001, 0.001]
    header.add_extra_dims(
        [laspy.ExtraBytesParams("class", "u1"), laspy.ExtraBytesParams("normal", "3f4")]
    )
    points = laspy.LasData(header)
    for name in rows.dtype.names:
        points[name] = rows[name]
    points.write(str(path))


def read_records(path: Path, **parameters):
    """Records of one file, without the engine."""
    parameters = {"k": 4, **parameters}
    _, records = build_in_memory(path.parent, f"./{path.name}", pipeline=PIPELINE, **parameters)
    return records


LASER = ["las", "laz"]
PCD = ["ascii pcd", "binary pcd"]
NAMED = ["npy", "csv", "commented txt", "ascii ply", "little ply", "big ply", *PCD, *LASER]
PLAIN = ["plain npy", "txt", "pts", "xyz"]


@pytest.mark.parametrize("kind", [*NAMED, *PLAIN])
def test_every_format_gives_the_same_graph(tmp_path, kind):
    rows = cloud()
    if kind == "npy":  # coordinates of maps keep their millimetres
        rows["x"] += 385_000
        rows["y"] += 6_672_000
    path = write(tmp_path, kind, rows)
    features, label = (COLOURS, "class") if kind in NAMED else (("3/255", "4/255", "5/255"), "6")
    (record,) = read_records(path, feature=features, label=label)
    numbers = table(cloud())
    expected = np.column_stack([numbers[:, :3] - numbers[:, :3].min(axis=0), numbers[:, 3:6] / 255])
    np.testing.assert_allclose(record.columns["node/x"], expected, atol=1e-6)
    np.testing.assert_array_equal(record.columns["node/y"], rows["class"])
    assert record.columns["node/y"].dtype == np.uint8
    np.testing.assert_array_equal(record.neighbor, exact_table(record.columns["node/x"][:, :3], 4))


# --- blocks --------------------------------------------------------------------------------------


def test_blocks_are_the_windows_of_s3dis():
    """Windows of pointnet's recipe, each compared with a look at every point."""
    rng = np.random.default_rng(3)
    xyz = np.round(rng.uniform(0, [3.2, 2.1, 2.5], (3_000, 3)), 2)
    xyz -= xyz.min(axis=0)
    expected = []
    for left, front in window_corners([3.2, 2.1], 1.0):
        x, y = xyz[:, 0], xyz[:, 1]
        inside = (x >= left) & (x <= left + 1) & (y >= front) & (y <= front + 1)
        expected += [set(np.flatnonzero(inside).tolist())] if inside.sum() >= 100 else []
    blocks = block_rows(xyz[:, :2], size=1.0, points=300, key="r", seed=0)
    assert len(blocks) == len(expected)
    assert window_corners([3.2, 2.1], 1.0)[:4] == [(0.0, 0.0), (0.0, 0.5), (0.0, 1.0), (0.0, 1.5)]
    for rows, inside in zip(blocks, expected, strict=True):
        assert len(rows) == 300
        assert set(rows.tolist()) <= inside
        if len(inside) <= 300:
            assert set(rows.tolist()) == inside  # filled up with duplicates
    centred, share = normalised_positions(xyz, blocks[0], 1.0, xyz.max(axis=0))
    np.testing.assert_allclose(centred[:, :2].min(axis=0), -0.5, atol=1e-6)
    np.testing.assert_allclose(share, xyz[blocks[0]] / xyz.max(axis=0), atol=1e-6)
    np.testing.assert_allclose(centred[:, 2], xyz[blocks[0], 2], atol=1e-6)
    for extent in ((1e38, 1e38), (1e300, 1.0), (1e5, 1e5)):
        with raises(UsageError, naming=1e-5):
            window_corners(extent, 1e-5)


def test_a_build_with_blocks_holds_clouds_apart(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("KMIP_DATA_HOME", str(home))
    folder = tmp_path / "clouds"
    folder.mkdir()
    for number in range(3):
        np.save(folder / f"room_{number}.npy", cloud(4_000, seed=number))
    options = {"feature": COLOURS, "label": "class", "block": 2.0, "block_points": 256}
    sets = [
        f"--set={key}={value}" for key, values in options.items() for value in np.atleast_1d(values)
    ]
    line = (
        "build",
        "points",
        "--name=campus",
        f"--archive={folder}",
        "--k=8",
        *sets,
        "--quiet",
        "--json",
    )
    done = kmip(*line, "--jobs", 1)
    assert done.code == 0, done.err
    again = build_own(
        "points", "campus", {"path": folder}, parameters={"k": 8, **options}, home=Home(tmp_path / "b"),
        jobs=2, quiet=True,
    )  # fmt: skip
    finished = kmip(*line[:-1], "--jobs", 1).out
    assert finished.endswith("Next: kmip-data train campus\n")
    data = kmip_data.open("campus", split=None)
    assert [shard.sha256 for shard in data.card.shards] == [
        shard.sha256 for shard in again.card.shards
    ]
    assert data[0].x.shape == (256, 9)
    assert data[0].edge_index.shape == (2, 8 * 256)
    assert 0 <= data[0].x[:, 3:].min() <= data[0].x[:, 3:].max() <= 1
    assert data.card.schema_.y_column.num_classes == 4
    split = PIPELINE.split(records_of(data.keys), PIPELINE.SplitParams(), None).parts
    groups = {
        part: {data.keys[row].rpartition("/")[0] for row in rows} for part, rows in split.items()
    }
    assert all(groups.values())
    assert not groups["train"] & groups["val"]
    assert not groups["train"] & groups["test"]
    (folder / "bad.txt").write_text("1 2\n")
    before = sorted(path for path in home.rglob("*") if path.is_file())
    assert "bad.txt" in expect_refusal(*line, "--jobs", 1, code=4)
    assert sorted(path for path in home.rglob("*") if path.is_file()) == before
    skipped = kmip(*line, "--jobs", 1, "--set", "on_error=skip").json["path"]
    (entry,) = kmip_data.open(skipped).card.statistics["skipped"]
    assert entry[0] == "bad.txt"


@pytest.mark.parametrize("blocks", [False, True])
def test_folders_named_like_parts_define_the_split(blocks):
    def keys(*folders: str) -> list[str]:
        clouds = [f"{folder}/{number}.npy" for folder in folders for number in range(10)]
        return (
            [f"{cloud}/{block:06d}" for cloud in clouds for block in range(3)] if blocks else clouds
        )

    def dealt(names: list[str], **parameters) -> dict[str, set[str]]:
        split = PIPELINE.split(records_of(names), PIPELINE.SplitParams(**parameters), None)
        return {part: {names[row] for row in rows} for part, rows in split.parts.items()}

    def below(names: list[str], folder: str) -> set[str]:
        return {name for name in names if name.startswith(f"{folder}/")}

    three = keys("Train", "test", "valid")
    assert dealt(three) == {
        "train": below(three, "Train"), "val": below(three, "valid"), "test": below(three, "test"),
    }  # fmt: skip
    # Without val, a tenth of the clouds of train, each with all of its blocks.
    two = keys("test", "train")
    parts = dealt(two)
    assert parts["test"] == below(two, "test")
    assert parts["train"] | parts["val"] == below(two, "train")
    assert {name.split("/")[1] for name in parts["train"]}.isdisjoint(
        name.split("/")[1] for name in parts["val"]
    )
    assert len(parts["val"]) == (3 if blocks else 1)
    assert dealt(two, split_seed=1)["val"] != parts["val"]
    # Other folders, or one part alone, are dealt at random.
    for names in (keys("train", "test", "more"), keys("train"), keys("test", "val")):
        parts = dealt(names)
        assert parts == dealt(names, split_rule="random")
        assert all(parts.values())
    assert dealt(two, split_rule="random")["test"] != below(two, "test")


def test_a_stratified_split_has_the_shares_that_are_asked_for_not_those_of_folders(tmp_path):
    for number in range(10):
        folder = tmp_path / "clouds" / ("train" if number % 2 else "test")
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{number}.npy", table(cloud(20, number)))
    line = ("build", "points", "--name=own", f"--archive={tmp_path / 'clouds'}", "--k=4", "--quiet")
    line = (*line, "--set=label=6", f"--home={tmp_path / 'home'}", "--json")
    for options, sizes in (
        ((), [4, 1, 5]),
        (("--split-rule=stratified",), [8, 1, 1]),
        (("--split-rule=stratified", "--set=test_fraction=0.3"), [6, 1, 3]),
    ):
        splits = kmip(*line, *options).json["splits"]
        assert [splits[part]["graphs"] for part in ("train", "val", "test")] == sizes


def test_unused_files_and_columns_are_reported(tmp_path):
    rows = cloud()
    rows["class"] = rows["class"] % 2 * 2
    path = write(tmp_path, "csv", rows)
    line = (
        "build",
        "points",
        "--name=own",
        f"--archive={path}",
        "--quiet",
        "--set=feature=red/255",
    )
    assert (
        "ignored        green, blue, class: not among the features\n"
        in kmip(*line, "--set=label=none").out
    )
    done = kmip(*line, "--set=label=class")
    assert "warning: no node has the class 1; classes are 0 to 2" in done.err
    assert "node features  4 (x [unit of the file]," in done.out


# --- files as people have them -------------------------------------------------------------------


def columns_of(tmp_path: Path, content: str | bytes, name: str = "a.txt", **options) -> dict:
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(data)
    values = read_point_columns(tmp_path / name, name, CloudOptions(**options)).values
    return {column: array.tolist() for column, array in values.items()}


ROWS = [[1.5, 2.5, 3.5], [-1.25, 0.0, 7.0]]
SPELLINGS = {
    "decimal commas": "1,5;2,5;3,5\n-1,25;0,0;7,0\n",
    "decimal commas, tabs": "1,5\t2,5\t3,5\n-1,25\t0\t7\n",
    "decimal commas, blanks": "1,5 2,5 3,5\n-1,25 0 7\n",
    "commas and blanks": "1.5, 2.5, 3.5\n-1.25, 0, 7\n",
    "blanks at the ends": "   1.5  2.5 3.5 \n -1.25 0 7\t\n",
    "separator at the end": "1.5;2.5;3.5;\n-1.25;0;7;\n",
    "carriage returns": "1.5 2.5 3.5\r-1.25 0 7\r",
    "blank lines": "\n1.5 2.5 3.5\n\n  \n-1.25 0 7\n\n",
    "comments": "# scan\n// of today\n% x\n1.5 2.5 3.5\n# y\n-1.25 0 7\n# end\n",
    "byte order mark": "\ufeff1.5 2.5 3.5\n-1.25 0 7\n",
    "UTF-16": "1.5\t2.5\t3.5\n-1.25\t0\t7\n".encode("utf-16"),
    "number of points": "2\n1.5 2.5 3.5\n-1.25 0 7\n",
    "quotes": '"x","y","z"\n"1.5","2.5","3.5"\n"-1.25","0","7"\n',
    "exponents": "15e-1 2.5E0 +3.5\n-1.25 .0 7.\n",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_of_a_text_gives_its_numbers(tmp_path, name):
    columns = columns_of(tmp_path, SPELLINGS[name])
    assert columns == dict(zip("xyz", map(list, zip(*ROWS, strict=True)), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_a_random_cloud_is_read_as_it_was_written(tmp_path, seed):
    rng = np.random.default_rng(seed)
    points = int(rng.choice([2, 40, 300]))
    values = {axis: np.round(rng.uniform(-50, 50, points), 4) for axis in "xyz"}
    values["time"] = 1.7e9 + np.arange(points)
    values["kind"] = rng.choice(["tree", "wall", "house"], points).astype(object)
    separator = rng.choice([" ", "  ", "\t", ",", ";", "|"])
    sign = "," if separator == ";" and seed % 2 else "."
    lines = [
        separator.join(str(cell).replace(".", sign) for cell in row)
        for row in zip(*values.values(), strict=True)
    ]
    names = [*values]
    head = rng.choice(["names", "comment", "count", "none"])
    if head in {"count", "none"}:
        names[3:] = ["3", "4"]
    above = {"names": separator.join(names), "comment": f"// {' '.join(names)}", "count": points}
    lines[:0] = [str(above[head])] if head in above else []
    end = rng.choice(["\n", "\r\n"])
    columns = columns_of(tmp_path, end.join(lines) + end)
    assert columns == dict(zip(names, (array.tolist() for array in values.values()), strict=True))


#: Text -> the first two numbers, with the sign that any of its columns proves, or given.
DECIMAL_SIGNS = {
    "0,5;1,234;7\n2,5;3,456;8\n": (None, [0.5, 1.234]),
    "1,234.5;1,234;7\n2,345.5;3,456;8\n": (None, [1234.5, 1234]),
    "1.234,5\t1,234\t7\n2.345,5\t3,456\t8\n": (None, [1234.5, 1.234]),
    "1,234;2,345;7\n2,345;3,456;8\n": (",", [1.234, 2.345]),
    "1,234;2,346;7\n2,345;3,456;8\n": (".", [1234, 2346]),
    "1,234;2,345;7\n" * 200 + "0,5;3,456;8\n": (None, [1.234, 2.345]),  # behind the sample
}


@pytest.mark.parametrize("text", DECIMAL_SIGNS)
def test_one_decimal_sign_holds_for_all_columns(tmp_path, text):
    decimal, numbers = DECIMAL_SIGNS[text]
    columns = columns_of(tmp_path, text, decimal=decimal)
    assert [columns["x"][0], columns["y"][0]] == numbers
    if decimal is not None:
        with pytest.raises(OpenQuestions) as caught:
            columns_of(tmp_path, text)
        assert parse_remedy(caught.value) == {"decimal": ","}


HEADERS = [
    "X,Y,Z,R,G,B\n1,2,3,4,5,6\n",
    "# X Y Z R G B\n1 2 3 4 5 6\n",
    "//X Y Z R G B\n# made by hand\n1 2 3 4 5 6\n",
    "// cloud\n#X,Y,Z,R,G,B\n\n1,2,3,4,5,6\n",
    "X;Y;Z;R;G;B\n1;2;3;4;5;6\n",
]


@pytest.mark.parametrize("content", HEADERS)
def test_names_are_read_above_the_points_in_any_case(tmp_path, content):
    assert list(columns_of(tmp_path, content)) == [*"XYZRGB"]
    (tmp_path / "a.txt").write_text(content + content.splitlines()[-1].replace("1", "9") + "\n")
    (record,) = read_records(tmp_path / "a.txt", k=1, feature=("g", "B/2"))
    assert record.columns["node/x"].tolist() == [[0, 0, 0, 5, 3], [8, 0, 0, 5, 3]]


def test_a_position_is_found_with_its_unit(tmp_path):
    (tmp_path / "a.txt").write_text("X [m],Y[m],Z (m),height [cm]\n1,0,0,5\n9,0,0,6\n")
    (record,) = read_records(tmp_path / "a.txt", k=1, feature="height")
    assert record.columns["node/x"].tolist() == [[0, 0, 0, 5], [8, 0, 0, 6]]


def test_a_first_line_of_0_1_2_needs_a_choice(tmp_path):
    text = "0,1,2\n3,4,5\n"
    assert list(columns_of(tmp_path, text, header="yes")) == ["0", "1", "2"]
    assert columns_of(tmp_path, text, header="no")["x"] == [0, 3]


def test_comments_that_are_no_names_are_no_names(tmp_path):
    assert list(columns_of(tmp_path, "# made by me\n1 2 3\n4 5 6\n")) == [*"xyz"]
    (tmp_path / "a.txt").write_text("# east north\n1 2\n4 5\n")
    (record,) = read_records(tmp_path / "a.txt", k=1, position="east,north")
    assert record.columns["node/x"].tolist() == [[0, 0, 0], [3, 3, 0]]
    colour = columns_of(tmp_path, "1 2 2 #ff0000\n4 5 6 #00ff00\n")
    assert colour["3"] == ["#ff0000", "#00ff00"]


@pytest.mark.parametrize("kind", [kind for kind in [*NAMED, *PLAIN] if kind not in LASER])
def test_points_without_a_position_are_left_out_in_every_format(tmp_path, kind):
    """Organised clouds mark missing returns by NaN."""
    rows = cloud()
    rows["y"][[3, 59]] = np.nan
    label = "class" if kind in NAMED else "6"
    (record,) = read_records(write(tmp_path, kind, rows), label=label)
    kept = np.delete(np.arange(60), [3, 59])
    assert record.num_nodes == 58
    np.testing.assert_array_equal(record.columns["node/y"], rows["class"][kept])
    params, _ = build_in_memory(tmp_path, pipeline=PIPELINE, k=4)
    (warning,) = params.inferred.summary["warnings"]
    assert warning.startswith("2 of 60 points have no position and are left out: cloud.")


def test_a_missing_feature_is_0_and_marked(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z,age,label\n0,0,0,NA,a\n1,0,0,5,\n0,1,0,,b\n")
    (record,) = read_records(tmp_path / "a.csv", k=1, feature=("age",))
    assert record.columns["node/x"][:, 3:].tolist() == [[0, 1], [5, 0], [0, 1]]
    assert record.columns["node/y"].tolist() == [0, -1, 1]  # a missing label is no class


@pytest.mark.parametrize("block", [None, 10])
def test_the_card_has_the_kind_of_each_field_of_points(tmp_path, block):
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f},{y:.3f},0,{number}" for number, (x, y) in enumerate(rng.random((300, 2)))]
    (tmp_path / "a.csv").write_text("x,y,z,age\n0,0,0,NA\n" + "\n".join(rows))
    parameters = {"k": 2, "feature": ("age",), "block": block}
    if block is not None:
        parameters["block_points"] = 100
    home = tmp_path / "home"
    card = build_own("points", "scan", {"path": tmp_path / "a.csv"}, parameters=parameters,
                     home=home, quiet=True, jobs=1).card  # fmt: skip
    expected = ["position"] * 3 + ["number", "missing"] + ["position"] * 3 * (block is not None)
    assert [*card.field_kinds("node/x")] == expected
    assert len(card.schema_.column("node/x").fields) == len(expected)


LABELS = [
    ("0 1 -1 2", {}, [0, 1, -1, 2], "int32"),
    ("0 1 nan 2", {}, [0, 1, -1, 2], "int32"),
    ("2 6 9 6", {"classes": "2,6,9"}, [0, 1, 2, 1], "uint8"),
    ("2 6 9 7", {"classes": [6, 2]}, [1, 0, -1, -1], "int32"),
    ("-1 0 1 1", {"classes": "-1,0,1"}, [0, 1, 2, 2], "uint8"),
    ("-3 -1 0 2", {"task": "regression"}, [-3, -1, 0, 2], "float32"),
    ("0.5 -1 nan 2", {}, [0.5, -1, np.nan, 2], "float32"),
    ("4.882 -1.1 0 2", {}, np.float32([4.882, -1.1, 0, 2]).tolist(), "float32"),
    ("tree car NA car", {}, [1, 0, -1, 0], "int32"),
    ("0 1 1 0", {"class_name": ("a", "b")}, [0, 1, 1, 0], "uint8"),
]


@pytest.mark.parametrize("void", [255, 65_535])
@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 1), (2, 5, 9), (0,)])
def test_a_last_label_of_255_is_a_class_or_marks_none(tmp_path, void, classes):
    labels = [*classes, void, *classes]
    lines = [f"{at} 0 0 {label}" for at, label in enumerate(labels)]
    (tmp_path / "a.txt").write_text("x y z label\n" + "\n".join(lines))
    with pytest.raises(OpenQuestions) as refusal:
        read_records(tmp_path / "a.txt", k=1)
    (question,) = refusal.value.questions
    as_class, *as_void = re.findall("classes=([0-9]+(?:,[0-9]+)*)", question)
    assert refusal.value.steps == [Setting(classes=[as_class, *as_void][-1])]
    (record,) = read_records(tmp_path / "a.txt", k=1, classes=as_class)
    codes = [[*classes, void].index(label) for label in labels]
    assert record.columns["node/y"].tolist() == codes
    assert len(as_void) == (len(classes) > 1)
    for option in as_void:
        (record,) = read_records(tmp_path / "a.txt", k=1, classes=option)
        without = [-1 if label == void else code for label, code in zip(labels, codes, strict=True)]
        assert record.columns["node/y"].tolist() == without


@pytest.mark.parametrize(("words", "options", "expected", "dtype"), LABELS)
def test_labels_are_classes_or_numbers(tmp_path, words, options, expected, dtype):
    lines = [f"{at} 0 0 {word}" for at, word in enumerate(words.split())]
    (tmp_path / "a.txt").write_text("x y z label\n" + "\n".join(lines))
    (record,) = read_records(tmp_path / "a.txt", k=1, **options)
    y = record.columns["node/y"]
    np.testing.assert_array_equal(y, expected)
    assert y.dtype == dtype
    # The same in a file next to the cloud.
    (tmp_path / "a.txt").unlink()
    np.save(tmp_path / "scan.npy", [[at, 0, 0] for at in range(4)])
    (tmp_path / "scan.labels").write_text("\n".join(words.split()))
    _, (record,) = build_in_memory(tmp_path, pipeline=PIPELINE, k=1, **options)
    np.testing.assert_array_equal(record.columns["node/y"], expected)


def test_labels_of_a_cloud_are_found_by_name():
    names = [
        "a/1.ply",
        "a/1_labels.npy",
        "2.xyz",
        "2.labels",
        "b/velodyne/3.bin",
        "b/labels/3.label",
        "4.npy",
    ]
    assert label_files(names) == {
        "a/1.ply": "a/1_labels.npy", "2.xyz": "2.labels", "b/velodyne/3.bin": "b/labels/3.label",
    }  # fmt: skip


def test_kitti_scans_are_read_with_semantic_kitti_labels(tmp_path):
    rng = np.random.default_rng(0)
    points = rng.random((50, 4)).astype("<f4")
    for folder in ("velodyne", "labels"):
        (tmp_path / "00" / folder).mkdir(parents=True)
    points.tofile(tmp_path / "00" / "velodyne" / "000000.bin")
    classes = rng.integers(0, 3, 50)
    (classes | 7 << 16).astype("<u4").tofile(tmp_path / "00" / "labels" / "000000.label")
    line = ("build", "points", "--name=own", f"--archive={tmp_path / '00'}", "--k=4", "--quiet")
    line = (*line, f"--home={tmp_path / 'home'}")
    message = expect_refusal(*line, code=4)
    assert "000000.bin does not state its columns" in message
    assert message.endswith(f"--home={tmp_path / 'home'} --set bin=x,y,z,intensity\n")
    scan = tmp_path / "00" / "velodyne" / "000000.bin"
    home = tmp_path / "home"
    assert f"kmip-data build --home {home} points" in expect_refusal(
        "build", "graphs", "--name=g", f"--archive={scan}", f"--home={home}", code=4
    )
    done = kmip(*line, "--set=bin=x,y,z,intensity", "--set=feature=intensity", "--json")
    assert done.code == 0, done.err
    data = kmip_data.open(done.json["path"], split=None)[0]
    np.testing.assert_array_equal(data.y, classes)
    np.testing.assert_allclose(data.x[:, 3], points[:, 3])


def test_a_fault_of_several_files_is_shown_once(tmp_path):
    """A column whose name has the given one is advised, as for CloudCompare's ``scalar_Class``."""
    (tmp_path / "clouds").mkdir()
    for number in range(9):
        rows = "".join(f"{row} {row * 7 % 5} 0 {row % 2}\n" for row in range(9))
        (tmp_path / "clouds" / f"{number}.txt").write_text("x y z scalar_Class\n" + rows)
    line = ("build", "points", "--name=own", f"--archive={tmp_path / 'clouds'}", "--k=4", "--quiet")
    message = expect_refusal(*line, "--set=label=Class", f"--home={tmp_path / 'home'}", code=4)
    assert message.count("has no column 'Class'") == 1
    assert "And 8 more with the same fault." in message
    assert "--set label=scalar_Class" in message.partition("next:")[2]


def test_all_files_that_cannot_be_read_are_named_at_once(tmp_path):
    clouds = tmp_path / "clouds"
    clouds.mkdir()
    np.save(clouds / "good.npy", table(cloud()))
    (clouds / "cut.ply").write_bytes(b"ply\n")
    (clouds / "ragged.txt").write_text("1 2 3\n4 5\n")
    (clouds / "notes.md").write_text("mine")
    line = ("build", "points", "--name=own", f"--archive={clouds}", "--k=4", "--quiet")
    line = (*line, f"--home={tmp_path / 'home'}")
    message = expect_refusal(*line, code=4)
    assert "2 of 3 files cannot be used" in message
    assert "cut.ply" in message
    assert "ragged.txt" in message
    done = kmip(*line, "--set=on_error=skip")
    assert done.code == 0
    assert "notes.md: not one of .asc" in done.out


def test_columns_of_one_name_are_numbered(tmp_path):
    header = (
        "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float x\nend_header\n"
    )
    assert columns_of(tmp_path, header + "1 2\n", "a.ply") == {"x.1": [1], "x.2": [2]}
    header = "FIELDS x x\nSIZE 4 4\nTYPE F F\nPOINTS 1\nDATA ascii\n"
    assert columns_of(tmp_path, header + "1 2\n", "a.pcd") == {"x.1": [1], "x.2": [2]}


@pytest.mark.parametrize("kind", LASER)
def test_extra_bytes_of_several_values_are_columns(tmp_path, kind):
    laspy = pytest.importorskip("laspy", reason="laspy (extra lidar) is not installed")
    points = laspy.read(write(tmp_path, kind, cloud()))
    points["normal"] = np.arange(180).reshape(60, 3)
    points.write(str(tmp_path / f"b.{kind}"))
    columns = read_point_columns(tmp_path / f"b.{kind}", "b").values
    for number in range(3):
        np.testing.assert_array_equal(columns[f"normal_{number}"], np.arange(number, 180, 3))


def test_a_large_number_is_kept_by_an_offset(tmp_path):
    (tmp_path / "a.txt").write_text("x y z t\n0 0 0 1700000001\n1 0 0 1700000002\n")
    with pytest.raises(DamagedInput) as caught:
        read_records(tmp_path / "a.txt", k=1, feature=("t",))
    offset = caught.value.steps[0].values["feature"]
    (record,) = read_records(tmp_path / "a.txt", k=1, feature=(offset, "t-1700000000/2"))
    assert record.columns["node/x"][:, 3:].tolist() == [[0, 0.5], [1, 1]]


def test_commas_of_ascii_pcd_and_ply_are_decimal_or_divide(tmp_path):
    header = "FIELDS X Y Z\nSIZE 4 4 4\nTYPE F F F\nPOINTS 1\nDATA ascii\n"
    for line in ("289814.15,4320978.61,170.76", "289814,15 4320978,61 170,76"):
        assert columns_of(tmp_path, header + line, "a.pcd") == {
            "X": [289814.15], "Y": [4320978.61], "Z": [170.76],
        }  # fmt: skip


@pytest.mark.parametrize("order", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_lists_and_other_elements_of_ply_are_passed_over(tmp_path, order):
    header = (
        f"ply\nformat {order} 1.0\nelement part 2\nproperty list uchar int at\nproperty short n\n"
        "element vertex 2\nproperty float x\nproperty list uchar uchar many\nproperty double y\n"
        "element face 1\nproperty list uchar int i\nend_header\n"
    ).encode()
    if order == "ascii":
        body = b"2 5 6 1\n0 1\n1.5 3 1 2 3 0.1\n2.5 0 0.2\n1 0\n"
    else:
        sign = "<" if "little" in order else ">"
        body = struct.pack(f"{sign}BiihBh", 2, 5, 6, 1, 0, 1)
        body += struct.pack(f"{sign}fB3BdfBd", 1.5, 3, 1, 2, 3, 0.1, 2.5, 0, 0.2)
        body += struct.pack(f"{sign}Bi", 1, 0)
    (tmp_path / "a.ply").write_bytes(header + body)
    columns = read_point_columns(tmp_path / "a.ply", "a.ply")
    assert {name: array.tolist() for name, array in columns.values.items()} == {
        "x": [1.5, 2.5], "y": [0.1, 0.2],
    }  # fmt: skip
    assert {*columns.ignored} == {"many", "element part", "element face"}
    (tmp_path / "a.ply").write_bytes((header + body)[:-12])
    with pytest.raises(DamagedInput):
        read_point_columns(tmp_path / "a.ply", "a.ply")


def test_more_points_than_are_declared_are_refused(tmp_path):
    ply = "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n1\n2\n"
    pcd = "FIELDS x\nSIZE 4\nTYPE F\nPOINTS 1\nDATA ascii\n1\n2\n"
    for name, content in (("a.ply", ply), ("a.pcd", pcd)):
        with raises(DamagedInput, naming=name):
            columns_of(tmp_path, content, name)


# --- compressed PCD ------------------------------------------------------------------------------


def lzf(data: bytes) -> bytes:
    """Compress by the LZF of HDF5."""
    with h5py.File("x", "w", driver="core", backing_store=False) as file:
        array = np.frombuffer(data, np.uint8)
        dataset = file.create_dataset("d", data=array, chunks=array.shape, compression="lzf")
        mask, packed = dataset.id.read_direct_chunk((0,))
    assert mask == 0, "not compressible"
    return packed


@pytest.mark.parametrize("seed", range(4))
def test_lzf_is_expanded_as_hdf5_packs_it(seed):
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 2 + 6 * seed, 40_000).astype(np.uint8)
    data[5_000:30_000] = np.tile(data[:1_000], 25)
    packed = np.frombuffer(lzf(data.tobytes()), np.uint8)
    output = np.empty_like(data)
    assert decompress_lzf(packed, output) == len(data)
    np.testing.assert_array_equal(output, data)
    # Damaged and cut data end in the output or before.
    for _ in range(200):
        damaged = packed.copy()
        damaged[rng.integers(len(packed), size=8)] ^= 255
        assert -1 <= decompress_lzf(damaged, output) <= len(output)
        assert -1 <= decompress_lzf(packed[: rng.integers(len(packed))], output) < len(output)
    assert decompress_lzf(packed, output[:-1].copy()) == -1


def test_compressed_pcd_is_read_field_by_field(tmp_path):
    rows = np.zeros(300, [("x", "<f4"), ("rgb", "<u4"), ("n", "<f4", 2), ("label", "u1")])
    rows["x"] = np.arange(300) // 7
    rows["rgb"] = 0x01020304
    rows["n"][:, 1] = np.arange(300)
    rows["label"] = 3
    data = b"".join(rows[name].tobytes() for name in rows.dtype.names)
    packed = lzf(data)
    header = (
        "VERSION 0.7\nFIELDS x rgb n label\nSIZE 4 4 4 1\nTYPE F U F U\nCOUNT 1 1 2 1\nWIDTH 100\n"
        "HEIGHT 3\nPOINTS 300\nDATA binary_compressed\n"
    )
    header = header.encode()
    sizes = struct.pack("<II", len(packed), len(data))
    (tmp_path / "a.pcd").write_bytes(header + sizes + packed)
    columns = read_point_columns(tmp_path / "a.pcd", "a.pcd").values
    np.testing.assert_array_equal(columns["x"], rows["x"])
    np.testing.assert_array_equal(columns["n_1"], rows["n"][:, 1])
    assert {name: {*columns[name].tolist()} for name in ("red", "green", "blue", "label")} == {
        "red": {2}, "green": {3}, "blue": {4}, "label": {3},
    }  # fmt: skip
    huge = struct.pack("<II", len(packed), 2**32 - 1)
    for content in (sizes + packed[:-1], huge + packed, sizes + packed[::-1], sizes[:5]):
        (tmp_path / "a.pcd").write_bytes(header + content)
        with pytest.raises(DamagedInput):
            read_point_columns(tmp_path / "a.pcd", "a.pcd")
    many = (
        header.replace(b"300", b"9" * 9).replace(b"HEIGHT 3", b"HEIGHT 1").replace(b"100", b"9" * 9)
    )
    (tmp_path / "a.pcd").write_bytes(
        many + struct.pack("<II", len(packed), 999999999 * 17 % 2**32) + packed
    )
    with pytest.raises(DamagedInput):
        read_point_columns(tmp_path / "a.pcd", "a.pcd")


# --- bad input -----------------------------------------------------------------------------------


TEXTS = [
    ("1 2 3\n4 5\n", {}, "line 2"),
    ("# made today\n\n1 2 3\n\n4 5 6 7\n8 9 1\n", {}, "line 5"),
    ("1 2 3\n4 five 6\n", {}, "five"),
    ("1 2 3\n4 nan 6\n", {}, 1),
    ("nan 2 3\n4 nan 6\n", {}, "x, y, z"),
    ("1 2 3\n4 1e400 6\n", {"feature": ("y",)}, 1),
    ("x y\n1 2\n", {}, "'z'"),
    ("x y z\n1 2\n", {}, "line 2"),
    ("0,1,2\n3,4,5\n6,7,8\n", {}, "0, 1, 2"),
    (",0,1,2\n0,3,4,5\n1,6,7,8\n", {}, "0, 1, 2"),
    ("", {}, "cloud.txt"),
    ("x y z\n", {}, "cloud.txt"),
    ("1 2 3\n4 5 6\n", {"label": "class"}, "'class'"),
    ("1 2 3 0\n4 5 6 1.5\n", {"label": "3", "task": "classification"}, 1.5),
    ("1 2 3 0\n4 5 6 -2\n", {"label": "3"}, -2),
    ("1 2 3 0\n4 5 6 7\n", {"label": "3", "classes": 5}, 7),
    ("1 2 2 a\n4 5 6 b\n", {"label": "3", "task": "regression"}, "a, b"),
    ("1 2 2 a\n4 5 6 b\n", {"feature": ("3",)}, "'a'"),
    ("\n# m\n\nx y z a\n\n1 2 3 5\n4 5 6 b\n", {"feature": ("a",)}, "line 7"),
    ("nan 2 3 1\n1 2 3 1\n4 5 6 1e99\n", {"feature": ("3",)}, "line 3"),
    ("1 2 3 nan\n4 5 6 nan\n", {"label": "3"}, "'3'"),
    ("1 2 3\n4 5 6\n", {"feature": ("red",)}, "'red'"),
    ("1 2 3 1700000001\n4 5 6 1700000002\n", {"feature": ("3",)}, 1700000001),
    ("1 2 3 303841.1\n4 5 6 303841.3\n", {"feature": ("3",)}, 303841),
    ("1 2 3\n4 5 6\n", {"k": 2}, "k = 2"),
    ("1 2 3\n4 5 6\n", {"block": 1.0}, "cloud.txt"),
    ("3\n1 2 3\n4 5 6\n", {}, [3, 2]),
    ("0 0 0\n" + "500000 6000000.5 3\n500001 6000002 3\n" * 5, {}, 0.5),
]


def test_bad_text_is_an_error(tmp_path):
    def check(case):
        content, options, value = case
        (tmp_path / "cloud.txt").write_text(content)
        with raises(DamagedInput, naming=value) as caught:
            read_records(tmp_path / "cloud.txt", **{"k": 1, **options})
        assert caught.value.steps

    check_each(check, TEXTS)


def test_text_that_is_not_utf_8_needs_an_encoding(tmp_path):
    """Two classes became one: both had the same mark for the letter that UTF-8 does not know."""
    cloud = tmp_path / "cloud.txt"
    cloud.write_bytes("x y z label\n1 2 3 Bjør\n4 5 6 Bjår\n7 8 9 Bjør\n".encode("latin-1"))
    with pytest.raises(DamagedInput) as caught:
        read_records(cloud, k=1)
    assert caught.value.steps[-1] == Setting(encoding="cp1252")
    params, _ = build_in_memory(tmp_path, pipeline=PIPELINE, k=1, encoding="cp1252")
    assert PIPELINE.class_names(params) == ("Bjår", "Bjør")
    with pytest.raises(ValueError):
        PIPELINE.Params(encoding="cp0")


def test_an_array_with_a_point_in_each_column_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((3, 50)))
    with pytest.raises(DamagedInput) as caught:
        read_point_columns(tmp_path / "a.npy", "a.npy")
    remedy = steps_of(caught.value).partition(", if")[0].replace("a.npy", f"{tmp_path}/a.npy")
    exec(remedy, {"numpy": np})
    assert read_point_columns(tmp_path / "a.npy", "a.npy").points == 50


def test_cut_and_hostile_files_are_errors_at_once(tmp_path):
    """Counts that no file can hold were believed: readers went on for hours, or until memory was full."""
    ply = b"ply\nformat %b 1.0\nelement vertex %b\nproperty float x\nend_header\n1\n"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (0, 10**10)}
    )
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    files = [
        ("a.ply", ply % (b"ascii", b"9" * 11)),
        ("b.ply", ply % (b"binary_little_endian", b"9" * 11)),
        ("c.npy", header.getvalue()),
        ("d.npy", pickled.getvalue()),
        ("e.npy", b"\x93NUMPY\1\0\xe7\3" + b"(" * 999),
        ("c.ply", ply[:-2].replace(b"float", b"uchar") % (b"ascii", b"1") + b"300\n"),
        ("d.ply", ply[:-2] % (b"ascii", b"1") + b"1e99\n"),
    ]
    pcd = b"FIELDS x\nSIZE %b\nTYPE F\nCOUNT %b\nPOINTS %b\nDATA %b\n1\n"
    for number, words in enumerate(
        [
            (b"4", b"1", b"9" * 11, b"binary"),
            (b"4", b"1", b"9" * 11, b"ascii"),
            (b"4", b"9" * 11, b"1", b"ascii"),
            (b"3", b"1", b"1", b"ascii"),
            (b"4", b"1", b"1", b"binary_compressed"),
        ]
    ):
        files.append((f"{number}.pcd", pcd % words))
    files += [("a.pcd", b"FIELDS x\n"), ("b.pcd", b"\0" * 10_000)]
    for kind in ("npy", "ascii ply", "little ply", *PCD):
        data = write(tmp_path, kind, cloud()).read_bytes()
        files += [
            (f"cut.{kind[-3:]}", data[:size]) for size in (0, 3, len(data) // 4, len(data) - 700)
        ]
    for name, data in files:
        (tmp_path / name).write_bytes(data)
        with raises(DamagedInput, naming=name):
            read_point_columns(tmp_path / name, name)
    (tmp_path / "a.ply").write_bytes(ply[:-1] % (b"ascii", b"1"))  # the last line needs no end
    assert read_point_columns(tmp_path / "a.ply", "a.ply").values["x"].tolist() == [1]
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfx,y,z\n1,2,3\n")
    assert list(read_point_columns(tmp_path / "a.csv", "a.csv").values) == ["x", "y", "z"]


def test_cut_and_hostile_laser_scans_are_errors_at_once(tmp_path, capfd):
    """Counts of records, points and chunks are declared, and laspy believes all of them."""
    files = []
    for kind in LASER:
        path = write(tmp_path, kind, cloud())
        data = path.read_bytes()
        files += [data[:size] for size in (0, 3, 200, len(data) // 2, len(data) - 8)]
        many = b"\xff" * 8
        files += [data[:100] + many[:4] + data[104:], data[:247] + many + data[255:]]
        if kind == "laz":
            (points,) = struct.unpack_from("<I", data, 96)
            (table,) = struct.unpack_from("<q", data, points)
            files.append(data[: table + 4] + many[:4] + data[table + 8 :])
        huge = np.array([1e308]).tobytes()
        (tmp_path / f"far.{kind}").write_bytes(data[:131] + huge + data[139:])
        with pytest.raises(DamagedInput):
            read_records(tmp_path / f"far.{kind}")
    for data in files:
        path.write_bytes(data)
        with raises(DamagedInput, naming="scan"):
            read_point_columns(path, "scan")
    assert not capfd.readouterr().err


@pytest.mark.parametrize(("point_format", "version"), [(1, "1.2"), (3, "1.4"), (7, "1.4")])
def test_a_laser_scan_of_more_points_than_it_declares_is_refused(tmp_path, point_format, version):
    laspy = pytest.importorskip("laspy", reason="laspy (extra lidar) is not installed")
    rng = np.random.default_rng(0)
    path = tmp_path / "scan.las"
    for points, declared in [(2_000, 1_000), (2_000, 1_999)]:
        cloud = laspy.LasData(laspy.LasHeader(point_format=point_format, version=version))
        cloud.x, cloud.y, cloud.z = rng.random((3, points)) * 100
        cloud.write(str(path))
        assert len(read_point_columns(path, "scan").values["x"]) == points
        data = bytearray(path.read_bytes())
        struct.pack_into("<I", data, 107, declared)
        if version == "1.4":
            struct.pack_into("<Q", data, 247, declared)
        path.write_bytes(data)
        with raises(DamagedInput, naming=declared):
            read_point_columns(path, "scan")


def test_colours_packed_in_a_float_are_three_columns(tmp_path):
    packed = np.array([0x01020304], "u4").tobytes()
    header = (
        b"FIELDS x _ normal rgb\nSIZE 4 1 4 4\nTYPE F U F F\nCOUNT 1 4 2 1\nPOINTS 1\nDATA binary\n"
    )
    (tmp_path / "a.pcd").write_bytes(header + bytes(4) + bytes(4) + bytes(8) + packed)
    columns = read_point_columns(tmp_path / "a.pcd", "a.pcd").values
    assert {"x", "normal_0", "normal_1"} <= {*columns}
    assert [columns[name].tolist() for name in ("red", "green", "blue")] == [[2], [3], [4]]


def test_laser_scans_without_their_package_name_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "laspy", None)
    (tmp_path / "scan.LAZ").write_bytes(b"LASF")
    with pytest.raises(MissingExtra) as caught:
        build_own(
            "points",
            "own",
            {"path": tmp_path / "scan.LAZ"},
            home=Home(tmp_path / "home"),
            quiet=True,
        )
    assert "laspy[lazrs]" in steps_of(caught.value)
    assert not (tmp_path / "home" / "raw").exists()


@pytest.mark.parametrize(
    ("values", "is_warned"),
    [
        (np.repeat([*"ab"], 20), True),
        (np.repeat([7, 2, 5], 20), True),
        (np.repeat([7, 2, 7], 20), False),
        (np.repeat([0.5, 2, 7], 20), False),
        (np.repeat([7, 7], 20), False),
        (np.arange(60), False),
    ],
)
def test_a_column_of_runs_in_a_single_file_may_name_clouds(tmp_path, values, is_warned):
    rows = [f"{n} {n * 7 % 5} 1 {value}" for n, value in enumerate(values)]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(["x y z scan", *rows]))
    survey = Survey(CloudOptions(), (), "")
    survey.add("a.txt", [path], None, lambda *_: None)
    assert any("if each 'scan' is a cloud" in line for line in survey.warnings()) == is_warned
