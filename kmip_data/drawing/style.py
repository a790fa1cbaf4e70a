"""Style of all plots: colours, fonts and sizes, for light, dark or print, and saving."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import shlex
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from kmip_data.errors import UsageError
from kmip_data.files.atomic_writes import write_output
from kmip_data.runtime.progress import print_status

#: 24 hues for light backgrounds, with a contrast of at least 3:1, chosen by search so that the least
#: CIEDE2000 distance is largest: 15 of any two; of the first seven, which curves have, also as people with
#: deuteranopia and protanopia see them (Okabe and Ito's seven: 12). The first twelve have one blue.
PALETTE = (
    "#0072b2", "#c94f00", "#0ba49f", "#73085d", "#e24a7a", "#10644d", "#5d3905", "#9a9552",
    "#ab6ff5", "#92272f", "#6e05ee", "#108917", "#6b5d88", "#15373e", "#947165", "#0b3e8a",
    "#c613ab", "#6f6633", "#4f3633", "#7e94bc", "#ff4a44", "#333415", "#5b7f83", "#855362",
)  # fmt: skip
#: The same for dark backgrounds.
DARK_PALETTE = (
    "#3d9ae0", "#e8722a", "#20e590", "#7c49c5", "#c52241", "#038378", "#2fdce7", "#fdd50b",
    "#db99bb", "#978f69", "#047708", "#81604f", "#d5389b", "#9ac41a", "#ada9f2", "#fa6671",
    "#edb371", "#76af95", "#2a6d85", "#b93e0a", "#6d79a8", "#13a93a", "#d96df9", "#a36f7f",
)  # fmt: skip
#: Colours of ordered values on light backgrounds, from low to high: nine steps from blue over green
#: to yellow, increasingly light (L* 14 to 74), so that the order survives colour blindness and grey
#: prints.
RAMP = (
    "#061968", "#003270", "#004779", "#005e78", "#007477", "#008a7f", "#00a17f", "#73b255",
    "#cbb64d",
)  # fmt: skip
#: The same for dark backgrounds, L* 34 to 95.
DARK_RAMP = (
    "#1d3cd0", "#0060c8", "#007ac7", "#0095ba", "#00aeb2", "#00c8a7", "#00e375", "#c6ea17",
    "#ffeed9",
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
MAX_LETTERS = 12  #: most characters without a font that a message names
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
    verdicts: tuple[str, ...] = ("#0c5680", "#8f3f0c", "#489ac8", "#d67b40", "#73085d")


STYLES = {
    "light": Style(),
    "dark": Style(
        ground="#16181d",
        ink="#e6e6e6",
        quiet="#a0a0a0",
        faint="#50545d",
        palette=DARK_PALETTE,
        ramp=DARK_RAMP,
        verdicts=("#78b5e2", "#e79b6c", "#2e6997", "#a05326", "#7c49c5"),
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


def current_style() -> Style:
    """Return the current style."""
    return STYLES[_CHOSEN.get()]


@contextlib.contextmanager
def in_current_style() -> Iterator[None]:
    """Draw in the caller's style, by setting matplotlib's defaults; also a decorator."""
    import matplotlib as mpl

    with mpl.rc_context(_matplotlib_settings(current_style())):
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

    style = current_style()
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


def save_figure(figure: Figure, path: Path, **options: object) -> None:
    """Write a figure in the format of the suffix of ``path``; equal figures give equal bytes.

    Letters that no installed font has are drawn as boxes; one line on stderr names them.
    """
    ending = picture_kind(path)
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
        print_status(
            f"No font here has {letters}: {path.name} shows boxes; install one, such as Noto Sans CJK."
        )
    write_output(path, picture.getvalue())


def picture_kind(path: Path) -> str:
    """Return the key in :data:`KINDS` for the suffix of ``path``, PNG without one.

    Raises ``UsageError`` for other suffixes.
    """
    ending = path.suffix.lower() or ".png"
    if ending not in KINDS:
        raise UsageError(
            f"A picture cannot be written as {path.name}.",
            expected=f"a name that ends in {', '.join(KINDS)}",
            next=f"--output {shlex.quote(str(path.with_suffix('.png')))}",
        )
    return ending


def format_percent(share: float, _: int | None = None) -> str:
    """Format a fraction for an axis.

    >>> format_percent(0.225), format_percent(0.07)
    ('22.5 %', '7 %')
    """
    return f"{100 * share:g} %"


def label_plain_ticks(axis: Axes) -> None:
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
def _fallback_fonts() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return tuple(name for name in FALLBACKS if name in installed)


def _matplotlib_settings(style: Style) -> dict[Any, Any]:
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
        "font.family": [style.font, *_fallback_fonts()],
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


MIN_CONTRAST = 3.0  #: contrast of graphical objects by WCAG 2.1, criterion 1.4.11
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


def contrast_ratio(color: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.1, relative luminance).

    >>> contrast_ratio("#ffffff", "#000000")
    21.0
    """
    low, high = sorted((_luminance(color), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    from matplotlib.colors import to_rgb

    parts = np.array(to_rgb(color))
    linear = np.where(parts > 0.04045, ((parts + 0.055) / 1.055) ** 2.4, parts / 12.92)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def mix_colors(color: str, other: str, share: float) -> str:
    """Return ``color`` with a ``share`` of ``other`` in it."""
    from matplotlib.colors import to_hex, to_rgb

    start = np.array(to_rgb(color))
    red, green, blue = start + share * (to_rgb(other) - start)
    return to_hex((red, green, blue))


def readable_color(color: str) -> str:
    """Return ``color`` mixed with enough text colour to be visible on the background."""
    shades = (mix_colors(color, current_style().ink, step / STEPS) for step in range(STEPS + 1))
    return next(
        shade for shade in shades if contrast_ratio(shade, current_style().ground) >= MIN_CONTRAST
    )


def class_colors(count: int, names: Sequence[str] = ()) -> list[str]:
    """Hex colour of each class: the palette, then shades of it.

    Known ``names`` have their usual colours.

    Classes in groups, such as ``Motorbike/0``, start the palette anew in each group, because a
    record has classes of a single group.
    """
    if 0 < count <= len(names) and set(names) <= S3DIS.keys():
        return [readable_color(S3DIS[name]) for name in names]
    colors = []
    for share in SHADES:
        colors += [
            mix_colors(color, current_style().ink, share) for color in current_style().palette
        ]

    numbers = list(range(count))
    if names and all(GROUPED.fullmatch(name) for name in names):
        numbers = [int(name.rpartition("/")[2]) for name in names]
    return [colors[number % len(colors)] for number in numbers]


def element_colors(numbers: Sequence[int]) -> list[str]:
    """Return the hex colour of each element by atomic number."""
    return [readable_color(CPK.get(number, OTHER_ELEMENT)) for number in numbers]


def sequential_colors(count: int) -> tuple[str, ...]:
    """Return hex colours of ordered values, evenly spaced, from low to high."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    blend = LinearSegmentedColormap.from_list("ordered", current_style().ramp)
    return tuple(to_hex(color) for color in blend(np.linspace(0, 1, count)))


def colors_by_background(paint: Paint) -> list[Sequence[str]]:
    """Return colours for light and dark backgrounds, or one list if they are equal."""
    with using_style("light"):
        light = paint()
    with using_style("dark"):
        dark = paint()
    return [light] if light == dark else [light, dark]
