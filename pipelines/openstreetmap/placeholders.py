"""Give numbers to elements that were never uploaded: editors such as JOSM count them downwards from -1."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Placeholders(NamedTuple):
    """What became of the elements without a number of OpenStreetMap's."""

    elements: int = 0  #: nodes, ways and relations of the file that had none
    first_node: int = 2**63 - 1  #: node ``first_node - n`` is the node ``n`` of the file, from 0 downwards

    def numbers_of_the_file(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Undo the renumbering of nodes."""
        return np.where(nodes >= self.first_node, self.first_node - nodes, nodes)


def renumber(path: Path, form: str, copy: Path) -> Placeholders:
    """Copy a map; number n below 1 becomes ``first - n``, beyond all that the file has or speaks of.

    The numbers depend on nothing but those in the file, and are in the order in which an editor gave them.
    ``form`` is what the file is, whatever its name: ``osm.gz``.
    """
    import osmium

    file = osmium.io.File(str(path), form)
    largest = dict.fromkeys("nwr", 0)
    count = 0
    for element in osmium.FileProcessor(file):
        for kind, number in _numbers(element):
            largest[kind] = max(largest[kind], number)
        count += element.id < 1
    first = {kind: number + 1 for kind, number in largest.items()}

    def new(kind: str, number: int) -> int:
        return number if number > 0 else first[kind] - number

    with osmium.SimpleWriter(str(copy), overwrite=True) as writer:
        for element in osmium.FileProcessor(file):
            if isinstance(element, osmium.osm.Node):
                writer.add_node(element.replace(id=new("n", element.id)))
            elif isinstance(element, osmium.osm.Way):
                nodes = [new("n", node.ref) for node in element.nodes]
                writer.add_way(element.replace(id=new("w", element.id), nodes=nodes))
            elif isinstance(element, osmium.osm.Relation):
                members = [(part.type, new(part.type, part.ref), part.role) for part in element.members]
                writer.add_relation(element.replace(id=new("r", element.id), members=members))
    return Placeholders(count, first["n"])


def _numbers(element: object) -> list[tuple[str, int]]:
    """Return the numbers of an element and of all that it is made of, with their kinds."""
    import osmium

    if isinstance(element, osmium.osm.Node):
        return [("n", element.id)]
    if isinstance(element, osmium.osm.Way):
        return [("w", element.id), *(("n", node.ref) for node in element.nodes)]
    if isinstance(element, osmium.osm.Relation):
        return [("r", element.id), *((part.type, part.ref) for part in element.members)]
    return []
