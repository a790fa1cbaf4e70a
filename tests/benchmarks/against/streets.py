"""From a map to streets: our labelled build against pyrosm, QuackOSM and OSMnx, a process each.

The others stop earlier: QuackOSM at geometries of roads, pyrosm at tables of nodes and edges, OSMnx
at the simplified graph; labels, land use and a finished build are in our figure alone. pyosmium
only reads the file: the floor of all.
"""

from __future__ import annotations

import importlib.metadata
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.country import EDGES, Cost, run_module
from benchmarks.peers import print_rows
from benchmarks.table import Row

#: Directed edges of the generated countries -> runs of each side.
SIZES = {620_000: 3, 2_200_000: 1, 5_700_000: 1}
OSMNX_LIMIT = (
    700_000  #: directed edges; OSMnx holds the XML and a graph of Python objects in memory
)
TARGET = 3.0
MODULE = "benchmarks.against.streets"


def read_pyosmium(path: Path) -> int:
    """Count nodes and ways."""
    import osmium

    return sum(1 for _ in osmium.FileProcessor(str(path)))


def read_pyrosm(path: Path) -> int:
    """Return the number of edges of the driving network."""
    import pyrosm

    _nodes, edges = pyrosm.OSM(str(path)).get_network("driving", nodes=True)
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
    """Return the number of directed edges of the simplified graph; the XML is written before."""
    import osmnx

    return len(osmnx.graph_from_xml(path.with_suffix(".osm"), retain_all=True).edges)


READERS: dict[str, Callable[[Path], int]] = {
    "pyosmium": read_pyosmium,
    "pyrosm": read_pyrosm,
    "quackosm": read_quackosm,
    "osmnx": read_osmnx,
}
#: Name of a row by reader.
LABELS = {
    "pyosmium": "pyosmium {osmium}, reading alone",
    "pyrosm": "pyrosm {pyrosm}, tables of nodes and edges",
    "quackosm": "QuackOSM {quackosm}, geometries",
    "osmnx": "OSMnx {osmnx} from XML, simplified graph",
}


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure generated countries; each run is a process that begins with its imports."""
    sizes = {20_000: 1} if quick else SIZES
    packages = ("osmium", "pyrosm", "quackosm", "osmnx")
    versions = {name: importlib.metadata.version(name) for name in packages}
    for edges, runs in sizes.items():
        with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as name:
            path = generated(Path(name), edges)
            costs = in_turns(path, edges, runs)

        ours = costs.pop("ours")
        for reader, peer in costs.items():
            ratios = [peer[i].seconds / ours[i].seconds for i in range(runs) if not peer[i].reason]
            label = LABELS[reader].format(**versions)
            memory = max(cost.memory for cost in peer) / 2**30
            against = f"{label} ({memory:.1f} GiB)"
            if not ratios:
                yield _row(edges, ours, against=f"{label}: {peer[0].reason}")
                continue
            seconds = statistics.median(cost.seconds for cost in peer)
            ratio = statistics.median(ratios)
            spread = (min(ratios), max(ratios))
            target = None if reader in ("pyosmium", "osmnx") else TARGET
            yield _row(
                edges, ours, against=against, theirs=seconds, ratio=ratio, spread=spread,
                target="" if target is None else f"≥ {target:g}×",
                met=None if target is None else ratio >= target,
            )  # fmt: skip


def _row(edges: int, ours: list[Cost], **more: object) -> Row:
    memory = max(cost.memory for cost in ours) / 2**30
    what = (
        f"generated country of {edges:,} directed edges: file to labelled build ({memory:.1f} GiB)"
    )
    seconds = statistics.median(cost.seconds for cost in ours)
    return Row(what=what, ours=seconds, unit="s", **more)  # type: ignore[arg-type]


def generated(folder: Path, edges: int) -> Path:
    """Write a country, and its XML where OSMnx can hold it."""
    from support.maps.country import write_country

    path = folder / f"generated-{edges}.osm.pbf"
    write_country(path, round(edges / EDGES))
    if edges < OSMNX_LIMIT:
        import osmium

        xml = path.with_suffix(".osm")
        with osmium.SimpleWriter(str(xml)) as writer:
            for element in osmium.FileProcessor(str(path)):
                if element.is_node() or "highway" in element.tags:
                    writer.add(element)
    return path


def in_turns(path: Path, edges: int, runs: int) -> dict[str, list[Cost]]:
    """Run all sides in turn; return seconds and peak memory of each run."""
    readers = [name for name in READERS if name != "osmnx" or edges < OSMNX_LIMIT]
    costs: dict[str, list[Cost]] = {name: [] for name in ("ours", *readers)}
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=path.parent) as home:
            words = ("build", "city", "--name", "country", "--archive", str(path))
            cost, _ = run_module("kmip_data", (*words, "--quiet", "--home", home))
        assert not cost.reason, cost.reason
        costs["ours"].append(cost)
        for reader in readers:
            cost, printed = run_module(MODULE, (reader, str(path)))
            # A country has more roads than a tenth of its edges: nobody returns an empty table.
            assert cost.reason or int(printed) > edges / 10, f"{reader} read {printed} of {edges}"
            costs[reader].append(cost)
    return costs


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in READERS:
        print(READERS[sys.argv[1]](Path(sys.argv[2])))
        sys.stdout.flush()
        os._exit(0)  # threads of a library are no part of what is measured
    print_rows(rows(quick="--quick" in sys.argv))
