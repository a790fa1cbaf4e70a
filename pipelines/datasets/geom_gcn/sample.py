"""A generated graph in the raw layout of Geom-GCN: never the real data.

The class of a node determines its words, and nodes link to other classes more often than to their
own, as in the real graphs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.format.split_files import PARTS
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.geom_gcn import EDGES, NODES
from kmip_data.pipelines.sample_writers import write_lines

CLASSES = 5
DEFAULT_NODES = 200
MIN_NODES = 30
SHARES = (0.48, 0.32)  #: shares of train and val
WORDS = 12  #: words of a node, half of them determined by its class


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write the two tables and ten splits; ``limit`` is the number of nodes, from 30."""
    (columns,) = manifest.layout.columns["node/x"].shape
    n = max(MIN_NODES, limit or DEFAULT_NODES)
    rng = Generator(PCG64(seed))
    label = rng.permutation(np.arange(n) % CLASSES)
    rows = ["node_id\tfeature\tlabel"]
    for node in range(n):
        class_words = rng.choice(40, WORDS // 2, replace=False) * CLASSES + label[node]
        words = np.unique([*class_words, *rng.integers(0, columns, WORDS // 2)])
        if node == 0:
            words[-1] = columns - 1  # the largest number determines the width of x
        if manifest.registered_name != "actor":
            row = np.zeros(columns, np.int64)
            row[words] = 1
            words = row
        rows.append(f"{node}\t{','.join(map(str, words))}\t{label[node]}")
    write_lines(folder / NODES, rows)

    first, second = rng.integers(0, n, (2, 6 * n))
    linked = (label[second] == (label[first] + 1) % CLASSES) | (rng.random(6 * n) < 0.2)
    pairs = zip(first[linked], second[linked], strict=True)
    write_lines(folder / EDGES, ["node_id\tnode_id", *(f"{one}\t{other}" for one, other in pairs)])

    ends = np.cumsum([round(share * n) for share in SHARES])
    for member in manifest.content.members[2:]:
        parts = np.split(rng.permutation(n), ends)
        masks = {}
        for part, nodes in zip(PARTS, parts, strict=True):
            masks[f"{part}_mask"] = np.isin(np.arange(n), nodes).astype(np.uint8)
        np.savez(folder / member.pattern, **masks)  # type: ignore[arg-type]
