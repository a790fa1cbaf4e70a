"""Streets among the ways of OpenStreetMap, and their directions: OSMnx's rules for each network type.

OSMnx puts its rules into Overpass queries, where ``["key"!~"a|b"]`` leaves out every way with a value
of that key that *contains* ``a`` or ``b``. ``tests/pipelines/openstreetmap/network`` compares the table
with the queries. ``any`` is none of OSMnx's types: every way tagged ``highway``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

NetworkType = Literal["all", "all_public", "any", "bike", "drive", "drive_service", "walk"]

_UNUSED = "abandoned|construction|no|planned|platform|proposed|raceway|razed|rest_area|services"
_NO_CARS = "bridleway|bus_guideway|corridor|cycleway|elevator|escalator|footway|path|pedestrian|steps|track"
_PUBLIC = {"area": "yes", "access": "private"}

#: Network type -> key -> values, any of which leaves a way out.
LEFT_OUT: Final[Mapping[str, Mapping[str, str]]] = {
    "all": {"area": "yes", "highway": _UNUSED},
    "all_public": {**_PUBLIC, "highway": _UNUSED, "service": "private"},
    "any": {},
    "bike": {
        **_PUBLIC,
        "highway": f"{_UNUSED}|bus_guideway|corridor|elevator|escalator|footway|motor|steps",
        "bicycle": "no",
        "service": "private",
    },
    "drive": {
        **_PUBLIC,
        "highway": f"{_UNUSED}|{_NO_CARS}|service",
        "motor_vehicle": "no",
        "motorcar": "no",
        "service": "alley|driveway|emergency_access|parking|parking_aisle|private",
    },
    "drive_service": {
        **_PUBLIC,
        "highway": f"{_UNUSED}|{_NO_CARS}",
        "motor_vehicle": "no",
        "motorcar": "no",
        "service": "emergency_access|parking|parking_aisle|private",
    },
    "walk": {
        **_PUBLIC,
        "highway": "abandoned|bus_guideway|construction|cycleway|motor|no|planned|platform|proposed|raceway|"
        "razed|rest_area|services",
        "foot": "no",
        "service": "private",
        "sidewalk": "separate",
        "sidewalk:both": "separate",
        "sidewalk:left": "separate",
        "sidewalk:right": "separate",
    },
}
_PATTERNS = {
    kind: [(key, re.compile(values)) for key, values in rules.items()] for kind, rules in LEFT_OUT.items()
}

_ONE_WAY = frozenset({"yes", "true", "1", "-1", "reverse", "T", "F"})
_AGAINST = frozenset({"-1", "reverse", "T"})  #: values of ``oneway`` for traffic against the order of nodes


def is_street(tags: Mapping[str, str], network_type: str) -> bool:
    """True if a way with these tags belongs to the network."""
    if "highway" not in tags:
        return False
    return not any(key in tags and found.search(tags[key]) for key, found in _PATTERNS[network_type])


def direction(tags: Mapping[str, str], network_type: str) -> int:
    """Return 0 for both directions, 1 for one way in the order of the nodes, -1 for one way against it.

    On foot every street goes both ways. A roundabout is one way, also where its ``oneway`` is missing.
    """
    if network_type == "walk":
        return 0
    value = tags.get("oneway")
    if value in _ONE_WAY:
        return -1 if value in _AGAINST else 1
    return 1 if tags.get("junction") == "roundabout" else 0
