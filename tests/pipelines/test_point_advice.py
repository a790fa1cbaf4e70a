"""Every refusal of points and pictures says what to do, and that works."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.advice import Advice

LINE = "".join(f"{at} {at * 7 % 5} {at * 3 % 7}\n" for at in range(20))
WITH = [f"{at} {at * 7 % 5} {at * 3 % 7} " for at in range(20)]


def column(values) -> str:
    return "".join(f"{start}{value}\n" for start, value in zip(WITH, values, strict=True))


#: Content of a cloud and options; how many rows it has is the number of points written.
CLOUDS = {
    "no z": ("a.csv", "a,b,c,d\n" + LINE.replace(" ", ","), []),
    "pandas": ("a.csv", "0,1,2\n" + LINE.replace(" ", ","), []),
    "no such label": ("a.txt", "x y z kind\n" + column([0, 1] * 10), ["--set", "label=class"]),
    "one column of classes": (
        "a.txt",
        "x y z red kind\n" + column([f"{n}.5 {n % 2}" for n in range(20)]),
        ["--set", "label=class"],
    ),
    "no column besides the position": ("a.txt", "x y z\n" + LINE, ["--set", "label=class"]),
    "part of a name": ("a.txt", "x y z scalar_Kind\n" + column([0, 1] * 10), ["--set", "label=kind"]),
    "no such feature": ("a.txt", "x y z red\n" + column([0, 1] * 10), ["--set", "feature=rot"]),
    "text as position": ("a.txt", "x y z n\n" + column(["a", "b"] * 10), ["--set", "position=n,y,z"]),
    "text as feature": ("a.txt", "x y z n\n" + column(["a", "b"] * 10), ["--set", "feature=n"]),
    "twin features": ("a.ply", None, ["--set", "feature=a"]),
    "classes": ("a.txt", "x y z label\n" + column([2, 6, 9, 2] * 5), ["--set", "classes=5"]),
    "negative": ("a.txt", "x y z label\n" + column([-5, 6, 9, 2] * 5), []),
    "fractions": ("a.txt", "x y z label\n" + column([0.5, 1] * 10), ["--set", "task=classification"]),
    "texts": ("a.txt", "x y z label\n" + column(["a", "b"] * 10), ["--set", "task=regression"]),
    "more texts": ("a.txt", "x y z label\n" + column(["a", "b", "c", "d"] * 5), ["--set", "classes=3"]),
    "no label": ("a.txt", "x y z label\n" + column(["NA"] * 20), []),
    "integers": ("a.txt", "x y z t\n" + column(range(1_700_000_001, 1_700_000_021)), ["--set", "feature=t"]),
    "times": ("a.txt", "x y z t\n" + column(303_841 + np.arange(20) / 10), ["--set", "feature=t/2"]),
    "k": ("a.txt", LINE, ["--k", "30"]),
    "block": ("a.txt", LINE, ["--set", "block=0.5"]),
    "two columns": ("a.txt", "".join(f"{at} {at % 3}\n" for at in range(20)), []),
    "scan": ("a.bin", np.random.default_rng(0).random(80).astype("<f4").tobytes(), []),
    "rows that end": ("a.txt", LINE + "1 2\n", []),
    "empty": ("a.txt", "", []),
    "words": ("a.txt", "hello\nworld\n", []),
    "commas": ("a.txt", "".join(f"1,{at + 100};2,{at * 7 % 5 + 100};{at}\n" for at in range(20)), []),
    "cut": ("a.ply", b"ply\n", []),
    "far": ("a.txt", "0 0 0\n" + "".join(f"{at + 5e5} {at + 6e6} 3\n" for at in range(19)), []),
    "encoding": (
        "a.txt",
        ("x y z label\n" + column(["ø", "å"] * 10)).encode("latin-1"),
        [],
    ),
    "Fortran": ("a.txt", LINE.replace("1 ", "1D+00 ", 1), []),
    "other format": ("a.e57", b"ASTM-E57", []),
}  # fmt: skip
PLY = "ply\nformat ascii 1.0\nelement vertex 20\n{}end_header\n".format(
    "".join(f"property float {name}\n" for name in "xyzaa")
)
CLOUDS["twin features"] = (
    "a.ply",
    PLY + column([f"{at} 2" for at in range(20)]),
    CLOUDS["twin features"][2],
)


def test_advice_on_clouds_is_followed(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    advice = Advice()
    for number, (name, (file, content, options)) in enumerate(CLOUDS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        data = content if isinstance(content, bytes) else content.encode()
        (folder / file).write_bytes(data)
        line = ["build", "points", "--name", f"own{number}", "--quiet", "--jobs", 1, *options]
        if "--k" not in options:
            line += ["--k", 3]
        try:
            advice.follow([*line, "--archive", folder / file], 20)
        except AssertionError as error:
            error.add_note(name)
            raise
    assert (advice.refusals, advice.by_hand) == (len(CLOUDS), 8)
    assert advice.built >= 0.9 * advice.tried, advice


def pictures(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray, dict]]:
    """Picture, mask and options of each refusal."""
    rng = np.random.default_rng(0)
    grey = np.kron(rng.integers(0, 255, (4, 6)), np.ones((10, 10))).astype(np.uint8)
    mask = (grey > 120).astype(np.uint8)
    turned = Image.Exif()
    turned[0x0112] = 3
    return {
        "white of floats": (grey.astype("f4"), mask, {}),
        "white of integers": (grey.astype("i4"), mask, {}),
        "0 and 255": (grey, mask * 255, {}),
        "values": (grey, mask * 100 + 7, {}),
        "classes": (grey, mask * 2 + (grey > 200), {}),
        "turned": (grey, mask, {"exif": turned}),
        "size": (grey, mask[:9], {}),
        "colours": (grey, np.dstack([mask * 7] * 3), {}),
        "half": (grey, mask.astype("f4") / 2, {}),
    }


def test_advice_on_pictures_is_followed(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    advice = Advice()
    cases = pictures(tmp_path)
    for number, (name, (picture, mask, options)) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        for kind, pixels, more in (("images", picture, options), ("masks", mask, {})):
            (folder / kind).mkdir(parents=True)
            # Pillow turns TIFF pictures itself.
            file = "p.png" if more else "p.tif"
            Image.fromarray(pixels).save(folder / kind / file, **more)
        line = ["build", "superpixels", "--name", f"own{number}", "--quiet", "--jobs", 1]
        line += ["--set", "superpixels=20", "--set", "classes=2", "--images", folder / "images"]
        try:
            advice.follow([*line, "--masks", folder / "masks"], 2)
        except AssertionError as error:
            error.add_note(name)
            raise
    assert (advice.refusals, advice.by_hand) == (len(cases), 3)
    assert advice.built >= 0.9 * advice.tried, advice


def test_only_a_refusal_is_followed():
    with pytest.raises(AssertionError):
        Advice().follow(["list"], 1)
