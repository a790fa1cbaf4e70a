"""OSMnx's rules for streets among OpenStreetMap's ways, their directions and their speeds.

OSMnx states which ways are streets in Overpass queries, one per network type: ``["key"!~"a|b"]``
excludes ways whose value of that key *contains* ``a`` or ``b``. ``tests/pipelines/openstreetmap``
compares our table with the queries. ``any`` is our own type: every way tagged ``highway``.

Speeds, in km/h from ``maxspeed`` tags, follow ``osmnx.add_edge_speeds``. A missing speed becomes
the mean of the streets with the same ``highway`` value, or if they have none, the mean of these
means. A street with several ``highway`` values counts as the first in sorted order; OSMnx's order
depends on the hash seed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

import numpy as np

from kmip_data.arrays import F64, I32
from kmip_data.strict_model import read_shipped

_RULES = read_shipped("tables", "streets")
#: Network type -> key -> values that exclude a way.
EXCLUDED: Mapping[str, Mapping[str, str]] = _RULES["excluded"]
_PATTERNS = {
    network_type: [(key, re.compile(values)) for key, values in rules.items()]
    for network_type, rules in EXCLUDED.items()
}

_ONE_WAY_VALUES = frozenset({"yes", "true", "1", "-1", "reverse", "T", "F"})
#: Values of ``oneway`` for traffic against the node order.
_BACKWARD_VALUES = frozenset({"-1", "reverse", "T"})


def is_street(tags: Mapping[str, str], network_type: str) -> bool:
    """Return True if a way with these tags belongs to the network."""
    if "highway" not in tags:
        return False
    patterns = _PATTERNS[network_type]
    return not any(key in tags and pattern.search(tags[key]) for key, pattern in patterns)


def street_direction(tags: Mapping[str, str], network_type: str) -> int:
    """Return 0 for a two-way street, 1 for one-way in node order, -1 for one-way against it.

    Pedestrians may walk both ways. A roundabout without ``oneway`` is one-way.
    """
    if network_type == "walk":
        return 0
    value = tags.get("oneway")
    if value in _ONE_WAY_VALUES:
        return -1 if value in _BACKWARD_VALUES else 1
    return 1 if tags.get("junction") == "roundabout" else 0


KM_PER_MILE = 1.60934  #: as in OSMnx
_SPEED = re.compile(r"([0-9][.,0-9]*)(?: ?(?:km/h|kmh|kph|mph|knots))?")

#: km/h by implicit limit (``maxspeed=FI:urban``).
IMPLICIT_LIMITS = {
    f"{country}:{zone}": float(speed)
    for zone, groups in _RULES["zones"].items()
    for *countries, speed in map(str.split, groups.split(", "))
    for country in countries
}


def read_speed(text: str) -> float | None:
    """Parse a ``maxspeed`` tag to km/h, averaging lanes (``50|30``); None if it has no speed.

    >>> read_speed("30 mph"), read_speed("50|30"), read_speed("FI:urban"), read_speed("walk")
    (48.2802, 40.0, 50.0, None)
    """
    scale = KM_PER_MILE if "mph" in text.lower() else 1
    # Expect one number per lane; otherwise the value may still be an implicit limit.
    lanes = [match[1] for lane in text.split("|") if (match := _SPEED.fullmatch(lane))]
    if len(lanes) == text.count("|") + 1:
        with contextlib.suppress(ValueError):  # "1.2.3"
            return sum(float(lane.replace(",", ".")) * scale for lane in lanes) / len(lanes)
    return IMPLICIT_LIMITS.get(text)


def street_speeds(
    tag_codes: Mapping[str, I32], tag_values: Mapping[str, list[tuple[str, ...]]]
) -> F64:
    """Return the speed of each edge in km/h, (E,) float64; all NaN if no street has a speed.

    ``tag_codes`` and ``tag_values`` are fields of a ``StreetGraph``.
    """
    # 1. Parse each distinct value; the last position, -1, stands for a missing tag.
    distinct_speeds = []
    for limits in tag_values["maxspeed"]:
        speeds = [speed for speed in map(read_speed, limits) if speed is not None]
        distinct_speeds.append(sum(speeds) / len(speeds) if speeds else np.nan)
    speed = np.array([*distinct_speeds, np.nan])[tag_codes["maxspeed"]]

    # 2. Classify each street by its first ``highway`` value.
    firsts = [names[0] for names in tag_values["highway"]]
    highways = [*sorted(set(firsts)), ""]
    position = {highway: i for i, highway in enumerate(highways)}
    highway = np.array([position[name] for name in [*firsts, ""]])[tag_codes["highway"]]

    # 3. Fill gaps with the mean of the class, or the mean of these means if the class has none.
    has_speed = np.isfinite(speed)
    count = np.bincount(highway[has_speed], minlength=len(highways))
    total = np.bincount(highway[has_speed], weights=speed[has_speed], minlength=len(highways))
    mean = np.full(len(highways), np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    if has_speed.any():
        mean[count == 0] = mean[count > 0].mean()
    filled: F64 = np.where(has_speed, speed, mean[highway])
    return filled
