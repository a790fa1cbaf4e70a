"""Generated call graphs in the layout of MalNet-Tiny.

Most calls are to a few popular functions; size and popularity depend on the type of the app, so
that types can be learned. As in the published graphs, some node numbers are missing, and some
functions call themselves, or only themselves.
"""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import I64
from kmip_data.pipelines.sample_writers import write_lines
from kmip_data.strict_model import read_shipped

DEFAULT_GRAPHS = 50
#: Family and graph sizes of each type.
MALWARE_TYPES = read_shipped("tables", "call-graphs")


def write_sample(
    folder: Path,
    _: object,
    limit: int | None,
    seed: int,
) -> None:
    """Write the graphs, balanced over types, and the split lists."""
    count = limit or DEFAULT_GRAPHS
    rng = Generator(PCG64(seed))
    names: dict[str, list[str]] = {malware_type: [] for malware_type in MALWARE_TYPES}
    for i, malware_type in zip(range(count), itertools.cycle(MALWARE_TYPES), strict=False):
        digest = hashlib.sha256(f"sample {seed} {i}".encode()).hexdigest().upper()
        family = MALWARE_TYPES[malware_type][0]
        name = f"{malware_type}/{family}/{digest}"
        write_lines(
            folder / f"{name}.edgelist", _edge_list_lines(_draw_calls(malware_type, rng), digest)
        )
        names[malware_type].append(name)

    for part, part_names in _split_lists(names, rng).items():
        write_lines(folder / f"type/{part}.txt", part_names)


def _draw_calls(malware_type: str, rng: Generator) -> I64:
    """Draw the distinct calls of one app, (2, E), sorted by caller."""
    _, low, high, calls, exponent, leaf_fraction = MALWARE_TYPES[malware_type]
    functions = int(rng.integers(low, high + 1))
    # Skip some numbers, and let a last function call only itself.
    isolated = functions + functions // 12 + 1
    numbers = np.sort(rng.permutation(isolated)[:functions])

    # Popularity follows a power law of the rank.
    popularity = (1.0 + np.arange(functions)) ** -exponent
    popularity = rng.permutation(popularity / popularity.sum())
    is_caller = rng.random(functions) >= leaf_fraction
    degree = 1 + rng.poisson(calls / (1 - leaf_fraction), functions)
    source = np.repeat(np.arange(functions), np.where(is_caller, degree, 0))
    target = rng.choice(functions, len(source), p=popularity)

    # Connect each function to a nearby previous one.
    later = np.arange(1, functions)
    steps_back = rng.integers(0, np.minimum(later, 8))
    earlier = later - 1 - steps_back
    # One function in two hundred calls itself.
    recursive = rng.permutation(functions)[: 1 + functions // 200]
    source = numbers[np.concatenate([source, later, recursive])]
    target = numbers[np.concatenate([target, earlier, recursive])]
    pairs = np.unique(np.stack([source, target]), axis=1)
    if rng.random() < 0.3:
        pairs = np.concatenate([pairs, [[isolated], [isolated]]], axis=1)
    return pairs


def _edge_list_lines(edges: I64, digest: str) -> list[str]:
    lines = [
        "# Directed graph (each unordered pair of nodes is saved once)",
        "# Function call graph of malicious Android APK",
        f"# SHA-256: {digest}",
        f"# Nodes: {len(np.unique(edges))}, Edges: {edges.shape[1]}",
        "# FromNodeId\tToNodeId",
    ]
    lines += [f"{source}\t{target}" for source, target in edges.T.tolist()]
    return lines


def _split_lists(names: dict[str, list[str]], rng: Generator) -> dict[str, list[str]]:
    """Distribute each type over the parts in the published proportions, 7 : 1 : 2."""
    parts: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for position in range(max(map(len, names.values()))):
        part = {3: "val", 6: "test", 9: "test"}.get(position * 3 % 10, "train")
        for type_names in names.values():
            parts[part] += type_names[position : position + 1]
    for part_names in parts.values():
        rng.shuffle(part_names)
    return parts
