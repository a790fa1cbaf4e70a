"""Raw scans of S3DIS: the upstream recipe, its known broken lines, and what the card says."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.random import PCG64, Generator
from support.cli import kmip

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.manifest import LinePatch, load_manifest
from kmip_data.pipelines.base import RawFolder, load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.clouds.graphs import patched
from kmip_data.pipelines.samples.s3dis import make_room

ROOT = "Stanford3dDataset_v1.2_Aligned_Version"
CLASSES = (
    "ceiling", "floor", "wall", "beam", "column", "window", "door", "table", "chair", "sofa", "bookcase",
    "board", "clutter",
)  # fmt: skip
ROOMS = ("Area_1/office_1", "Area_5/hallway_6", "Area_6/lounge_1")


def write_sample(folder: Path) -> None:
    """Write three rooms below ``folder``, in whole millimetres as the scans are."""
    for number, room in enumerate(ROOMS):
        rng = Generator(PCG64([0, number]))
        cloud, label, _ = make_room(rng)
        chosen = np.sort(rng.choice(len(cloud), min(12_000, len(cloud)), replace=False))
        xyz = cloud[chosen, :3] + (-10.5, 20.25, 0.125)
        rgb = np.rint(cloud[chosen, 3:] * 255).astype(int)
        place = folder / ROOT / room / "Annotations"
        place.mkdir(parents=True)
        for kind in np.unique(label[chosen]).tolist():
            of_kind = label[chosen] == kind
            lines = [
                f"{x:.3f} {y:.3f} {z:.3f} {r} {g} {b}\n"
                for (x, y, z), (r, g, b) in zip(xyz[of_kind].tolist(), rgb[of_kind].tolist(), strict=True)
            ]
            (place / f"{CLASSES[kind]}_1.txt").write_text("".join(lines))


MANIFEST = load_manifest("s3dis")
PIPELINE = load_pipeline(MANIFEST)
CEILING = "Area_5/hallway_6/Annotations/ceiling_1.txt"


@pytest.fixture(scope="module")
def scans(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    write_sample(folder)
    return folder / ROOT


def raw(folder: Path) -> RawFolder:
    members = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.txt"))
    return RawFolder(folder, dict.fromkeys(members, ""), ())


def blocks(folder: Path, work: Path, **parameters) -> dict:
    work.mkdir(exist_ok=True)
    params = PIPELINE.Params(**{"k": 4, **parameters})
    prepared = PIPELINE.prepare(raw(folder), params, work)
    units = PIPELINE.units(prepared, params)
    return {record.key: record for unit in units for record in PIPELINE.records(prepared, unit, params)}


def upstream_windows(folder: Path) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """A room by pointnet's recipe as it is described: its points, labels, and the rows inside each window."""
    points, labels = [], []
    for path in sorted(folder.glob("Annotations/*.txt")):
        table = np.loadtxt(path)
        points.append(table)
        labels += [CLASSES.index(path.name.split("_")[0])] * len(table)
    cloud = np.concatenate(points)
    cloud[:, :3] = np.round(cloud[:, :3] - cloud[:, :3].min(axis=0), 4)
    inside = []
    counts = [math.ceil((extent - 1.0) / 0.5) + 1 for extent in cloud[:, :2].max(axis=0)]
    for i in range(counts[0]):
        for j in range(counts[1]):
            x, y = cloud[:, 0], cloud[:, 1]
            rows = np.flatnonzero((x >= i * 0.5) & (x <= i * 0.5 + 1) & (y >= j * 0.5) & (y <= j * 0.5 + 1))
            if len(rows) >= 100:
                inside.append(rows)
    return cloud, np.array(labels), inside


def test_blocks_are_draws_of_the_upstream_windows(scans, tmp_path):
    found = blocks(scans, tmp_path / "w")
    for room in ("Area_1/office_1", "Area_6/lounge_1"):
        cloud, labels, inside = upstream_windows(scans / room)
        records = [record for key, record in found.items() if key.startswith(room.replace("/", "_"))]
        assert len(records) == len(inside)
        top = cloud[:, :3].max(axis=0)
        for record, rows in zip(records, inside, strict=True):
            x, y = record.columns["node/x"], record.columns["node/y"]
            assert x.shape == (4096, 9)
            # Position in the room, colour and class tell which points were drawn.
            drawn = {(*p, *c, int(k)) for p, c, k in zip(
                np.round(x[:, 6:].astype(np.float64) * top, 3).tolist(),
                np.rint(x[:, 3:6] * 255).astype(int).tolist(), y.tolist(), strict=True
            )}  # fmt: skip
            there = {(*p, *c, int(k)) for p, c, k in zip(
                np.round(cloud[rows, :3], 3).tolist(), cloud[rows, 3:].astype(int).tolist(),
                labels[rows].tolist(), strict=True
            )}  # fmt: skip
            assert drawn <= there
            assert len(rows) > 4096 or drawn == there
            np.testing.assert_allclose(x[:, :2].min(axis=0), -0.5, atol=1e-5)


def test_draws_are_seeded_by_the_room_alone(scans, tmp_path):
    whole = blocks(scans, tmp_path / "a")
    shutil.copytree(scans / "Area_6", tmp_path / "one" / "Area_6")
    alone = list(blocks(tmp_path / "one", tmp_path / "b").values())
    same = [record for key, record in whole.items() if key.startswith("Area_6")]
    assert len(alone) == len(same)
    for a, b in zip(alone, same, strict=True):
        np.testing.assert_array_equal(a.columns["node/x"], b.columns["node/x"])


def test_the_command_builds_from_a_zip_and_the_card_says_resampled(scans, tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    archive = shutil.make_archive(str(tmp_path / "scans"), "zip", scans.parent)
    done = kmip(
        "build", "s3dis", "--archive", archive, "--k", 4, "--limit", 6, "--jobs", 1, "--quiet", "--json"
    )
    assert done.code == 0, done.err
    build = build_dataset(
        "s3dis",
        archives=[scans.parent],
        parameters={"k": 4, "limit": 6},
        home=Home(tmp_path / "home"),
        jobs=1,
        quiet=True,
    )
    assert str(build.path) == done.json["path"]  # the folder is the same data
    assert any(note.startswith("resampled") for note in build.card.notes)
    assert build.card.complete is False
    parts = done.json["splits"]
    assert parts["test"]["graphs"] > 0
    assert kmip("verify", build.path).code == 0


# --- broken lines --------------------------------------------------------------------------------


def test_the_known_broken_lines_are_patched_and_sound_ones_kept():
    ceiling, office = MANIFEST.patches
    sound = b"1.000 2.000 3.000 185 187 190\n"
    for patch, name, broken, mended in (
        (ceiling, CEILING, b"22.350 6.692 3.048 185\x10187 190\n", b"22.350 6.692 3.048 185 187 190\n"),
        (office, "Area_5/office_19/Annotations/ceiling_1.txt", b"1.000 2.000 3.000 103.0\x000000 1 2\n",
         b"1.000 2.000 3.000 103.000000 1 2\n"),
    ):  # fmt: skip
        data = sound * (patch.line - 1) + broken + sound
        assert patched(data, name, MANIFEST.patches) == sound * (patch.line - 1) + mended + sound
        assert patched(data, "Area_1/office_1/Annotations/x_1.txt", MANIFEST.patches) == data
        whole = sound * (patch.line + 2)
        assert patched(whole, name, MANIFEST.patches) == whole
        assert patched(sound * 3, name, MANIFEST.patches) == sound * 3


def test_a_patched_room_is_the_sound_room_and_an_unknown_fault_is_named(scans, tmp_path, monkeypatch):
    expected = blocks(scans, tmp_path / "w")
    folder = tmp_path / "scans"
    shutil.copytree(scans, folder)
    lines = (folder / CEILING).read_bytes().split(b"\n")
    words = lines[6].split(b" ")
    lines[6] = b" ".join(words[:3]) + b" " + words[3] + b"\x10" + b" ".join(words[4:])
    (folder / CEILING).write_bytes(b"\n".join(lines))
    with pytest.raises(DamagedInput, match=r"ceiling_1\.txt, line 7"):
        blocks(folder, tmp_path / "x")
    patch = LinePatch(file=CEILING, line=7, old="[\x00-\x08\x0e-\x1f]", new=" ")
    monkeypatch.setattr(PIPELINE, "manifest", MANIFEST.model_copy(update={"patches": (patch,)}))
    found = blocks(folder, tmp_path / "y")
    assert list(found) == list(expected)
    for key, record in found.items():
        np.testing.assert_array_equal(record.columns["node/x"], expected[key].columns["node/x"])
