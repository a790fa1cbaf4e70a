"""Superpixels of a picture, and their features, labels and edges, constructed like LRGB's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from kmip_data.arrays import F64, I16, I64, U8, Array
from kmip_data.columns.labels import NO_CLASS, class_codes, classes_option
from kmip_data.errors import DamagedInput, OpenQuestions, Setting
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.graph_arrays.reverse_edges import append_reverse_edges

if TYPE_CHECKING:
    from PIL import Image


PICTURE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
#: Formats decoded, by content. Pillow supports forty more, and runs EPS as a program in Ghostscript.
PILLOW_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
VOID = 255  #: class of a pixel without one
MAX_CLASSES = 255
MAX_PIXELS = 64_000_000  #: declared size above which a picture is not decoded
COMMON_WHITES = (1, 255, 65_535, 2**32 - 1)
_DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "F")  #: Pillow's modes of more than 8 bits
_DARK_THRESHOLD = 8_192  #: maximum of 65,536 values below which the user must confirm white
_IS_16_BIT = "is 16 bit"  #: key of ``Image.info``
_SAVE_CLASSES = "save masks with the class of each pixel as its value"
_EXIF_ORIENTATION = 0x0112  #: EXIF tag
Exif = Literal["apply", "ignore"]


class UnknownClass(DamagedInput):
    """A mask has a value that is no class."""


def read_picture(
    path: Path,
    name: str,
    *,
    white: float | None = None,
    exif: Exif | None = None,
    size: tuple[int, ...] = (),
) -> U8:
    """Return a picture as 8-bit RGB (H, W, 3), with grey in all channels and without alpha.

    ``white`` is the value of white in pictures of more than 8 bits. It defaults to 1 for floats, as
    in scikit-image, and to 65,535 for 16 bits; nearly black pictures raise ``DamagedInput``. By
    default the EXIF orientation is applied if only then the picture has ``size`` (H, W).
    """
    with _open_picture(path, name) as stored:
        image = _apply_orientation(stored, name, exif, size)
        if image.mode not in _DEEP_MODES:
            colours = np.array(image.convert("RGB"), np.uint8)
            is_dark = white is None and int(colours.max()) < _DARK_THRESHOLD >> 8
            if stored.info.get(_IS_16_BIT) and (is_dark or white not in {None, 65_535}):
                raise DamagedInput(
                    f"{name} has 16 bits per colour, of which Pillow reads the upper 8, with values of 0 to"
                    f" {colours.max()}.",
                    steps=[
                        "save it with 8 bits per colour, or name its white if it is that dark",
                        Setting(white=65_535),
                    ],
                )
            return colours
        grey = np.asarray(image)
        # Older versions of Pillow open a 16-bit PNG with 32 bits.
        defaults = {"F": 1, "I": 65_535 if stored.format == "PNG" else None}
        is_default = white is None
        white = white or defaults.get(image.mode, 65_535)
        low = float(grey.min())
        high = float(grey.max())
        if white is None or not 0 <= low <= high <= white:
            depth = next((depth for depth in COMMON_WHITES if 0 <= low <= high <= depth), None)
            raise DamagedInput(
                f"{name}: the values of the picture are {low:g} to {high:g} ({image.mode}), but white is"
                " unknown.",
                steps=None if depth is None else Setting(white=depth),
            )
        if is_default and white == 65_535 and high < _DARK_THRESHOLD:
            question = (
                f"{name}: the brightest of its 65,536 values is {high:g}, which is nearly black: "
                "white=4095 if it has 12 bits, or white=65535 if it is that dark"
            )
            raise OpenQuestions({question: Setting(white=4095)})
        bits = grey.astype(np.uint16) >> 8 if white == 65_535 else np.rint(grey * (255 / white))
        return np.repeat(bits.astype(np.uint8)[:, :, None], 3, axis=2)


def _apply_orientation(
    image: Image.Image, name: str, exif: Exif | None, size: tuple[int, ...]
) -> Image.Image:
    """Apply the EXIF orientation or ignore it; raises ``DamagedInput`` if ``size`` fits both."""
    from PIL import ImageOps

    orientation = image.getexif().get(_EXIF_ORIENTATION, 1)
    if orientation not in range(2, 9) or exif == "ignore":
        return image
    oriented = ImageOps.exif_transpose(image)
    if exif == "apply" or oriented.size[::-1] == size != image.size[::-1]:
        return oriented
    if oriented.size == image.size:
        question = (
            f"{name} is stored rotated (EXIF orientation {orientation}), but its mask fits both ways: "
            "exif='apply' if masks fit the picture as viewers show it, or exif='ignore'"
        )
        raise OpenQuestions({question: Setting(exif="apply")})
    return image


def may_be_mask(path: Path) -> bool:
    """True for a picture of few colours."""
    from PIL import Image

    try:
        with Image.open(path, formats=PILLOW_FORMATS) as image:
            return image.getcolors(MAX_CLASSES + 1) is not None
    except Exception:  # noqa: BLE001 -- as above
        return False


def read_mask(path: Path, name: str) -> I64:
    """Return the value of each pixel, (H, W), -1 if it is transparent or not finite.

    Values are the class in one-channel masks, and the palette index in palette masks.
    """
    with _open_picture(path, name) as image:
        bands = image.getbands()
        if image.mode not in {"1", "L", "P", "LA", "PA", *_DEEP_MODES}:
            raise DamagedInput(
                f"{name} is a mask of colours (mode {image.mode}).",
                steps=f"{_SAVE_CLASSES}, as in docs/pictures.md",
            )
        values = np.array(image)
        values = values[:, :, 0] if values.ndim > 2 else values
        is_missing = ~np.isfinite(values)
        if "A" in bands:
            is_missing |= np.asarray(image.getchannel("A")) == 0
    values = np.where(is_missing, -1, values)
    is_fraction = values != np.rint(values)
    if is_fraction.any():
        row, column = np.argwhere(is_fraction)[0]
        raise DamagedInput(
            f"{name}: row {row}, column {column} is {values[row, column]:g}, not an integer.",
            steps=_SAVE_CLASSES,
        )
    return values.astype(np.int64)


def classes_from_values(values: I64, class_values: Sequence[int], void: int, name: str) -> U8:
    """Return the class of each pixel, (H, W): the position of its value in ``class_values``.

    Values ``void`` and -1 become :data:`VOID`, unless they are among them.
    """
    codes = class_codes(values, class_values)
    has_class = codes != NO_CLASS
    is_invalid = ~has_class & (values != void) & (values != -1)
    if is_invalid.any():
        row, column = np.argwhere(is_invalid)[0]
        raise UnknownClass(
            f"{name}: row {row}, column {column} is {values[row, column]}, which is not a class.",
            steps=suggest_classes_option(np.unique(values), void),
        )
    return np.where(has_class, codes, VOID).astype(np.uint8)


def suggest_classes_option(values: Iterable[int], void: int) -> Setting:
    """Suggest the setting that makes the values of masks classes."""
    return classes_option({int(value) for value in values} - {void, -1}, MAX_CLASSES)


@contextmanager
def _open_picture(path: Path, name: str) -> Iterator[Image.Image]:
    """Open and decode a picture, converting errors of Pillow to :class:`DamagedInput`."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(path, formats=PILLOW_FORMATS)
            # Do not decode an image that declares a huge size.
            if math.prod(image.size) > MAX_PIXELS:
                raise ValueError(f"{image.size} pixels are too many")  # noqa: TRY301
            image.info[_IS_16_BIT] = ";16" in str(image.tile)
            image.load()
            image.getexif()
            with image:
                yield image
    except (MemoryError, DamagedInput):
        raise
    except UnidentifiedImageError as error:
        raise DamagedInput(
            f"{name} cannot be read as a picture: it is damaged, or in a format that Pillow does not support.",
            expected=", ".join(PILLOW_FORMATS),
            steps="repair or replace the file; save a colour TIFF of floats or 32 bits as PNG, with "
            "skimage.util.img_as_ubyte",
        ) from error
    except Exception as error:  # decoders raise arbitrary errors on damaged files
        raise DamagedInput(
            f"{name} cannot be read as a picture: {first_problem(error)}",
            expected=", ".join(PILLOW_FORMATS),
        ) from error


EdgeRule = Literal["rag-boundary", "knn"]
EXTRA_SEGMENTS = 50  #: segments requested first beyond the maximum: LRGB requests 550 for 500
COMPACTNESS = 30.0  #: LRGB's weight of distance against colour in SLIC
BORDER_COLOUR = (255, 230, 60)  #: red, green, blue


def segment_superpixels(picture: U8, max_segments: int) -> I64:
    """Return the superpixel of each pixel, (H, W), numbered from 0.

    Like LRGB, request ``max_segments + 50`` segments of SLIC, then one less at a time, until it
    returns at most ``max_segments``. The number only affects SLIC's initial grid of centres, so run
    it once per grid. ``picture`` is (H, W, 3) 8-bit RGB.
    """
    from skimage.segmentation import slic
    from skimage.util import regular_grid

    image = picture.astype(np.float32) / np.float32(255)
    shape = (1, *picture.shape[:2])
    grid = None
    for requested in range(max_segments + EXTRA_SEGMENTS, 0, -1):
        previous_grid = grid
        grid = regular_grid(shape, requested)  # type: ignore[no-untyped-call]
        if grid == previous_grid:
            continue
        segments = slic(
            image,
            n_segments=requested,
            compactness=COMPACTNESS,
            channel_axis=2,
            start_label=0,
        )
        labels, numbers = np.unique(segments, return_inverse=True)
        if len(labels) <= max_segments:
            return numbers.reshape(segments.shape).astype(np.int64)
    # SLIC merges small pieces, so a request for one segment returns one.
    raise AssertionError("SLIC returned more than one segment when one was requested")


def paint_borders(picture: U8, segments: Array) -> U8:
    """Return the picture (H, W, 3) with the borders of segments (H, W) painted."""
    border = np.zeros(segments.shape, bool)
    border[:-1] |= segments[:-1] != segments[1:]
    border[:, :-1] |= segments[:, :-1] != segments[:, 1:]
    painted = picture.copy()
    painted[border] = (painted[border] * 0.35 + np.array(BORDER_COLOUR) * 0.65).astype(np.uint8)
    return painted


def superpixel_features(picture: U8, segments: I64) -> F64:
    """Return the 14 features of each superpixel, (N, 14), named in the manifest.

    These are mean, population standard deviation, maximum and minimum of each channel in 0 to 1,
    and the centroid. Sums of 8-bit values are exact in any order.
    """
    flat = segments.ravel()
    count = np.bincount(flat)
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    # Group the pixels of each superpixel for reduceat.
    order = np.argsort(flat, kind="stable")
    by_segment = picture.reshape(-1, 3)[order].astype(np.int64)

    mean = np.add.reduceat(by_segment, starts) / count[:, None]
    square = np.add.reduceat(by_segment**2, starts) / count[:, None]
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    largest = np.maximum.reduceat(by_segment, starts)
    smallest = np.minimum.reduceat(by_segment, starts)
    colours = np.column_stack([mean, deviation, largest, smallest]) / 255
    return np.column_stack([colours, superpixel_centroids(segments)])


def superpixel_centroids(segments: I64) -> F64:
    """Return the mean row and column of each superpixel, (N, 2)."""
    flat = segments.ravel()
    count = np.bincount(flat)
    rows, columns = np.divmod(np.arange(flat.size), segments.shape[1])
    mean_row = np.bincount(flat, rows) / count
    mean_column = np.bincount(flat, columns) / count
    return np.column_stack([mean_row, mean_column])


def superpixel_labels(mask: U8, segments: I64) -> I16:
    """Return the class of each superpixel, (N,); -1 if it has none.

    ``mask`` (H, W) has the class of each pixel, or :data:`VOID`. Like LRGB, take the class of the
    pixel at the centroid, rounded half to even, even if it belongs to another superpixel. If that
    pixel has no class, take the most frequent class of the superpixel, the smallest on a tie, or none
    if most of its pixels have none.
    """
    has_class = mask != VOID
    count = int(segments.max()) + 1
    classes = int(mask.max(initial=0, where=has_class)) + 1
    code = segments[has_class] * classes + mask[has_class]
    # Count the pixels of each class in each superpixel.
    votes = np.bincount(code, minlength=count * classes).reshape(count, classes)
    most_frequent = votes.argmax(axis=1).astype(np.uint8)

    row, column = np.rint(superpixel_centroids(segments)).astype(np.int64).T
    at_centre = mask[row, column]
    labels: I16 = np.where(at_centre == VOID, most_frequent, at_centre).astype(np.int16)
    without_class = np.bincount(segments[~has_class], minlength=count)
    labels[(at_centre == VOID) & (without_class > votes.sum(axis=1))] = NO_CLASS
    return labels


def connect_superpixels(
    picture: U8,
    segments: I64,
    rule: EdgeRule,
    k: int,
) -> tuple[I64, F64]:
    """Return edges (2, E), sorted by source and target, and their features (E, 2) or (E, 1).

    ``rag-boundary`` connects touching superpixels in both directions, with the mean Sobel strength
    along their boundary and its length in pixels. ``knn`` connects each superpixel to its ``k``
    nearest centroids, with the distance in pixels.
    """
    if rule == "knn":
        return _nearest_edges(segments, k)
    pairs, attr = _boundary_edges(picture, segments)
    if not len(attr):  # LRGB gives a single superpixel a self-loop with zero features
        return np.zeros((2, 1), np.int64), np.zeros((1, 2))
    edges = append_reverse_edges(pairs)
    order = np.lexsort(edges[::-1])
    return edges[:, order], np.concatenate([attr, attr])[order]


def _boundary_edges(picture: U8, segments: I64) -> tuple[I64, F64]:
    """Return touching pairs (2, P), with Sobel strength and boundary length, like ``rag_boundary``."""
    from scipy.ndimage import maximum_filter, minimum_filter
    from skimage.color import rgb2gray
    from skimage.filters import sobel

    grey = rgb2gray(picture.astype(np.float32) / np.float32(255))
    strength = sobel(grey)  # type: ignore[no-untyped-call]

    # A pixel borders the superpixels with the smallest and largest number around it.
    smallest = minimum_filter(segments, 3, mode="nearest")
    largest = maximum_filter(segments, 3, mode="nearest")
    has_smaller = smallest != segments
    has_larger = largest != segments
    low = np.concatenate([smallest[has_smaller], segments[has_larger]])
    high = np.concatenate([segments[has_smaller], largest[has_larger]])
    values = np.concatenate([strength[has_smaller], strength[has_larger]])

    nodes = int(segments.max()) + 1
    pairs, pair, length = np.unique(low * nodes + high, return_inverse=True, return_counts=True)
    mean = np.bincount(pair.reshape(-1), values, len(pairs)) / np.maximum(length, 1)
    return np.stack(np.divmod(pairs, nodes)), np.column_stack([mean, length])


def _nearest_edges(segments: I64, k: int) -> tuple[I64, F64]:
    """Return edges and distances in pixels from the k nearest centroids, or all if fewer."""
    from kmip_data.graphs.knn import knn_edges

    centres = superpixel_centroids(segments)
    if len(centres) == 1:
        return np.zeros((2, 1), np.int64), np.zeros((1, 1))
    flat = np.column_stack([centres, np.zeros(len(centres))]).astype(np.float32)
    edges = knn_edges(flat, min(k, len(centres) - 1)).astype(np.int64)
    edges = edges[:, np.lexsort(edges[::-1])]
    difference = centres[edges[0]] - centres[edges[1]]
    return edges, np.linalg.norm(difference, axis=1)[:, None]
