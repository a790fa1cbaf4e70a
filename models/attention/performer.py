"""Performer attention by FAVOR+ (Choromanski et al., ICLR 2021): linear in the nodes, by random features.

With features φ of queries and keys a node's result is Σ φ(q)·φ(k) v / Σ φ(q)·φ(k) over the nodes of
its graph: the sums over keys are made once, and are small. φ takes m channels where a query has d,
so features of a whole batch would take most of the memory: they are made for some rows at a time,
and again in the backward pass. Graphs of similar size form the tiles of rows that are worked on
together.

Letters besides the usual ones: m features; B graphs with W places each, of a tile.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from kmip_data.models.attention.overflow import check_lengths
from kmip_data.models.layers.batch import Pointers, pointers
from kmip_data.models.layers.linear import Linear
from kmip_data.models.search.problem import check_heads, check_nodes
from kmip_data.runtime.memory import kept


def orthogonal_directions(count: int, dim: int) -> Tensor:
    """Draw (count, dim) Gaussian directions, of which each ``dim`` are orthogonal to each other.

    The draws are performer-pytorch's: the same seed gives the same directions. As there, signs are
    those of the QR factorisation, so that the mean is not quite zero.
    """
    # Square blocks of orthogonal rows, each with the length of a Gaussian row.
    blocks = []
    for _ in range(-(-count // dim)):
        square = torch.randn(dim, dim)
        blocks.append(torch.linalg.qr(square).Q.T)
    lengths = torch.randn(count, dim).norm(dim=1, keepdim=True)
    directions: Tensor = lengths * torch.cat(blocks)[:count]
    return directions


class PerformerAttention(nn.Module):
    """Multi-head attention whose softmax is estimated by random features: O(N) time and memory.

    Weights, names and result are those of ``SelfAttention`` of performer-pytorch 1.1.4 on each
    graph alone.

    Parameters
    ----------
    dim, heads
        Channels of the input and the output, a multiple of the number of heads H.
    head_dim
        Channels of a query, key and value of one head, whatever ``dim`` is.
    features
        Random features m; ``int(head_dim · ln head_dim)`` by default.
    dropout
        Probability with which a channel of the result is dropped in training.
    legacy_mask
        Reproduce the published code: zero rows up to the largest graph of the batch count as keys
        in the largest exponent and in the normaliser (their values are zero). The result for a
        graph then depends on the others in its batch. False: every graph as if alone.

    Examples
    --------
    >>> import torch
    >>> from kmip_data.models import PerformerAttention
    >>> attention = PerformerAttention(8, heads=2, head_dim=16)
    >>> attention(torch.randn(7, 8), [0, 3, 7]).shape  # two graphs, of three nodes and of four
    torch.Size([7, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 4,
        head_dim: int = 64,
        features: int | None = None,
        dropout: float = 0.0,
        legacy_mask: bool = False,
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        inner = heads * head_dim
        self.heads = heads
        self.legacy_mask = legacy_mask
        features = features or max(1, int(head_dim * math.log(head_dim)))
        directions = orthogonal_directions(features, head_dim)
        self.fast_attention: Any = nn.Module()  # named as published
        self.fast_attention.register_buffer("projection_matrix", directions)
        self.to_q = Linear(dim, inner, bias=False)
        self.to_k = Linear(dim, inner, bias=False)
        self.to_v = Linear(dim, inner, bias=False)
        self.to_out = Linear(inner, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, ptr: Pointers = None) -> Tensor:
        """Attend within each graph: nodes of all graphs (N, dim) to the same.

        ``ptr`` (G + 1): graph g has the rows ``ptr[g]:ptr[g + 1]``; or a batch that has it; None:
        one graph.
        """
        x = check_nodes(x, self.to_q.weight)
        by_head = (self.heads, -1)
        queries = self.to_q(x).unflatten(1, by_head)
        keys = self.to_k(x).unflatten(1, by_head)
        values = self.to_v(x).unflatten(1, by_head)
        directions = self.fast_attention.projection_matrix
        check_lengths(queries, directions)
        check_lengths(keys, directions)
        attended = self._attend(queries, keys, values, directions, ptr)
        joined = attended.flatten(1).to(queries.dtype)
        out: Tensor = self.dropout(self.to_out(joined))
        return out

    @torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
    def _attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        directions: Tensor,
        ptr: Pointers,
    ) -> Tensor:
        """Queries, keys and values (N, H, d) and directions (m, d) → (N, H, d)."""
        starts = pointers(ptr, queries.shape[0])
        device = queries.device
        # Features are exponentials: in float32 at least, under autocast too.
        dtype = torch.promote_types(queries.dtype, torch.float32)
        bytes_a_row = self.heads * directions.shape[0] * dtype.itemsize
        most = max(1, SCRATCH // bytes_a_row)
        groups = kept(tiles_of(starts, most, values.shape[2] + 1, device))
        padding = None
        if self.legacy_mask:
            sizes = torch.tensor(starts).diff()
            padding = (sizes.max() - sizes).to(device, dtype)
        with torch.autocast(device.type, enabled=False):
            out: Tensor = _Favor.apply(  # type: ignore[no-untyped-call]
                queries.to(dtype),
                keys.to(dtype),
                values.to(dtype),
                directions.to(dtype),
                groups,
                padding,
            )
        return out


KEPT = 8  #: cached tilings: all layers ask for the same one, recorded steps for that of a batch
ALIKE = 0.8  #: the smallest graph of a group has at least this share of the largest one's nodes
EPSILON = 1e-4  #: added to every feature, as published
SCRATCH = 16 * 2**20  #: bytes of one tensor of features


class Tile(NamedTuple):
    """Rows that are worked on at once: of several graphs, or a part of one."""

    rows: Tensor  #: (B, W) int64, graph by graph; beyond a graph's end its last row again
    inside: Tensor | None  #: (B, W) bool, True within a graph; None: all are

    def take(self, rows: Tensor) -> Tensor:
        """(N, H, c) → (B, H, W, c)."""
        return rows[self.rows].transpose(1, 2)

    def with_one(self, rows: Tensor) -> Tensor:
        """(N, H, c) → (B, H, W, c + 1), the last channel 1."""
        return pad(self.take(rows), (0, 1), value=1.0)

    def clear(self, values: Tensor) -> Tensor:
        """(B, H, W, c) with zeros beyond the graphs' ends."""
        return values if self.inside is None else values * self.inside[:, None, :, None]

    def put(self, rows: Tensor, values: Tensor) -> None:
        """Write (B, H, W, c) to its rows of (N, H, c)."""
        values = values.transpose(1, 2)
        if self.inside is None:
            rows[self.rows] = values
        else:
            rows[self.rows[self.inside]] = values[self.inside]


class Group(NamedTuple):
    """Graphs that are worked on together: several whole ones in one tile, or one in several tiles."""

    graphs: Tensor  #: (B,) int64
    tiles: tuple[Tile, ...]


@functools.lru_cache(KEPT)
@torch.inference_mode(False)  # remembered for training, too
def tiles_of(
    ptr: tuple[int, ...],
    most: int,
    extra: int,
    device: torch.device,
) -> tuple[Group, ...]:
    """Put together graphs of like size, and divide large ones, into tiles of at ``most`` so many rows.

    Each graph counts for ``extra`` rows besides its own.
    """
    # From the largest graph on: a group begins with its largest, to whose size the others are
    # padded, and ends where padding would be too much or the tile is full.
    sizes = np.diff(ptr)
    groups = []
    members = list[int]()
    for graph in np.argsort(-sizes, kind="stable").tolist():
        if members:
            largest = sizes[members[0]]
            smaller = sizes[graph] < ALIKE * largest
            full = (len(members) + 1) * (largest + extra) > most
            if smaller or full:
                groups.append(_group(members, ptr, most, device))
                members = []
        if sizes[graph]:
            members.append(graph)
    if members:
        groups.append(_group(members, ptr, most, device))
    return tuple(groups)


def _group(
    members: list[int],
    ptr: tuple[int, ...],
    most: int,
    device: torch.device,
) -> Group:
    """Lay out graphs as the rows of one tile, or a single one as the columns of several."""
    starts = torch.tensor([[ptr[graph]] for graph in members])
    ends = torch.tensor([[ptr[graph + 1]] for graph in members])
    longest = int((ends - starts).max())
    rows = starts + torch.arange(longest)
    parts: Sequence[Tensor] = (rows,)
    if len(members) == 1:
        parts = torch.split(rows, most, 1)
    tiles = []
    for part in parts:
        within = part < ends
        inside = None if bool(within.all()) else within.to(device)
        clamped = torch.minimum(part, ends - 1)
        tiles.append(Tile(clamped.to(device), inside))
    return Group(torch.tensor(members).to(device), tuple(tiles))


class _Favor(torch.autograd.Function):
    """Keeps its operands and its result, no features and no sums.

    The largest exponents, which are subtracted before ``exp``, are constants to the gradient; with
    :data:`EPSILON` that makes a (small) difference. ``padding``: zero keys that count in each
    graph, or None.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        projection: Tensor,
        groups: tuple[Group, ...],
        padding: Tensor | None,
    ) -> Tensor:
        kernel = _Kernel(keys, values, projection, padding)
        out = torch.empty_like(values)
        tops = []
        for group in groups:
            sums, top = kernel.sums(group)
            tops.append(top)
            for tile in group.tiles:
                _, features = kernel.features(queries, tile)
                result = _times(features, sums)  # the last channel is the normaliser
                tile.put(out, result[..., :-1] / result[..., -1:])
        ctx.save_for_backward(queries, keys, values, projection, padding, out, *tops)
        ctx.groups = groups
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, projection, padding, out, *tops = ctx.saved_tensors
        kernel = _Kernel(keys, values, projection, padding)
        grad_queries = torch.empty_like(queries)
        grad_keys = torch.empty_like(keys)
        grad_values = torch.empty_like(values)
        for group, top in zip(ctx.groups, tops, strict=True):
            sums, _ = kernel.sums(group, top)
            grad_sums = torch.zeros_like(sums)
            # 1. Through out = Σ φ(q)·φ(k) v / Σ φ(q)·φ(k) to the sums and the queries.
            for tile in group.tiles:
                rows, features = kernel.features(queries, tile)
                grad_out = tile.clear(tile.take(grad))
                of_normaliser = -(grad_out * tile.take(out)).sum(-1, keepdim=True)
                grad_result = torch.cat([grad_out, of_normaliser], -1)
                grad_result /= _times(features, sums[..., -1:])
                grad_sums += _times(features.mT, grad_result)
                grad_features = grad_result @ sums.mT
                tile.put(grad_queries, kernel.back(rows, features, grad_features))
            # 2. From the sums, now whole, to keys and values.
            for tile in group.tiles:
                rows, features = kernel.features(keys, tile, top)
                tile.put(grad_values, _times(features, grad_sums[..., :-1]))
                grad_features = tile.with_one(values) @ grad_sums.mT
                tile.put(grad_keys, kernel.back(rows, features, grad_features))
        return grad_queries, grad_keys, grad_values, None, None, None


class _Kernel:
    """Features of queries and keys less :data:`EPSILON`: exp(w·x − |x|²/2 − largest) where x is t/d^¼.

    The published factor m^-½ of every feature cancels in the result.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        projection: Tensor,
        padding: Tensor | None,
    ) -> None:
        self.keys = keys
        self.values = values
        self.padding = padding
        self.scale: float = keys.shape[2] ** -0.25
        self.directions = projection * self.scale  # (m, d)

    def features(
        self, rows: Tensor, tile: Tile, top: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Queries or keys of a tile (B, H, W, d) and their features (B, H, W, m).

        ``top`` are the largest exponents of the keys (B, H, 1, 1); None: each row's own, for
        queries.
        """
        taken, exponents = self._exponents(rows, tile)
        if top is None:
            top = exponents.amax(-1, keepdim=True)
        return taken, self._exp(taken, exponents, top)

    def sums(self, group: Group, top: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Σ φ(k) [v, 1] over each graph's nodes (B, H, m, v + 1), and its largest exponents (B, H, 1, 1)."""
        zero = None if self.padding is None else self.padding[group.graphs, None, None, None]

        # 1. The largest exponent of each graph; those of an only tile are used again below.
        held: tuple[Tensor, Tensor] | None = None
        if top is None:
            for tile in group.tiles:
                held = self._exponents(self.keys, tile)
                highest = held[1].amax((-2, -1), keepdim=True)
                top = highest if top is None else torch.maximum(top, highest)
            assert top is not None
            if zero is not None:  # a zero key has the exponent 0
                top = torch.where(zero > 0, top.clamp(min=0), top)
        if len(group.tiles) > 1:
            held = None

        # 2. The sums, tile by tile in one order.
        total: Tensor | None = None
        for tile in group.tiles:
            if held is None:
                _, features = self.features(self.keys, tile, top)
            else:
                features = self._exp(*held, top)
            values = tile.clear(tile.with_one(self.values))
            part = _times(features.mT, values)
            total = part if total is None else total.add_(part)
        assert total is not None
        if zero is not None:
            total[..., -1:] += zero * ((-top).exp() + EPSILON)
        return total, top

    def back(self, rows: Tensor, features: Tensor, grad: Tensor) -> Tensor:
        """Gradient of ``rows`` (B, H, W, d) by that of their features (B, H, W, m), which is overwritten."""
        grad *= features
        of_length = grad.sum(-1, keepdim=True) * self.scale**2
        of_rows: Tensor = grad @ self.directions - rows * of_length
        return of_rows

    def _exponents(self, rows: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
        """Rows (B, H, W, d) and w·x of each direction (B, H, W, m)."""
        taken = tile.take(rows)
        return taken, taken @ self.directions.T

    def _exp(self, rows: Tensor, exponents: Tensor, top: Tensor) -> Tensor:
        half = rows.square().sum(-1, keepdim=True) * (self.scale**2 / 2)
        return exponents.sub_(half + top).exp_()


def _times(features: Tensor, other: Tensor) -> Tensor:
    """(features + :data:`EPSILON`) @ other, without a further tensor of features."""
    return features @ other + EPSILON * other.sum(-2, keepdim=True)
