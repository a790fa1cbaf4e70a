"""Extract of a generated city: an irregular street grid, blocks of land use, and a park."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import SupportsInt

import numpy as np
from numpy.random import PCG64, Generator

DEFAULT_INTERSECTIONS = 400
WEST = 10.0  #: corner of the city, degrees
SOUTH = 50.0
STEP_DEGREES = 0.001  #: distance between crossings
USES = (
    "residential", "commercial", "grass", "retail", "industrial", "forest", "farmland", "railway", "basin",
    "quarry",
)  # fmt: skip
HIGHWAYS = (
    "residential", "footway", "service", "secondary", "cycleway", "primary", "tertiary", "steps", "path",
    "track",
)  # fmt: skip


def write_sample(path: Path, *, limit: int | None = None, seed: int = 0) -> None:
    """Write a reproducible PBF file with about ``limit`` crossings, at least 25."""
    import osmium

    make = osmium.osm.mutable
    side = max(5, round(math.sqrt(limit or DEFAULT_INTERSECTIONS)))
    generator = Generator(PCG64(seed))
    crossing = 1 + np.arange(side * side).reshape(side, side)
    bends = crossing.size + 1 + np.arange(2 * side * side).reshape(2, side, side)
    # Shift every node off the grid to vary angles and lengths.
    shift = generator.uniform(-0.2, 0.2, (3, side, side, 2))
    way_ids = itertools.count(1)
    with osmium.SimpleWriter(str(path), overwrite=True) as writer:

        def add_way(corners: Iterable[SupportsInt], tags: dict[str, str]) -> int:
            way_id = next(way_ids)
            nodes = [int(corner) for corner in corners]
            writer.add_way(make.Way(id=way_id, version=1, nodes=nodes, tags=tags))
            return way_id

        # Write the crossings, then the bends of the streets to the east and north of each.
        offsets = ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5))
        for node_id, (layer, i, j) in enumerate(np.ndindex(3, side, side), 1):
            row = i
            column = j
            if layer == 2:
                row = j
                column = i
            east, north = offsets[layer]
            dx, dy = shift[layer, i, j]
            lon = WEST + STEP_DEGREES * (column + east + dx)
            lat = SOUTH + STEP_DEGREES * (row + north + dy)
            writer.add_node(make.Node(id=node_id, version=1, location=(lon, lat)))

        for axis, lines in enumerate((crossing, crossing.T)):
            for row, line in enumerate(lines):
                for column in range(side - 1):
                    if generator.random() < 0.15:
                        continue  # gaps vary the block sizes
                    nodes = line[column], bends[axis, row, column], line[column + 1]
                    add_way(nodes, _draw_street_tags(generator))

        blocks = list(itertools.product(range(0, side - 1, 2), repeat=2))
        for i, j in blocks:
            ring = crossing[[i, i, i + 1, i + 1, i], [j, j + 1, j + 1, j, j]]
            tags = {"landuse": USES[generator.integers(len(USES))]}
            if (i, j) == blocks[-1]:
                tags = {}  # its land use is on a relation, as for areas with holes
            last_way = add_way(ring, tags)
        tags = {"type": "multipolygon", "landuse": "recreation_ground"}
        members = [("w", last_way, "outer")]
        writer.add_relation(make.Relation(id=1, version=1, members=members, tags=tags))


def _draw_street_tags(generator: Generator) -> dict[str, str]:
    weights = 0.6 ** np.arange(len(HIGHWAYS))
    highway = generator.choice(len(HIGHWAYS), p=weights / weights.sum())
    tags = {"highway": HIGHWAYS[highway]}
    if generator.random() < 0.2:
        tags["oneway"] = "yes"
    if generator.random() < 0.4:
        tags["maxspeed"] = str(generator.choice([20, 30, 50, 60]))
    if generator.random() < 0.2:
        tags["lanes"] = str(generator.integers(1, 5))
    return tags
