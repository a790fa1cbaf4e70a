"""The methods that are compared, by name: ours on each search backend, the paper's and other libraries'."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kmip_data.manifest import unknown_name
from kmip_data.models.attention.kmip import kmip_attention
from kmip_data.models.profiling.approximate import FAISS_INDEXES, faiss_search
from kmip_data.models.profiling.workload import Padded, Workload
from kmip_data.models.search.registry import backend_names, get_backend
from kmip_data.models.search.topk import topk_inner_product

Inputs = Workload | Padded


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to compute attention.

    Attributes
    ----------
    name, summary
        As ``--methods`` takes it, and one line that says what it is.
    attend
        ``attend(inputs, chunk)`` gives the output; ``chunk`` bounds the bytes of scores at a time.
    search
        ``search(inputs, chunk)`` gives the indices of the chosen keys; ``None``: it chooses none.
    padded
        It takes :class:`Padded` graphs, else :class:`Workload`.
    fused
        What follows the search is one piece, not the paper's gather, softmax and multiply.
    exact
        The search finds the k best keys (up to rounding).
    dtype
        Of its inputs.
    unusable
        ``unusable(device_type)`` gives the reason why it cannot run there.
    """

    name: str
    summary: str
    attend: Callable[[Inputs, int], Tensor]
    search: Callable[[Inputs, int], Tensor] | None = None
    padded: bool = True
    fused: bool = False
    exact: bool = True
    dtype: torch.dtype = torch.float32
    unusable: Callable[[str], str | None] = lambda _: None


def method_names() -> list[str]:
    """All methods: search backends first."""
    return [*backend_names(), *_OTHERS]


def get_method(name: str) -> Method:
    """The method of that name; an unknown one is an error that names the nearest."""
    if name in backend_names():
        return _ours(name)
    if name not in _OTHERS:
        raise unknown_name("method", name, method_names(), command="kmip-data bench attention --help")
    return _OTHERS[name]


def default_methods(device_type: str) -> list[str]:
    """What is compared unless told: ours, the paper's, and what else is exact and can run here."""
    names = ["auto", "symbolic", "naive", "full", "sdpa", "faiss-flat", "flash"]
    return [name for name in names if get_method(name).unusable(device_type) is None]


def _ours(backend: str) -> Method:
    def attend(inputs: Inputs, _chunk: int) -> Tensor:
        assert isinstance(inputs, Workload)
        queries, keys, values = inputs.tensors
        out: Tensor = kmip_attention(queries, keys, values, inputs.k, query_ptr=inputs.ptr, backend=backend)
        return out

    def search(inputs: Inputs, _chunk: int) -> Tensor:
        assert isinstance(inputs, Workload)
        queries, keys, _ = inputs.tensors
        found: Tensor = topk_inner_product(queries, keys, inputs.k, query_ptr=inputs.ptr, backend=backend)[1]
        return found

    def unusable(device_type: str) -> str | None:
        return None if backend == "auto" else get_backend(backend).unusable(device_type)

    return Method(
        name=backend,
        summary=f"kmip_attention, search backend {backend}",
        attend=attend,
        search=search,
        padded=False,
        fused=True,
        unusable=unusable,
    )


def _rows_at_once(scores_of: Tensor, keys: int, chunk: int, numbers: int = 1) -> int:
    """Query rows whose scores (of all heads and graphs) take at most ``chunk`` bytes."""
    pairs = math.prod(scores_of.shape[:-2]) * keys
    return max(1, chunk // (scores_of.element_size() * numbers * max(1, pairs)))


def _full(inputs: Inputs, chunk: int) -> Tensor:
    """Softmax over all keys with the scores materialised, some queries at a time."""
    assert isinstance(inputs, Padded)
    queries, keys, values = inputs.tensors
    step = _rows_at_once(queries, keys.shape[-2], chunk, numbers=2)
    parts = []
    for rows in torch.split(queries, step, -2):
        scores = rows @ keys.mT / math.sqrt(queries.shape[-1])
        if inputs.real is not None:
            scores = scores.masked_fill(~inputs.real[:, None, None], -torch.inf)
        parts.append(scores.softmax(-1) @ values)
    return torch.cat(parts, dim=-2)


@torch.no_grad()
def _naive_search(inputs: Inputs, chunk: int) -> Tensor:
    """Matrix product and ``topk``, some queries at a time."""
    assert isinstance(inputs, Padded)
    queries, keys, _ = inputs.tensors
    step = _rows_at_once(queries, keys.shape[-2], chunk)
    parts = []
    for rows in torch.split(queries, step, -2):
        scores = rows @ keys.mT
        if inputs.real is not None:
            scores.masked_fill_(~inputs.real[:, None, None], -torch.inf)
        parts.append(scores.topk(inputs.k, dim=-1).indices)
    return torch.cat(parts, dim=-2)


@torch.no_grad()
def _symbolic_search(inputs: Inputs, _chunk: int) -> Tensor:
    """KeOps' ``argKmin`` of symbolic scores, as the paper's code; padding is attended, too."""
    import contextlib
    import sys

    assert isinstance(inputs, Padded)
    with contextlib.redirect_stdout(sys.stderr):
        import pykeops
        from pykeops.torch import LazyTensor

        pykeops.set_verbose(False)
        queries, keys, _ = inputs.tensors
        scores = (LazyTensor(queries[..., :, None, :]) * LazyTensor(keys[..., None, :, :])).sum(-1)
        found: Tensor = (-scores).argKmin(inputs.k, dim=3)
    return found


def gathered(keys: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Chosen keys and values, (…, k, d) and (…, k, v), as the paper's code gathers them."""
    k = indices.shape[-1]
    chosen = [
        torch.gather(
            rows.unsqueeze(-2).expand(*rows.shape[:-1], k, rows.shape[-1]),
            -3,
            indices.unsqueeze(-1).expand(*indices.shape, rows.shape[-1]),
        )
        for rows in (keys, values)
    ]
    return chosen[0], chosen[1]


def weights_of(queries: Tensor, keys: Tensor) -> Tensor:
    """Softmax over the chosen keys."""
    return ((queries.unsqueeze(-2) * keys).sum(-1) / math.sqrt(queries.shape[-1])).softmax(-1)


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """Weighted sum of the chosen values."""
    return (weights.unsqueeze(-1) * values).sum(-2)


def attend_gathered(inputs: Inputs, indices: Tensor, chunk: int) -> Tensor:
    """The paper's post-processing: gather, softmax, multiply; in parts where no gradient is wanted."""
    queries, keys, values = inputs.tensors
    step = queries.shape[-2]
    if not torch.is_grad_enabled():
        bytes_a_row = 4 * math.prod(indices.shape[:-2]) * indices.shape[-1] * 2 * values.shape[-1]
        step = max(1, chunk // bytes_a_row)
    parts = []
    for rows, which in zip(torch.split(queries, step, -2), torch.split(indices, step, -2), strict=True):
        chosen_keys, chosen_values = gathered(keys, values, which)
        parts.append(weighted(weights_of(rows, chosen_keys), chosen_values))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)


def _after(search: Callable[[Inputs, int], Tensor]) -> Callable[[Inputs, int], Tensor]:
    return lambda inputs, chunk: attend_gathered(inputs, search(inputs, chunk), chunk)


def _sdpa(inputs: Inputs, _chunk: int) -> Tensor:
    assert isinstance(inputs, Padded)
    mask = None if inputs.real is None else inputs.real[:, None, None]
    return functional.scaled_dot_product_attention(*inputs.tensors, attn_mask=mask)


def _flash(inputs: Inputs, _chunk: int) -> Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return functional.scaled_dot_product_attention(*inputs.tensors)


def _no_keops(device_type: str) -> str | None:
    reason: str | None = get_backend("keops").unusable(device_type)
    return reason


def _no_flash(device_type: str) -> str | None:
    return None if device_type == "cuda" else f"FlashAttention runs on CUDA only, not on {device_type}"


def _no_faiss(device_type: str) -> str | None:
    if importlib.util.find_spec("faiss") is None:
        return "faiss is not installed: python -m pip install faiss-cpu"
    return None if device_type == "cpu" else f"measured on the CPU only, not on {device_type}"


def _faiss(name: str, summary: str) -> Method:
    def search(inputs: Inputs, _chunk: int) -> Tensor:
        assert isinstance(inputs, Padded)
        return faiss_search(name, inputs)

    return Method(
        name=name,
        summary=summary,
        attend=_after(search),
        search=search,
        exact=name == "faiss-flat",
        unusable=_no_faiss,
    )


_OTHERS = {
    method.name: method
    for method in (
        Method(
            name="symbolic",
            summary="the paper's k-MIP: KeOps argKmin, then gather, softmax, multiply",
            attend=_after(_symbolic_search),
            search=_symbolic_search,
            unusable=_no_keops,
        ),
        Method(
            name="naive",
            summary="the paper's k-MIP without symbolic matrices: matrix product and topk",
            attend=_after(_naive_search),
            search=_naive_search,
        ),
        Method(name="full", summary="full attention, scores materialised", attend=_full),
        Method(name="sdpa", summary="torch's scaled_dot_product_attention: full attention", attend=_sdpa),
        Method(
            name="flash",
            summary="FlashAttention in float16: full attention",
            attend=_flash,
            dtype=torch.float16,
            unusable=_no_flash,
        ),
        *(_faiss(name, index.summary) for name, index in FAISS_INDEXES.items()),
    )
}
