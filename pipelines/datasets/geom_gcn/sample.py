"""Generated graph in the raw layout of Geom-GCN."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.format.split_files import PARTS
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.geom_gcn import EDGE_FILE, NODE_FILE
from kmip_data.pipelines.sample_drawings import (
    draw_classes,
    draw_edges,
    draw_part_codes,
    draw_words,
)
from kmip_data.pipelines.sample_writers import write_lines

CLASSES = 5
DEFAULT_NODES = 200
MIN_NODES = 30
PART_FRACTIONS = (0.48, 0.32)  #: train and val


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
    label = draw_classes(n, CLASSES, rng)
    words = draw_words(label, columns, rng)
    words[0, -1] = columns - 1  # the largest number determines the width of x
    rows = ["node_id\tfeature\tlabel"]
    for node in range(n):
        cells = np.unique(words[node])
        if manifest.registered_name != "actor":
            cells = np.isin(np.arange(columns), cells).astype(np.int64)
        rows.append(f"{node}\t{','.join(map(str, cells))}\t{label[node]}")
    write_lines(folder / NODE_FILE, rows)

    lines = [f"{source}\t{target}" for source, target in draw_edges(label, rng)]
    write_lines(folder / EDGE_FILE, ["node_id\tnode_id", *lines])

    for member in manifest.content.members[2:]:
        code = draw_part_codes(n, PART_FRACTIONS, rng)
        masks = {f"{part}_mask": (code == i).astype(np.uint8) for i, part in enumerate(PARTS)}
        np.savez(folder / member.pattern, **masks)
