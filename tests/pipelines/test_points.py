"""Point clouds of your own: every format the same graphs, blocks by S3DIS's rule, bad files their errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.random import PCG64, Generator
from support.cli import kmip
from support.knn_oracle import exact_table

from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.reader import Shard
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import RawFolder, Unit, load_pipeline
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.clouds.files import read_points
from kmip_data.pipelines.clouds.graphs import block_rows, normalised, windows
from kmip_data.pipelines.samples.s3dis import make_room

ROW = np.dtype(
    [("x", "f8"), ("y", "f8"), ("z", "f8"), ("red", "u1"), ("green", "u1"), ("blue", "u1"), ("class", "u1")]
)


def write_sample(folder: Path, *, rooms: int) -> None:
    """Write ``room_000.npy`` … into ``folder``."""
    for number in range(rooms):
        rng = Generator(PCG64([0, number]))
        cloud, label, _ = make_room(rng)
        chosen = np.sort(rng.choice(len(cloud), 6_000, replace=False))
        rows = np.empty(6_000, ROW)
        for axis, offset in zip("xyz", (385_000.0, 6_672_000.0, 12.0), strict=True):
            rows[axis] = cloud[chosen, "xyz".index(axis)] + offset
        for channel, name in enumerate(("red", "green", "blue"), 3):
            rows[name] = np.rint(cloud[chosen, channel] * 255)
        rows["class"] = label[chosen]
        np.save(folder / f"room_{number:03d}.npy", rows, allow_pickle=False)


PIPELINE = load_pipeline(load_manifest("points"))
COLOURS = ("red/255", "green/255", "blue/255")


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


@pytest.fixture(scope="module")
def rooms(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rooms")
    write_sample(folder, rooms=3)
    return folder


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


def build(folder: Path, home: Home, *, name: str = "own", split=None, jobs: int = 1, **parameters) -> Build:
    return build_own(
        "points", name, {"path": folder}, parameters=parameters, split_parameters=split, home=home, jobs=jobs,
        quiet=True,
    )  # fmt: skip


def made(path: Path, **parameters):
    """Records of one file, without the engine."""
    params = PIPELINE.Params(**{"k": 4, **parameters})
    params = PIPELINE.resolve(params, RawFolder(path.parent, {path.name: ""}, ()))
    prepared = PIPELINE.prepare(RawFolder(path.parent, {f"./{path.name}": ""}, ()), params, path.parent)
    return list(PIPELINE.records(prepared, Unit(0, "", {"cloud": f"./{path.name}"}), params))


# --- formats -------------------------------------------------------------------------------------


def write(folder: Path, kind: str, rows: np.ndarray) -> Path:
    path = folder / f"cloud.{kind.rpartition(' ')[2]}"
    numbers, names = table(rows), rows.dtype.names
    lines = [" ".join(f"{value:.6g}" for value in row) for row in numbers]
    kinds = {"f8": "double", "u1": "uchar"}
    properties = [f"property {kinds[rows.dtype[name].str[1:]]} {name}" for name in names]
    header = [
        f"element vertex {len(rows)}",
        *properties,
        "element face 0",
        "property list uchar int i",
        "end_header",
    ]
    if kind == "npy":
        np.save(path, rows)
    elif kind == "plain npy":
        np.save(path, numbers.astype(np.float32))
    elif kind == "csv":
        path.write_text("\n".join([",".join(names), *(line.replace(" ", ",") for line in lines)]))
    elif kind == "commented txt":
        path.write_text("\r\n".join(["# " + " ".join(names), *lines, ""]))
    elif kind == "txt":
        path.write_text("\n".join(lines))
    elif kind == "pts":
        path.write_text("\n".join([str(len(lines)), *lines]))
    elif kind == "xyz":
        path.write_text("\n".join(line.replace(" ", "\t") for line in lines))
    elif kind == "ascii ply":
        path.write_text("\n".join(["ply", "format ascii 1.0", "comment made here", *header, *lines, ""]))
    elif kind in {"little ply", "big ply"}:
        order = "<" if kind.startswith("little") else ">"
        head = "\n".join(["ply", f"format binary_{kind.split()[0]}_endian 1.0", *header, ""])
        path.write_bytes(head.encode() + rows.astype(rows.dtype.newbyteorder(order)).tobytes())
    return path


NAMED = ["npy", "csv", "commented txt", "ascii ply", "little ply", "big ply"]
PLAIN = ["plain npy", "txt", "pts", "xyz"]


@pytest.mark.parametrize("kind", [*NAMED, *PLAIN])
def test_every_format_gives_the_same_graph(tmp_path, kind):
    rows = cloud()
    path = write(tmp_path, kind, rows)
    features, label = (COLOURS, "class") if kind in NAMED else (("3/255", "4/255", "5/255"), "6")
    (record,) = made(path, feature=features, label_column=label)
    numbers = table(rows)
    expected = np.column_stack([numbers[:, :3] - numbers[:, :3].min(axis=0), numbers[:, 3:6] / 255])
    np.testing.assert_allclose(record.columns["node/x"], expected, atol=1e-6)
    np.testing.assert_array_equal(record.columns["node/y"], rows["class"])
    assert record.columns["node/y"].dtype == np.uint8
    np.testing.assert_array_equal(record.neighbor, exact_table(record.columns["node/x"][:, :3], 4))


def test_coordinates_of_maps_keep_their_millimetres(tmp_path):
    rows = cloud()
    rows["x"] += 385_000
    rows["y"] += 6_672_000
    (record,) = made(write(tmp_path, "npy", rows))
    near = cloud()
    expected = np.column_stack([near[axis] - near[axis].min() for axis in "xyz"])
    np.testing.assert_allclose(record.columns["node/x"], expected, atol=1e-6)


# --- blocks --------------------------------------------------------------------------------------


def slow_blocks(xyz: np.ndarray, size: float) -> list[tuple[tuple[float, float], set[int]]]:
    """The rows inside each window that has 100 points or more, by a look at every point."""
    found = []
    for left, front in windows(xyz[:, :2].max(axis=0).tolist(), size):
        inside = {
            row
            for row, (x, y, _) in enumerate(xyz.tolist())
            if left <= x <= left + size and front <= y <= front + size
        }
        if len(inside) >= 100:
            found.append(((left, front), inside))
    return found


def test_blocks_are_the_windows_of_s3dis():
    rng = np.random.default_rng(3)
    xyz = np.round(rng.uniform(0, [3.2, 2.1, 2.5], (3_000, 3)), 2)
    xyz -= xyz.min(axis=0)
    expected = slow_blocks(xyz, 1.0)
    found = block_rows(xyz[:, :2], size=1.0, points=300, room="r", seed=0)
    assert len(found) == len(expected)
    assert windows([3.2, 2.1], 1.0)[:4] == [(0.0, 0.0), (0.0, 0.5), (0.0, 1.0), (0.0, 1.5)]
    for rows, (_, inside) in zip(found, expected, strict=True):
        assert len(rows) == 300
        assert set(rows.tolist()) <= inside
        if len(inside) <= 300:
            assert set(rows.tolist()) == inside  # filled up with duplicates
    centred, share = normalised(xyz, found[0], 1.0, xyz.max(axis=0))
    np.testing.assert_allclose(centred[:, :2].min(axis=0), -0.5, atol=1e-6)
    np.testing.assert_allclose(share, xyz[found[0]] / xyz.max(axis=0), atol=1e-6)
    np.testing.assert_allclose(centred[:, 2], xyz[found[0], 2], atol=1e-6)


def test_a_build_with_blocks(rooms, home, tmp_path):
    options = {"k": 8, "feature": COLOURS, "label_column": "class", "block": 2.0, "block_points": 256}
    build_a = build(rooms, home, **options)
    build_b = build(rooms, Home(tmp_path / "b"), jobs=2, **options)
    assert [s.sha256 for s in build_a.card.shards] == [s.sha256 for s in build_b.card.shards]
    shard = Shard(build_a.path / build_a.card.shards[0].file)
    x = shard.read("node/x", 0, 256)
    assert x.shape == (256, 9)
    assert (x[:, 3:] >= 0).all()
    assert (x[:, 3:] <= 1).all()
    assert build_a.card.schema_.labels.num_classes == 13
    parts = build_a.card.splits["random-seed0"].parts
    assert min(part.graphs for part in parts.values()) > 0
    keys = [key for entry in build_a.card.shards for key in Shard(build_a.path / entry.file).keys]
    split = PIPELINE.split(_records(keys), PIPELINE.SplitParams(), None).parts
    groups = {part: {keys[row].rpartition("/")[0] for row in rows} for part, rows in split.items()}
    assert not groups["train"] & groups["val"]
    assert not groups["train"] & groups["test"]
    assert kmip("verify", build_a.path).code == 0


def _records(keys):
    from support.pyg_point_clouds import records_of

    return records_of(keys)


def test_the_command_line_builds_and_opens(rooms, home):
    done = kmip(
        "build", "points", "--name", "campus", "--set", f"path={rooms}", "--k", 6, "--set", "feature=red/255",
        "--set", "label_column=class", "--split-rule", "stratified", "--jobs", 1, "--quiet", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    import kmip_data

    data = kmip_data.open("campus", split=None)[0]
    assert data.x.shape[1] == 4
    assert data.edge_index.shape[1] == 6 * data.num_nodes
    assert data.y.max() < 13


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("1 2 3\n4 5\n", {}, "cannot be read"),
        ("1 2 3\n4 five 6\n", {}, "cannot be read"),
        ("1 2 3\n4 nan 6\n", {}, "column 'y' of point 1 is not finite"),
        ("x y\n1 2\n", {}, "has no column 'z'"),
        ("x y z\n1 2\n", {}, "cannot be read"),
        ("", {}, "holds no points"),
        ("x y z\n", {}, "holds no points"),
        ("1 2 3\n4 5 6\n", {"label_column": "class"}, "has no column 'class'"),
        ("1 2 3 0\n4 5 6 1.5\n", {"label_column": "3"}, "point 1: "),
        ("1 2 3 0\n4 5 6 -1\n", {"label_column": "3"}, "point 1: "),
        ("1 2 3 0\n4 5 6 7\n", {"label_column": "3", "classes": 5}, "the class 7 is out of range"),
        ("1 2 3\n4 5 6\n", {"feature": ("red",)}, "has no column 'red'"),
        ("1 2 3\n4 5 6\n", {"k": 2}, "too few for k"),
        ("1 2 3\n4 5 6\n", {"block": 1.0}, "has no block"),
    ],
)
def test_bad_text_is_an_error(tmp_path, content, options, message):
    path = tmp_path / "cloud.txt"
    path.write_text(content)
    with pytest.raises(DamagedInput, match=message) as caught:
        made(path, **{"k": 1, **options})
    assert caught.value.parts["next"]


@pytest.mark.parametrize("kind", ["npy", "ascii ply", "little ply"])
def test_files_that_are_cut_off_are_errors(tmp_path, kind):
    path = write(tmp_path, kind, cloud())
    data = path.read_bytes()
    for size in (0, 3, len(data) // 4, len(data) - 700):
        path.write_bytes(data[:size])
        with pytest.raises(DamagedInput):
            read_points(path, path.name)


def test_headers_that_declare_endless_columns_are_refused(tmp_path):
    with (tmp_path / "a.npy").open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (0, 10**10)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(DamagedInput, match="10,000,000,000 columns"):
        read_points(tmp_path / "a.npy", "a.npy")


def test_pickles_in_npy_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DamagedInput, match="cannot be read"):
        read_points(tmp_path / "a.npy", "a.npy")


@pytest.mark.parametrize("name", ["scan.las", "scan.LAZ"])
def test_lidar_files_are_refused_with_the_way_to_convert_them(tmp_path, home, name):
    (tmp_path / name).write_bytes(b"LASF")
    with pytest.raises(UsageError, match="not read") as caught:
        build(tmp_path, home)
    assert "pdal translate" in caught.value.parts["next"]


def test_counts_that_no_file_can_hold_are_errors_at_once(tmp_path):
    """They were believed: the readers went on for hours, or until the memory was full."""
    ply = "ply\nformat {}\nelement vertex 99999999999\nproperty float x\nend_header\n1\n"
    for name, content in (
        ("ascii.ply", ply.format("ascii 1.0").encode()),
        ("binary.ply", ply.format("binary_little_endian 1.0").encode()),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DamagedInput, match="cannot be read"):
            read_points(path, name)


def test_last_line_of_a_ply_file_needs_no_end(tmp_path):
    path = tmp_path / "a.ply"
    path.write_bytes(b"ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nend_header\n1\n2")
    assert read_points(path, "a.ply")["x"].tolist() == [1, 2]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfx,y,z\n1,2,3\n")
    assert list(read_points(path, "a.csv")) == ["x", "y", "z"]


@pytest.mark.parametrize("extent", [(1e38, 1e38), (1e300, 1.0), (1e5, 1e5)])
def test_blocks_far_too_small_for_a_cloud_are_refused(extent):
    with pytest.raises(UsageError, match="too small"):
        windows(extent, 1e-5)


def test_a_failed_build_leaves_nothing(tmp_path, home):
    folder = tmp_path / "clouds"
    folder.mkdir()
    write(folder, "npy", cloud())
    (folder / "bad.txt").write_text("1 2\n")
    done = kmip(
        "build", "points", "--name", "own", "--set", f"path={folder}", "--k", 4, "--jobs", 1, "--quiet"
    )
    assert done.code == 4
    assert "points/bad.txt has no column 'z'" in done.err
    assert [path for path in home.root.rglob("*") if path.is_file()] == []
    skipped = build(folder, home, k=4, on_error="skip")
    assert [entry[0] for entry in skipped.card.statistics["skipped"]] == ["bad.txt"]
