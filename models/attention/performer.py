"""Performer attention by FAVOR+ (Choromanski et al., ICLR 2021): linear in the nodes, by random features.

With features φ of queries and keys, a node's result is Σ φ(q)·φ(k) v / Σ φ(q)·φ(k) over the nodes
of its graph: sums over keys are small and computed once. φ has m channels where a query has d, so
the features of a whole batch would dominate memory: they are computed for a few rows at a time, and
again in the backward pass.

Letters besides the usual ones: m features; B graphs of a group, padded to W rows each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from kmip_data.models.attention.overflow import check_lengths
from kmip_data.models.layers.batch import Pointers, pointers_of_batch
from kmip_data.models.layers.linear import Linear
from kmip_data.models.search.problem import check_heads, check_nodes
from kmip_data.runtime.memory import keep_alive_for_capture


def orthogonal_directions(count: int, dim: int) -> Tensor:
    """Draw Gaussian directions (count, dim), orthogonal within each block of ``dim``.

    Draws are the same as in performer-pytorch: the same seed gives the same directions. As there, signs
    come from the QR factorisation, so the mean is not exactly zero.
    """
    # Square blocks of orthogonal rows, with the lengths of Gaussian rows.
    blocks = []
    for _ in range(-(-count // dim)):
        square = torch.randn(dim, dim)
        blocks.append(torch.linalg.qr(square).Q.T)
    lengths = torch.randn(count, dim).norm(dim=1, keepdim=True)
    directions: Tensor = lengths * torch.cat(blocks)[:count]
    return directions


class PerformerAttention(nn.Module):
    """Multi-head attention whose softmax is estimated by random features: O(N) time and memory.

    Weights, names and result equal ``SelfAttention`` of performer-pytorch 1.1.4 on each
    graph alone.

    Parameters
    ----------
    dim, heads
        Channels in and out, a multiple of the number of heads H.
    head_dim
        Channels of a head's queries, keys and values, independent of ``dim``.
    features
        Random features m; ``int(head_dim · ln head_dim)`` by default.
    dropout
        Dropout probability of the result in training.
    legacy_mask
        Reproduce the published code: zero rows up to the largest graph of the batch count as keys
        in the maximum exponent and in the normaliser (their values are zero). The result for a
        graph then depends on its batch. False: every graph as if alone.

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
        starts = pointers_of_batch(ptr, queries.shape[0])
        device = queries.device
        # Features are exponentials: at least float32, also under autocast.
        dtype = torch.promote_types(queries.dtype, torch.float32)
        queries, keys, values, directions = (
            rows.to(dtype) for rows in (queries, keys, values, directions)
        )
        most = max(1, SCRATCH // (self.heads * directions.shape[0] * dtype.itemsize))
        layout = keep_alive_for_capture(group_by_size(starts, most, device))
        sizes = torch.tensor(starts).diff()
        done = [values[:0]]
        with torch.autocast(device.type, enabled=False):
            for group in layout.groups:
                zeros = None
                if self.legacy_mask:
                    padding = sizes.max() - sizes[group.graphs]
                    zeros = padding.to(device, dtype)[:, None, None, None]
                q, k, v = (rows[group.rows].transpose(1, 2) for rows in (queries, keys, values))
                out = favor_attention(q, k, v, directions, group.inside, most, zeros)
                done.append(out.transpose(1, 2).flatten(0, 1).index_select(0, group.chosen))
        return torch.cat(done).index_select(0, layout.inverse)


CACHED_LAYOUTS = 8  #: all layers of a batch share one
ALIKE = 0.8  #: minimum ratio of nodes between the smallest and the largest graph of a group
EPSILON = 1e-4  #: added to every feature, as published
SCRATCH = 16 * 2**20  #: bytes of one tensor of features


def favor_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    directions: Tensor,
    inside: Tensor,
    most: int,
    zeros: Tensor | None,
) -> Tensor:
    """Attend within B graphs with features of at most ``most`` rows at a time, recomputed in the backward pass.

    Queries, keys and values are (B, H, W, d); ``inside`` (B, 1, W, 1) bool is False beyond the end
    of a graph; ``zeros`` (B, 1, 1, 1) is the number of zero keys that count in each; None: none.
    """
    scale = keys.shape[-1] ** -0.25
    tiles = torch.split(keys * scale, most, 2)
    weighted = torch.split(pad(values, (0, 1), value=1.0) * inside, most, 2)
    # The gradient treats the largest exponent of each graph as a constant.
    with torch.no_grad():
        highest = [(tile @ directions.T).amax((-2, -1), keepdim=True) for tile in tiles]
        top = torch.stack(highest).amax(0)
        if zeros is not None:  # a zero key has the exponent 0
            top = torch.where(zeros > 0, top.clamp(min=0), top)

    def sum_keys(tile: Tensor, rows: Tensor) -> Tensor:
        return _random_features(tile, directions, top).mT @ rows

    def divide(tile: Tensor, sums: Tensor) -> Tensor:
        result = _random_features(tile, directions) @ sums  # the last channel is the normaliser
        return result[..., :-1] / result[..., -1:]

    sums: Tensor = sum(map(_recompute_in_backward(sum_keys), tiles, weighted))  # type: ignore[assignment]
    if zeros is not None:
        counted = zeros * ((-top).exp() + EPSILON)
        sums = sums + pad(counted, (values.shape[-1], 0))
    attend = _recompute_in_backward(divide)
    done = [attend(tile, sums) for tile in torch.split(queries * scale, most, 2)]
    return torch.cat(done, 2)


def _recompute_in_backward(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return partial(checkpoint, function, use_reentrant=False, preserve_rng_state=False)


def _random_features(rows: Tensor, directions: Tensor, top: Tensor | None = None) -> Tensor:
    """exp(w·x − |x|²/2 − ``top``) of rows x (…, d) and directions w: (…, m); None: the largest w·x.

    The published factor m^-½ of every feature cancels in the result.
    """
    exponents = rows @ directions.T
    if top is None:
        top = exponents.detach().amax(-1, keepdim=True)
    half = rows.square().sum(-1, keepdim=True) / 2
    return (exponents - (half + top)).exp() + EPSILON


class Group(NamedTuple):
    """Graphs processed together, padded to the largest."""

    graphs: Tensor  #: (B,) int64, on the CPU
    rows: Tensor  #: (B, W) int64, graph by graph; padding repeats the last row
    inside: Tensor  #: (B, 1, W, 1) bool, True within a graph
    chosen: Tensor  #: (R,) int64, positions of real rows among the B · W


class Layout(NamedTuple):
    """All graphs of a batch in groups."""

    groups: tuple[Group, ...]
    inverse: Tensor  #: (N,) int64, position of each row among all groups


@functools.lru_cache(CACHED_LAYOUTS)
@torch.inference_mode(False)  # remembered for training, too
def group_by_size(ptr: tuple[int, ...], most: int, device: torch.device) -> Layout:
    """Group graphs of similar size, at most ``most`` rows per group unless a single graph has more."""
    starts = torch.tensor(ptr)
    sizes = starts.diff()
    by_size = sizes.argsort(descending=True, stable=True)
    by_size = by_size[sizes[by_size] > 0]
    groups = []
    order = [starts[:0]]
    while len(by_size):
        longest = int(sizes[by_size[0]])
        alike = int((sizes[by_size] >= ALIKE * longest).sum())
        graphs, by_size = by_size.tensor_split([max(1, min(alike, most // longest))])
        ends = starts[graphs + 1, None]
        rows = starts[graphs, None] + torch.arange(longest)
        inside = rows < ends
        chosen = inside.flatten().nonzero()[:, 0]
        order.append(rows.flatten()[chosen])
        rows = torch.minimum(rows, ends - 1)
        on_device = (tensor.to(device) for tensor in (rows, inside[:, None, :, None], chosen))
        groups.append(Group(graphs, *on_device))
    inverse = torch.cat(order).argsort()
    return Layout(tuple(groups), inverse.to(device))
