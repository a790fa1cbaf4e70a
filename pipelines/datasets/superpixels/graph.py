"""Superpixels of a picture, their features, labels and edges, by the construction of LRGB."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from kmip_data.arrays import F64, I64, U8, Array
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.graph_arrays.reverse_edges import append_reverse_edges

if TYPE_CHECKING:
    from PIL import Image


SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
#: Formats that are decoded, by content. Pillow knows forty more, and hands EPS to Ghostscript,
#: which runs it as a program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
VOID = 255  #: a pixel that has no class
MAX_CLASSES = 255
_SHOWN = 20  #: values that a remedy lists
#: Declared size of a picture; larger ones are refused before they are decoded.
MAX_PIXELS = 64_000_000
DEPTHS = (1, 255, 65_535, 2**32 - 1)  #: usual values of white
_DEEP = ("I", "I;16", "I;16B", "I;16L", "F")  #: modes of more than 8 bits
_DARK = 8_192  #: brightest of 65,536 values below which white is asked
_UPPER_HALF = "upper half of 16 bits"  #: key of the facts of a picture
_ORIENTATION = 0x0112  #: number of the EXIF field
Exif = Literal["apply", "ignore"]


def read_picture(
    path: Path,
    name: str,
    *,
    white: float | None = None,
    exif: Exif | None = None,
    size: tuple[int, ...] = (),
) -> U8:
    """Return an image as (H, W, 3) red, green, blue.

    Grey becomes three equal channels, and an alpha channel is ignored. ``white`` is the value of
    white in pictures of more than 8 bits: without it 1 in floats, as in scikit-image, and 65,535 in
    16 bits, of which the upper 8 are used; it is asked if they would be nearly black. A picture
    stored turned is turned back (``exif``) if only then it has ``size``, (H, W).
    """
    with _open_picture(path, name) as stored:
        image = _turn_upright(stored, name, exif, size)
        if image.mode not in _DEEP:
            colours = np.array(image.convert("RGB"), np.uint8)
            is_dark = white is None and int(colours.max()) < _DARK >> 8
            if stored.info.get(_UPPER_HALF) and (is_dark or white not in {None, 65_535}):
                raise DamagedInput(
                    f"{name} has 16 bits a colour, of which Pillow reads the upper 8, and they are 0 to"
                    f" {colours.max()}.",
                    next="save it with 8 bits a colour, or --set white=65535 if it is as dark",
                )
            return colours
        grey = np.asarray(image)
        # Older versions of Pillow open a PNG of 16 bits with 32.
        usual = {"F": 1, "I": 65_535 if stored.format == "PNG" else None}
        given = white
        white = white or usual.get(image.mode, 65_535)
        low = float(grey.min())
        high = float(grey.max())
        if white is None or not 0 <= low <= high <= white:
            depth = next((depth for depth in DEPTHS if 0 <= low <= high <= depth), None)
            raise DamagedInput(
                f"{name}: the values of the picture are {low:g} to {high:g} ({image.mode}), and nothing says"
                " which is white.",
                next=None if depth is None else f"--set white={depth}",
            )
        if given is None and white == 65_535 and high < _DARK:
            raise DamagedInput(
                f"{name}: the brightest of its 65,536 values is {high:g}, which is nearly black.",
                next="--set white=4095 if it has 12 bits, or --set white=65535 if it is as dark",
            )
        bits = grey.astype(np.uint16) >> 8 if white == 65_535 else np.rint(grey * (255 / white))
        return np.repeat(bits.astype(np.uint8)[:, :, None], 3, axis=2)


def _turn_upright(
    image: Image.Image, name: str, exif: Exif | None, size: tuple[int, ...]
) -> Image.Image:
    """Return a picture as its EXIF orientation shows it, or as it is stored; ask if both have ``size``."""
    from PIL import ImageOps

    orientation = image.getexif().get(_ORIENTATION, 1)
    if orientation not in range(2, 9) or exif == "ignore":
        return image
    turned = ImageOps.exif_transpose(image)
    if exif == "apply" or turned.size[::-1] == size != image.size[::-1]:
        return turned
    if turned.size == image.size:
        raise DamagedInput(
            f"{name} is stored turned (EXIF orientation {orientation}), and its mask fits both ways.",
            next="--set exif=apply if masks lie on the picture as viewers show it, or --set exif=ignore",
        )
    return image


def read_mask(path: Path, name: str) -> I64:
    """Return the value of each pixel, (H, W), -1 where it is transparent or not a number.

    A mask of one channel has the class as its value, one with a palette as its index in the
    palette; in a colour mask each class is a colour of Pascal VOC's.
    """
    with _open_picture(path, name) as image:
        bands = image.getbands()
        if image.mode in {"RGB", "RGBA"}:
            values = _classes_of_colours(np.array(image.convert("RGB"), np.uint8), name)
        elif image.mode in {"1", "L", "P", "LA", "PA", *_DEEP}:
            values = np.array(image)
            values = values[:, :, 0] if values.ndim > 2 else values
        else:
            raise DamagedInput(
                f"{name}: not a mask, but a picture of mode {image.mode}.",
                next="save masks with the class of each pixel as its value",
            )
        empty = ~np.isfinite(values)
        if "A" in bands:
            empty |= np.asarray(image.getchannel("A")) == 0
    values = np.where(empty, -1, values)
    broken = values != np.rint(values)
    if broken.any():
        row, column = np.argwhere(broken)[0]
        raise DamagedInput(
            f"{name}: row {row}, column {column} is {values[row, column]:g}, not an integer.",
            next="save masks with the class of each pixel as its value",
        )
    return values.astype(np.int64)


def classes_of(values: I64, codes: Sequence[int], void: int, name: str) -> U8:
    """Return the class of each pixel, (H, W), the position of its value in ``codes``.

    It is :data:`VOID` where the value is ``void`` or -1, unless that is one of them.
    """
    order = np.argsort(codes)
    known = np.asarray(codes)[order]
    at = np.searchsorted(known, values).clip(max=len(known) - 1)
    hit = known[at] == values
    wrong = ~hit & (values != void) & (values != -1)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DamagedInput(
            f"{name}: row {row}, column {column} is {values[row, column]}, which is not a class.",
            next=classes_option(np.unique(values), void),
        )
    return np.where(hit, order[at], VOID).astype(np.uint8)


def classes_option(values: Iterable[int], void: int) -> str:
    """Return the option that makes the values of masks classes."""
    kept = sorted({int(value) for value in values} - {void, -1})
    if len(kept) < 2 or len(kept) > _SHOWN or kept == list(range(kept[-1] + 1)):
        return f"--set classes={max(2, min(max(kept, default=0) + 1, MAX_CLASSES))}"
    return f"--set classes={','.join(map(str, kept))}"


def voc_palette() -> U8:
    """Return the 256 colours of Pascal VOC, (256, 3): the bits of the class distributed over the channels."""
    numbers = np.arange(256)
    # Bits 0, 3, 6 … of a class are the high bits of red, 1, 4, 7 … of green, the others of blue.
    colours = np.zeros((256, 3), np.int64)
    for bit in range(8):
        for channel in range(3):
            colours[:, channel] |= (numbers >> (3 * bit + channel) & 1) << (7 - bit)
    return colours.astype(np.uint8)


def _classes_of_colours(pixels: U8, name: str) -> I64:
    """Return the class of each pixel of a colour mask."""
    # A colour as one number: 2^16 red + 2^8 green + blue.
    weights = (65_536, 256, 1)
    codes = pixels.astype(np.int64) @ weights
    # The class of every colour there is, 32 MiB: a look-up needs no search.
    class_of = np.full(2**24, -1, np.int16)
    class_of[voc_palette().astype(np.int64) @ weights] = np.arange(256)
    classes: I64 = class_of[codes].astype(np.int64)
    wrong = classes < 0
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        colour = tuple(pixels[row, column].tolist())
        raise DamagedInput(
            f"{name}: the pixel at row {row}, column {column} has the colour "
            f"{colour}, which is not one of Pascal VOC's.",
            next="save masks with the class of each pixel as its value",
        )
    return classes


@contextmanager
def _open_picture(path: Path, name: str) -> Iterator[Image.Image]:
    """Open and decode a picture; any error of the library becomes a :class:`DamagedInput`."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(path, formats=FORMATS)
            # Do not decode an image that declares a huge size.
            if math.prod(image.size) > MAX_PIXELS:
                raise ValueError(f"{image.size} pixels are too many")  # noqa: TRY301
            image.info[_UPPER_HALF] = ";16" in str(image.tile)
            image.load()
            image.getexif()
            with image:
                yield image
    except (MemoryError, DamagedInput):
        raise
    except UnidentifiedImageError as error:
        raise DamagedInput(
            f"{name} cannot be read as a picture: it is damaged, or of a kind that Pillow does not know.",
            expected=", ".join(FORMATS),
            next="repair or replace the file; save a TIFF of three channels of floats or of 32 bits as PNG, with "
            "skimage.util.img_as_ubyte",
        ) from error
    except Exception as error:  # decoders raise arbitrary errors on damaged files
        raise DamagedInput(
            f"{name} cannot be read as a picture: {type(error).__name__}: {error}",
            expected=", ".join(FORMATS),
        ) from error


EdgeRule = Literal["rag-boundary", "knn"]
EXTRA = 50  #: segments requested at first beyond those wanted; LRGB's 550 for 500
COMPACTNESS = 30.0  #: LRGB's weight of nearness against colour in SLIC
BORDER = (255, 230, 60)  #: red, green, blue


def segment_superpixels(picture: U8, most: int) -> I64:
    """Return the superpixel of each pixel, (H, W), numbered from 0.

    LRGB's loop: SLIC is asked for ``most + 50`` segments, then for one less, until it gives at most
    ``most``. SLIC depends on the number through the grid of its first centres alone, and many
    numbers give the same grid: it runs once per grid, with the same result. ``picture`` is (H, W,
    3) 8-bit RGB.
    """
    from skimage.segmentation import slic
    from skimage.util import regular_grid

    image = picture.astype(np.float32) / np.float32(255)
    shape = (1, *picture.shape[:2])
    grid = None
    for requested in range(most + EXTRA, 0, -1):
        before = grid
        grid = regular_grid(shape, requested)  # type: ignore[no-untyped-call]
        if grid == before:
            continue
        segments = slic(
            image,
            n_segments=requested,
            compactness=COMPACTNESS,
            channel_axis=2,
            start_label=0,
        )
        names, numbers = np.unique(segments, return_inverse=True)
        if len(names) <= most:
            return numbers.reshape(segments.shape).astype(np.int64)
    # Small pieces are merged, so a request for one segment returns one.
    raise AssertionError("SLIC gave more than one segment where one was asked for")


def paint_borders(picture: U8, segments: Array) -> U8:
    """Return the picture (H, W, 3) with the last pixel before each border of segments (H, W) painted."""
    border = np.zeros(segments.shape, bool)
    border[:-1] |= segments[:-1] != segments[1:]
    border[:, :-1] |= segments[:, :-1] != segments[:, 1:]
    painted = picture.copy()
    painted[border] = (painted[border] * 0.35 + np.array(BORDER) * 0.65).astype(np.uint8)
    return painted


def superpixel_features(picture: U8, segments: I64) -> F64:
    """Return the 14 columns of each superpixel, (N, 14), as the manifest names them.

    Mean, standard deviation (of all pixels, not of a draw), largest and smallest value of each
    channel in 0 to 1, and the centroid. Sums of 8-bit values are exact, so the order of pixels
    plays no part.
    """
    flat = segments.ravel()
    count = np.bincount(flat)
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    # Pixels of one superpixel next to each other: reduceat then needs no loop.
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
    """Return mean row and column of each superpixel, (N, 2)."""
    flat = segments.ravel()
    count = np.bincount(flat)
    rows, columns = np.divmod(np.arange(flat.size), segments.shape[1])
    mean_row = np.bincount(flat, rows) / count
    mean_column = np.bincount(flat, columns) / count
    return np.column_stack([mean_row, mean_column])


def superpixel_labels(mask: U8, segments: I64) -> U8:
    """Return the class of each superpixel, (N,); 0 where no pixel has one.

    ``mask`` (H, W) has the class of each pixel, 255 where there is none. As in LRGB, the class is
    the label of the pixel at the rounded centroid (halves to even), even if that pixel belongs to
    another superpixel; if it has none, the class of most pixels of the superpixel, the smaller of
    two.
    """
    known = mask != VOID
    count = int(segments.max()) + 1
    classes = int(mask.max(initial=0, where=known)) + 1
    code = segments[known] * classes + mask[known]
    # Pixels of each class in each superpixel, as one histogram of pairs.
    votes = np.bincount(code, minlength=count * classes).reshape(count, classes)
    most_frequent = votes.argmax(axis=1).astype(np.uint8)

    row, column = np.rint(superpixel_centroids(segments)).astype(np.int64).T
    at_centre = mask[row, column]
    classes_of: U8 = np.where(at_centre == VOID, most_frequent, at_centre)
    return classes_of


def connect_superpixels(
    picture: U8,
    segments: I64,
    rule: EdgeRule,
    k: int,
) -> tuple[I64, F64]:
    """Return edges (2, E), by source and then target, and their features (E, 2) or (E, 1).

    ``rag-boundary`` joins superpixels that touch, in both directions, with the mean Sobel strength
    along their boundary and its length in pixels; ``knn`` joins each to its ``k`` nearest
    centroids, with the distance in pixels.
    """
    if rule == "knn":
        return _nearest_edges(segments, k)
    pairs, attr = _boundary_edges(picture, segments)
    if not len(attr):  # one superpixel: LRGB gives it an edge to itself, without features
        return np.zeros((2, 1), np.int64), np.zeros((1, 2))
    both = append_reverse_edges(pairs)
    order = np.lexsort(both[::-1])
    return both[:, order], np.concatenate([attr, attr])[order]


def _boundary_edges(picture: U8, segments: I64) -> tuple[I64, F64]:
    """Pairs of superpixels, (2, P), mean Sobel strength and pixels of their boundary: ``rag_boundary``."""
    from scipy.ndimage import maximum_filter, minimum_filter
    from skimage.color import rgb2gray
    from skimage.filters import sobel

    grey = rgb2gray(picture.astype(np.float32) / np.float32(255))
    strength = sobel(grey)  # type: ignore[no-untyped-call]

    # A pixel lies on a boundary with the smallest and with the largest number around it.
    smallest = minimum_filter(segments, 3, mode="nearest")
    largest = maximum_filter(segments, 3, mode="nearest")
    below = smallest != segments
    above = largest != segments
    small = np.concatenate([smallest[below], segments[above]])
    large = np.concatenate([segments[below], largest[above]])
    values = np.concatenate([strength[below], strength[above]])

    nodes = int(segments.max()) + 1
    pairs, pair, length = np.unique(small * nodes + large, return_inverse=True, return_counts=True)
    mean = np.bincount(pair.reshape(-1), values, len(pairs)) / np.maximum(length, 1)
    return np.stack(np.divmod(pairs, nodes)), np.column_stack([mean, length])


def _nearest_edges(segments: I64, k: int) -> tuple[I64, F64]:
    """Return edges and distances in pixels from the k nearest centroids (or all others)."""
    from kmip_data.graphs.knn import knn_edges

    centres = superpixel_centroids(segments)
    if len(centres) == 1:
        return np.zeros((2, 1), np.int64), np.zeros((1, 1))
    flat = np.column_stack([centres, np.zeros(len(centres))]).astype(np.float32)
    edges = knn_edges(flat, min(k, len(centres) - 1)).astype(np.int64)
    edges = edges[:, np.lexsort(edges[::-1])]
    difference = centres[edges[0]] - centres[edges[1]]
    return edges, np.linalg.norm(difference, axis=1)[:, None]
