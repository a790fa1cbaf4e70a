"""Superpixels of pictures: equal to a direct slow construction, and every bad file an error or a skip."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.random import PCG64, Generator
from PIL import Image
from scipy import ndimage
from skimage import color, filters, graph, segmentation
from support.cli import kmip
from support.shared import shared_data

from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput
from kmip_data.format.reader import Shard
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.images import graph as ours
from kmip_data.pipelines.images import reading
from kmip_data.pipelines.images.graph import superpixels

SMALL = {"superpixels": 40, "classes": 3}
VOC = (
    "2011_002098",
    "2008_002307",
    "2010_006035",
)  # smallest; one with three classes; one with a void border


def write_sample(folder: Path, *, pictures: int) -> None:
    """Write pictures and masks of discs and boxes of two classes on a shaded ground."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rows, columns = np.indices((90, 120))
    for number in range(pictures):
        rng = Generator(PCG64([0, number]))
        mask = np.zeros((90, 120), np.uint8)
        for _ in range(4):
            label, (row, column) = int(rng.integers(1, 3)), rng.uniform(0, (90, 120))
            size = rng.uniform(10, 30)
            inside = np.hypot(rows - row, columns - column) < size
            if label == 2:
                inside = (np.abs(rows - row) < size / 2) & (np.abs(columns - column) < size)
            mask[inside] = label
        shade = (rows / 90 * 40)[:, :, None]
        pixels = (
            np.array([(70, 110, 70), (190, 60, 50), (60, 80, 190)])[mask]
            + shade
            + rng.normal(0, 6, (90, 120, 3))
        )
        picture = np.clip(pixels, 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / "images" / f"picture_{number:03d}.png")
        Image.fromarray(mask).save(folder / "masks" / f"picture_{number:03d}.png")


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


@pytest.fixture
def pictures(tmp_path) -> Path:
    write_sample(tmp_path / "own", pictures=4)
    return tmp_path / "own"


def build(folder: Path, home: Home, *, jobs: int = 1, split=None, **parameters) -> Build:
    source = {"images": folder / "images", "masks": folder / "masks"}
    if (folder / "palette.txt").exists():
        source["palette"] = folder / "palette.txt"
    return build_own(
        "superpixels", "own", source, parameters={**SMALL, **parameters}, split_parameters=split, home=home,
        jobs=jobs, quiet=True,
    )  # fmt: skip


def records(build: Build) -> dict[str, dict[str, np.ndarray]]:
    found = {}
    for entry in build.card.shards:
        shard = Shard(build.path / entry.file)
        for g, key in enumerate(shard.keys):
            nodes, edges = shard.node_ptr[g : g + 2], shard.edge_ptr[g : g + 2]
            found[key] = {
                "x": shard.read("node/x", *nodes),
                "y": shard.read("node/y", *nodes),
                "attr": shard.read("edge/attr", *edges),
                "edge_index": shard.read("edge/index", *edges).astype(np.int64),
            }
    return found


def left(home: Home) -> list[str]:
    return [path.name for path in home.root.rglob("*") if path.is_file()]


# --- the slow construction -----------------------------------------------------------------------


def slow(picture: np.ndarray, mask: np.ndarray, most: int, rule: str):
    """LRGB's construction as described: a loop of SLIC, a loop over superpixels, scikit-image's graphs."""
    image = (picture / 255).astype(np.float32)
    asked = most + 50
    while True:
        segments = segmentation.slic(image, n_segments=asked, compactness=30.0, start_label=0)
        if len(np.unique(segments)) <= most:
            break
        asked -= 1
    x, y = [], []
    for number in np.unique(segments):
        inside = segments == number
        pixels = (picture / 255)[inside]
        centre = ndimage.center_of_mass(inside)
        x.append([*pixels.mean(0), *pixels.std(0), *pixels.max(0), *pixels.min(0), *centre])
        y.append(mask[round(centre[0]), round(centre[1])])
    if len(x) == 1:
        edges = {(0, 0): (0.0, 0.0)}
    elif rule == "rag-boundary":
        made = graph.rag_boundary(segments, filters.sobel(color.rgb2gray(image)))
        edges = {(a, b): (d["weight"], d["count"]) for a, b, d in made.to_directed().edges(data=True)}
    else:
        centres = np.array(x)[:, 12:]
        distance = np.linalg.norm(centres[:, None] - centres[None], axis=2)
        np.fill_diagonal(distance, np.inf)
        nearest = np.argsort(distance, axis=1, kind="stable")[:, :8]
        edges = {(s, t): (distance[t, s],) for t, row in enumerate(nearest.tolist()) for s in row}
    return np.array(x), np.array(y), dict(sorted(edges.items()))


def voc(name: str) -> tuple[np.ndarray, np.ndarray]:
    picture = reading.read_picture(shared_data("voc", "JPEGImages", f"{name}.jpg"), name)
    path = shared_data("voc", "SegmentationClass", f"{name}.png")
    return picture, reading.read_mask(path, name, classes=21, void=255, palette=reading.voc_palette())


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (VOC[0], "rag-boundary"),
        pytest.param(VOC[2], "knn", marks=pytest.mark.torture),  # the slow construction is slowest there
    ],
)
def test_real_pictures_equal_the_slow_construction(name, rule):
    picture, mask = voc(name)
    x, y, edges = slow(picture, mask, 500, rule)
    segments = superpixels(picture, 500)
    np.testing.assert_allclose(ours.features(picture, segments), x, atol=1e-9)
    found, unknown = ours.labels(mask, segments)
    known = y != reading.VOID
    np.testing.assert_array_equal(found[known], y[known])
    assert unknown <= (~known).sum()
    edge_index, attr = ours.connect(picture, segments, rule, 8)
    assert list(map(tuple, edge_index.T.tolist())) == list(edges)
    np.testing.assert_allclose(attr, np.array(list(edges.values())), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("most", [1, 7, 40, 300])
def test_one_slic_for_each_grid_gives_what_the_loop_gives(pictures, most):
    picture = reading.read_picture(pictures / "images" / "picture_000.png", "p")
    x, _, edges = slow(picture, np.zeros(picture.shape[:2]), most, "rag-boundary")
    segments = superpixels(picture, most)
    assert segments.max() + 1 == len(x)
    np.testing.assert_allclose(ours.features(picture, segments), x, atol=1e-9)
    assert len(edges) == ours.connect(picture, segments, "rag-boundary", 8)[0].shape[1]


# --- labels --------------------------------------------------------------------------------------


def test_labels_are_those_at_the_centroid_or_of_most_pixels():
    segments = np.repeat([[0, 0, 0, 1, 1, 1]], 3, axis=0)
    mask = np.zeros((3, 6), np.uint8)
    mask[1, 1] = 2  # the centre of superpixel 0, one pixel of nine
    mask[:, 3:] = 1
    mask[1, 4] = 255  # the centre of superpixel 1 has no class
    assert ours.labels(mask, segments)[0].tolist() == [2, 1]


def test_superpixels_without_any_class_are_background_and_counted():
    segments = np.array([[0, 0, 1, 1]])
    mask = np.array([[255, 255, 3, 255]], np.uint8)
    labels, unknown = ours.labels(mask, segments)
    assert (labels.tolist(), unknown) == ([0, 3], 1)


def test_a_single_superpixel_has_an_edge_to_itself(pictures):
    picture = np.full((5, 4, 3), 9, np.uint8)
    edge_index, attr = ours.connect(picture, np.zeros((5, 4), np.int64), "rag-boundary", 8)
    assert edge_index.tolist() == [[0], [0]]
    assert attr.tolist() == [[0, 0]]


# --- pictures and masks of every kind ------------------------------------------------------------


def test_grey_alpha_deep_and_palette_pictures_are_read(tmp_path):
    grey = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
    rgb = np.stack([grey, grey[::-1], grey[:, ::-1]], axis=2)
    kinds = {
        "L": Image.fromarray(grey),
        "RGBA": Image.fromarray(np.dstack([rgb, np.zeros_like(grey)])),
        "I;16": Image.fromarray(grey.astype(np.uint16) * 257),
        "P": Image.fromarray(grey).convert("P"),
        "1": Image.fromarray(grey > 100),
    }
    for mode, image in kinds.items():
        image.save(tmp_path / f"{mode[0]}.png")
        found = reading.read_picture(tmp_path / f"{mode[0]}.png", mode)
        expected = {"RGBA": rgb, "1": np.repeat(((grey > 100) * 255)[..., None], 3, 2)}.get(mode)
        expected = np.repeat(grey[..., None], 3, 2) if expected is None else expected
        np.testing.assert_array_equal(found, expected, err_msg=mode)


def test_colour_index_and_palette_masks_are_one(tmp_path):
    classes = np.array([[0, 1, 2], [20, 255, 0]], np.uint8)
    colours = reading.voc_palette()
    assert colours[[1, 2, 20, 255]].tolist() == [[128, 0, 0], [0, 128, 0], [0, 64, 128], [224, 224, 192]]
    indexed = Image.fromarray(classes)
    indexed.save(tmp_path / "index.png")
    Image.fromarray(colours[classes]).save(tmp_path / "colour.png")
    indexed.putpalette(colours.tobytes())
    indexed.save(tmp_path / "palette.png")
    Image.fromarray(classes.astype(np.uint16)).save(tmp_path / "deep.png")
    for name in ("index", "colour", "palette", "deep"):
        found = reading.read_mask(tmp_path / f"{name}.png", name, classes=21, void=255, palette=colours)
        np.testing.assert_array_equal(found, classes, err_msg=name)
    with pytest.raises(DamagedInput, match="row 1, column 0 is 20, which is no class"):
        reading.read_mask(tmp_path / "index.png", "m", classes=20, void=255, palette=colours)
    with pytest.raises(DamagedInput, match="which is none of the 20 classes"):
        reading.read_mask(tmp_path / "colour.png", "m", classes=21, void=255, palette=colours[:20])


def test_a_palette_file_names_the_colours(pictures, home):
    (pictures / "palette.txt").write_text("# mine\n10,20,30\n0 0 0\n255 255 255\n")
    expected = records(build(pictures, home))
    colours = np.array([(10, 20, 30), (0, 0, 0), (255, 255, 255)], np.uint8)
    for path in (pictures / "masks").iterdir():
        Image.fromarray(colours[np.asarray(Image.open(path))]).save(path)
    found = records(build(pictures, home))
    for key, record in found.items():
        np.testing.assert_array_equal(record["y"], expected[key]["y"])


# --- builds --------------------------------------------------------------------------------------


def test_records_are_the_graphs_and_float16_rounds_them(pictures, home):
    found = records(build(pictures, home))
    assert list(found) == [f"picture_{i:03d}" for i in range(4)]
    name = "picture_001"
    picture = np.asarray(Image.open(pictures / "images" / f"{name}.png"))
    mask = np.asarray(Image.open(pictures / "masks" / f"{name}.png"))
    x, y, edges = slow(picture, mask, 40, "rag-boundary")
    assert found[name]["x"].dtype == np.float16
    np.testing.assert_array_equal(found[name]["x"], x.astype(np.float16))
    np.testing.assert_array_equal(found[name]["y"], y)
    np.testing.assert_array_equal(found[name]["edge_index"].T, list(edges))


def test_splits_cover_all_records_and_stratify(pictures, home):
    made = build(pictures, home, split={"split": "stratified", "val_fraction": 0.25, "test_fraction": 0.25})
    assert set(made.card.splits) == {"random-seed0", "stratified-seed0-val0.25-test0.25"}
    for entry in made.card.splits.values():
        assert sum(part.graphs for part in entry.parts.values()) == 4
    stratified = made.card.splits["stratified-seed0-val0.25-test0.25"].parts
    assert {part: entry.graphs for part, entry in stratified.items()} == {
        "train": 2, "val": 1, "test": 1
    }  # fmt: skip


def test_the_command_line_builds_verifies_and_previews(pictures, home, tmp_path):
    folders = [f"--set={kind}={pictures / kind}" for kind in ("images", "masks")]
    options = [*folders, "--set", "superpixels=40", "--set", "classes=3"]
    done = kmip("build", "superpixels", "--name", "photos", *options, "--jobs", 1, "--quiet", "--json")
    assert done.code == 0, done.err
    folder = done.json["path"]
    assert kmip("verify", folder).code == 0
    preview = ("preview", "photos", "--output", tmp_path / "p.png", "--records", "0,1")
    drawn = kmip(*preview)
    assert (drawn.code, drawn.err) == (0, "")
    assert Image.open(tmp_path / "p.png").size[0] > 1000
    (home.raw / "photos").rename(tmp_path / "away")
    without = kmip(*preview)
    assert without.code == 0
    assert "are not here: drawn without them" in without.err


# --- bad input -----------------------------------------------------------------------------------


def crop(folder: Path) -> None:
    path = folder / "masks" / "picture_002.png"
    Image.open(path).crop((0, 0, 50, 50)).save(path)


def cut(folder: Path) -> None:
    path = folder / "images" / "picture_002.png"
    path.write_bytes(path.read_bytes()[:2000])


def text(folder: Path) -> None:
    (folder / "images" / "picture_002.png").write_text("no picture")


def no_mask(folder: Path) -> None:
    (folder / "masks" / "picture_002.png").unlink()


def high(folder: Path) -> None:
    Image.fromarray(np.full((90, 120), 7, np.uint8)).save(folder / "masks" / "picture_002.png")


def huge(folder: Path) -> None:
    data = bytearray((folder / "images" / "picture_002.png").read_bytes())
    data[16:24] = (60_000).to_bytes(4, "big") * 2  # the size that the header declares
    (folder / "images" / "picture_002.png").write_bytes(data)


FAULTS = {
    crop: "another size than its picture",
    cut: "cannot be read",
    text: "cannot be read",
    no_mask: "has no mask",
    high: "which is no class",
    huge: "cannot be read",
}


def test_bad_pictures_are_skipped_counted_and_listed(pictures, home):
    write_sample(pictures, pictures=8)
    for number, spoil in enumerate(FAULTS):
        spoil(pictures)
        for kind in ("images", "masks"):
            path = pictures / kind / "picture_002.png"
            if path.exists():
                shutil.move(path, pictures / kind / f"bad_{number}.png")
            shutil.copy(pictures / kind / "picture_003.png", path)
    made = build(pictures, home, on_error="skip")
    assert len(records(made)) == 8
    skipped = dict(made.card.statistics["skipped"])
    assert list(skipped) == [f"bad_{number}" for number in range(len(FAULTS))]
    for number, wanted in enumerate(FAULTS.values()):
        assert wanted in skipped[f"bad_{number}"]
    assert any("Skipped 6 records" in note for note in made.card.notes)


BOTH = ("--set", "images=IMAGES", "--set", "masks=MASKS")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--images is missing"),
        (["--set", "images=IMAGES"], "--masks is missing"),
        (["--set", "images=nowhere", "--set", "masks=MASKS"], "There is no folder"),
        (["--set", "images=EMPTY", "--set", "masks=MASKS"], "has no usable file"),
        ([*BOTH, "--set", "class_name=sky"], "1 names for 21 classes"),
        ([*BOTH, "--archive", "x"], "under a name of your own"),
        ([*BOTH, "--set", "palette=nowhere"], "does not exist"),
    ],
)
def test_wrong_options_change_nothing(pictures, home, tmp_path, options, message):
    (tmp_path / "empty").mkdir()
    places = {"IMAGES": pictures / "images", "MASKS": pictures / "masks", "EMPTY": tmp_path / "empty"}
    words = options
    for name, place in places.items():
        words = [word.replace(f"={name}", f"={place}") for word in words]
    done = kmip("build", "superpixels", "--name", "photos", *words, "--quiet", "--jobs", 1)
    assert done.code == 2
    assert message in done.err
    assert left(home) == []


def test_two_pictures_of_one_name_are_refused(pictures, home):
    Image.open(pictures / "images" / "picture_000.png").save(pictures / "images" / "picture_000.jpg")
    with pytest.raises(DamagedInput, match="have one name"):
        build(pictures, home)
    assert left(home) == []


def test_an_original_that_is_gone_later_is_not_missed(pictures, home):
    made = build(pictures, home)
    expected = {entry.file: entry.sha256 for entry in made.card.shards}
    shutil.rmtree(pictures)
    shard = made.path / made.card.shards[0].file
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-100])
    assert kmip("verify", made.path, "--repair").code == 0
    card = json.loads((made.path / "card.json").read_text())
    assert {entry["file"]: entry["sha256"] for entry in card["shards"]} == expected


def test_pictures_in_sub_folders_have_their_folder_in_the_key(pictures, home):
    for kind, (folder, number) in itertools.product(("images", "masks"), (("a", 0), ("b", 1))):
        (pictures / kind / folder).mkdir()
        shutil.move(pictures / kind / f"picture_{number:03d}.png", pictures / kind / folder / "ü.png")
    assert list(records(build(pictures, home))) == ["a/\\xfc", "b/\\xfc", "picture_002", "picture_003"]
