"""From a map to streets: our labelled build against pyrosm, QuackOSM and OSMnx, a process each.

The others stop earlier: QuackOSM at geometries of roads, pyrosm at tables of nodes and edges, OSMnx
at the simplified graph; labels, land use and a finished build are in our figure alone. pyosmium
only reads the file: the floor of all. ``python -m benchmarks.against.streets 620000 --readers pyrosm
--runs 3`` measures a part: countries of so many directed edges against some of the others.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.against.maps import READERS
from benchmarks.country import EDGES, Cost, run_module
from benchmarks.peers import print_rows
from benchmarks.table import Row

#: Directed edges of the generated countries -> runs of each side.
SIZES = {620_000: 3, 2_200_000: 1, 5_700_000: 1}
OSMNX_LIMIT = (
    700_000  #: directed edges; OSMnx holds the XML and a graph of Python objects in memory
)
TARGET = 3.0
MEMORY = 12 * 2**30  #: bytes at which a library is stopped
MODULE = "benchmarks.against.maps"
#: Name of a row by reader.
LABELS = {
    "pyosmium": "pyosmium {osmium}, reading alone",
    "pyrosm": "pyrosm {pyrosm}, tables of nodes and edges",
    "quackosm": "QuackOSM {quackosm}, geometries",
    "osmnx": "OSMnx {osmnx} from XML, simplified graph",
}


def rows(
    *,
    quick: bool = False,
    sizes: Sequence[int] = (),
    readers: Sequence[str] = tuple(READERS),
    runs: int | None = None,
    maps: Path | None = None,
) -> Iterator[Row]:
    """Measure generated countries; each run is a process that begins with its imports.

    The ``maps`` are kept in this folder, if one is given. Each cost is printed when it is measured.
    """
    packages = ("osmium", "pyrosm", "quackosm", "osmnx")
    versions = {name: importlib.metadata.version(name) for name in packages}
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as name:
        folder = Path(name)
        # Compiles what no earlier run has compiled.
        in_turns(generated(maps or folder, 2_000), folder, 2_000, 1, ())
    for edges in sizes or ([20_000] if quick else SIZES):
        count = runs or SIZES.get(edges, 1)
        with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as name:
            folder = Path(name)
            costs = in_turns(generated(maps or folder, edges), folder, edges, count, readers)

        ours = costs.pop("ours")
        for reader, peer in costs.items():
            ratios = [
                theirs.seconds / our.seconds
                for our, theirs in zip(ours, peer, strict=True)
                if not theirs.reason
            ]
            label = LABELS[reader].format(**versions)
            memory = max(cost.memory for cost in peer) / 2**30
            against = f"{label} ({memory:.1f} GiB)"
            if not ratios:
                yield _row(edges, ours, against=f"{against}: {peer[0].reason}")
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
    """Return a country, and its XML where OSMnx can hold it, written where they are missing."""
    path = folder / f"generated-{edges}.osm.pbf"
    if path.exists():
        return path
    from support.maps.country import write_country

    write_country(path, round(edges / EDGES))
    if edges < OSMNX_LIMIT:
        import osmium

        xml = path.with_suffix(".osm")
        with osmium.SimpleWriter(str(xml)) as writer:
            for element in osmium.FileProcessor(str(path)):
                if element.is_node() or "highway" in element.tags:
                    writer.add(element)
    return path


def in_turns(
    path: Path,
    folder: Path,
    edges: int,
    runs: int,
    chosen: Sequence[str],
) -> dict[str, list[Cost]]:
    """Run all sides in turn; return seconds and peak memory of each run."""
    readers = [name for name in chosen if name != "osmnx" or edges < OSMNX_LIMIT]
    costs: dict[str, list[Cost]] = {name: [] for name in ("ours", *readers)}
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=folder) as home:
            words = ("build", "city", "--name", "country", "--archive", str(path))
            cost, _ = run_module("kmip_data", (*words, "--quiet", "--home", home))
        assert not cost.reason, cost.reason
        print(f"{edges:,}, ours: {cost}", file=sys.stderr)
        costs["ours"].append(cost)
        for reader in readers:
            cost, printed = run_module(MODULE, (reader, str(path)), most=MEMORY)
            # A country has more roads than a tenth of its edges: nobody returns an empty table.
            assert cost.reason or int(printed) > edges / 10, f"{reader} read {printed} of {edges}"
            print(f"{edges:,}, {reader}: {cost}", file=sys.stderr)
            costs[reader].append(cost)
    return costs


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--maps", type=Path)
    print_rows(rows(**vars(parser.parse_args())))
