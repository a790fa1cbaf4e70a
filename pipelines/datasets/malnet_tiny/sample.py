"""Sample call graphs in the layout of MalNet-Tiny: generated, never the real data.

Most calls go to a few popular functions; number, popularity and depth depend on the type of the
app, so that types can be learned. As in the published graphs, some numbers are missing, some
functions call themselves, and some call nothing else.
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
#: Family and sizes of the graphs of each type.
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

    for part, listed in _split_lists(names, rng).items():
        write_lines(folder / f"type/{part}.txt", listed)


def _draw_calls(malware_type: str, rng: Generator) -> I64:
    """Make the calls of one app, (2, E), each once, in the order of the callers."""
    _, low, high, calls, unevenness, leaves = MALWARE_TYPES[malware_type]
    functions = int(rng.integers(low, high + 1))
    # Some numbers are missing, and the last function calls only itself.
    lonely = functions + functions // 12 + 1
    numbers = np.sort(rng.permutation(lonely)[:functions])

    # Calls go to few functions: popularity falls by a power of the rank.
    popularity = (1.0 + np.arange(functions)) ** -unevenness
    popularity = rng.permutation(popularity / popularity.sum())
    is_caller = rng.random(functions) >= leaves
    degree = 1 + rng.poisson(calls / (1 - leaves), functions)
    source = np.repeat(np.arange(functions), np.where(is_caller, degree, 0))
    target = rng.choice(functions, len(source), p=popularity)

    # Each also calls a nearby function, so that the graph is connected.
    near = np.arange(1, functions)
    steps_back = rng.integers(0, np.minimum(near, 8))
    before = near - 1 - steps_back
    # One function in two hundred calls itself.
    recursive = rng.permutation(functions)[: 1 + functions // 200]
    source = numbers[np.concatenate([source, near, recursive])]
    target = numbers[np.concatenate([target, before, recursive])]
    pairs = np.unique(np.stack([source, target]), axis=1)
    if rng.random() < 0.3:
        pairs = np.concatenate([pairs, [[lonely], [lonely]]], axis=1)
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
    """Distribute each type over the parts by the published shares.

    A part is empty only where there are few.
    """
    parts: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for position in range(max(map(len, names.values()))):
        # 7 of 10 to train, 1 to val, 2 to test, spread.
        part = {3: "val", 6: "test", 9: "test"}.get(position * 3 % 10, "train")
        for listed in names.values():
            parts[part] += listed[position : position + 1]
    for listed in parts.values():
        rng.shuffle(listed)
    return parts
