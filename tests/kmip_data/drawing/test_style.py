"""One look for all pictures: the style of the caller, the kind of file by its ending, equal bytes."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import rgb_to_hsv, to_rgb

from kmip_data.drawing.run_predictions import right_wrong_colors
from kmip_data.drawing.style import (
    CPK_COLORS,
    CURVE_HUES,
    DOTS_PER_INCH,
    STYLES,
    TEXT_CONTRAST,
    class_colors,
    contrast_ratio,
    current_style,
    element_colors,
    in_current_style,
    new_figure,
    readable_color,
    sequential_colors,
    using_style,
)
from kmip_data.errors import UsageError
from kmip_data.saving.image_files import IMAGE_METADATA, save_figure


@in_current_style()
def draw(path: Path) -> None:
    figure = new_figure(8, 4, title="a $title")
    axes = figure.subplots()
    axes.plot([1, 2], [3, 4], label="line")
    spines = [name for name, spine in axes.spines.items() if spine.get_visible()]
    assert spines == ["left", "bottom"]
    save_figure(figure, path)


@pytest.mark.parametrize("ending", IMAGE_METADATA)
def test_equal_pictures_are_equal_bytes(tmp_path, ending):
    one, two = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
    draw(one)
    draw(two)
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes()[:5] in {b"\x89PNG\r", b"<?xml", b"%PDF-"}
    with pytest.raises(UsageError):
        draw(tmp_path / "picture.jpg")
    assert not (tmp_path / "picture.jpg").exists()


@pytest.mark.parametrize("name", STYLES)
def test_background_follows_the_style(tmp_path, name):
    before = dict(mpl.rcParams)
    with using_style(name):
        wanted = current_style()
        draw(tmp_path / "p.png")
    assert dict(mpl.rcParams) == before
    pixels = image.imread(tmp_path / "p.png")
    assert np.allclose(pixels[0, 0, :3], to_rgb(wanted.background_color), atol=0.01)
    assert pixels.shape[1] == 8 * DOTS_PER_INCH
    assert current_style() == STYLES["light"], "the caller's style ends with its block"


@pytest.mark.parametrize("name", STYLES)
def test_colours_contrast_with_their_background(name):
    with using_style(name):
        schemes = {
            "classes": class_colors(24 * 4),
            "elements": element_colors([*CPK_COLORS, 99]),
            "right and wrong": right_wrong_colors(4),
        }
        style = current_style()
        # Links of the explorer have the first hue.
        for color in (style.text_color, style.secondary_color, style.palette[0]):
            assert contrast_ratio(color, style.background_color) >= TEXT_CONTRAST
        for color in style.palette:
            shade = readable_color(color, TEXT_CONTRAST)
            assert contrast_ratio(shade, style.background_color) >= TEXT_CONTRAST
        for what, colors in schemes.items():
            for color in colors:
                assert contrast_ratio(color, current_style().background_color) >= 2.99, (
                    what,
                    color,
                )
            assert len(set(colors)) == len(colors), what
        for color in sequential_colors(32):
            assert contrast_ratio(color, current_style().background_color) > 1.95, (
                "lighter, for more steps"
            )


#: Machado, Oliveira and Fernandes (2009), severity 1, of linear RGB.
SEEN = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}  # fmt: skip


def lab_of(colors, sight):
    """CIE L*a*b* of colours as somebody sees them, (N, 3)."""
    color = pytest.importorskip("skimage.color", reason="CIEDE2000 is scikit-image's")
    rgb = np.array([to_rgb(each) for each in colors])
    linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    seen = np.clip(linear @ SEEN[sight].T, 0, 1)
    encoded = np.where(seen > 0.0031308, 1.055 * seen ** (1 / 2.4) - 0.055, 12.92 * seen)
    return color.rgb2lab(encoded[None])[0]


def least_distance(colors, sight, step=None):
    """The least CIEDE2000 of any two colours, or of those that lie ``step`` apart."""
    lab = lab_of(colors, sight)
    color = pytest.importorskip("skimage.color", reason="CIEDE2000 is scikit-image's")
    distances = color.deltaE_ciede2000(lab[:, None], lab[None])
    pairs = np.triu_indices(len(lab), 1) if step is None else None
    return distances[pairs].min() if pairs else np.diagonal(distances, step).min()


OKABE_ITO = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")


def test_colour_distances_equal_published_values():
    """The published values are distances of Okabe and Ito's seven colours, from another library."""
    found = [round(float(least_distance(OKABE_ITO, sight)), 1) for sight in SEEN]
    assert found == [21.7, 11.6, 12.2]


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("sight", SEEN)
def test_hues_differ_under_colour_blindness(name, sight):
    with using_style(name):
        hues = class_colors(24)
        ordered = sequential_colors(10)
    assert least_distance(hues[:CURVE_HUES], sight) > max(
        14.5, least_distance(OKABE_ITO, sight) - 8
    )
    assert least_distance(hues, sight) > (15 if sight == "normal" else 5)
    assert least_distance(ordered, sight, step=1) > 4, "neighbours of ten ordered classes"


@pytest.mark.parametrize("name", STYLES)
def test_the_ramp_spans_sixty_steps_of_lightness(name):
    with using_style(name):
        lightness = lab_of(sequential_colors(10), "normal")[:, 0]
    assert np.ptp(lightness) > 59
    assert np.diff(lightness).min() > 4


@pytest.mark.parametrize("name", STYLES)
def test_twelve_classes_have_one_blue(name):
    with using_style(name):
        hues = [rgb_to_hsv(to_rgb(color))[0] for color in class_colors(12)]
    assert sum(0.52 < hue < 0.72 for hue in hues) == 1


def test_contrast_equals_wcag():
    assert contrast_ratio("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)
    assert contrast_ratio("#ffffff", "#0000ff") == pytest.approx(8.592, abs=1e-3)


@pytest.mark.parametrize("name", STYLES)
def test_ten_ordered_classes_have_more_hues_than_one_and_rise_in_lightness(name):
    with using_style(name):
        colors = [to_rgb(color) for color in sequential_colors(10)]
        lightness = [contrast_ratio(color, "#000000") for color in sequential_colors(10)]
    assert lightness == sorted(lightness)
    hues = np.array([rgb_to_hsv(color)[0] for color in colors])
    purple = (hues > 0.7) & (hues < 0.95)
    assert purple.sum() <= 2
    apart = np.abs(hues[:, None] - hues[None])
    assert np.minimum(apart, 1 - apart).max() > 0.4, "from one side of the circle to the other"


def test_few_of_ten_classes_are_purple():
    for name in STYLES:
        with using_style(name):
            hues = np.array([rgb_to_hsv(to_rgb(color))[0] for color in class_colors(10)])
        assert ((hues > 0.7) & (hues < 0.95)).sum() <= 3, name


def test_parts_of_a_shape_have_the_first_hues_whatever_its_category():
    names = [f"{group}/{part}" for group in ("Airplane", "Motorbike") for part in range(6)]
    colors = class_colors(12, names)
    assert colors[:6] == colors[6:]
    assert colors[:6] == class_colors(6)
    assert class_colors(2, ["a/b", "c"]) == class_colors(2)
