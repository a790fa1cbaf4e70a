"""Read a picture as 8-bit RGB, and a mask as a class for each pixel."""

from __future__ import annotations

import math
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
    those that lie under it.
    """
    with _decoded(path, name) as image:
        if image.mode in _DEEP:
            grey = np.asarray(image)
            if grey.min() < 0 or grey.max() > 65_535:
                found = f"{grey.min()} to {grey.max()}"
                raise DamagedInput(f"{name}: the values of the picture are {found}, not of 8 or 16 bits.")
            return np.repeat((grey.astype(np.uint16) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
        return np.array(image.convert("RGB"), np.uint8)


def read_mask(path: Path, name: str, *, classes: int, void: int) -> U8:
    """Return the class of each pixel, (H, W), :data:`VOID` where there is none.

    A mask of one channel has the class as its value, one with a palette as its index in the palette; in a
    colour mask each class is a colour of Pascal VOC's. ``void`` is the value of pixels without a class.
    """
    with _decoded(path, name) as image:
        if image.mode in {"RGB", "RGBA"}:
            values = _by_colour(np.array(image.convert("RGB"), np.uint8), name)
        elif image.mode in {"1", "L", "P", *_DEEP}:
            values = np.array(image).astype(np.int64)
        else:
            raise DamagedInput(f"{name}: not a mask, but a picture of mode {image.mode}.")
    empty = values == void
    wrong = ~empty & ((values < 0) | (values >= classes))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DamagedInput(
            f"{name}: row {row}, column {column} is {values[row, column]}, which is no class: 0 to "
            f"{classes - 1}, or {void} (void).",
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


def _by_colour(pixels: U8, name: str) -> I64:
    """Return the class of each pixel of a colour mask."""
    codes, known = (colours.astype(np.int64) @ (65_536, 256, 1) for colours in (pixels, voc_palette()))
    order = np.argsort(known)
    rows: I64 = order[np.searchsorted(known, codes, sorter=order).clip(max=len(known) - 1)]
    wrong = known[rows] != codes
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DamagedInput(
            f"{name}: the pixel at row {row}, column {column} has the colour "
            f"{tuple(pixels[row, column].tolist())}, which is none of Pascal VOC's.",
            next="save masks with the class of each pixel as its value",
        )
    return rows


@contextmanager
def _decoded(path: Path, name: str) -> Iterator[Image.Image]:
    """Open and decode a picture; any error of the library becomes a :class:`DamagedInput`."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(path, formats=FORMATS)
            fault = "" if math.prod(image.size) <= MAX_PIXELS else f"{image.size} pixels are too many"
            if not fault:
                image.load()
    except MemoryError:
        raise
    except Exception as error:  # decoders raise what they like on damaged files
        foreign = isinstance(error, UnidentifiedImageError)
        fault = f"not a picture in {', '.join(FORMATS)}" if foreign else f"{type(error).__name__}: {error}"
        raise DamagedInput(f"{name} cannot be read as a picture: {fault}") from error
    with image:
        if fault:
            raise DamagedInput(f"{name} cannot be read as a picture: {fault}")
        yield image
