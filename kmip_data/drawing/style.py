"""Style of all pictures: colours, fonts and sizes, light, dark or for print, and how they are saved."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, ParamSpec

import numpy as np

from kmip_data.errors import UsageError
from kmip_data.files.changes import sealed, write_output

#: 24 hues on light ground, 3:1 and more against it; the first seven are Okabe and Ito's, darkened where they
#: were paler, and differ for colour-blind eyes too.
PALETTE: Final = (
    "#0072b2", "#c94f00", "#009e73", "#8f2f7a", "#ad8200", "#2b8cc4", "#6b4226", "#b00020",
    "#004868", "#f830f8", "#007000", "#3000a0", "#f80080", "#786810", "#8018f8", "#0020f8",
    "#c078b0", "#680040", "#004818", "#c000c0", "#f85868", "#8870f8", "#007068", "#5840b0",
)  # fmt: skip
#: As many on dark ground.
DARK_PALETTE: Final = (
    "#3d9ae0", "#e8722a", "#00b386", "#d98bb8", "#e69f00", "#7cc4f0", "#a88a62", "#a800e0",
    "#50f800", "#d00060", "#e0f0b0", "#3850f8", "#088000", "#f840f8", "#805890", "#00f0b8",
    "#f8c8f8", "#b04810", "#008088", "#80c018", "#a070f8", "#f84098", "#f81808", "#e0f800",
)  # fmt: skip
#: Colours of ordered values on light ground, from low to high: ten steps through seven hues, each lighter
#: than the one before it (L* 14 to 61), so that colour-blind eyes and grey prints keep the order.
RAMP: Final = (
    "#330564", "#02248f", "#004282", "#005977", "#036e50", "#507c03", "#a27c00", "#e96f04",
)  # fmt: skip
#: The same on dark ground, L* 43 to 94.
DARK_RAMP: Final = (
    "#7145df", "#4172eb", "#0493db", "#0aadc6", "#36c880", "#aed136", "#f6db16", "#fbefab",
)  # fmt: skip
CYCLE: Final = 7  #: hues of curves
BODY, BODY_IN_PRINT = 10, 8  #: sizes of letters, in points
NOTE, TITLE = "small", "x-large"  #: against them
#: Picture formats by file suffix, and their metadata: nothing that changes between runs.
KINDS: Final[dict[str, dict[str, None]]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
P = ParamSpec("P")
Layout = Literal["constrained", "compressed"]


@dataclass(frozen=True)
class Style:
    """Colours of the ground, of letters and of what stays in the background; print has narrower pages."""

    ground: str = "#ffffff"
    ink: str = "#222222"
    quiet: str = "#666666"  #: footers, curves of others
    faint: str = "#c4c4c4"  #: streets, edges
    font: str = "DejaVu Sans"
    widest: float = 100.0  #: inches
    headline: bool = True  #: True if the title stands above: a paper has captions
    dots: int = 110  #: per inch of a PNG
    body: int = BODY
    palette: tuple[str, ...] = PALETTE
    ramp: tuple[str, ...] = RAMP


STYLES: Final = {
    "light": Style(),
    "dark": Style(
        ground="#16181d",
        ink="#e6e6e6",
        quiet="#a0a0a0",
        faint="#50545d",
        palette=DARK_PALETTE,
        ramp=DARK_RAMP,
    ),
    "paper": Style(
        ink="#000000", font="STIXGeneral", widest=7.0, headline=False, dots=300, body=BODY_IN_PRINT
    ),
}
_CHOSEN: ContextVar[str] = ContextVar("style", default="light")


@contextlib.contextmanager
def chosen(name: str) -> Iterator[None]:
    """Draw in the style of that name within the block."""
    token = _CHOSEN.set(name)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def look() -> Style:
    """Return the style that pictures are drawn in now."""
    return STYLES[_CHOSEN.get()]


def styled(draw: Callable[P, None]) -> Callable[P, None]:
    """Have a function draw in the style of its caller: matplotlib's defaults are set while it runs."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> None:
        import matplotlib as mpl

        with mpl.rc_context(_settings(look())):
            draw(*args, **options)

    return drawn


def new_figure(
    width: float,
    height: float,
    *,
    title: str = "",
    footer: str = "",
    layout: Layout = "constrained",
) -> Any:
    """Return a figure of so many inches, or smaller in the same form where the style has narrower pages."""
    from matplotlib.figure import Figure

    now = look()
    scale = min(1.0, now.widest / width)
    figure = Figure(figsize=(scale * width, scale * height), layout=layout)
    if title and now.headline:
        lines = (textwrap.fill(line, max(40, int(8 * width))) for line in title.split("\n"))
        figure.suptitle("\n".join(lines))
    if footer:
        most = max(40, int(14 * scale * width))
        text = "\n".join(textwrap.fill(line, most) for line in footer.split("\n") if line)
        figure.supxlabel(text, fontsize=NOTE, color=now.quiet)
    return figure


def save(figure: Any, path: Path, *, named: bool = True, **options: Any) -> None:
    """Write a figure as the ending of ``path`` says; equal figures give equal bytes.

    ``named`` is that of :func:`~kmip_data.files.changes.write_output`.
    """
    kind = check_kind(path)
    picture = io.BytesIO()
    figure.savefig(picture, format=kind[1:], metadata=KINDS[kind], **options)
    data = picture.getvalue()
    write_output(path, sealed(data) if kind == ".png" else data, named=named)


def check_kind(path: Path) -> str:
    """Return the key in :data:`KINDS` that ``path`` ends in, PNG where it has no ending.

    Raises ``UsageError`` for the ending of something else.
    """
    kind = path.suffix.lower() or ".png"
    if kind not in KINDS:
        endings = f"a name that ends in {', '.join(KINDS)}"
        raise UsageError(f"A picture cannot be written as {path.name}.", expected=endings)
    return kind


def percent(share: float, _: int | None = None) -> str:
    """Write a share at an axis.

    >>> percent(0.225), percent(0.07)
    ('22.5 %', '7 %')
    """
    return f"{100 * share:g} %"


def plain_ticks(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers; less than a decade may have no power of ten."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    steps = MaxNLocator(5, steps=[1, 2, 5, 10])
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 10 * low else steps)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def _settings(look: Style) -> Any:
    from matplotlib.rcsetup import cycler

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    grounds = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    return {
        **dict.fromkeys(inked, look.ink),
        **dict.fromkeys((*grounds, "legend.facecolor"), look.ground),
        **dict.fromkeys(("axes.titlesize", "axes.labelsize"), "medium"),
        **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), NOTE),
        "figure.titlesize": TITLE,
        "font.size": look.body,
        "axes.prop_cycle": cycler(color=look.palette[:CYCLE]),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.family": look.font,
        **dict.fromkeys(
            ("figure.constrained_layout.h_pad", "figure.constrained_layout.w_pad"), 0.06
        ),
        "grid.alpha": 0.3,
        "legend.edgecolor": "none",
        "legend.framealpha": 0.8,
        "lines.linewidth": 1.5 * look.body / BODY,
        "pdf.fonttype": 42,  # letters stay letters
        "savefig.dpi": look.dots,
        "svg.hashsalt": "kmip-data",  # names of parts are drawn by chance otherwise
        "text.parse_math": False,  # a dollar sign in a name begins no formula, which could be one that fails
    }


LEAST: Final = 3.0  #: contrast of graphical objects, WCAG 2.1, criterion 1.4.11
STEPS: Final = 32  #: of a mixture towards the letters or the ground
SECOND_BLUE: Final = 5  #: of the palette: next to the first one parts of a shape would run together
GROUPED: Final = re.compile(r"[^/]+/\d{1,4}")  #: names of classes by group and number
SHADES: Final = (
    0.0,
    0.3,
    0.55,
    0.75,
)  #: of each hue towards the letters: 96 colours before any repeats
#: Usual colours of the classes of S3DIS: ``sem_seg/indoor3d_util.py`` of PointNet.
S3DIS: Final = {
    "ceiling": "#00ff00", "floor": "#0000ff", "wall": "#00ffff", "beam": "#ffff00", "column": "#ff00ff",
    "window": "#6464ff", "door": "#c8c864", "table": "#aa78c8", "chair": "#ff0000", "sofa": "#c86464",
    "bookcase": "#0ac864", "board": "#c8c8c8", "clutter": "#323232",
}  # fmt: skip
#: Colours of elements by Corey, Pauling and Koltun, as Jmol has them; carbon is a darker grey.
CPK: Final = {
    1: "#ffffff", 5: "#ffb5b5", 6: "#808080", 7: "#3050f8", 8: "#ff0d0d", 9: "#90e050", 15: "#ff8000",
    16: "#ffff30", 17: "#1ff01f", 35: "#a62929",
}  # fmt: skip
OTHER_ELEMENT: Final = "#ff1493"
Paint = Callable[[], Sequence[str]]  #: colours as the style of the caller has them


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.1, relative luminance).

    >>> contrast("#ffffff", "#000000")
    21.0
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    from matplotlib.colors import to_rgb

    parts = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(color)
    )
    return float(
        sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))
    )


def mixed(color: str, other: str, share: float) -> str:
    """Return ``color`` with a ``share`` of ``other`` in it."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (
        a + share * (b - a) for a, b in zip(to_rgb(color), to_rgb(other), strict=True)
    )
    return to_hex((red, green, blue))


def readable(color: str) -> str:
    """Return ``color``, mixed with as much of the letters' colour as makes it visible on the ground."""
    shades = (mixed(color, look().ink, step / STEPS) for step in range(STEPS + 1))
    return next(shade for shade in shades if contrast(shade, look().ground) >= LEAST)


def strong_and_pale(color: str) -> tuple[str, str]:
    """Return a shade of ``color`` nearer to the letters, and the palest that is visible on the ground."""
    shades = [mixed(color, look().ground, step / STEPS) for step in range(STEPS + 1)]
    seen = [shade for shade in shades if contrast(shade, look().ground) >= LEAST]
    return mixed(color, look().ink, 0.35), seen[-1]


def class_colors(count: int, names: Sequence[str] = ()) -> list[str]:
    """Hex colour of each class: the palette, then shades of it; the usual colours of known ``names``.

    Classes of groups, such as ``Motorbike/0``, begin the palette in each group: a record has those of one.
    """
    if 0 < count <= len(names) and set(names) <= S3DIS.keys():
        return [readable(S3DIS[name]) for name in names]
    shades = [mixed(color, look().ink, share) for share in SHADES for color in look().palette]
    numbers = list(range(count))
    if names and all(GROUPED.fullmatch(name) for name in names):
        numbers = [int(name.rpartition("/")[2]) for name in names]
        del shades[SECOND_BLUE]
    return [shades[number % len(shades)] for number in numbers]


def element_colors(numbers: Sequence[int]) -> list[str]:
    """Hex colour of each element by its atomic number."""
    return [readable(CPK.get(number, OTHER_ELEMENT)) for number in numbers]


def ramp(count: int) -> tuple[str, ...]:
    """Hex colours of ordered values, evenly spaced, from low to high."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    blend = LinearSegmentedColormap.from_list("ordered", look().ramp)
    return tuple(to_hex(color) for color in blend(np.linspace(0, 1, count)))


def on_grounds(paint: Paint) -> list[Sequence[str]]:
    """Return colours on light and on dark ground; one list where they are the same."""
    found = []
    for name in ("light", "dark"):
        with chosen(name):
            found.append(paint())
    return found if found[0] != found[1] else found[:1]
