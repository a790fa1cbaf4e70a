"""Generated graph in the raw layout of Platonov et al."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from kmip_data.format.split_files import PARTS
from kmip_data.manifest import Manifest
from kmip_data.pipelines.sample_drawings import (
    draw_classes,
    draw_edges,
    draw_features,
    draw_minefield,
    draw_part_codes,
)

DEFAULT_NODES = 200
MIN_NODES = 30
MINEFIELD = "minesweeper"  #: dataset whose graph is a lattice
PART_FRACTIONS = (0.5, 0.25)  #: train and val


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write a graph with ``limit`` nodes, at least 30; a minefield of about as many."""
    layout = manifest.layout
    n = max(MIN_NODES, limit or DEFAULT_NODES)
    rng = np.random.Generator(np.random.PCG64(seed))
    if manifest.name == MINEFIELD:
        columns = math.isqrt(n)
        y, x, ends = draw_minefield(n // columns, columns, rng)
    else:
        features = layout.columns["node/x"]
        y = draw_classes(n, layout.columns["node/y"].classes or 2, rng)
        x = draw_features(y, features.shape[0], rng)
        if features.stored == "uint8":
            x = (x > 0.9).astype(np.float32)
        # Each undirected edge is listed once.
        ends = np.unique(np.sort(draw_edges(y, rng), axis=1), axis=0)
    folds = [draw_part_codes(len(y), PART_FRACTIONS, rng) for _ in range(layout.folds)]
    np.savez_compressed(
        folder / manifest.content.anchor,
        node_features=x,
        node_labels=y,
        edges=ends,
        **{f"{part}_masks": np.array(folds) == number for number, part in enumerate(PARTS)},
    )
