"""Generated graph in the raw layout of Geom-GCN.

Half of a node's words depend on its class. Most links are between different classes, as in the
real graphs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.format.split_files import PARTS
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.geom_gcn import EDGE_FILE, NODE_FILE
from kmip_data.pipelines.sample_writers import write_lines

CLASSES = 5
DEFAULT_NODES = 200
MIN_NODES = 30
PART_FRACTIONS = (0.48, 0.32)  #: train and val
WORDS_PER_NODE = 12


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write the two tables and ten splits of a graph with ``limit`` nodes, at least 30."""
    (columns,) = manifest.layout.columns["node/x"].shape
    n = max(MIN_NODES, limit or DEFAULT_NODES)
    rng = Generator(PCG64(seed))
    label = rng.permutation(np.arange(n) % CLASSES)
    rows = ["node_id\tfeature\tlabel"]
    for node in range(n):
        class_words = rng.choice(40, WORDS_PER_NODE // 2, replace=False) * CLASSES + label[node]
        words = np.unique([*class_words, *rng.integers(0, columns, WORDS_PER_NODE // 2)])
        if node == 0:
            words[-1] = columns - 1  # the largest number determines the width of x
        if manifest.registered_name != "actor":
            row = np.zeros(columns, np.int64)
            row[words] = 1
            words = row
        rows.append(f"{node}\t{','.join(map(str, words))}\t{label[node]}")
    write_lines(folder / NODE_FILE, rows)

    first, second = rng.integers(0, n, (2, 6 * n))
    is_linked = (label[second] == (label[first] + 1) % CLASSES) | (rng.random(6 * n) < 0.2)
    pairs = zip(first[is_linked], second[is_linked], strict=True)
    lines = [f"{source}\t{target}" for source, target in pairs]
    write_lines(folder / EDGE_FILE, ["node_id\tnode_id", *lines])

    cuts = np.cumsum([round(fraction * n) for fraction in PART_FRACTIONS])
    for member in manifest.content.members[2:]:
        parts = np.split(rng.permutation(n), cuts)
        masks = {}
        for part, nodes in zip(PARTS, parts, strict=True):
            masks[f"{part}_mask"] = np.isin(np.arange(n), nodes).astype(np.uint8)
        np.savez(folder / member.pattern, **masks)  # type: ignore[arg-type]
