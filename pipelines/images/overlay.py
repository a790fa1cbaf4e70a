"""Pictures of a build with the borders of their superpixels, for drawings of its graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.images.graph import superpixels
from kmip_data.pipelines.images.reading import read_picture
from kmip_data.pipelines.raw.copies import list_copies
from kmip_data.pipelines.superpixels import key_of, pair

BORDER = (255, 230, 60)  #: red, green, blue


def pictures_of(build: Build, home: Home, keys: list[str]) -> dict[str, NDArray[np.uint8]]:
    """Return the picture of each record, (H, W, 3), with borders; those that are not here are left out."""
    copies = [
        copy
        for copy in list_copies(home.raw / build.card.dataset)
        if copy.content_digest == build.card.content_digest
    ]
    if not copies:
        return {}
    copy, parameters = copies[0], build.card.parameters
    names = {key_of(picture): picture for picture, _ in pair(copy.receipt.members)}
    found = {}
    for key in keys:
        try:
            picture = read_picture(copy.path / names[key], names[key])
        except (DamagedInput, KeyError):
            continue
        segments = superpixels(picture, parameters["superpixels"], parameters["compactness"])
        found[key] = with_borders(picture, segments)
    return found


def with_borders(picture: NDArray[np.uint8], segments: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the picture with the last pixel before each border painted."""
    border = np.zeros(segments.shape, bool)
    border[:-1] |= segments[:-1] != segments[1:]
    border[:, :-1] |= segments[:, :-1] != segments[:, 1:]
    painted = picture.copy()
    painted[border] = (painted[border] * 0.35 + np.array(BORDER) * 0.65).astype(np.uint8)
    return painted
