"""Style of all pictures: colours, fonts and sizes, light, dark or for print, and how they are saved."""

from __future__ import annotations

import contextlib
import functools
import io
import textwrap
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, ParamSpec

from kmip_data.errors import UsageError
from kmip_data.files.changes import write_output

#: 24 hues on light ground, 3:1 and more against it; the first seven are Okabe and Ito's, darkened where they
#: were paler, and differ for colour-blind eyes too.
PALETTE: Final = (
    "#0072b2", "#c94f00", "#009e73", "#8f2f7a", "#ad8200", "#2b8cc4", "#6b4226", "#f830f8",
    "#3000a0", "#8018f8", "#f80080", "#c078b0", "#007000", "#004868", "#0020f8", "#680040",
    "#b00020", "#c000c0", "#8870f8", "#004818", "#5840b0", "#f85868", "#786810", "#007068",
)  # fmt: skip
#: As many on dark ground.
DARK_PALETTE: Final = (
    "#3d9ae0", "#e8722a", "#00b386", "#d98bb8", "#e69f00", "#7cc4f0", "#a88a62", "#a800e0",
    "#50f800", "#d00060", "#e0f0b0", "#3850f8", "#088000", "#f840f8", "#805890", "#00f0b8",
    "#f8c8f8", "#b04810", "#008088", "#80c018", "#a070f8", "#f84098", "#f81808", "#e0f800",
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


STYLES: Final = {
    "light": Style(),
    "dark": Style(ground="#16181d", ink="#e6e6e6", quiet="#a0a0a0", faint="#50545d", palette=DARK_PALETTE),
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
    width: float, height: float, *, title: str = "", footer: str = "", layout: Layout = "constrained"
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
        text = textwrap.fill(footer, max(40, int(14 * scale * width)))
        figure.supxlabel(text, fontsize=NOTE, color=now.quiet)
    return figure


def save(figure: Any, path: Path, **options: Any) -> None:
    """Write a figure as the ending of ``path`` says; equal figures give equal bytes."""
    kind, picture = check_kind(path), io.BytesIO()
    figure.savefig(picture, format=kind[1:], metadata=KINDS[kind], **options)
    write_output(path, picture.getvalue())


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
        **dict.fromkeys(("figure.constrained_layout.h_pad", "figure.constrained_layout.w_pad"), 0.06),
        "grid.alpha": 0.3,
        "legend.edgecolor": "none",
        "legend.framealpha": 0.8,
        "lines.linewidth": 1.5 * look.body / BODY,
        "pdf.fonttype": 42,  # letters stay letters
        "savefig.dpi": look.dots,
        "svg.hashsalt": "kmip-data",  # names of parts are drawn by chance otherwise
        "text.parse_math": False,  # a dollar sign in a name begins no formula, which could be one that fails
    }
