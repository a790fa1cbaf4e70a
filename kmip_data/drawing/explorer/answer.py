"""What a run says about a graph, as plain arrays, and the figures that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import F32, I64

BINS: Final = 10  #: of equally many nodes, from the smallest eccentricity to the largest


@dataclass(frozen=True)
class ChosenKeys:
    """What the heads of one k-MIP layer attend to, of the S nodes in :attr:`Answer.nodes`."""

    indices: I64  #: (H, S, k) nodes of the graph, the best first; −1: none
    weights: F32  #: (H, S, k) of the softmax, 0 where there is none


@dataclass(frozen=True)
class Answer:
    """What the best weights of a run say about one graph."""

    run: str  #: its path below ``runs/``
    split: str | None  #: one of the build's, whose train and val nodes the run has seen
    classes: I64 | None  #: (N,) as predicted; None where the run classifies no nodes
    words: str  #: what is said of the whole graph; empty where nothing is
    nodes: I64  #: (S,), sorted: those whose chosen keys are in ``layers``
    layers: tuple[ChosenKeys, ...]  #: of each k-MIP layer; none where the network has none


def confusion(truth: I64, predicted: I64, count: int) -> I64:
    """Return how many nodes of each class (row) were given each class (column), (C, C)."""
    cells = np.bincount(truth * count + predicted, minlength=count * count)
    return cells.reshape(count, count)


def error_by(values: NDArray[Any], wrong: NDArray[np.bool_]) -> list[dict[str, float]]:
    """Return the share of wrong nodes in :data:`BINS` of equally many, by rising value.

    Ties are broken by the number of the node, as the classes of a city are cut.
    """
    order = np.argsort(values, kind="stable")
    return [
        {
            "low": float(values[some[0]]),
            "high": float(values[some[-1]]),
            "count": len(some),
            "wrong": int(wrong[some].sum()),
        }
        for some in np.array_split(order, BINS)
        if len(some)
    ]
