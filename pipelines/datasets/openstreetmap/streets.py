"""Streets among the ways of OpenStreetMap, their directions and speeds: OSMnx's rules.

Which ways are streets: OSMnx puts its rules for each network type into Overpass queries, where
``["key"!~"a|b"]`` leaves out every way with a value of that key that *contains* ``a`` or ``b``.
``tests/pipelines/openstreetmap`` compares the table with the queries. ``any`` is none of OSMnx's
types: every way tagged ``highway``.

Speeds, in km/h from ``maxspeed`` tags, follow ``osmnx.add_edge_speeds``. A missing speed is the
mean of the streets of the same ``highway`` value; where none of them has one, the mean of these
means. A street with several values of ``highway`` counts as the first of them (sorted; OSMnx takes
the first of an order that depends on the hash seed).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

import numpy as np

from kmip_data.arrays import F64, I32
from kmip_data.strict_model import read_shipped

_RULES = read_shipped("tables", "streets")
#: Network type -> key -> values, any of which leaves a way out.
LEFT_OUT: Mapping[str, Mapping[str, str]] = _RULES["left_out"]
_PATTERNS = {
    network_type: [(key, re.compile(values)) for key, values in rules.items()]
    for network_type, rules in LEFT_OUT.items()
}

_ONE_WAY = frozenset({"yes", "true", "1", "-1", "reverse", "T", "F"})
#: Values of ``oneway`` for traffic against the order of nodes.
_AGAINST = frozenset({"-1", "reverse", "T"})


def is_street(tags: Mapping[str, str], network_type: str) -> bool:
    """True if a way with these tags belongs to the network."""
    if "highway" not in tags:
        return False
    patterns = _PATTERNS[network_type]
    return not any(key in tags and pattern.search(tags[key]) for key, pattern in patterns)


def street_direction(tags: Mapping[str, str], network_type: str) -> int:
    """Return 0 for both directions, 1 for one way in the order of the nodes, -1 for one way against it.

    On foot every street goes both ways. A roundabout is one way, also where its ``oneway`` is
    missing.
    """
    if network_type == "walk":
        return 0
    value = tags.get("oneway")
    if value in _ONE_WAY:
        return -1 if value in _AGAINST else 1
    return 1 if tags.get("junction") == "roundabout" else 0


KM_PER_MILE = 1.60934  #: as OSMnx has it
_NUMBER = re.compile(r"([0-9][.,0-9]*)(?: ?(?:km/h|kmh|kph|mph|knots))?")

#: km/h of implicit limits (``maxspeed=FI:urban``).
IMPLICIT = {
    f"{country}:{zone}": float(speed)
    for zone, groups in _RULES["zones"].items()
    for *countries, speed in map(str.split, groups.split(", "))
    for country in countries
}


def read_speed(text: str) -> float | None:
    """Return the km/h that a ``maxspeed`` means.

    Of several lanes (``50|30``) the mean; else ``None``.

    >>> read_speed("30 mph"), read_speed("50|30"), read_speed("FI:urban"), read_speed("walk")
    (48.2802, 40.0, 50.0, None)
    """
    scale = KM_PER_MILE if "mph" in text.lower() else 1
    # One number a lane; a text with a part that is not a number may still be an implicit limit.
    lanes = [match[1] for lane in text.split("|") if (match := _NUMBER.fullmatch(lane))]
    if len(lanes) == text.count("|") + 1:
        with contextlib.suppress(ValueError):  # "1.2.3"
            return sum(float(lane.replace(",", ".")) * scale for lane in lanes) / len(lanes)
    return IMPLICIT.get(text)


def street_speeds(tags: Mapping[str, I32], values: Mapping[str, list[tuple[str, ...]]]) -> F64:
    """Return the speed of each edge in km/h, (E,) float64; NaN everywhere where no street has one.

    ``tags`` and ``values`` are a street graph's.
    """
    # 1. The speed of each distinct value; the last position, -1, stands for streets without the
    #    tag.
    known = []
    for texts in values["maxspeed"]:
        speeds = [speed for speed in map(read_speed, texts) if speed is not None]
        known.append(sum(speeds) / len(speeds) if speeds else np.nan)
    speed = np.array([*known, np.nan])[tags["maxspeed"]]

    # 2. The class of each street: its first value of ``highway``.
    firsts = [names[0] for names in values["highway"]]
    highways = [*sorted(set(firsts)), ""]
    position = {highway: number for number, highway in enumerate(highways)}
    highway = np.array([position[name] for name in [*firsts, ""]])[tags["highway"]]

    # 3. The mean of each class fills its gaps; the mean of these means fills classes without a
    #    speed.
    has_speed = np.isfinite(speed)
    count = np.bincount(highway[has_speed], minlength=len(highways))
    total = np.bincount(highway[has_speed], weights=speed[has_speed], minlength=len(highways))
    mean = np.full(len(highways), np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    if has_speed.any():
        mean[count == 0] = mean[count > 0].mean()
    filled: F64 = np.where(has_speed, speed, mean[highway])
    return filled
