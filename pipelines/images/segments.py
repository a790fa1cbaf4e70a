"""Cut a picture in superpixels: SLIC, asked for fewer segments until there are few enough."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BORDER: Final = (255, 230, 60)  #: red, green, blue
EXTRA: Final = 50  #: segments asked for at first above those that are wanted; LRGB's 550 for 500


def superpixels(picture: NDArray[np.uint8], most: int, compactness: float) -> NDArray[np.int64]:
    """Return the superpixel of each pixel, (H, W), numbered from 0.

    LRGB's loop: SLIC is asked for ``most + 50`` segments, then for one less, until it gives at most ``most``.
    SLIC knows the number only by the grid of its first centres, and many numbers make the same grid: it runs
    once for each grid, which gives what the loop gives.

    Parameters
    ----------
    picture
        (H, W, 3) 8-bit RGB.
    most
        Superpixels allowed.
    compactness
        Weight of nearness against colour.
    """
    from skimage.segmentation import slic
    from skimage.util import regular_grid

    image = picture.astype(np.float32) / np.float32(255)
    shape = (1, *picture.shape[:2])
    grid = None
    for asked in range(most + EXTRA, 0, -1):
        before, grid = grid, regular_grid(shape, asked)  # type: ignore[no-untyped-call]
        if grid == before:
            continue
        found = slic(image, n_segments=asked, compactness=compactness, channel_axis=2, start_label=0)
        names, numbers = np.unique(found, return_inverse=True)
        if len(names) <= most:
            return numbers.reshape(found.shape).astype(np.int64)
    # Small pieces are merged into others, so one segment asked for is one that is found.
    raise AssertionError("SLIC gave more than one segment where one was asked for")


def with_borders(picture: NDArray[np.uint8], segments: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the picture with the last pixel before each border painted."""
    border = np.zeros(segments.shape, bool)
    border[:-1] |= segments[:-1] != segments[1:]
    border[:, :-1] |= segments[:, :-1] != segments[:, 1:]
    painted = picture.copy()
    painted[border] = (painted[border] * 0.35 + np.array(BORDER) * 0.65).astype(np.uint8)
    return painted
