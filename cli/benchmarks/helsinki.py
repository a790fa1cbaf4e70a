"""Helsinki: from the extract to a finished build, against OSMnx and upstream's code on the same area."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import osmium


def write_streets(source: Path, target: Path, network_type: str = "all") -> None:
    """Write the streets of an extract as XML that OSMnx can read.

    OSMnx takes every way of a file for a street and stops at one that leaves the file, so only streets are
    written, cut at the border. A way's number is a hundred times its own and the number of its piece.
    """
    import osmium

    from kmip_data.pipelines.openstreetmap.streets import is_street

    with osmium.SimpleWriter(str(target), overwrite=True) as writer:
        known = _write_nodes(source, writer)
        for way in osmium.FileProcessor(str(source), osmium.osm.WAY):
            tags, refs = dict(way.tags), [node.ref for node in way.nodes]
            if is_street(tags, network_type):
                inside = np.array([False, *(ref in known for ref in refs), False])
                border = np.flatnonzero(inside[1:] != inside[:-1])
                for piece, (first, last) in enumerate(border.reshape(-1, 2)):
                    writer.add_way(_way(way.id * 100 + piece, refs[first:last], tags))


def write_areas(source: Path, target: Path) -> None:
    """Write what is tagged ``landuse`` and lies in the file whole, with the ways it is made of."""
    import osmium

    with osmium.SimpleWriter(str(target), overwrite=True) as writer:
        known = _write_nodes(source, writer)
        ways = {
            way.id: (way.id, [node.ref for node in way.nodes], dict(way.tags))
            for way in osmium.FileProcessor(str(source), osmium.osm.WAY)
        }
        whole = {number for number, refs, _ in ways.values() if known.issuperset(refs)}
        wanted = {number for number in whole if "landuse" in ways[number][2]}
        relations = []
        for relation in osmium.FileProcessor(str(source), osmium.osm.RELATION):
            parts = [("w", member.ref, member.role) for member in relation.members if member.type == "w"]
            if "landuse" in relation.tags and whole.issuperset(part[1] for part in parts):
                wanted.update(part[1] for part in parts)
                relations.append((relation.id, parts, dict(relation.tags)))
        for number in sorted(wanted):
            writer.add_way(_way(*ways[number]))
        for number, parts, tags in relations:
            writer.add_relation(osmium.osm.mutable.Relation(id=number, version=1, members=parts, tags=tags))


def _write_nodes(source: Path, writer: osmium.SimpleWriter) -> set[int]:
    """Write all nodes, and return their numbers."""
    import osmium

    known = set()
    for node in osmium.FileProcessor(str(source), osmium.osm.NODE):
        known.add(node.id)
        writer.add_node(osmium.osm.mutable.Node(id=node.id, version=1, location=node.location))
    return known


def _way(number: int, refs: list[int], tags: dict[str, str]) -> Any:
    import osmium

    return osmium.osm.mutable.Way(id=number, version=1, nodes=refs, tags=tags)
