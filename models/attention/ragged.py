"""Groups of graphs of similar size, so that dense attention runs over many of them in one call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.search.problem import check_ptr

Pointers = Tensor | Sequence[int] | GraphBatch | None
KEPT = 8  #: plans that are remembered: all layers ask for the same one, recorded steps for that of a batch
ALIKE = 0.8  #: the smallest graph of a padded group has at least this share of the largest one's nodes


def pointers(ptr: Pointers, rows: int) -> tuple[int, ...]:
    """(G + 1) row numbers of a batch, of what stands for it, or (None) of one graph."""
    return check_ptr("ptr", ptr.ptr if isinstance(ptr, GraphBatch) else ptr, rows)


class EqualSizes(NamedTuple):
    """Rows in an order in which graphs with as many nodes follow one another."""

    order: Tensor | None  #: (N,) row at each place; None: as they are
    inverse: Tensor | None  #: (N,) place of each row
    groups: tuple[tuple[int, int], ...]  #: (graphs, nodes of each), one group after another


@functools.lru_cache(KEPT)
@torch.inference_mode(False)  # remembered for training, too
def equal_sizes(ptr: tuple[int, ...], device: torch.device) -> EqualSizes:
    """Put together graphs of one size; graphs without nodes are left out."""
    sizes = np.diff(ptr)
    found, counts = np.unique(sizes[sizes > 0], return_counts=True)
    groups = tuple(zip(counts.tolist(), found.tolist(), strict=True))
    by_size = np.argsort(sizes, kind="stable")
    if (by_size[1:] > by_size[:-1]).all():
        return EqualSizes(None, None, groups)
    starts = np.asarray(ptr)[by_size]
    rows = [np.arange(start, start + size) for start, size in zip(starts, sizes[by_size], strict=True)]
    order = torch.from_numpy(np.concatenate(rows))
    return EqualSizes(order.to(device), order.argsort().to(device), groups)


class Tile(NamedTuple):
    """Rows that are worked on at once: of several graphs, or a part of one."""

    rows: Tensor  #: (B, W) int64, graph by graph; beyond a graph's end its last row again
    real: Tensor | None  #: (B, W) bool, whether it is not beyond; None: all are

    def take(self, rows: Tensor) -> Tensor:
        """(N, H, c) → (B, H, W, c)."""
        return rows[self.rows].transpose(1, 2)

    def clear(self, values: Tensor) -> Tensor:
        """(B, H, W, c) with zeros beyond the graphs' ends."""
        return values if self.real is None else values * self.real[:, None, :, None]

    def put(self, rows: Tensor, values: Tensor) -> None:
        """Write (B, H, W, c) to its rows of (N, H, c)."""
        values = values.transpose(1, 2)
        if self.real is None:
            rows[self.rows] = values
        else:
            rows[self.rows[self.real]] = values[self.real]


class Group(NamedTuple):
    """Graphs that are worked on together: several whole ones in one tile, or one in several tiles."""

    graphs: Tensor  #: (B,) int64
    tiles: tuple[Tile, ...]


@functools.lru_cache(KEPT)
@torch.inference_mode(False)  # remembered for training, too
def tiles_of(ptr: tuple[int, ...], most: int, each: int, device: torch.device) -> tuple[Group, ...]:
    """Put together graphs of like size, and divide large ones.

    At ``most`` so many rows are worked on at once; ``each`` graph counts for so many besides its own.
    """
    sizes, groups, members = np.diff(ptr), list[Group](), list[int]()
    for graph in np.argsort(-sizes, kind="stable").tolist():
        largest = sizes[members[0]] if members else 0
        if members and (sizes[graph] < ALIKE * largest or (len(members) + 1) * (largest + each) > most):
            groups.append(_group(members, ptr, most, device))
            members = []
        if sizes[graph]:
            members.append(graph)
    return (*groups, _group(members, ptr, most, device)) if members else tuple(groups)


def _group(members: list[int], ptr: tuple[int, ...], most: int, device: torch.device) -> Group:
    starts = torch.tensor([[ptr[graph]] for graph in members])
    ends = torch.tensor([[ptr[graph + 1]] for graph in members])
    rows = starts + torch.arange(int((ends - starts).max()))
    parts = torch.split(rows, most, 1) if len(members) == 1 else (rows,)
    tiles = tuple(
        Tile(
            torch.minimum(part, ends - 1).to(device),
            None if bool((part < ends).all()) else (part < ends).to(device),
        )
        for part in parts
    )
    return Group(torch.tensor(members).to(device), tiles)
