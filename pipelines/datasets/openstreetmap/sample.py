"""Extract of a generated city: streets with bends, squares of land use, and a park."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.pipelines.sample_drawings import STEP_DEGREES, draw_streets

DEFAULT_CROSSINGS = 400
USES = (
    "residential", "commercial", "grass", "retail", "industrial", "forest", "farmland", "railway", "basin",
    "quarry",
)  # fmt: skip
HIGHWAYS = (
    "residential", "footway", "service", "secondary", "cycleway", "primary", "tertiary", "steps", "path",
    "track",
)  # fmt: skip


def write_sample(path: Path, *, limit: int | None = None, seed: int = 0) -> None:
    """Write a reproducible PBF file with ``limit`` crossings, at least 25."""
    import osmium

    make = osmium.osm.mutable
    count = max(25, limit or DEFAULT_CROSSINGS)
    rng = Generator(PCG64(seed))
    crossings, streets = draw_streets(count, rng)
    shift = STEP_DEGREES * rng.uniform(-0.2, 0.2, (streets.shape[1], 2))
    bends = crossings[streets].mean(axis=0) + shift
    # Squares, a step wide, begin at every fourth crossing.
    corners = STEP_DEGREES * np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    squares = crossings[::4, None] + corners
    positions = np.concatenate([crossings, bends, squares.reshape(-1, 2)])

    # Nodes and ways are numbered from 1, in this order.
    ways = []
    for number, (first, second) in enumerate(streets.T.tolist()):
        ways.append(([first, count + number, second], _draw_street_tags(rng)))
    for number in range(len(squares)):
        begin = count + len(bends) + 4 * number
        ring = [begin, begin + 1, begin + 2, begin + 3, begin]
        ways.append((ring, {"landuse": USES[rng.integers(len(USES))]}))
    ways[-1][1].clear()  # its land use is on a relation, as for areas with holes

    with osmium.SimpleWriter(str(path), overwrite=True) as writer:
        for node_id, position in enumerate(positions.tolist(), 1):
            writer.add_node(make.Node(id=node_id, version=1, location=tuple(position)))
        for way_id, (nodes, tags) in enumerate(ways, 1):
            node_ids = [node + 1 for node in nodes]
            writer.add_way(make.Way(id=way_id, version=1, nodes=node_ids, tags=tags))
        tags = {"type": "multipolygon", "landuse": "recreation_ground"}
        members = [("w", len(ways), "outer")]
        writer.add_relation(make.Relation(id=1, version=1, members=members, tags=tags))


def _draw_street_tags(rng: Generator) -> dict[str, str]:
    weights = 0.6 ** np.arange(len(HIGHWAYS))
    highway = rng.choice(len(HIGHWAYS), p=weights / weights.sum())
    tags = {"highway": HIGHWAYS[highway]}
    if rng.random() < 0.2:
        tags["oneway"] = "yes"
    if rng.random() < 0.4:
        tags["maxspeed"] = str(rng.choice([20, 30, 50, 60]))
    if rng.random() < 0.2:
        tags["lanes"] = str(rng.integers(1, 5))
    return tags
