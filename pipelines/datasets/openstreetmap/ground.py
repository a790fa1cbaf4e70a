"""Ground of a map: water and green areas in the box of a city, for pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import F64
from kmip_data.graphs.elementary_functions import sine_cosine

if TYPE_CHECKING:
    from shapely import Geometry

    from kmip_data.pipelines.datasets.openstreetmap.extract import Ground

#: Tags of each kind of ground.
GROUND_TAGS = {
    "water": {
        "natural": ("water",),
        "waterway": ("riverbank",),
        "landuse": ("basin", "reservoir"),
    },
    "green": {
        "leisure": ("park", "garden", "golf_course", "nature_reserve"),
        "natural": ("wood", "scrub", "grassland", "heath"),
        "landuse": ("grass", "forest", "cemetery", "meadow", "recreation_ground", "village_green"),
    },
}
#: Keys of these tags, and of coastlines.
GROUND_KEYS = ("natural", "landuse", "leisure", "waterway")
#: Largest file whose ground is read; in PBF, a larger one is of a country, whose parks are not seen.
MAX_GROUND_BYTES = 2**27
_SMALLEST_SHARE = 1e-5  #: of the box that an area must cover to be seen
_MAX_GAP = 0.05  #: of the box's diagonal, between the end of a coastline and the border
_FEW_NODES = 0.05  #: of the density elsewhere, of intersections on water
_MAX_CONTRADICTION = 0.1  #: of the segments around a face that may have the sea on the other side


def ground_kind(tags: Mapping[str, str]) -> str | None:
    """Return the kind of ground of an area with these tags."""
    for kind, keys in GROUND_TAGS.items():
        if any(tags.get(key) in values for key, values in keys.items()):
            return kind
    return None


def ground_in_box(ground: Ground, nodes: F64) -> dict[str, str]:
    """Return what is seen of each kind of ground as a MULTIPOLYGON, in degrees and well-known text.

    The map is the box of the intersections, ``nodes`` (N, 2).
    """
    import shapely

    box = shapely.box(*nodes.min(axis=0), *nodes.max(axis=0))
    west, south, east, north = box.bounds
    texts: dict[str, str] = {}
    # One straight street has no area, and a map across the antimeridian would be the whole globe.
    if not box.area or east - west > 180:
        return texts
    tolerance = visible_length(box.bounds)
    for kind in GROUND_TAGS:
        areas = shapely.make_valid(ground.areas[[name == kind for name in ground.kinds]])
        union = shapely.union_all(shapely.clip_by_rect(areas, west, south, east, north))
        if kind == "water":
            lakes = [
                _side_without_nodes(_right_of(shore, box), box, nodes) for shore in ground.shores
            ]
            union = shapely.union_all([union, _right_of(ground.coastlines, box), *lakes])
        parts = shapely.get_parts(shapely.simplify(union, tolerance))
        is_seen = shapely.area(parts) > _SMALLEST_SHARE * box.area
        texts[kind] = shapely.to_wkt(shapely.multipolygons(parts[is_seen]))
    return texts


def visible_length(bounds: tuple[float, float, float, float]) -> float:
    """Return the degrees of latitude that are seen in a picture of the box: a thousandth of it."""
    west, south, east, north = bounds
    across = (east - west) * shortening(bounds)
    return max(across, north - south) / 1_000


def shortening(bounds: tuple[float, float, float, float]) -> float:
    """Return the length of a degree of longitude in degrees of latitude, in the middle of the box.

    It is equal on every CPU, as what a map shows is stored in the build.
    """
    _, south, _, north = bounds
    return float(sine_cosine(np.radians([(south + north) / 2]))[1][0])


def _side_without_nodes(side: Geometry, box: Geometry, nodes: F64) -> Geometry:
    """Return ``side`` or the rest of the box, whichever has by far fewer nodes for its area, or neither."""
    import shapely

    other = box.difference(side)
    if side.is_empty or other.is_empty:
        return shapely.Polygon()
    density, other_density = (
        shapely.contains_xy(part, *nodes.T).sum() / part.area for part in (side, other)
    )
    if density < _FEW_NODES * other_density:
        return side
    return other if other_density < _FEW_NODES * density else shapely.Polygon()


def _right_of(coastlines: Sequence[F64], box: Geometry) -> Geometry:
    """Return the part of the box on the right of lines (n, 2), where the sea is in OpenStreetMap.

    It is empty if the lines contradict each other.
    """
    import shapely

    lines = [shapely.LineString(line) for line in coastlines if len(line) > 1]
    pieces = shapely.get_parts(shapely.intersection(lines, box))
    pieces = pieces[shapely.get_dimensions(pieces) == 1]  # a line may touch the box at a point
    if not len(pieces):
        return shapely.Polygon()

    # 1. Cut the box along the coast. Extracts end coastlines a little before their border.
    border = box.exterior
    coast = shapely.get_parts(shapely.line_merge(shapely.union_all(pieces)))
    cuts = [border, *coast]
    for line in coast:
        loose_ends = [] if line.is_closed else [line.coords[0], line.coords[-1]]
        for end in loose_ends:
            gap = shapely.shortest_line(shapely.Point(end), border)
            if gap.length < _MAX_GAP * np.hypot(*np.ptp(np.reshape(box.bounds, (2, 2)), axis=0)):
                cuts.append(gap)
    faces = shapely.get_parts(shapely.polygonize([*shapely.get_parts(shapely.union_all(cuts))]))

    # 2. Of each face, count the segments that it touches on their right, and on their left.
    segments = np.concatenate([np.stack([line[:-1], line[1:]], 1) for line in coastlines])
    segments = segments[shapely.intersects_xy(box, *segments.mean(axis=1).T)]
    starts, ends = segments.swapaxes(0, 1)
    along = ends - starts
    aside = np.stack([along[:, 1], -along[:, 0]]) / np.hypot(*along.T).clip(1e-12)
    middles = (starts + ends).T / 2
    step = 0.01 * visible_length(box.bounds)
    right_faces = []
    for face in faces:
        right, left = (
            shapely.contains_xy(face, *(middles + side * step * aside)).sum() for side in (1, -1)
        )
        if min(right, left) > _MAX_CONTRADICTION * (right + left):
            return shapely.Polygon()
        if right > left:
            right_faces.append(face)
    return shapely.union_all(right_faces)
