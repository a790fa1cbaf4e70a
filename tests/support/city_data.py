"""A small build of one graph with masks, as the cities are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build

CITY_CLASSES = 4


def streets(nodes: int = 300, seed: int = 0) -> Data:
    """A ring with chords; the class of a node is the quarter its first feature lies in."""
    rng = np.random.default_rng(seed)
    ring = np.arange(nodes)
    chords = rng.integers(0, nodes, (2, nodes // 3))
    pairs = np.concatenate([np.stack([ring, (ring + 1) % nodes]), chords], axis=1)
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)
    x = rng.random((nodes, 5), dtype=np.float32)
    draw = rng.random(nodes)
    masks = {
        "train_mask": draw < 0.3,
        "val_mask": (draw >= 0.3) & (draw < 0.5),
        "test_mask": draw >= 0.5,
    }
    return Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(edges),
        y=torch.from_numpy((x[:, 0] * CITY_CLASSES).astype(np.int64)),
        **{name: torch.from_numpy(mask) for name, mask in masks.items()},
    )


def streets_build(folder: Path, **options: int) -> Build:
    """Those streets as a build."""
    return kmip_data.save(streets(**options), folder)
