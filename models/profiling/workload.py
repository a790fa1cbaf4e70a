"""Queries, keys and values to time attention on: generated, or of a trained run."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from kmip_data.errors import UsageError

KINDS = ("gaussian", "sphere", "clustered")
CLUSTERS = 64  #: centres of ``clustered``
NOISE = 0.2  #: standard deviation of its rows about their centre, whose own is 1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Parameters of a measurement except the number of nodes; the defaults are the paper's."""

    heads: int = 1
    d: int = 10  #: length of queries and keys
    value_dim: int = 10  #: length of values
    k: int = 10  #: keys that a query attends to
    #: ``gaussian`` (standard normal), ``sphere`` (rows of length 1), ``clustered`` (rows around 64 common
    #: centres) or ``trained:FILE`` (a file of ``kmip-data evaluate --dump-qk``: its largest graph, cut to the
    #: first N rows; it sets ``heads``, ``d`` and ``value_dim``)
    data: str = "gaussian"
    graph_sizes: tuple[int, ...] | None = None  #: sizes of the graphs of a ragged batch; None: one graph


@dataclass(frozen=True)
class Workload:
    """One set of float32 inputs.

    Queries, keys and values are (H, N, d), (H, N, d) and (H, N, v), the nodes of all graphs in a row; after
    :func:`pad` they are (G, H, n, d), (G, H, n, d) and (G, H, n, v).
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    ptr: tuple[int, ...]  #: first row of each graph, and N
    k: int  #: keys that a query attends to
    #: (G, n), True where padded inputs have nodes, False at padding, which is zero; None: no padding
    real: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values."""
        return self.queries, self.keys, self.values


def pad(work: Workload) -> Workload:
    """Pad graphs to the largest; k is at most the size of the smallest, so that no slot stays empty."""
    sizes = torch.tensor(work.ptr).diff()
    least, most = int(sizes.min()), int(sizes.max())
    real = (torch.arange(most) < sizes[:, None]).to(work.queries.device)
    padded = []
    for tensor in work.tensors:
        rows = tensor.new_zeros(len(sizes), most, tensor.shape[0], tensor.shape[2])
        rows[real] = tensor.transpose(0, 1)
        padded.append(rows.transpose(1, 2).contiguous())
    k, some = min(work.k, least), None if least == most else real
    return Workload(padded[0], padded[1], padded[2], work.ptr, k, some)


class Source:
    """Draw workloads of one shape; a seed gives the same sequence.

    Raises ``UsageError`` for an unknown kind of data, or a file with fewer rows than are drawn.
    """

    def __init__(self, shape: Shape, *, seed: int = 0) -> None:
        kind, _, file = shape.data.partition(":")
        if shape.data not in KINDS and not (kind == "trained" and file):
            raise UsageError(
                f"{shape.data!r} is not a kind of data.",
                expected=", ".join([*KINDS, "trained:FILE"]),
                found=shape.data,
                next="kmip-data evaluate RUN --dump-qk FILE writes a file for trained:FILE",
            )
        self._generator = torch.Generator().manual_seed(seed)
        self._trained: tuple[Tensor, Tensor, Tensor] | None = None
        if file:
            self._trained = _largest_graph(file)
            queries, _, values = self._trained
            heads, _, d = queries.shape
            shape = replace(shape, heads=heads, d=d, value_dim=values.shape[2])
        self.shape = shape

    @property
    def largest(self) -> int | None:
        """Largest number of nodes; None: any."""
        return None if self._trained is None else self._trained[0].shape[1]

    def reseed(self, seed: int) -> None:
        """Start another sequence."""
        self._generator.manual_seed(seed)

    def draw(self, n: int, device: torch.device) -> Workload:
        """Return inputs of n nodes on a device (with ``graph_sizes``, n is their sum)."""
        shape = self.shape
        ptr = (0, *itertools.accumulate(shape.graph_sizes or (n,)))
        if self._trained is not None:
            if n > (self.largest or 0):
                raise UsageError(
                    f"{shape.data} does not have that many rows.",
                    expected=f"at most {self.largest}",
                    found=str(n),
                    next="a smaller --max-n, or dump a run on larger graphs",
                )
            queries, keys, values = (tensor[:, :n].contiguous() for tensor in self._trained)
        else:
            queries, keys = self._rows(n), self._rows(n)
            values = self._normal(n, shape.value_dim)
        return Workload(queries.to(device), keys.to(device), values.to(device), ptr, shape.k)

    def _normal(self, n: int, width: int) -> Tensor:
        return torch.randn(self.shape.heads, n, width, generator=self._generator)

    def _rows(self, n: int) -> Tensor:
        rows = self._normal(n, self.shape.d)
        if self.shape.data == "sphere":
            return torch.nn.functional.normalize(rows, dim=-1)
        if self.shape.data == "clustered":
            # The same centres for queries and keys, whatever was drawn before.
            generator = torch.Generator().manual_seed(0)
            centres = torch.randn(CLUSTERS, self.shape.d, generator=generator)
            which = torch.randint(CLUSTERS, rows.shape[:2], generator=self._generator)
            return centres[which] + NOISE * rows
        return rows


def sizes_up_to(largest: float, smallest: float = 100) -> list[int]:
    """Return the paper's grid ⌊10^(i/2)⌋ between two sizes.

    >>> sizes_up_to(1e4)
    [100, 316, 1000, 3162, 10000]
    """
    first, last = (2 * math.log10(size) for size in (smallest, largest))
    return [int(10 ** (i / 2) + 1e-9) for i in range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)]


def _largest_graph(path: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of the last layer on the largest graph of a file."""
    from kmip_data.models.analysis.projections import read_projections

    found = read_projections(Path(path).expanduser())
    graph = max(range(len(found.sizes)), key=lambda g: found.sizes[g])
    return next(found.samples([len(found.layers) - 1], [graph]))[2:]
