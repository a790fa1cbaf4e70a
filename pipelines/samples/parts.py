"""The parts of a sample: how large they are, and which records are in each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def part_sizes(total: int, published: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of train, val and test: the published shares, no part empty from three records on."""
    everything = sum(published.values())
    least = 1 if total >= 3 else 0
    val, test = (max(round(total * published[part] / everything), least) for part in ("val", "test"))
    return {"train": total - val - test, "val": val, "test": test}


def deal(rows: NDArray[np.int64], sizes: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Return ``rows``, in their order, cut into parts of these sizes."""
    return dict(zip(sizes, np.split(rows, np.cumsum(list(sizes.values()))[:-1]), strict=True))
