"""Find the columns that are positions of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from kmip_data.arrays import Array
from kmip_data.format.schema import Schema


def stored_positions(
    schema: Schema, values: Mapping[str, Array], nodes: int
) -> tuple[Array, str] | None:
    """Return the positions (N, 2) or (N, 3) of nodes in columns, and which features they are; or None.

    ``values`` are arrays by attribute.
    """
    # 1. Row and column of superpixels; rows of an image go down.
    for column in schema.columns:
        if column.level != "node":
            continue
        for number, (field, following) in enumerate(pairwise(column.fields)):
            if field.startswith("row") and following.startswith("column"):
                pair = values[column.attribute][:, number : number + 2]
                row, across = pair.astype(np.float64).T
                return np.column_stack([across, -row]), ""

    # 2. Stored positions, 2D or 3D.
    pos = values.get("pos")
    if pos is not None and pos.shape in {(nodes, 2), (nodes, 3)}:
        return pos, ""

    # 3. Features x and y, and z if it follows.
    names = [field.lower().partition(" [")[0] for field in schema.feature_names]
    start = names.index("x") if "x" in names else len(names)
    for axes in ("xyz", "xy"):
        end = start + len(axes)
        if names[start:end] == [*axes]:
            return values["x"][:, start:end], f"positions by columns {', '.join(axes)}"

    # 4. Degrees, in which a metre has one length both ways near the mean latitude.
    if {"lat", "lon"} <= {*names}:
        lat, lon = values["x"][:, [names.index(name) for name in ("lat", "lon")]].T
        if nodes and (abs(lat) <= 90).all() and (abs(lon) <= 180).all():
            across = lon * np.cos(np.radians(lat.mean()))
            return np.column_stack([across, lat]), "positions by columns lat, lon"
    return None
