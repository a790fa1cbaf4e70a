"""Find the fields that are colours of nodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kmip_data.arrays import Array

CHANNELS = ("red", "green", "blue")  #: prefixes of the names of colour fields
CHANNEL_MAXIMA = (1, 255, 65_535)  #: possible maxima of a colour channel


def color_channels(columns: Mapping[str, Array]) -> Array | None:
    """Return red, green and blue from 0 to 1, (N, 3), if ``columns`` (N,) by name have them, or greys.

    Values have 1, 8 or 16 bits.
    """
    found = dict[str, Array]()
    for name, values in columns.items():
        for color in (*CHANNELS, "grey"):
            if name.removeprefix("mean ").startswith(color):
                found.setdefault(color, values)
    channels = CHANNELS if found.keys() >= {*CHANNELS} else ("grey",) * 3
    if channels[0] not in found:
        return None
    rgb = np.stack([found[color] for color in channels], axis=1)
    possible = [value for value in CHANNEL_MAXIMA if rgb.max(initial=0) <= value]
    return np.clip(rgb / min(possible, default=CHANNEL_MAXIMA[-1]), 0, 1)
