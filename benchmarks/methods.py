"""Attention methods that k-MIP attention is compared with, and random inputs for them.

Queries, keys and values are (H, n, d) of one graph.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kmip_data.models import kmip_attention
from kmip_data.models.search.backends.keops import lazy_tensor
from kmip_data.models.search.topk import backend_names, topk_inner_product

SCRATCH_BYTES = {"cpu": 64 * 2**20, "cuda": 2**30}  #: largest block of scores
Attention = Callable[[Tensor, Tensor, Tensor, int], Tensor]  #: queries, keys, values, k -> output
Search = Callable[[Tensor, Tensor, int], Tensor]  #: queries, keys, k -> indices (H, n, k)


def random_inputs(
    n: int, heads: int = 1, d: int = 10, *, seed: int = 0, device: str = "cpu"
) -> list[Tensor]:
    """Draw standard normal queries, keys and values, by default of the paper's sizes."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(heads, n, d, generator=generator).to(device) for _ in range(3)]


def query_blocks(queries: Tensor, keys: Tensor) -> tuple[Tensor, ...]:
    """Split queries into blocks whose scores take at most :data:`SCRATCH_BYTES`."""
    bytes_per_query = len(queries) * keys.shape[1] * queries.element_size()
    rows = SCRATCH_BYTES[queries.device.type] // bytes_per_query
    return queries.split(max(1, rows), dim=1)


@torch.no_grad()
def naive_search(queries: Tensor, keys: Tensor, k: int) -> Tensor:
    """Search by matrix product and ``topk``, a block of queries at a time."""
    blocks = [(rows @ keys.mT).topk(k).indices for rows in query_blocks(queries, keys)]
    return torch.cat(blocks, dim=1)


@torch.no_grad()
def symbolic_search(queries: Tensor, keys: Tensor, k: int) -> Tensor:
    """Search by KeOps' ``argKmin`` of symbolic scores, as the paper's code does."""
    with contextlib.redirect_stdout(sys.stderr):
        lazy = lazy_tensor()
        scores = (lazy(queries[:, :, None]) * lazy(keys[:, None])).sum(-1)
        indices: Tensor = (-scores).argKmin(k, dim=2)
    return indices


def attend_to_chosen(queries: Tensor, keys: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    """Gather the chosen rows, apply softmax and multiply, as the paper's code does."""
    scores = (queries[:, :, None] * _gather(keys, indices)).sum(-1) / math.sqrt(queries.shape[-1])
    weighted = scores.softmax(-1)[..., None] * _gather(values, indices)
    return weighted.sum(2)


def _gather(rows: Tensor, indices: Tensor) -> Tensor:
    # Repeating the rows for each of the k keys with stride 0 takes no memory.
    repeated = rows[:, :, None].expand(-1, -1, indices.shape[2], -1)
    channels = indices[..., None].expand(*indices.shape, rows.shape[-1])
    return repeated.gather(1, channels)


def _attend_by_search(
    search: Search, queries: Tensor, keys: Tensor, values: Tensor, k: int
) -> Tensor:
    return attend_to_chosen(queries, keys, values, search(queries, keys, k))


def full_attention(queries: Tensor, keys: Tensor, values: Tensor, _k: int) -> Tensor:
    """Compute full attention with scores in memory, a block of queries at a time."""
    root = math.sqrt(queries.shape[-1])
    blocks = query_blocks(queries, keys)
    return torch.cat([(rows @ keys.mT / root).softmax(-1) @ values for rows in blocks], dim=1)


def sdpa(queries: Tensor, keys: Tensor, values: Tensor, _k: int) -> Tensor:
    """Compute full attention with torch's fused kernel, which takes (batch, heads, n, d)."""
    return scaled_dot_product_attention(queries[None], keys[None], values[None])[0]


def flash(queries: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    """Compute full attention with FlashAttention, which takes float16."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return sdpa(queries, keys, values, k)


SEARCHES: dict[str, Search] = {
    "auto": lambda queries, keys, k: topk_inner_product(queries, keys, k)[1],
    "symbolic": symbolic_search,
    "naive": naive_search,
}
METHODS: dict[str, Attention] = {
    **{name: partial(kmip_attention, backend=name) for name in backend_names()},
    "symbolic": partial(_attend_by_search, symbolic_search),
    "naive": partial(_attend_by_search, naive_search),
    "full": full_attention,
    "sdpa": sdpa,
    "flash": flash,
}
