"""A generated city as an extract of OpenStreetMap: a bent grid of streets, blocks of land use, a park."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import PCG64, Generator

if TYPE_CHECKING:
    import osmium

DEFAULT_INTERSECTIONS = 400
WEST, SOUTH = 10.0, 50.0  #: corner of the city, degrees
STEP = 0.001  #: between crossings, degrees
USES = (
    "residential", "commercial", "grass", "retail", "industrial", "forest", "farmland", "railway", "basin",
    "quarry",
)  # fmt: skip
KINDS = (
    "residential", "footway", "service", "secondary", "cycleway", "primary", "tertiary", "steps", "path",
    "track",
)  # fmt: skip


def write_sample(path: Path, *, limit: int | None = None, seed: int = 0) -> None:
    """Write a PBF file with about ``limit`` crossings (at least 25); equal seeds give equal maps."""
    import osmium

    side = max(5, round(math.sqrt(limit or DEFAULT_INTERSECTIONS)))
    generator = Generator(PCG64(seed))
    crossing = 1 + np.arange(side * side).reshape(side, side)
    bends = crossing.size + 1 + np.arange(2 * side * side).reshape(2, side, side)
    with osmium.SimpleWriter(str(path), overwrite=True) as writer:
        _write_nodes(writer, side, generator)
        number = 1
        for axis, lines in enumerate((crossing, crossing.T)):
            for row, line in enumerate(lines):
                for place in range(side - 1):
                    if generator.random() < 0.15:
                        continue  # a gap: blocks of different sizes
                    nodes = [int(line[place]), int(bends[axis, row, place]), int(line[place + 1])]
                    writer.add_way(_way(number, nodes, _street(generator)))
                    number += 1
        _write_land_use(writer, number, side, crossing, generator)


def _write_nodes(writer: osmium.SimpleWriter, side: int, generator: Generator) -> None:
    import osmium

    def node(number: int, column: float, row: float) -> Any:
        place = (WEST + STEP * column, SOUTH + STEP * row)
        return osmium.osm.mutable.Node(id=number, version=1, location=place)

    shift = generator.uniform(-0.2, 0.2, (3, side, side, 2))
    number = 1
    # Crossings, then the bends of the streets to the east and to the north of each.
    for kind, (east, north) in enumerate(((0.0, 0.0), (0.5, 0.0), (0.0, 0.5))):
        for i in range(side):
            for j in range(side):
                row, column = (j, i) if kind == 2 else (i, j)
                dx, dy = shift[kind, i, j]
                writer.add_node(node(number, column + east + dx, row + north + dy))
                number += 1


def _street(generator: Generator) -> dict[str, str]:
    weights = 0.6 ** np.arange(len(KINDS))
    tags = {"highway": KINDS[generator.choice(len(KINDS), p=weights / weights.sum())]}
    if generator.random() < 0.2:
        tags["oneway"] = "yes"
    if generator.random() < 0.4:
        tags["maxspeed"] = str(generator.choice([20, 30, 50, 60]))
    if generator.random() < 0.2:
        tags["lanes"] = str(generator.integers(1, 5))
    return tags


def _write_land_use(
    writer: osmium.SimpleWriter, number: int, side: int, crossing: Any, generator: Generator
) -> None:
    import osmium

    blocks = [(i, j) for i in range(0, side - 1, 2) for j in range(0, side - 1, 2)]
    rings = []
    for i, j in blocks:
        corners = [crossing[i, j], crossing[i, j + 1], crossing[i + 1, j + 1], crossing[i + 1, j]]
        nodes = [int(corner) for corner in (*corners, corners[0])]
        use = USES[generator.integers(len(USES))]
        # The last one has its use on a relation, as areas with holes do.
        tags = {"landuse": use} if (i, j) != blocks[-1] else {}
        writer.add_way(_way(number, nodes, tags))
        rings.append(number)
        number += 1
    writer.add_relation(
        osmium.osm.mutable.Relation(
            id=1,
            version=1,
            members=[("w", rings[-1], "outer")],
            tags={"type": "multipolygon", "landuse": "recreation_ground"},
        )
    )


def _way(number: int, nodes: list[int], tags: dict[str, str]) -> Any:
    import osmium

    return osmium.osm.mutable.Way(id=number, version=1, nodes=nodes, tags=tags)
