"""Look of all plots: light and dark colours, font and sizes."""

from __future__ import annotations

import contextlib
import functools
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

#: 24 hues for light backgrounds with a contrast of at least 3:1, chosen by search to maximise the minimum
#: CIEDE2000 distance: 17 between any two. The first seven, which curves use, are 24 apart, and 15.6 with
#: deuteranopia and protanopia (Okabe and Ito's seven: 22 and 12); none is dark, as small dots of dark
#: colours look alike. The first twelve have one blue.
PALETTE = (
    "#0072b2", "#e1780f", "#00a3b2", "#873c69", "#f04b78", "#0f784b", "#c30000", "#79a042",
    "#6b4328", "#d700bc", "#5e5e0d", "#4300bc", "#7951ff", "#285151", "#947165", "#00366b",
    "#6b6b86", "#ae79a1", "#362828", "#1b2800", "#360d43", "#949385", "#7993d6", "#6b0d1b",
)  # fmt: skip
#: The same for dark backgrounds; the first seven are lighter tints of the light ones.
DARK_PALETTE = (
    "#3fa4ee", "#ff8a3d", "#72f2f0", "#9a4c91", "#fc8fac", "#499173", "#b0430f", "#35f280",
    "#98bb75", "#c82550", "#ffea0e", "#978f69", "#5f8f25", "#88655d", "#ff2899", "#c1b8ed",
    "#ff4038", "#f3bc64", "#0098a7", "#80602d", "#6d79a8", "#e9ffde", "#cb42f6", "#96bdbf",
)  # fmt: skip
#: Colours of ordered values on light backgrounds, from low to high: ten steps from navy over purple,
#: crimson and orange to sand. Lightness increases (L* 12 to 75), so that the order survives colour
#: blindness and grey prints. The steps were chosen by search to maximise the CIEDE2000 distance of
#: neighbours (11.3; with deuteranopia and protanopia 4.7) at a moderate chroma, because strong colours
#: dominate thin lines.
RAMP = (
    "#012239", "#2a2756", "#5d2f78", "#87316b", "#a13955", "#c1393f", "#d95e49", "#de8150", "#e69639",
    "#dcb25c",
)  # fmt: skip
#: For dark backgrounds, ten brighter steps from blue over magenta and red to cream, L* 36 to 96.
DARK_RAMP = (
    "#0d5699", "#2a46fc", "#b806d6", "#ed00a4", "#ff4477", "#ff6b5a", "#ff873e", "#fea409", "#fed585",
    "#fff2da",
)  # fmt: skip
CURVE_HUES = 7  #: number of hues used for curves
#: Fallback fonts for characters missing in :data:`FONT`, in order of preference, if installed.
FALLBACK_FONTS = (
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Source Han Sans", "PingFang SC",
    "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic",
    "WenQuanYi Micro Hei", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai",
    "Segoe UI Symbol",
)  # fmt: skip
FONT = "DejaVu Sans"
BODY_POINTS = 10  #: font size
LETTERS_PER_INCH = 11.5  #: of the body, on average
DOTS_PER_INCH = 200  #: resolution of a PNG
NOTE_FONT_SIZE = "small"  #: font size of notes, relative to the body
PLAIN_NUMBER = "{x:,.10g}"  #: format of a tick; ``,g`` writes 10,000 as 1e+04 beside 8,000
Axes: TypeAlias = Any  #: matplotlib's axes, 2D or 3D
Figure: TypeAlias = Any  #: matplotlib's figure, imported on use


@dataclass(frozen=True)
class Style:
    """Colours of a plot."""

    background_color: str = "#ffffff"
    text_color: str = "#222222"  #: text and axes
    secondary_color: str = "#666666"  #: footers and secondary curves
    line_color: str = "#c4c4c4"  #: streets and edges
    green_color: str = "#e6f1dc"  #: parks and other green on a map
    water_color: str = "#d6e7f3"
    missing: str = "#949494"  #: nodes without a class or value
    palette: tuple[str, ...] = PALETTE
    ramp: tuple[str, ...] = RAMP
    #: right and, strong, wrong test nodes; right and wrong nodes seen in training; and nodes in no part
    outcome_colors: tuple[str, ...] = ("#5f86a6", "#c8320a", "#8896a3", "#b98a78", "#bcbcbc")


STYLES = {
    "light": Style(),
    "dark": Style(
        background_color="#16181d",
        text_color="#e6e6e6",
        secondary_color="#a0a0a0",
        line_color="#50545d",
        green_color="#1f2c22",
        water_color="#1b2c3d",
        palette=DARK_PALETTE,
        ramp=DARK_RAMP,
        outcome_colors=("#6f8ba3", "#ff7a45", "#65717c", "#8f6e60", "#62666f"),
    ),
}
_CURRENT: ContextVar[str] = ContextVar("style", default="light")


@contextlib.contextmanager
def using_style(name: str) -> Iterator[None]:
    """Use the style ``name`` inside the block."""
    token = _CURRENT.set(name)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_style() -> Style:
    """Return the current style."""
    return STYLES[_CURRENT.get()]


@contextlib.contextmanager
def in_current_style() -> Iterator[None]:
    """Set matplotlib's defaults to the current style; also works as a decorator."""
    import matplotlib as mpl

    with mpl.rc_context(_matplotlib_settings(current_style())):
        yield


def new_figure(width: float, height: float, *, title: str = "") -> Figure:
    """Return a figure of the given inches."""
    from matplotlib import figure as mpl_figure

    figure = mpl_figure.Figure(figsize=(width, height), layout="constrained")
    if title:
        letters = max(40, int(8 * width))
        lines = [textwrap.fill(line, letters) for line in title.split("\n")]
        figure.suptitle("\n".join(lines))
    return figure


@functools.cache
def _fallback_fonts() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return tuple(name for name in FALLBACK_FONTS if name in installed)


def _matplotlib_settings(style: Style) -> dict[Any, Any]:
    from matplotlib.rcsetup import cycler

    return {
        # Colours.
        "text.color": style.text_color,
        "axes.labelcolor": style.text_color,
        "axes.edgecolor": style.text_color,
        "xtick.color": style.text_color,
        "ytick.color": style.text_color,
        "figure.facecolor": style.background_color,
        "axes.facecolor": style.background_color,
        "legend.facecolor": style.background_color,
        "legend.edgecolor": "none",
        "axes.prop_cycle": cycler(color=style.palette[:CURVE_HUES]),
        "grid.alpha": 0.3,
        # Letters and lines.
        "font.family": [FONT, *_fallback_fonts()],
        "font.size": BODY_POINTS,
        "figure.titlesize": "x-large",
        "axes.titlesize": "medium",
        "legend.fontsize": NOTE_FONT_SIZE,
        "xtick.labelsize": NOTE_FONT_SIZE,
        "ytick.labelsize": NOTE_FONT_SIZE,
        "lines.linewidth": 1.5,
        "text.parse_math": False,  # dollar signs in names are not formulas
        # Layout.
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.h_pad": 0.06,
        "figure.constrained_layout.w_pad": 0.06,
        # Files.
        "pdf.fonttype": 42,  # keep text as text
        "savefig.dpi": DOTS_PER_INCH,
        "svg.hashsalt": "kmip-data",  # without it, element names are random
    }


MIN_CONTRAST = 3.0  #: contrast of graphical objects by WCAG 2.1, criterion 1.4.11
TEXT_CONTRAST = 4.5  #: contrast of letters, criterion 1.4.3
MIX_STEPS = 32  #: steps of a mixture with the text colour
GROUPED_NAME = re.compile(r"[^/]+/\d{1,4}")  #: class names of a group and a number
#: Fractions of the text colour mixed into each hue: 96 distinct colours.
SHADES = (0.0, 0.3, 0.55, 0.75)
#: Colours of elements by Corey, Pauling and Koltun, as in Jmol, with a darker grey for carbon.
CPK_COLORS = {
    1: "#ffffff", 5: "#ffb5b5", 6: "#808080", 7: "#3050f8", 8: "#ff0d0d", 9: "#90e050", 11: "#ab5cf2",
    15: "#ff8000", 16: "#ffff30", 17: "#1ff01f", 35: "#a62929", 53: "#940094",
}  # fmt: skip
OTHER_ELEMENT = "#ff1493"
ColorFunction = Callable[[], Sequence[str]]  #: function that returns colours for the current style


def contrast_ratio(color: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.1, relative luminance).

    >>> contrast_ratio("#ffffff", "#000000")
    21.0
    """
    low, high = sorted((_luminance(color), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    from matplotlib.colors import to_rgb

    channels = np.array(to_rgb(color))
    linear = np.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def mix_colors(color: str, other: str, fraction: float) -> str:
    """Return ``color`` with a ``fraction`` of ``other`` mixed in."""
    from matplotlib.colors import to_hex, to_rgb

    start = np.array(to_rgb(color))
    red, green, blue = start + fraction * (to_rgb(other) - start)
    return to_hex((red, green, blue))


def readable_color(color: str, contrast: float = MIN_CONTRAST) -> str:
    """Return ``color`` mixed with enough text colour for a ``contrast`` with the background."""
    shades = (
        mix_colors(color, current_style().text_color, step / MIX_STEPS)
        for step in range(MIX_STEPS + 1)
    )
    return next(
        shade
        for shade in shades
        if contrast_ratio(shade, current_style().background_color) >= contrast
    )


def class_colors(count: int, names: Sequence[str] = ()) -> list[str]:
    """Return the hex colour of each class: the palette, then shades of it.

    Classes in groups, such as ``Motorbike/0``, restart the palette in each group, because a record
    has classes of one group.
    """
    colors = []
    for fraction in SHADES:
        colors += [
            mix_colors(color, current_style().text_color, fraction)
            for color in current_style().palette
        ]

    numbers = list(range(count))
    if names and all(GROUPED_NAME.fullmatch(name) for name in names):
        numbers = [int(name.rpartition("/")[2]) for name in names]
    return [colors[number % len(colors)] for number in numbers]


def element_colors(numbers: Sequence[int]) -> list[str]:
    """Return the hex colour of each element by atomic number."""
    return [readable_color(CPK_COLORS.get(number, OTHER_ELEMENT)) for number in numbers]


def sequential_colors(count: int) -> tuple[str, ...]:
    """Return ``count`` evenly spaced hex colours for ordered values, from low to high."""
    return _blended(current_style().ramp, count)


def diverging_colors(count: int) -> tuple[str, ...]:
    """Return ``count`` hex colours for values below, at (a pale grey) and above the middle."""
    style = current_style()
    middle = mix_colors(style.missing, style.background_color, 0.35)
    return _blended((style.palette[0], middle, style.palette[1]), count)


def _blended(colors: Sequence[str], count: int) -> tuple[str, ...]:
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    blend = LinearSegmentedColormap.from_list("blended", colors)
    return tuple(to_hex(color) for color in blend(np.linspace(0, 1, count)))


def colors_by_background(color_function: ColorFunction) -> list[Sequence[str]]:
    """Return colours for light and dark backgrounds, or one list if they are equal."""
    with using_style("light"):
        light = color_function()
    with using_style("dark"):
        dark = color_function()
    return [light] if light == dark else [light, dark]
