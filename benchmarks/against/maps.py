"""Read a map with another library: ``python -m benchmarks.against.maps READER FILE`` prints a count.

Does not import this package, so that a timed process only includes the library's imports.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def read_pyosmium(path: Path) -> int:
    """Return the number of elements tagged highway, the only ones converted to Python objects."""
    import osmium

    elements = osmium.FileProcessor(str(path))
    return sum(1 for _ in elements.with_filter(osmium.filter.KeyFilter("highway")))


def read_pyrosm(path: Path) -> int:
    """Return the number of edges in the network of our build."""
    import pyrosm

    _nodes, edges = pyrosm.OSM(str(path)).get_network("all", nodes=True)
    return len(edges)


def read_quackosm(path: Path) -> int:
    """Return the number of roads."""
    import quackosm
    from duckdb_extensions import import_extension

    import_extension("spatial")
    with tempfile.TemporaryDirectory() as folder:
        roads = quackosm.convert_pbf_to_geodataframe(
            path, tags_filter={"highway": True}, working_directory=folder, verbosity_mode="silent"
        )
    return len(roads)


def read_osmnx(path: Path) -> int:
    """Return the number of directed edges of the simplified graph, from existing XML."""
    import osmnx

    return len(osmnx.graph_from_xml(path.with_suffix(".osm"), retain_all=True).edges)


READERS: dict[str, Callable[[Path], int]] = {
    "pyosmium": read_pyosmium,
    "pyrosm": read_pyrosm,
    "quackosm": read_quackosm,
    "osmnx": read_osmnx,
}

if __name__ == "__main__":
    print(READERS[sys.argv[1]](Path(sys.argv[2])))
    sys.stdout.flush()
    os._exit(0)  # do not wait for threads of the library
