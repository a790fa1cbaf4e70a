"""Superpixels of pictures: equal to a direct slow construction, and every bad file an error or a skip."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.random import PCG64, Generator
from PIL import Image, ImageOps
from scipy import ndimage
from skimage import color, filters, graph, segmentation
from support.cli import expect_refusal, kmip
from support.raises import raises
from support.shared import ROOT, shared_data

from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.format.reader import Shard
from kmip_data.manifest import load_manifest, with_build_name
from kmip_data.pipelines.base import RawCopy, load_pipeline
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.datasets.superpixels import DecodedPicture, OwnSuperpixelParams
from kmip_data.pipelines.datasets.superpixels import picture_graphs as ours
from kmip_data.pipelines.datasets.superpixels.mask_files import find_masks, pair_with_masks
from kmip_data.pipelines.datasets.superpixels.picture_graphs import segment_superpixels
from kmip_data.pipelines.engine import resumable_build
from kmip_data.pipelines.graph_arrays.spooled_graphs import SpooledGraphs
from kmip_data.reading.dataset import ShardedDataset

SMALL = {"superpixels": 40, "classes": 3}


def write_sample(folder: Path, *, pictures: int) -> None:
    """Write pictures of coloured blocks with some noise, and masks of their classes."""
    for number in range(pictures):
        rng = Generator(PCG64([0, number]))
        mask = np.kron(rng.integers(0, 3, (6, 8)), np.ones((15, 15), int))
        ground = np.array([(70, 110, 70), (190, 60, 50), (60, 80, 190)])[mask]
        picture = np.clip(ground + rng.normal(0, 6, (90, 120, 3)), 0, 255)
        for kind, pixels in (("images", picture), ("masks", mask)):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(
                folder / kind / f"picture_{number:03d}.png"
            )


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


@pytest.fixture
def pictures(tmp_path) -> Path:
    write_sample(tmp_path / "own", pictures=4)
    return tmp_path / "own"


@pytest.fixture
def decoded(monkeypatch) -> list[str]:
    """Name of each picture and mask that is decoded in this process, every time it is."""
    names = []
    open_picture = ours._open_picture

    def counted(path: Path, name: str):
        names.append(name)
        return open_picture(path, name)

    monkeypatch.setattr(ours, "_open_picture", counted)
    monkeypatch.setattr(resumable_build, "needs_no_worker", lambda *_: True)
    return names


def build(folder: Path, home: Home, *, jobs: int = 1, split=None, **parameters) -> Build:
    source = {"images": folder / "images", "masks": folder / "masks"}
    return build_own(
        "superpixels", "own", source, parameters={**SMALL, **parameters}, split_parameters=split, home=home,
        jobs=jobs, quiet=True,
    )  # fmt: skip


def records(build: Build) -> dict[str, dict[str, np.ndarray]]:
    by_key = {}
    for entry in build.card.shards:
        shard = Shard(build.path / entry.file)
        for g, key in enumerate(shard.keys):
            nodes, edges = shard.node_ptr[g : g + 2], shard.edge_ptr[g : g + 2]
            by_key[key] = {
                "x": shard.read("node/x", *nodes),
                "y": shard.read("node/y", *nodes),
                "attr": shard.read("edge/attr", *edges),
                "edge_index": shard.read("edge/index", *edges).astype(np.int64),
            }
    return by_key


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
        edges = {
            (a, b): (d["weight"], d["count"]) for a, b, d in made.to_directed().edges(data=True)
        }
    else:
        centres = np.array(x)[:, 12:]
        distance = np.linalg.norm(centres[:, None] - centres[None], axis=2)
        np.fill_diagonal(distance, np.inf)
        nearest = np.argsort(distance, axis=1, kind="stable")[:, :8]
        edges = {(s, t): (distance[t, s],) for t, row in enumerate(nearest.tolist()) for s in row}
    return np.array(x), np.array(y), dict(sorted(edges.items()))


# The second has a void border; the slow construction is slowest there.
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("2011_002098", "rag-boundary"),
        pytest.param("2010_006035", "knn", marks=pytest.mark.torture),
    ],
)
def test_real_pictures_equal_the_slow_construction(name, rule):
    picture = ours.read_picture(shared_data("voc", "JPEGImages", f"{name}.jpg"), name)
    path = shared_data("voc", "SegmentationClass", f"{name}.png")
    mask = ours.classes_from_values(ours.read_mask(path, name), range(21), 255, name)
    x, y, edges = slow(picture, mask, 500, rule)
    segments = segment_superpixels(picture, 500)
    np.testing.assert_allclose(ours.superpixel_features(picture, segments), x, atol=1e-9)
    known = y != ours.VOID
    np.testing.assert_array_equal(ours.superpixel_labels(mask, segments)[known], y[known])
    edge_index, attr = ours.connect_superpixels(picture, segments, rule, 8)
    assert list(map(tuple, edge_index.T.tolist())) == list(edges)
    np.testing.assert_allclose(attr, np.array(list(edges.values())), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("most", [1, 7, 40, 300])
def test_one_slic_for_each_grid_gives_what_the_loop_gives(pictures, most):
    picture = ours.read_picture(pictures / "images" / "picture_000.png", "p")
    x, _, edges = slow(picture, np.zeros(picture.shape[:2]), most, "rag-boundary")
    segments = segment_superpixels(picture, most)
    assert segments.max() + 1 == len(x)
    np.testing.assert_allclose(ours.superpixel_features(picture, segments), x, atol=1e-9)
    edge_index, attr = ours.connect_superpixels(picture, segments, "rag-boundary", 8)
    assert list(map(tuple, edge_index.T.tolist())) == list(edges)
    np.testing.assert_allclose(attr, np.array(list(edges.values())), rtol=1e-5, atol=1e-7)
    if most == 40:  # of 300, some are equally far
        edge_index, attr = ours.connect_superpixels(picture, segments, "knn", 8)
        _, _, edges = slow(picture, np.zeros(picture.shape[:2]), most, "knn")
        assert list(map(tuple, edge_index.T.tolist())) == list(edges)
        np.testing.assert_allclose(attr, np.array(list(edges.values())), rtol=1e-5)


# --- labels --------------------------------------------------------------------------------------


def test_labels_are_those_at_the_centroid_or_of_most_pixels():
    segments = np.repeat([[0, 0, 0, 1, 1, 1, 2]], 3, axis=0)
    mask = np.zeros((3, 7), np.uint8)
    mask[1, 1] = 2  # the centre of superpixel 0, one pixel of nine
    mask[:, 3:] = 1
    mask[1, 4] = 255  # the centre of superpixel 1 has no class
    mask[:, 6] = 255  # no pixel of superpixel 2 has one
    assert ours.superpixel_labels(mask, segments).tolist() == [2, 1, -1]


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
        pixels = ours.read_picture(tmp_path / f"{mode[0]}.png", mode)
        expected = {"RGBA": rgb, "1": np.repeat(((grey > 100) * 255)[..., None], 3, 2)}.get(mode)
        expected = np.repeat(grey[..., None], 3, 2) if expected is None else expected
        np.testing.assert_array_equal(pixels, expected, err_msg=mode)


def test_index_and_palette_masks_are_one(tmp_path):
    classes = np.array([[0, 1, 2], [20, 255, 0]], np.uint8)
    indexed = Image.fromarray(classes)
    indexed.save(tmp_path / "index.png")
    indexed.putpalette(bytes(range(256)) * 3)
    indexed.save(tmp_path / "palette.png")
    Image.fromarray(classes.astype(np.uint16)).save(tmp_path / "deep.png")
    for name in ("index", "palette", "deep"):
        values = ours.read_mask(tmp_path / f"{name}.png", name)
        mask = ours.classes_from_values(values, range(21), 255, name)
        np.testing.assert_array_equal(mask, classes, err_msg=name)
    with raises(DamagedInput, naming=20):
        ours.classes_from_values(ours.read_mask(tmp_path / "index.png", "m"), range(20), 255, "m")


def test_pictures_of_other_depths_are_as_bright_or_asked_about(tmp_path):
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    bright = np.repeat(grey[..., None], 3, 2)
    kinds = {
        "float 0 to 1": ((grey / 255).astype("f4"), "tif", None),
        "float 0 to 255": (grey.astype("f4"), "tif", 255),
        "int32 0 to 255": (grey.astype("i4"), "tif", 255),
        "int32 0 to 65535": (grey.astype("i4") * 257, "tif", 65_535),
        "12 bits in 16": (np.rint(grey * (4095 / 255)).astype("u2"), "png", 4_095),
    }
    for name, (pixels, suffix, white) in kinds.items():
        path = tmp_path / f"p.{suffix}"
        Image.fromarray(pixels).save(path)
        if white is not None:
            with raises(DamagedInput, steps=Setting(white=white)):
                ours.read_picture(path, name)
        np.testing.assert_array_equal(ours.read_picture(path, name, white=white), bright, name)
    for value in (np.nan, -0.5):
        Image.fromarray(np.full((4, 4), value, "f4")).save(tmp_path / "p.tif")
        with raises(DamagedInput, naming=value):
            ours.read_picture(tmp_path / "p.tif", "p")
    # Colours of 16 bits: Pillow has their upper 8.
    tifffile = pytest.importorskip("tifffile")
    for bits, white in ((16, None), (16, 65_535), (12, 65_535), (12, None), (12, 4_095)):
        values = np.rint(bright * ((2**bits - 1) / 255)).astype("u2")
        tifffile.imwrite(tmp_path / "p.tif", values)
        if bits == 12 and white != 65_535:
            with raises(DamagedInput, naming=15):
                ours.read_picture(tmp_path / "p.tif", "p", white=white)
            continue
        read = ours.read_picture(tmp_path / "p.tif", "p", white=white)
        np.testing.assert_array_equal(read, values >> 8)
    for mode in ("CMYK", "YCbCr", "LAB"):
        Image.new(mode, (4, 4)).save(tmp_path / "p.tif")
        ours.read_picture(tmp_path / "p.tif", mode)


@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_picture_that_is_stored_turned_lies_under_its_mask(tmp_path, orientation):
    rng = np.random.default_rng(0)
    stored = Image.fromarray(rng.integers(0, 255, (6, 8, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "p.png", exif=exif)
    shown = np.asarray(ImageOps.exif_transpose(Image.open(tmp_path / "p.png")))

    def read(**options):
        return ours.read_picture(tmp_path / "p.png", "p", **options)

    np.testing.assert_array_equal(read(exif="apply"), shown)
    np.testing.assert_array_equal(read(exif="ignore"), np.asarray(stored))
    if orientation > 4:  # a quarter turn: the size of the mask tells
        np.testing.assert_array_equal(read(size=(8, 6)), shown)
        np.testing.assert_array_equal(read(size=(6, 8)), np.asarray(stored))
    else:
        with raises(DamagedInput, steps=Setting(exif="apply")):
            read(size=(6, 8))


def test_pixels_without_a_class_and_masks_of_any_values(tmp_path):
    values = np.array([[0, 7], [7, 0]])
    alpha = np.array([[255, 255], [0, 255]])
    kinds = {
        "LA": np.dstack([values, alpha]).astype("u1"),
        "F": np.where(alpha > 0, values, np.nan).astype("f4"),
        "I": np.where(alpha > 0, values, -1).astype("i4"),
    }
    for name, pixels in kinds.items():
        Image.fromarray(pixels).save(tmp_path / "m.tif")
        read = ours.read_mask(tmp_path / "m.tif", name)
        mask = ours.classes_from_values(read, (0, 7), 255, name)
        np.testing.assert_array_equal(mask, [[0, 1], [255, 0]], name)
    Image.fromarray(np.full((2, 2), 0.5, "f4")).save(tmp_path / "m.tif")
    with raises(DamagedInput, naming=0.5):
        ours.read_mask(tmp_path / "m.tif", "m")


# --- builds --------------------------------------------------------------------------------------


def test_the_command_line_builds_verifies_and_previews(pictures, home, tmp_path):
    folders = [f"--set={kind}={pictures / kind}" for kind in ("images", "masks")]
    options = [*folders, "--set", "superpixels=40", "--set", "classes=3"]
    done = kmip(
        "build", "superpixels", "--name", "photos", *options, "--jobs", 1, "--quiet", "--json"
    )
    assert done.code == 0, done.err
    folder = done.json["path"]
    assert kmip("verify", folder).code == 0
    preview = ("preview", "photos", "--output", tmp_path / "p.png", "--records", "0,1")
    drawn = kmip(*preview)
    assert drawn.code == 0
    assert "are not here" not in drawn.err
    assert Image.open(tmp_path / "p.png").size[0] > 1000
    (home.raw / "photos").rename(tmp_path / "away")
    without = kmip(*preview, "--force")
    assert without.code == 0
    assert "are missing and not drawn" in without.err


def test_masks_of_0_and_255_need_one_choice(pictures, home):
    for path in (pictures / "masks").iterdir():
        Image.fromarray((np.asarray(Image.open(path)) > 1).astype(np.uint8) * 255).save(path)
    (pictures / "masks" / "more.png").write_bytes(path.read_bytes())
    (pictures / "images" / "notes.txt").write_text("mine")
    folders = [f"--set={kind}={pictures / kind}" for kind in ("images", "masks")]
    line = ("build", "superpixels", "--name=own", *folders, "--set=superpixels=40", "--quiet")
    message = expect_refusal(*line, "--set=classes=2", code=4)
    assert message.endswith("--quiet --set classes=0,255\n")
    done = kmip(*line, "--set=classes=0,255")
    assert done.code == 0, done.err
    assert "masks/more.png: a mask without a picture" in done.out
    assert "images/notes.txt: it names no files" in done.out
    assert "classes        2 (0: " in done.out


def test_masks_of_colours_are_refused_and_the_page_says_how_to_save_classes(
    pictures, home, monkeypatch
):
    for path in sorted((pictures / "masks").iterdir()):
        colours = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0]], np.uint8)
        Image.fromarray(colours[np.asarray(Image.open(path))]).save(path)
    folders = [f"--images={pictures / 'images'}", f"--masks={pictures / 'masks'}"]
    line = ("build", "superpixels", "--name=own", *folders, "--set=classes=3", "--quiet")
    message = expect_refusal(*line, code=4)
    assert "masks/picture_000.png" in message

    page = (ROOT / "docs/pictures.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(pictures)
    exec(code, {})
    done = kmip(*line)
    assert done.code == 0, done.err


#: Pictures and their masks.
MASKS = {
    "endings": {"a.jpg": "a_mask.png", "b.jpg": "b_mask.png"},
    "beginnings": {"img_1.png": "mask_1.png", "img_2.png": "mask_2.png"},
    "folders": {"test/0.png": "test_labels/0_L.png", "train/0.png": "train_labels/0_L.png"},
    "folders above": {"JPEGImages/x/0.jpg": "gt/x/0.png", "JPEGImages/y/0.jpg": "gt/y/0.png"},
    "a picture without one": {"a.jpg": "masks/a.png", "b.jpg": None},
    "classes": {"with_mask/1.png": None, "without_mask/2.png": None},
    "two of a picture": {"a.png": None, "a_label.png": None, "a_mask.png": None},
    "no pictures": {"masks/a.png": None, "masks/b.png": None},
    "photos": {"mask/1.png": None, "no/1.png": None},
}


@pytest.mark.parametrize("case", MASKS)
def test_masks_have_the_names_of_pictures_and_words_of_masks(tmp_path, case):
    rng = np.random.default_rng(0)
    files = {}
    for name in filter(None, {**MASKS[case], **dict.fromkeys(MASKS[case].values())}):
        pixels = rng.integers(0, 255 if case == "photos" else 2, (32, 32, 3), np.uint8)
        files[name] = tmp_path / name
        files[name].parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(files[name])
    masks = find_masks(files)
    pairs = pair_with_masks([f"{'masks' if name in masks else 'images'}/{name}" for name in files])
    assert pairs == [
        (f"images/{picture}", mask and f"masks/{mask}") for picture, mask in MASKS[case].items()
    ]


def test_masks_of_other_names_among_pictures_are_refused(pictures):
    files = {f"images/p{number}.png": path for number, path in enumerate(pictures.glob("images/*"))}
    for path in pictures.glob("masks/*"):
        files[f"images/{path.name.replace('picture', 'mask')}"] = path
    with raises(DamagedInput, naming="mask_000.png"):
        find_masks(files)


# --- bad input -----------------------------------------------------------------------------------


def faulty(pictures: Path) -> dict[str, str]:
    """Spoil picture 2 and its mask in every way: name of the spoilt picture -> words of its error."""
    whole = (pictures / "images" / "picture_002.png").read_bytes()
    huge = (
        whole[:16] + (60_000).to_bytes(4, "big") * 2 + whole[24:]
    )  # the size that the header declares
    mask = np.asarray(Image.open(pictures / "masks" / "picture_002.png"))
    problems = {
        "small": (whole, mask[:50, :50], "differs in size from its picture"),
        "cut": (whole[:2000], mask, "cannot be read"),
        "text": (b"no picture", mask, "cannot be read"),
        "huge": (huge, mask, "cannot be read"),
        "high": (whole, mask + 7, "which is not a class"),
        "lone": (whole, None, "has no mask"),
    }
    for name, (data, classes, _) in problems.items():
        (pictures / "images" / f"{name}.png").write_bytes(data)
        if classes is not None:
            Image.fromarray(classes).save(pictures / "masks" / f"{name}.png")
    return {name: words for name, (_, _, words) in problems.items()}


def test_records_are_the_graphs_and_bad_pictures_are_listed(pictures, home, decoded):
    """Every picture and mask is decoded once, of which some are unusable."""
    problems = faulty(pictures)
    for kind in ("images", "masks"):
        (pictures / kind / "a").mkdir()
        shutil.move(pictures / kind / "picture_000.png", pictures / kind / "a" / "ü.png")
    for _ in range(2):
        made = build(pictures, home, on_error="skip")
    files = (path.relative_to(pictures) for path in pictures.rglob("*.png"))
    assert sorted(decoded) == sorted(map(str, {*files} - {Path("images/lone.png")}))
    by_key = records(made)
    assert list(by_key) == ["a/\\xfc", "picture_001", "picture_002", "picture_003"]
    skipped = dict(made.card.statistics["skipped"])
    assert sorted(skipped) == sorted(problems)
    assert all(words in skipped[name] for name, words in problems.items())
    assert any("Skipped 6 records" in note for note in made.card.notes)
    name = "picture_001"
    picture = np.asarray(Image.open(pictures / "images" / f"{name}.png"))
    mask = np.asarray(Image.open(pictures / "masks" / f"{name}.png"))
    x, y, edges = slow(picture, mask, 40, "rag-boundary")
    assert by_key[name]["x"].dtype == np.float16
    np.testing.assert_array_equal(by_key[name]["x"], x.astype(np.float16))
    np.testing.assert_array_equal(by_key[name]["y"], y)
    np.testing.assert_array_equal(by_key[name]["edge_index"].T, list(edges))


def test_a_limit_decodes_only_the_pictures_it_builds(pictures, tmp_path, decoded):
    members = [str(path.relative_to(pictures)) for path in pictures.rglob("*.png")]
    raw = RawCopy(pictures, dict.fromkeys(members, ""), ())
    (pictures / "images/picture_001.png").write_bytes(b"not decoded")
    pipeline = load_pipeline(with_build_name(load_manifest("superpixels"), "own"))
    params = OwnSuperpixelParams(classes="3", limit=2)
    prepared = pipeline.prepare(raw, params, tmp_path)
    names = [f"picture_{row:03d}.png" for row in params.positions_to_build(4)]
    assert sorted(decoded) == [f"{kind}/{name}" for kind in ("images", "masks") for name in names]
    spool = SpooledGraphs(tmp_path / "pictures")
    for name in names:
        (block,) = spool.blocks([prepared.facts["positions"][f"images/{name}"]])
        for pixels, kind in zip(DecodedPicture.from_block(block), ("images", "masks"), strict=True):
            np.testing.assert_array_equal(pixels, np.asarray(Image.open(pictures / kind / name)))


def test_wrong_folders_and_names_leave_nothing(pictures, home, tmp_path):
    (tmp_path / "empty").mkdir()
    images, masks = (f"--set={kind}={pictures / kind}" for kind in ("images", "masks"))
    for options, value in (
        ([], "images"),
        (["--set=images=nowhere", masks], "nowhere"),
        ([f"--set=images={tmp_path / 'empty'}", masks], str(tmp_path / "empty")),
        ([images, masks, "--set=class_name=sky"], "21"),
    ):
        line = ("build", "superpixels", "--name", "photos", *options, "--quiet", "--jobs", 1)
        assert value in expect_refusal(*line)
    Image.open(pictures / "images" / "picture_000.png").save(
        pictures / "images" / "picture_000.jpg"
    )
    with raises(DamagedInput, naming="images/picture_000.jpg"):
        build(pictures, home)
    assert [path.name for path in home.path.rglob("*") if path.is_file()] == []


def test_neighbours_are_refused_for_edges_between_touching_superpixels(home, pictures):
    with raises(UsageError, steps=Setting(k=None)):
        build(pictures, home, k=4)
    assert build(pictures, home, k=4, edges="knn").card.parameters["k"] == 4


@pytest.mark.parametrize(
    ("edges", "edge_fields"),
    [
        ("rag-boundary", ("mean edge strength", "boundary [pixels]")),
        ("knn", ("distance [pixels]",)),
    ],
)
def test_the_card_has_the_kind_of_each_feature(home, pictures, edges, edge_fields):
    dataset = ShardedDataset(build(pictures, home, edges=edges))
    x = dataset.schema.column("node/x")
    kinds = dict(zip(x.fields, dataset.card.field_kinds("node/x"), strict=True))
    positions = [i for i, kind in enumerate(kinds.values()) if kind == "position"]
    np.testing.assert_array_equal(dataset[0].x[:, positions], dataset[0].pos)
    assert set(kinds.values()) == {"number", "position"}
    assert dataset.schema.column("edge/attr").fields == edge_fields
    assert dataset.card.field_kinds("edge/attr") == ("number",) * len(edge_fields)
