"""Map to streets: our labelled build against pyrosm, QuackOSM and OSMnx, in separate processes.

The others do less: QuackOSM produces road geometries, pyrosm tables of nodes and edges, OSMnx a
simplified graph; only our figure includes labels, land use and a finished build. pyosmium only
reads the file, a lower bound for all. Ratios are of processor seconds, because other programs of the
machine change the seconds of a clock. ``python -m benchmarks.against.streets 620000 --readers pyrosm
--runs 3`` measures countries of the given directed edges against some of the others.
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
from benchmarks.country import EDGES_PER_NODE, Cost, run_module
from benchmarks.peers import print_rows
from benchmarks.table import Row, format_quantity

#: Directed edges of generated countries -> runs of each side.
SIZES = {620_000: 3, 2_200_000: 1, 5_700_000: 1}
#: Directed edges; OSMnx holds the XML and a graph of Python objects in memory.
OSMNX_LIMIT = 700_000
TARGET = 3.0
MAX_MEMORY = 12 * 2**30  #: bytes at which a library is stopped
MODULE = "benchmarks.against.maps"
#: Row label of each reader.
LABELS = {
    "pyosmium": "pyosmium {osmium}, only reading",
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
    """Measure generated countries; each run is a process and includes its imports.

    ``maps`` is a folder that caches the generated maps. Costs are printed as they are measured.
    """
    packages = ("osmium", "pyrosm", "quackosm", "osmnx")
    versions = {name: importlib.metadata.version(name) for name in packages}
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as name:
        folder = Path(name)
        # Compile the kernels.
        measure_sides(write_country_once(maps or folder, 2_000), folder, 2_000, 1, ())
    for edges in sizes or ([20_000] if quick else SIZES):
        count = runs or SIZES.get(edges, 1)
        with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as name:
            folder = Path(name)
            costs = measure_sides(
                write_country_once(maps or folder, edges), folder, edges, count, readers
            )

        ours = costs.pop("ours")
        for reader, peer in costs.items():
            ratios = [
                theirs.processor / our.processor
                for our, theirs in zip(ours, peer, strict=True)
                if not theirs.reason
            ]
            label = LABELS[reader].format(**versions)
            memory = max(cost.memory for cost in peer) / 2**30
            clock = statistics.median(cost.seconds for cost in peer)
            against = f"{label} ({format_quantity(clock, 's')} by the clock, {memory:.2f} GiB)"
            if not ratios:
                yield _row(edges, ours, against=f"{against}: {peer[0].reason}")
                continue
            seconds = statistics.median(cost.processor for cost in peer)
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
    clock = format_quantity(statistics.median(cost.seconds for cost in ours), "s")
    what = (
        f"generated country of {edges:,} directed edges: file to labelled build, processor seconds "
        f"({clock} by the clock, {memory:.2f} GiB)"
    )
    seconds = statistics.median(cost.processor for cost in ours)
    return Row(what=what, ours=seconds, unit="s", **more)  # type: ignore[arg-type]


def write_country_once(folder: Path, edges: int) -> Path:
    """Write a country, and its XML if OSMnx can hold it, unless they exist; return the path."""
    path = folder / f"generated-{edges}.osm.pbf"
    if path.exists():
        return path
    from support.maps.country import write_country

    write_country(path, round(edges / EDGES_PER_NODE))
    if edges < OSMNX_LIMIT:
        import osmium

        xml = path.with_suffix(".osm")
        with osmium.SimpleWriter(str(xml)) as writer:
            for element in osmium.FileProcessor(str(path)):
                if element.is_node() or "highway" in element.tags:
                    writer.add(element)
    return path


def measure_sides(
    path: Path,
    folder: Path,
    edges: int,
    runs: int,
    readers: Sequence[str],
) -> dict[str, list[Cost]]:
    """Run all sides in turn; return seconds and peak memory of each run."""
    readers = [name for name in readers if name != "osmnx" or edges < OSMNX_LIMIT]
    costs: dict[str, list[Cost]] = {name: [] for name in ("ours", *readers)}
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=folder) as home:
            arguments = ("build", "city", "--name", "country", "--archive", str(path))
            cost, _ = run_module("kmip_data", (*arguments, "--quiet", "--home", home))
        assert not cost.reason, cost.reason
        print(f"{edges:,}, ours: {cost}", file=sys.stderr)
        costs["ours"].append(cost)
        for reader in readers:
            cost, printed = run_module(MODULE, (reader, str(path)), max_bytes=MAX_MEMORY)
            # A country has more roads than a tenth of its edges, so an empty table is an error.
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
