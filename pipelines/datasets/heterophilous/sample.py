"""Generated graph in the raw layout of Platonov et al."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kmip_data.format.split_files import PARTS
from kmip_data.manifest import Manifest

DEFAULT_NODES = 200
MIN_NODES = 30
PART_FRACTIONS = (0.5, 0.25)  #: train and val


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write a graph with ``limit`` nodes, at least 30."""
    layout = manifest.layout
    n = max(MIN_NODES, limit or DEFAULT_NODES)
    features = layout.columns["node/x"]
    classes = layout.columns["node/y"].classes or 2
    rng = np.random.Generator(np.random.PCG64(seed))
    y = rng.permutation(np.arange(n) % classes)

    # Each class raises one feature within the column's bounds.
    x = rng.random((n, *features.shape), dtype=np.float32)
    x[np.arange(n), y % features.shape[0]] += 1
    if features.stored == "uint8":
        x = (x > 0.9).astype(np.float32)

    ends = rng.integers(0, n, (6 * n, 2))
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
    masks = np.zeros((len(PARTS), layout.folds, n), bool)
    for fold in range(layout.folds):
        order = rng.permutation(n)
        cuts = np.cumsum([round(fraction * n) for fraction in PART_FRACTIONS])
        for part, nodes in enumerate(np.split(order, cuts)):
            masks[part, fold, nodes] = True
    np.savez_compressed(
        folder / manifest.content.anchor,
        node_features=x,
        node_labels=y,
        edges=ends,
        **{f"{part}_masks": masks[number] for number, part in enumerate(PARTS)},
    )
