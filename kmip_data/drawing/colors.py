"""Colours of classes, elements and numbers, with a contrast of at least 3:1 to the ground of the style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from kmip_data.drawing.style import chosen, look

LEAST: Final = 3.0  #: contrast of graphical objects, WCAG 2.1, criterion 1.4.11
STEPS: Final = 32  #: of a mixture towards the letters or the ground
SHADES: Final = (0.0, 0.3, 0.55, 0.75)  #: of each hue towards the letters: 96 colours before any repeats
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

    parts = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color))
    return float(sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True)))


def mixed(color: str, other: str, share: float) -> str:
    """Return ``color`` with a ``share`` of ``other`` in it."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (a + share * (b - a) for a, b in zip(to_rgb(color), to_rgb(other), strict=True))
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
    """Hex colour of each class: the palette, then shades of it; the usual colours of known ``names``."""
    if 0 < count <= len(names) and set(names) <= S3DIS.keys():
        return [readable(S3DIS[name]) for name in names]
    shades = [mixed(color, look().ink, share) for share in SHADES for color in look().palette]
    return [shades[i % len(shades)] for i in range(count)]


def element_colors(numbers: Sequence[int]) -> list[str]:
    """Hex colour of each element by its atomic number."""
    return [readable(CPK.get(number, OTHER_ELEMENT)) for number in numbers]


def ramp(count: int) -> tuple[str, ...]:
    """Hex colours, evenly spaced on the visible part of plasma."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    table = [to_hex(color) for color in colormaps["plasma"](np.linspace(0, 1, 256))]
    seen = [color for color in table if contrast(color, look().ground) >= LEAST]
    return tuple(seen[int(at)] for at in np.linspace(0, len(seen) - 1, count).round())


def on_grounds(paint: Paint) -> list[Sequence[str]]:
    """Return colours on light and on dark ground; one list where they are the same."""
    found = []
    for name in ("light", "dark"):
        with chosen(name):
            found.append(paint())
    return found if found[0] != found[1] else found[:1]
