"""Sinusoidal encoding of longitude and latitude, as the k-MIP code feeds cities to its models."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from kmip_data.arrays import F32

SPAN: Final = 0.9 * math.pi  #: angle of the largest train coordinate; the smallest has its negative
AXES: Final = ("longitude", "latitude")


def coordinate_range(lon_lat: F32) -> F32:
    """Return least and largest longitude (row 0) and latitude (row 1), (2, 2), of train nodes (M ≥ 1, 2)."""
    return np.stack([lon_lat.min(axis=0), lon_lat.max(axis=0)], axis=1)


def encode_coordinates(lon_lat: F32, bounds: F32, bands: int = 8) -> F32:
    """Return the sinusoids of longitude, then latitude: (N, 4 · bands) float32, in [-1, 1].

    A coordinate c becomes the angle ``v = ((c - min) / (max - min) - 0.5) · 2π · 0.9`` and then
    ``sin(v), sin(2v), … sin(2^(bands-1) v), cos(v), … cos(2^(bands-1) v)``. Nodes outside the range
    have larger angles. The angle and its sines are computed in float64 and rounded once; where the
    range is empty (min = max), it is taken as 1 degree. Takes (N, 2) float32, degrees, and what
    :func:`coordinate_range` gives.
    """
    low = bounds[:, 0].astype(np.float64)
    extent = bounds[:, 1].astype(np.float64) - low
    extent[extent == 0] = 1.0
    angle = ((lon_lat.astype(np.float64) - low) / extent - 0.5) * 2.0 * SPAN
    out = np.empty((len(lon_lat), 4 * bands), np.float32)
    for axis in range(2):
        for band in range(bands):
            scaled = angle[:, axis] * float(1 << band)
            out[:, 2 * bands * axis + band] = np.sin(scaled)
            out[:, 2 * bands * axis + bands + band] = np.cos(scaled)
    return out


def encoding_names(bands: int = 8) -> tuple[str, ...]:
    """Return the names of the columns of :func:`encode_coordinates`.

    >>> encoding_names(1)
    ('sin 1·longitude', 'cos 1·longitude', 'sin 1·latitude', 'cos 1·latitude')
    """
    return tuple(
        f"{wave} {1 << band}·{axis}" for axis in AXES for wave in ("sin", "cos") for band in range(bands)
    )
