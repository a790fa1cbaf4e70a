"""One look for all pictures: the style of the caller, the kind of file by its ending, equal bytes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from kmip_data.drawing.style import (
    KINDS,
    PALETTE,
    STYLES,
    chosen,
    class_colors,
    look,
    new_figure,
    save,
    styled,
)
from kmip_data.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]


@styled
def draw(path: Path) -> None:
    figure = new_figure(8, 4, title="a $title", footer="a licence")
    figure.subplots().plot([1, 2], [3, 4], label="line")
    save(figure, path)


@pytest.mark.parametrize("ending", KINDS)
def test_equal_pictures_are_equal_bytes(tmp_path, ending):
    one, two = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
    draw(one)
    draw(two)
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes()[:5] in {b"\x89PNG\r", b"<?xml", b"%PDF-"}
    with pytest.raises(UsageError, match="cannot be written"):
        draw(tmp_path / "picture.jpg")
    assert not (tmp_path / "picture.jpg").exists()


@pytest.mark.parametrize("name", STYLES)
def test_ground_and_width_are_those_of_the_style(tmp_path, name):
    before = dict(mpl.rcParams)
    with chosen(name):
        wanted = look()
        draw(tmp_path / "p.png")
    assert dict(mpl.rcParams) == before
    pixels = image.imread(tmp_path / "p.png")
    assert np.allclose(pixels[0, 0, :3], to_rgb(wanted.ground), atol=0.01)
    assert pixels.shape[1] == int(min(8, wanted.widest) * wanted.dots)
    assert look() == STYLES["light"], "the caller's style ends with its block"


def test_colours_differ_in_lightness_or_hue_for_all_eyes():
    """Machado's matrix of deuteranopia: no two colours of the palette become one."""
    seen = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
    colors = np.array([to_rgb(color) for color in PALETTE]) @ seen.T
    distances = np.linalg.norm(colors[:, None] - colors[None], axis=2) + np.eye(len(colors))
    assert distances.min() > 0.12
    assert all(one != two for one, two in pairwise(class_colors(50)))
