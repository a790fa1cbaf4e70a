"""Performer attention, linear in the nodes, by FAVOR+ random features (Choromanski et al., ICLR 2021).

With features φ of queries and keys, a node's result is Σ φ(q)·φ(k) v / Σ φ(q)·φ(k) over the nodes
of its graph, whose sums over keys are small and computed once. φ has m channels for the d channels
of a query, so the features of a whole batch would dominate memory. They are computed for a few rows
at a time, and recomputed in the backward pass.

Additional letters in shapes: m features; B graphs in a group, padded to W rows each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from kmip_data.models.attention.gate import Gate, apply_gate, build_gate
from kmip_data.models.attention.overflow import check_inner_products
from kmip_data.models.layers.batch import BatchOrPointers, batch_pointers
from kmip_data.models.layers.linear import Linear
from kmip_data.models.search.problem import check_heads, check_nodes
from kmip_data.runtime.memory import keep_alive_for_capture


def orthogonal_directions(count: int, dim: int) -> Tensor:
    """Draw Gaussian directions (count, dim), orthogonal within each block of ``dim``.

    The same seed gives the same directions as performer-pytorch, including the signs of the QR
    factorisation, whose mean is not exactly zero.
    """
    # Stack square blocks of orthogonal rows, with the lengths of Gaussian rows.
    blocks = []
    for _ in range(-(-count // dim)):
        square = torch.randn(dim, dim)
        blocks.append(torch.linalg.qr(square).Q.T)
    lengths = torch.randn(count, dim).norm(dim=1, keepdim=True)
    directions: Tensor = lengths * torch.cat(blocks)[:count]
    return directions


class PerformerAttention(nn.Module):
    """Multi-head attention whose softmax is estimated by random features, in O(N) time and memory.

    Parameter names, weights and results equal ``SelfAttention`` of performer-pytorch 1.1.4 on a
    single graph.

    Parameters
    ----------
    dim, heads
        Input and output channels, a multiple of the number of heads H.
    head_dim
        Channels of a head's queries, keys and values, independent of ``dim``.
    features
        Random features m; ``int(head_dim · ln head_dim)`` by default.
    dropout
        Dropout probability of the result in training.
    legacy_mask
        Reproduce the published code: zero rows up to the largest graph of the batch count as keys
        in the maximum exponent and in the normaliser (their values are zero). A graph's result then
        depends on its batch.
    gate
        ``"output"``: multiply each head's output by a learned number
        (:class:`~kmip_data.models.attention.gate.HeadGate`).

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
        heads: int = 4,
        *,
        head_dim: int = 64,
        features: int | None = None,
        dropout: float = 0.0,
        legacy_mask: bool = False,
        gate: Gate = "none",
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        inner = heads * head_dim
        self.heads = heads
        self.legacy_mask = legacy_mask
        features = features or max(1, int(head_dim * math.log(head_dim)))
        directions = orthogonal_directions(features, head_dim)
        self.fast_attention: Any = nn.Module()  # name in published checkpoints
        self.fast_attention.register_buffer("projection_matrix", directions)
        self.to_q = Linear(dim, inner, bias=False)
        self.to_k = Linear(dim, inner, bias=False)
        self.to_v = Linear(dim, inner, bias=False)
        self.to_out = Linear(inner, dim)
        self.dropout = nn.Dropout(dropout)
        self.gate = build_gate(gate, dim, heads)

    def forward(self, x: Tensor, ptr: BatchOrPointers = None) -> Tensor:
        """Attend within each graph: (N, dim) → (N, dim).

        ``ptr`` are pointers (G + 1), so that graph g has the rows ``ptr[g]:ptr[g + 1]``, or a batch;
        None: one graph.
        """
        x = check_nodes(x, self.to_q.weight)
        by_head = (self.heads, -1)
        queries = self.to_q(x).unflatten(1, by_head)
        keys = self.to_k(x).unflatten(1, by_head)
        values = self.to_v(x).unflatten(1, by_head)
        directions = self.fast_attention.projection_matrix
        check_inner_products(queries, directions)
        check_inner_products(keys, directions)
        attended = self._attend(queries, keys, values, directions, ptr)
        joined_heads = attended.flatten(1).to(queries.dtype)
        joined_heads = apply_gate(self.gate, x, joined_heads)
        out: Tensor = self.dropout(self.to_out(joined_heads))
        return out

    @torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
    def _attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        directions: Tensor,
        ptr: BatchOrPointers,
    ) -> Tensor:
        """Queries, keys and values (N, H, d) and directions (m, d) → (N, H, d)."""
        starts = batch_pointers(ptr, queries.shape[0])
        device = queries.device
        # Features are exponentials, so they need at least float32, even under autocast.
        dtype = torch.promote_types(queries.dtype, torch.float32)
        queries, keys, values, directions = (
            rows.to(dtype) for rows in (queries, keys, values, directions)
        )
        max_rows = max(1, SCRATCH_BYTES // (self.heads * directions.shape[0] * dtype.itemsize))
        layout = keep_alive_for_capture(group_similar_sizes(starts, max_rows, device))
        sizes = torch.tensor(starts).diff()
        outputs = [values[:0]]
        with torch.autocast(device.type, enabled=False):
            for group in layout.groups:
                zeros = None
                if self.legacy_mask:
                    padding = sizes.max() - sizes[group.graphs]
                    zeros = padding.to(device, dtype)[:, None, None, None]
                q, k, v = (rows[group.rows].transpose(1, 2) for rows in (queries, keys, values))
                out = favor_attention(q, k, v, directions, group.is_real, max_rows, zeros)
                outputs.append(out.transpose(1, 2).flatten(0, 1).index_select(0, group.real_rows))
        return torch.cat(outputs).index_select(0, layout.inverse)


CACHED_LAYOUTS = 8  #: number of cached layouts; all layers of a batch share one
MIN_SIZE_RATIO = 0.8  #: nodes of the smallest graph of a group, relative to the largest
EPSILON = 1e-4  #: constant added to every feature, as published
SCRATCH_BYTES = 16 * 2**20  #: largest size of a tensor of features


def favor_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    directions: Tensor,
    is_real: Tensor,
    max_rows: int,
    zeros: Tensor | None,
) -> Tensor:
    """Attend within B graphs, holding the features of at most ``max_rows`` rows at a time.

    Queries, keys and values are (B, H, W, d). ``is_real`` (B, 1, W, 1) bool is False for padding.
    ``zeros`` (B, 1, 1, 1) is the number of additional zero keys per graph; None: none.
    """
    scale = keys.shape[-1] ** -0.25
    key_tiles = torch.split(keys * scale, max_rows, 2)
    # An additional channel of ones sums the normaliser.
    value_tiles = torch.split(pad(values, (0, 1), value=1.0) * is_real, max_rows, 2)
    # The gradient treats the largest exponent of each graph as a constant.
    with torch.no_grad():
        tile_maxima = [(tile @ directions.T).amax((-2, -1), keepdim=True) for tile in key_tiles]
        top = torch.stack(tile_maxima).amax(0)
        if zeros is not None:  # a zero key has the exponent 0
            top = torch.where(zeros > 0, top.clamp(min=0), top)

    def sum_keys(tile: Tensor, rows: Tensor) -> Tensor:
        return _random_features(tile, directions, top).mT @ rows

    def attend(tile: Tensor, sums: Tensor) -> Tensor:
        result = _random_features(tile, directions) @ sums
        return result[..., :-1] / result[..., -1:]

    sums: Tensor = sum(map(_recompute_in_backward(sum_keys), key_tiles, value_tiles))  # type: ignore[assignment]
    if zeros is not None:
        zero_key_weights = zeros * ((-top).exp() + EPSILON)
        sums = sums + pad(zero_key_weights, (values.shape[-1], 0))
    attend_tile = _recompute_in_backward(attend)
    outputs = [attend_tile(tile, sums) for tile in torch.split(queries * scale, max_rows, 2)]
    return torch.cat(outputs, 2)


def _recompute_in_backward(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return functools.partial(checkpoint, function, use_reentrant=False, preserve_rng_state=False)


def _random_features(rows: Tensor, directions: Tensor, top: Tensor | None = None) -> Tensor:
    """Return exp(w·x − |x|²/2 − ``top``) for rows x (…, d) and directions w: (…, m).

    ``top`` defaults to each row's largest w·x. The published factor m^-½ cancels in the result.
    """
    exponents = rows @ directions.T
    if top is None:
        top = exponents.detach().amax(-1, keepdim=True)
    half = rows.square().sum(-1, keepdim=True) / 2
    return (exponents - (half + top)).exp() + EPSILON


class GraphGroup(NamedTuple):
    """Graphs processed together, padded to the largest."""

    graphs: Tensor  #: (B,) int64 graph indices, on the CPU
    rows: Tensor  #: (B, W) int64 rows of each graph; padding repeats the last row
    is_real: Tensor  #: (B, 1, W, 1) bool, False for padding
    real_rows: Tensor  #: (R,) int64 positions of real rows among the B · W


class GroupLayout(NamedTuple):
    """Division of a batch's graphs into groups."""

    groups: tuple[GraphGroup, ...]
    inverse: Tensor  #: (N,) int64 position of each row in the concatenated groups


@functools.lru_cache(CACHED_LAYOUTS)
@torch.inference_mode(False)  # the cached tensors are also used in training
def group_similar_sizes(ptr: tuple[int, ...], max_rows: int, device: torch.device) -> GroupLayout:
    """Group graphs of similar size; only a group of one graph may exceed ``max_rows``."""
    starts = torch.tensor(ptr)
    sizes = starts.diff()
    by_size = sizes.argsort(descending=True, stable=True)
    by_size = by_size[sizes[by_size] > 0]
    groups = []
    order = [starts[:0]]
    while len(by_size):
        longest = int(sizes[by_size[0]])
        similar = int((sizes[by_size] >= MIN_SIZE_RATIO * longest).sum())
        graphs, by_size = by_size.tensor_split([max(1, min(similar, max_rows // longest))])
        ends = starts[graphs + 1, None]
        rows = starts[graphs, None] + torch.arange(longest)
        is_real = rows < ends
        real_rows = is_real.flatten().nonzero()[:, 0]
        order.append(rows.flatten()[real_rows])
        rows = torch.minimum(rows, ends - 1)
        on_device = (tensor.to(device) for tensor in (rows, is_real[:, None, :, None], real_rows))
        groups.append(GraphGroup(graphs, *on_device))
    inverse = torch.cat(order).argsort()
    return GroupLayout(tuple(groups), inverse.to(device))
