"""Style of all plots: colours, fonts and sizes, for light, dark or print, and saving."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from kmip_data.errors import UsageError
from kmip_data.files.changes import write_output
from kmip_data.runtime.progress import say

#: 24 hues for light backgrounds, with a contrast of at least 3:1; the first seven are Okabe and
#: Ito's, darkened if too pale, and distinguishable for colour-blind readers. The first twelve have
#: one blue.
PALETTE = (
    "#0072b2", "#c94f00", "#009e73", "#8f2f7a", "#ad8200", "#b00020", "#6b4226", "#f830f8",
    "#007000", "#f80080", "#786810", "#8018f8", "#f85868", "#0020f8", "#004818", "#c078b0",
    "#2b8cc4", "#680040", "#8870f8", "#c000c0", "#007068", "#3000a0", "#5840b0", "#004868",
)  # fmt: skip
#: The same for dark backgrounds.
DARK_PALETTE = (
    "#3d9ae0", "#e8722a", "#00b386", "#d98bb8", "#e69f00", "#d00060", "#a88a62", "#a800e0",
    "#50f800", "#088000", "#e0f0b0", "#f840f8", "#805890", "#3850f8", "#00f0b8", "#7cc4f0",
    "#f8c8f8", "#b04810", "#008088", "#80c018", "#a070f8", "#f84098", "#f81808", "#e0f800",
)  # fmt: skip
#: Colours of ordered values on light backgrounds, from low to high: eight steps through seven hues,
#: increasingly light (L* 14 to 61), so that the order survives colour blindness and grey prints.
RAMP = (
    "#330564", "#02248f", "#004282", "#005977", "#036e50", "#507c03", "#a27c00", "#e96f04",
)  # fmt: skip
#: The same for dark backgrounds, L* 43 to 94.
DARK_RAMP = (
    "#7145df", "#4172eb", "#0493db", "#0aadc6", "#36c880", "#aed136", "#f6db16", "#fbefab",
)  # fmt: skip
CYCLE = 7  #: hues of curves
#: Fonts for letters that a style's own font does not have, in this order, where installed.
FALLBACKS = (
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Source Han Sans", "PingFang SC",
    "Hiragino Sans", "Apple SD Gothic Neo", "Arial Unicode MS", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Noto Sans Arabic", "Noto Sans Hebrew",
    "Noto Sans Devanagari", "Noto Sans Thai", "Segoe UI Symbol",
)  # fmt: skip
BODY = 10  #: font size, in points
BODY_IN_PRINT = 8
NOTE = "small"  #: size of notes, relative to the body
TITLE = "x-large"
#: Image formats by file suffix, with reproducible metadata.
KINDS: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
MAX_LETTERS = 12  #: named of those that no font has
_NO_GLYPH = re.compile(r"Glyph (\d+) .* missing from")
Layout = Literal["constrained", "compressed"]
Axes: TypeAlias = Any  #: matplotlib's axes, 2D or 3D
Figure: TypeAlias = Any  #: matplotlib's figure, imported on use


@dataclass(frozen=True)
class Style:
    """Colours of background, text and secondary elements.

    Print has narrower pages.
    """

    ground: str = "#ffffff"
    ink: str = "#222222"
    quiet: str = "#666666"  #: footers, curves of others
    faint: str = "#c4c4c4"  #: streets, edges
    missing: str = "#949494"  #: nodes without a class or value
    font: str = "DejaVu Sans"
    widest: float = 100.0  #: inches
    headline: bool = True  #: True to draw a title: papers have captions instead
    dots: int = 110  #: per inch of a PNG
    body: int = BODY
    palette: tuple[str, ...] = PALETTE
    ramp: tuple[str, ...] = RAMP
    #: right, wrong, both of nodes that a run has seen, and nodes in no part
    verdicts: tuple[str, ...] = ("#0c5680", "#8f3f0c", "#489ac8", "#d67b40", "#8f2f7a")


STYLES = {
    "light": Style(),
    "dark": Style(
        ground="#16181d",
        ink="#e6e6e6",
        quiet="#a0a0a0",
        faint="#50545d",
        palette=DARK_PALETTE,
        ramp=DARK_RAMP,
        verdicts=("#78b5e2", "#e79b6c", "#2e6997", "#a05326", "#d98bb8"),
    ),
    "paper": Style(
        ink="#000000",
        font="STIXGeneral",
        widest=7.0,
        headline=False,
        dots=300,
        body=BODY_IN_PRINT,
    ),
}
_CHOSEN: ContextVar[str] = ContextVar("style", default="light")


@contextlib.contextmanager
def using_style(name: str) -> Iterator[None]:
    """Use the style of that name inside the block."""
    token = _CHOSEN.set(name)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def look() -> Style:
    """Return the current style."""
    return STYLES[_CHOSEN.get()]


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw in the caller's style, by setting matplotlib's defaults; also a decorator: ``@styled()``."""
    import matplotlib as mpl

    with mpl.rc_context(_settings(look())):
        yield


def new_figure(
    width: float,
    height: float,
    *,
    title: str = "",
    footer: str = "",
    layout: Layout = "constrained",
) -> Figure:
    """Return a figure of the given inches, scaled down if the style has narrower pages."""
    from matplotlib import figure as mpl_figure

    style = look()
    scale = min(1.0, style.widest / width)
    size = (scale * width, scale * height)
    figure = mpl_figure.Figure(figsize=size, layout=layout)
    if title and style.headline:
        letters = max(40, int(8 * width))
        lines = [textwrap.fill(line, letters) for line in title.split("\n")]
        figure.suptitle("\n".join(lines))
    if footer:
        letters = max(40, int(14 * scale * width))
        lines = [textwrap.fill(line, letters) for line in footer.split("\n") if line]
        figure.supxlabel("\n".join(lines), fontsize=NOTE, color=style.quiet)
    return figure


def save(figure: Figure, path: Path, **options: object) -> None:
    """Write a figure in the format of the suffix of ``path``; equal figures give equal bytes.

    Letters that no installed font has are drawn as boxes; one line on stderr names them.
    """
    ending = check_kind(path)
    picture = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(
            picture,
            format=ending[1:],
            metadata=KINDS[ending],
            **options,
        )
    missing = dict[str, None]()
    for warning in caught:
        glyph = _NO_GLYPH.match(str(warning.message))
        if glyph is None:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        else:
            missing[chr(int(glyph[1]))] = None
    if missing:
        letters = "".join([*missing][:MAX_LETTERS])
        say(
            f"No font here has {letters}: {path.name} shows boxes; install one, such as Noto Sans CJK."
        )
    write_output(path, picture.getvalue())


def check_kind(path: Path) -> str:
    """Return the key in :data:`KINDS` for the suffix of ``path``, PNG without one.

    Raises ``UsageError`` for other suffixes.
    """
    ending = path.suffix.lower() or ".png"
    if ending not in KINDS:
        raise UsageError(
            f"A picture cannot be written as {path.name}.",
            expected=f"a name that ends in {', '.join(KINDS)}",
        )
    return ending


def percent(share: float, _: int | None = None) -> str:
    """Format a fraction for an axis.

    >>> percent(0.225), percent(0.07)
    ('22.5 %', '7 %')
    """
    return f"{100 * share:g} %"


def plain_ticks(axis: Axes) -> None:
    """Label a logarithmic axis with plain numbers, as less than a decade may have no power of ten."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    if high > 10 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


@functools.cache
def _fallbacks() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return tuple(name for name in FALLBACKS if name in installed)


def _settings(style: Style) -> dict[Any, Any]:
    from matplotlib.rcsetup import cycler

    return {
        # Colours.
        "text.color": style.ink,
        "axes.labelcolor": style.ink,
        "axes.edgecolor": style.ink,
        "xtick.color": style.ink,
        "ytick.color": style.ink,
        "figure.facecolor": style.ground,
        "axes.facecolor": style.ground,
        "savefig.facecolor": style.ground,
        "legend.facecolor": style.ground,
        "legend.edgecolor": "none",
        "legend.framealpha": 0.8,
        "axes.prop_cycle": cycler(color=style.palette[:CYCLE]),
        "grid.alpha": 0.3,
        # Letters and lines.
        "font.family": [style.font, *_fallbacks()],
        "font.size": style.body,
        "figure.titlesize": TITLE,
        "axes.titlesize": "medium",
        "axes.labelsize": "medium",
        "legend.fontsize": NOTE,
        "xtick.labelsize": NOTE,
        "ytick.labelsize": NOTE,
        "lines.linewidth": 1.5 * style.body / BODY,
        "text.parse_math": False,  # do not parse dollar signs in names as formulas
        # Layout.
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.h_pad": 0.06,
        "figure.constrained_layout.w_pad": 0.06,
        # Files.
        "pdf.fonttype": 42,  # keep text as text
        "savefig.dpi": style.dots,
        "svg.hashsalt": "kmip-data",  # else names of parts are random
    }


MIN_CONTRAST = 3.0  #: of graphical objects, WCAG 2.1, criterion 1.4.11
STEPS = 32  #: steps of a mixture towards text or background
GROUPED = re.compile(r"[^/]+/\d{1,4}")  #: names of classes by group and number
#: Fractions of the text colour mixed into each hue: 96 distinct colours.
SHADES = (0.0, 0.3, 0.55, 0.75)
#: Usual colours of the classes of S3DIS: ``sem_seg/indoor3d_util.py`` of PointNet.
S3DIS = {
    "ceiling": "#00ff00", "floor": "#0000ff", "wall": "#00ffff", "beam": "#ffff00", "column": "#ff00ff",
    "window": "#6464ff", "door": "#c8c864", "table": "#aa78c8", "chair": "#ff0000", "sofa": "#c86464",
    "bookcase": "#0ac864", "board": "#c8c8c8", "clutter": "#323232",
}  # fmt: skip
#: Colours of elements by Corey, Pauling and Koltun, as in Jmol; carbon is a darker grey.
CPK = {
    1: "#ffffff", 5: "#ffb5b5", 6: "#808080", 7: "#3050f8", 8: "#ff0d0d", 9: "#90e050", 15: "#ff8000",
    16: "#ffff30", 17: "#1ff01f", 35: "#a62929",
}  # fmt: skip
OTHER_ELEMENT = "#ff1493"
Paint = Callable[[], Sequence[str]]  #: function that returns colours for the current style


def contrast(color: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.1, relative luminance).

    >>> contrast("#ffffff", "#000000")
    21.0
    """
    low, high = sorted((_luminance(color), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    from matplotlib.colors import to_rgb

    parts = np.array(to_rgb(color))
    linear = np.where(parts > 0.04045, ((parts + 0.055) / 1.055) ** 2.4, parts / 12.92)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def mixed(color: str, other: str, share: float) -> str:
    """Return ``color`` with a ``share`` of ``other`` in it."""
    from matplotlib.colors import to_hex, to_rgb

    start = np.array(to_rgb(color))
    red, green, blue = start + share * (to_rgb(other) - start)
    return to_hex((red, green, blue))


def readable(color: str) -> str:
    """Return ``color`` mixed with enough text colour to be visible on the background."""
    shades = (mixed(color, look().ink, step / STEPS) for step in range(STEPS + 1))
    return next(shade for shade in shades if contrast(shade, look().ground) >= MIN_CONTRAST)


def class_colors(count: int, names: Sequence[str] = ()) -> list[str]:
    """Hex colour of each class: the palette, then shades of it.

    Known ``names`` have their usual colours.

    Classes in groups, such as ``Motorbike/0``, start the palette anew in each group, because a
    record has classes of a single group.
    """
    if 0 < count <= len(names) and set(names) <= S3DIS.keys():
        return [readable(S3DIS[name]) for name in names]
    colors = []
    for share in SHADES:
        colors += [mixed(color, look().ink, share) for color in look().palette]

    numbers = list(range(count))
    if names and all(GROUPED.fullmatch(name) for name in names):
        numbers = [int(name.rpartition("/")[2]) for name in names]
    return [colors[number % len(colors)] for number in numbers]


def element_colors(numbers: Sequence[int]) -> list[str]:
    """Return the hex colour of each element by atomic number."""
    return [readable(CPK.get(number, OTHER_ELEMENT)) for number in numbers]


def ramp(count: int) -> tuple[str, ...]:
    """Return hex colours of ordered values, evenly spaced, from low to high."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    blend = LinearSegmentedColormap.from_list("ordered", look().ramp)
    return tuple(to_hex(color) for color in blend(np.linspace(0, 1, count)))


def on_grounds(paint: Paint) -> list[Sequence[str]]:
    """Return colours for light and dark backgrounds, or one list if they are equal."""
    with using_style("light"):
        light = paint()
    with using_style("dark"):
        dark = paint()
    return [light] if light == dark else [light, dark]
