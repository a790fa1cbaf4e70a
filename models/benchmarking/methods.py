"""Attention methods by name, and the inputs to time them on."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kmip_data.errors import unknown_name_error
from kmip_data.models.attention.operators import attend
from kmip_data.models.search.topk import backend_names, get_backend, search_op


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """Parameters of the inputs except the number of nodes, with the paper's defaults."""

    heads: int = 1
    d: int = 10  #: channels of queries, keys and values
    k: int = 10  #: keys per query
    #: distribution of queries and keys: ``gaussian`` (standard normal) or ``sphere`` (length 1)
    data: str = "gaussian"


@dataclass(frozen=True)
class Workload:
    """Inputs of one graph, (H, n, d) each."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    k: int  #: keys per query

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values."""
        return self.queries, self.keys, self.values


def random_workload(
    options: WorkloadOptions,
    n: int,
    *,
    seed: int = 0,
    device: str = "cpu",
) -> Workload:
    """Draw float32 inputs of n nodes on a device."""
    generator = torch.Generator().manual_seed(seed)
    size = (options.heads, n, options.d)
    queries, keys, values = (torch.randn(size, generator=generator) for _ in range(3))
    if options.data == "sphere":
        queries = functional.normalize(queries, dim=-1)
        keys = functional.normalize(keys, dim=-1)
    return Workload(queries.to(device), keys.to(device), values.to(device), options.k)


def paper_sizes_up_to(largest: float) -> list[int]:
    """Return the paper's grid ⌊10^(i/2)⌋ from 100 to ``largest``.

    >>> paper_sizes_up_to(1e4)
    [100, 316, 1000, 3162, 10000]
    """
    grid = [int(10 ** (i / 2) + 1e-9) for i in range(4, 19)]
    return [size for size in grid if size <= largest]


WorkloadFunction = Callable[[Workload, int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Method:
    """Method of computing attention; it has either ``search`` or ``fused``."""

    name: str  #: name for ``--methods``
    #: ``search(work, scratch_bytes)`` returns the indices of the chosen keys. It holds at most
    #: ``scratch_bytes`` of scores. The paper's gather, softmax and multiplication follow.
    search: WorkloadFunction | None = None
    fused: WorkloadFunction | None = None  #: ``fused(work, scratch_bytes)`` returns the output
    dtype: torch.dtype = torch.float32  #: dtype of the inputs
    #: ``why_unusable(device_type)`` returns the reason why it cannot run on a device type, or None
    why_unusable: Callable[[str], str | None] = lambda _: None

    def attend(self, work: Workload, scratch_bytes: int) -> Tensor:
        """Return the output (H, n, d)."""
        if self.fused is not None:
            return self.fused(work, scratch_bytes)
        assert self.search is not None
        return attend_gathered(work, self.search(work, scratch_bytes), scratch_bytes)


def method_names() -> list[str]:
    """Return all names, search backends first."""
    return [*backend_names(), *_OTHER_METHODS]


def get_method(name: str) -> Method:
    """Return a method; raise ``UsageError``, with the most similar name, if it does not exist."""
    if name in backend_names():
        return _backend_method(name)
    if name not in _OTHER_METHODS:
        raise unknown_name_error(
            "method", name, method_names(), command="kmip-data bench attention --help"
        )
    return _OTHER_METHODS[name]


def default_methods(device_type: str) -> list[str]:
    """Return our method, the paper's and full attention, as far as they run on the device type."""
    names = ["auto", "symbolic", "naive", "full", "sdpa", "flash"]
    return [name for name in names if get_method(name).why_unusable(device_type) is None]


def _backend_method(backend: str) -> Method:
    """Return k-MIP attention with one of our search backends."""

    def fused(work: Workload, _scratch_bytes: int) -> Tensor:
        queries, keys, values = work.tensors
        chosen = search_op(queries.detach(), keys.detach(), work.k, None, None, backend)
        scale = 1 / math.sqrt(queries.shape[2])
        out, _ = attend(queries, keys, values, *chosen, scale, None, 1.0)
        return out  # type: ignore[no-any-return]

    def why_unusable(device: str) -> str | None:
        reason: str | None = (
            None if backend == "auto" else get_backend(backend).why_unusable(device)
        )
        return reason

    return Method(name=backend, fused=fused, why_unusable=why_unusable)


def _score_blocks(work: Workload, scratch_bytes: int, copies: int) -> Iterator[Tensor]:
    """Yield inner products with all keys for blocks of queries; ``copies`` of a block fit ``scratch_bytes``."""
    heads, keys, _ = work.keys.shape
    bytes_per_query = heads * keys * work.queries.element_size() * copies
    step = max(1, scratch_bytes // bytes_per_query)
    for queries in torch.split(work.queries, step, -2):
        yield queries @ work.keys.mT


def _full_attention(work: Workload, scratch_bytes: int) -> Tensor:
    """Compute full attention with materialised scores, a block of queries at a time."""
    root = math.sqrt(work.queries.shape[-1])
    outputs = []
    # A block is held twice, as scores and as weights.
    for products in _score_blocks(work, scratch_bytes, copies=2):
        weights = (products / root).softmax(-1)
        outputs.append(weights @ work.values)
    return torch.cat(outputs, dim=-2)


@torch.no_grad()
def _naive_search(work: Workload, scratch_bytes: int) -> Tensor:
    """Search by matrix product and ``topk``, a block of queries at a time."""
    blocks = _score_blocks(work, scratch_bytes, copies=1)
    return torch.cat([scores.topk(work.k, dim=-1).indices for scores in blocks], dim=-2)


@torch.no_grad()
def _symbolic_search(work: Workload, _scratch_bytes: int) -> Tensor:
    """Search by KeOps' ``argKmin`` of symbolic scores, as in the paper's code."""
    from kmip_data.models.search.backends.keops import lazy_tensor

    with contextlib.redirect_stdout(sys.stderr):
        lazy = lazy_tensor()
        queries = lazy(work.queries[:, :, None, :])
        keys = lazy(work.keys[:, None, :, :])
        scores = (queries * keys).sum(-1)
        indices: Tensor = (-scores).argKmin(work.k, dim=2)
    return indices


def attend_gathered(work: Workload, indices: Tensor, scratch_bytes: int) -> Tensor:
    """Gather the chosen rows (H, n, k), and apply softmax and multiplication, as the paper's code does."""
    queries, keys, values = work.tensors
    heads, step, k = indices.shape
    # Blocks save memory only without gradients, as the backward pass needs all gathered rows.
    if not torch.is_grad_enabled():
        bytes_per_query = 4 * heads * k * 2 * values.shape[-1]
        step = max(1, scratch_bytes // bytes_per_query)
    root = math.sqrt(queries.shape[-1])

    outputs = []
    blocks = zip(torch.split(queries, step, -2), torch.split(indices, step, -2), strict=True)
    for rows, chosen in blocks:
        chosen_keys = _gather_chosen(keys, chosen)  # (…, k, d)
        scores = (rows.unsqueeze(-2) * chosen_keys).sum(-1) / root
        weights = scores.softmax(-1)
        chosen_values = _gather_chosen(values, chosen)  # (…, k, v)
        weighted = weights.unsqueeze(-1) * chosen_values
        outputs.append(weighted.sum(-2))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-2)


def _gather_chosen(rows: Tensor, indices: Tensor) -> Tensor:
    """Gather rows as the paper's code does."""
    # Repeat the rows for each query with stride 0, which takes no memory.
    shape = (*indices.shape, rows.shape[-1])
    repeated = rows.unsqueeze(-2).expand(*rows.shape[:-1], *shape[-2:])
    channels = indices.unsqueeze(-1).expand(shape)
    return torch.gather(repeated, -3, channels)


def _sdpa(work: Workload, _scratch_bytes: int) -> Tensor:
    # The fused kernels require (batch, heads, n, d).
    queries, keys, values = (rows[None] for rows in work.tensors)
    return functional.scaled_dot_product_attention(queries, keys, values)[0]


def _flash(work: Workload, scratch_bytes: int) -> Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return _sdpa(work, scratch_bytes)


def _unusable_without_cuda(device: str) -> str | None:
    return None if device == "cuda" else f"it runs on CUDA only, not on {device}"


_OTHER_METHODS = {
    method.name: method
    for method in (
        # The paper's k-MIP attention, with and without KeOps' symbolic matrices.
        Method(
            name="symbolic", search=_symbolic_search, why_unusable=get_backend("keops").why_unusable
        ),
        Method(name="naive", search=_naive_search),
        Method(name="full", fused=_full_attention),
        Method(name="sdpa", fused=_sdpa),
        Method(
            name="flash", fused=_flash, dtype=torch.float16, why_unusable=_unusable_without_cuda
        ),
    )
}
