"""Read a picture as 8-bit RGB, and a mask as a class for each pixel."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kmip_data.arrays import I64, U8
from kmip_data.errors import DamagedInput

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
#: Formats that are decoded, by content. Pillow knows forty more, and hands EPS to Ghostscript,
#: which runs it as a program.
FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
VOID: Final = 255  #: a pixel that has no class
MAX_CLASSES: Final = 255
MAX_PIXELS: Final = 64_000_000  #: declared size of a picture; larger ones are refused before they are decoded
_DEEP: Final = ("I", "I;16", "I;16B", "I;16L", "F")  #: modes of more than 8 bits


def read_picture(path: Path, name: str) -> U8:
    """Return a picture as (H, W, 3) red, green, blue.

    Grey becomes three equal channels, 16 bits the upper 8, and an alpha channel is left out: its colours are
    those that lie under it. Raises ``DamagedInput`` where it is not a picture, is cut off, or has too many
    pixels.
    """
    with _decoded(path, name) as image:
        if image.mode in _DEEP:
            grey = np.asarray(image)
            if grey.min() < 0 or grey.max() > 65_535:
                found = f"{grey.min()} to {grey.max()}"
                raise DamagedInput(f"{name}: the values of the picture are {found}, not of 8 or 16 bits.")
            return np.repeat((grey.astype(np.uint16) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
        return np.array(image.convert("RGB"), np.uint8)


def read_mask(path: Path, name: str, *, classes: int, void: int | None, palette: U8) -> U8:
    """Return the class of each pixel, (H, W), :data:`VOID` where there is none.

    A mask of one channel has the class as its value, one with a palette as its index in the palette; in a
    colour mask each class, of at most :data:`MAX_CLASSES`, is a colour, a row of ``palette`` (C, 3). ``void``
    is the value or row of pixels without a class. Raises ``DamagedInput`` where it is not a picture, or has a
    value or a colour without a class.
    """
    with _decoded(path, name) as image:
        if image.mode in {"RGB", "RGBA"}:
            values = _by_colour(np.array(image.convert("RGB"), np.uint8), palette, name)
        elif image.mode in {"1", "L", "P", *_DEEP}:
            values = np.asarray(image.convert("L") if image.mode == "1" else image)
            values = (values > 0).astype(np.int64) if image.mode == "1" else values.astype(np.int64)
        else:
            raise DamagedInput(f"{name}: not a mask, but a picture of mode {image.mode}.")
    empty = np.zeros(values.shape, bool) if void is None else values == void
    wrong = ~empty & ((values < 0) | (values >= classes))
    if wrong.any():
        row, column = (int(axis[0]) for axis in np.nonzero(wrong))
        known = f"0 to {classes - 1}" + (f", or {void} (void)" if void is not None else "")
        raise DamagedInput(
            f"{name}: row {row}, column {column} is {values[row, column]}, which is no class: {known}.",
            next="--set classes=NUMBER, or --set void=VALUE of pixels without a class",
        )
    return np.where(empty, VOID, values).astype(np.uint8)


def voc_palette() -> U8:
    """Return the 256 colours of Pascal VOC, (256, 3): bits of the class dealt to the channels."""
    numbers = np.arange(256)
    colours = np.zeros((256, 3), np.int64)
    for bit in range(8):
        for channel in range(3):
            colours[:, channel] |= (numbers >> (3 * bit + channel) & 1) << (7 - bit)
    return colours.astype(np.uint8)


def read_palette(path: Path) -> U8:
    """Read the colours of classes from text, one ``R G B`` or ``R,G,B`` per line, by class: (C, 3).

    Raises ``DamagedInput`` where a line is not a colour, or a colour comes twice.
    """
    colours: list[tuple[int, ...]] = []
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        colour = tuple(int(word) if word.isdecimal() else -1 for word in words[:3])
        if len(colour) != 3 or not all(0 <= value <= 255 for value in colour) or colour in colours:
            raise DamagedInput(
                f"{path.name}, line {number}: not the colour of a class, or a second time: {line[:80]!r}",
                expected="three numbers from 0 to 255, such as 128 0 0",
            )
        colours.append(colour)
    if not 1 <= len(colours) <= MAX_CLASSES + 1:
        raise DamagedInput(f"{path.name}: {len(colours)} colours instead of 1 to {MAX_CLASSES + 1}.")
    return np.array(colours, np.uint8)


def _by_colour(pixels: U8, palette: U8, name: str) -> I64:
    """Return the row of the palette of each pixel."""
    weights = np.array([65_536, 256, 1])
    known = palette.astype(np.int64) @ weights
    order = np.argsort(known, kind="stable")
    codes = pixels.astype(np.int64) @ weights
    at = np.searchsorted(known[order], codes).clip(max=len(known) - 1)
    wrong = known[order][at] != codes
    if wrong.any():
        row, column = (int(axis[0]) for axis in np.nonzero(wrong))
        raise DamagedInput(
            f"{name}: the pixel at row {row}, column {column} has the colour "
            f"{tuple(pixels[row, column].tolist())}, which is none of the {len(palette)} classes.",
            next="give the colours of the classes with --set palette=FILE",
        )
    return np.asarray(order[at], np.int64)


@contextmanager
def _decoded(path: Path, name: str) -> Iterator[Image.Image]:
    """Open and decode a picture; any error of the library becomes a :class:`DamagedInput`."""
    from PIL import Image, UnidentifiedImageError

    def refused(found: str) -> DamagedInput:
        return DamagedInput(f"{name} cannot be read as a picture: {found}")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(path, formats=FORMATS)
            width, height = image.size
            if width * height <= MAX_PIXELS:
                image.load()
    except UnidentifiedImageError as error:
        raise refused(f"not a picture in {', '.join(FORMATS)}") from error
    except MemoryError:
        raise
    except Exception as error:  # decoders raise what they like on damaged files
        raise refused(f"{type(error).__name__}: {error}") from error
    with image:
        if width * height > MAX_PIXELS:
            raise refused(f"{width} × {height} pixels, {MAX_PIXELS:,} are allowed")
        yield image
