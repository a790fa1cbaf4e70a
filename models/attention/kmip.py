"""k-MIP attention: each query attends to the k keys of its graph with the largest inner product."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import guard_or_false

from kmip_data.errors import UsageError
from kmip_data.models.attention import reference
from kmip_data.models.attention.operators import (
    attend,
    in_func_transform,
    pointers_of_graph_numbers,
)
from kmip_data.models.attention.overflow import check_weights
from kmip_data.models.layers.batch import GraphBatch, Pointers
from kmip_data.models.layers.linear import Linear
from kmip_data.models.search import problem
from kmip_data.models.search.topk import get_backend, search_op
from kmip_data.runtime.memory import keep_alive_for_capture

Ptr = Tensor | Sequence[int] | None
REFERENCE = "reference"  #: backend that computes the formula


def kmip_attention(  # noqa: PLR0913 -- options, by keyword
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    query_ptr: Ptr = None,
    *,
    key_ptr: Ptr = None,
    dropout: float = 0.0,
    backend: str = "auto",
    repeat_first_key: bool = False,
) -> Tensor:
    """Softmax attention over the k best keys of each query (paper, Algorithm 1, lines 1 to 4).

    Differentiable in queries, keys and values through the chosen pairs only, and once. Besides its
    operands, it saves one weight and one index per chosen pair for the backward pass. Gradients are
    bitwise reproducible, on the CPU for any number of threads; on CUDA in float64, or where Triton
    does not run, only under ``torch.use_deterministic_algorithms(True)``.

    Parameters
    ----------
    queries, keys, values
        (H, N, d), (H, M, d) and (H, M, v) of one dtype and device. Scores are scaled by 1/√d.
    k
        Keys per query; all keys of graphs that have fewer.
    query_ptr, key_ptr
        See :func:`~kmip_data.models.search.topk.topk_inner_product`.
    backend
        Search backend, or ``"reference"``: the formula in plain torch operations, with all inner
        products (H, N, M) in memory, differentiable any number of times and by ``torch.func``
        (grad, vjp, jvp).
    dropout
        Probability with which an attention weight is dropped; survivors are scaled up.
    repeat_first_key
        If a graph has fewer than k keys, fill the remaining slots with its first key, as the
        published code's search did.

    Returns
    -------
    Tensor
        (H, N, v); rows of graphs without keys are zero.

    Raises
    ------
    UsageError
        A ``ValueError`` that names the argument, the expected and the given value; also if a
        query's largest score overflows. On CUDA that result is undefined, and the next search or
        attention on the device raises the error.
    """
    return attend_to_best(
        queries,
        keys,
        values,
        k,
        query_ptr=query_ptr,
        key_ptr=key_ptr,
        dropout=dropout,
        backend=backend,
        repeat_first_key=repeat_first_key,
    ).out


class Attended(NamedTuple):
    """Output of attention, with the chosen pairs."""

    out: Tensor  #: (H, N, v)
    weights: Tensor  #: (H, N, k) softmax before dropout; no gradient flows through it
    indices: Tensor  #: (H, N, k) int32 or int64 rows of the keys; −1: none


def attend_to_best(  # noqa: PLR0913 -- options, by keyword
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    *,
    query_ptr: Ptr = None,
    key_ptr: Ptr = None,
    dropout: float = 0.0,
    backend: str = "auto",
    repeat_first_key: bool = False,
) -> Attended:
    """Like :func:`kmip_attention`, with weights and indices, (H, N, k) each."""
    queries, keys, values = _check_operands(queries, keys, values)
    require_known_backend(backend)
    problem.check_k(k)
    if backend == REFERENCE:
        return _attend_by_formula(
            queries, keys, values, k, query_ptr, key_ptr, dropout, repeat=repeat_first_key
        )
    if in_func_transform(queries, keys, values):
        raise UsageError(
            "torch.func and forward-mode derivatives cannot see into the kernels of k-MIP attention.",
            next=f"backend={REFERENCE!r} for grad, vjp and jvp; instead of vmap, put the batch into the "
            "rows of one tensor (heads, rows, d) and pass query_ptr, or into the heads",
        )

    # 1. Search.
    scores, indices = search_op(
        queries.detach(),
        keys.detach(),
        k,
        _pointer_tensor("query_ptr", query_ptr, queries),
        _pointer_tensor("key_ptr", key_ptr, keys),
        backend,
    )
    if repeat_first_key:
        scores, indices = _repeat_first_key(scores, indices)

    # 2. Dropout.
    keep = torch.rand_like(scores) >= dropout if dropout > 0 else None

    # 3. Attend to the chosen pairs.
    scale = 1 / math.sqrt(queries.shape[2])
    survivor_scale = 1 / (1 - dropout) if dropout < 1 else 0.0
    out, weights = attend(queries, keys, values, scores, indices, scale, keep, survivor_scale)
    return Attended(out, weights, indices)


def require_known_backend(backend: str) -> None:
    """Raise ``UsageError``, with the nearest name, for a backend that does not exist."""
    if not isinstance(backend, str) or backend not in {"auto", REFERENCE}:
        get_backend(backend)


def _attend_by_formula(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    query_ptr: Ptr,
    key_ptr: Ptr,
    dropout: float,
    *,
    repeat: bool,
) -> Attended:
    """Attend by the formula in :mod:`kmip_data.models.attention.reference`."""
    if repeat:
        raise UsageError(
            "The reference knows no legacy padding, in which the first key counts several times.",
            next="legacy_padding=False (--set model.attention.legacy_padding=false), or backend='auto'",
        )
    rows = problem.check_ptr("query_ptr", query_ptr, queries.shape[1])
    if key_ptr is None and keys.shape[1] == queries.shape[1]:
        key_ptr = query_ptr
    key_rows = problem.check_ptr("key_ptr", key_ptr, keys.shape[1])
    if len(rows) != len(key_rows):
        raise UsageError(
            f"query_ptr has {len(rows) - 1} graphs, key_ptr {len(key_rows) - 1}.",
            next="pass both for the same graphs",
        )
    attended = reference.attend_by_graph(queries, keys, values, k, rows, key_rows, dropout)
    check_weights(attended[1])
    return Attended(*attended)


def _check_operands(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the operands without lazy negation; the search checks queries and keys further."""
    queries = problem.check_rows("queries", queries, meta=True)
    keys = problem.check_rows("keys", keys, meta=True)
    values = problem.check_strided("values", values, meta=True)
    fits = (
        values.ndim == 3 and values.shape[:2] == keys.shape[:2] and values.dtype in problem.FLOATS
    )
    if not fits or not queries.device == keys.device == values.device:
        heads, rows = keys.shape[:2]
        raise UsageError(
            f"values are {values.dtype} of shape {tuple(values.shape)} on {values.device},"
            f" not floats ({heads}, {rows}, v) on {queries.device}."
        )
    return queries, keys, values


def _pointer_tensor(name: str, ptr: Ptr, rows: Tensor) -> Tensor | None:
    """Return pointers as a tensor, which the search checks."""
    if ptr is None:
        return None
    if isinstance(ptr, Tensor):
        return problem.check_strided(name, ptr, meta=rows.device.type == "meta")
    return torch.tensor(problem.check_ptr(name, ptr, rows.shape[1]))


def _repeat_first_key(scores: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Fill missing slots with the graph's first key and its score."""
    # A missing slot means that the graph has fewer than k keys, all chosen: the first is the
    # lowest.
    missing = indices < 0
    beyond = torch.iinfo(indices.dtype).max
    lowest = indices.masked_fill(missing, beyond).amin(-1, keepdim=True)
    # Score of that key: all others contribute 0 to the sum.
    score = scores.masked_fill(indices != lowest, 0).sum(-1, keepdim=True)
    # Graphs without keys stay empty.
    lowest = lowest.masked_fill(missing.all(-1, keepdim=True), -1)
    return torch.where(missing, score, scores), torch.where(missing, lowest, indices)


class KMIPAttention(nn.Module):
    """Multi-head k-MIP self-attention over a batch of graphs (paper, Algorithm 1).

    Parameters
    ----------
    dim, heads
        Channels in and out, and number of heads H.
    key_dim
        Length of a head's queries and keys, independent of ``dim``; ``dim / heads`` by default.
    k
        Keys per query; all nodes of a graph if it has fewer.
    value_dim
        Length of a head's values; ``dim / heads`` by default.
    output_projection
        End with a linear layer (W_O of Algorithm 1). The published configurations have none: the
        heads are concatenated, so ``heads · value_dim`` must be ``dim``.
    dropout
        Probability with which an attention weight is dropped in training. The paper names 0.5; its
        code ignored that for k-MIP.
    backend
        Search backend: ``"auto"``, a name that :func:`kmip_data.models.search.topk.backend_status`
        lists, or ``"reference"``, as in :func:`kmip_attention`.
    legacy_padding
        Reproduce the published code: graphs are zero-padded to the largest of the batch, padding is
        attended like any node (its key and value are the biases), and if k exceeds that size the
        first key counts several times. The result for a graph then depends on its batch. False:
        every graph as if alone.

    Attributes
    ----------
    training_k
        Keys a query attends to in training instead of ``k``; None: ``k``. May be set each epoch.

    Examples
    --------
    >>> import torch
    >>> from kmip_data.models import KMIPAttention
    >>> attention = KMIPAttention(8, heads=2, key_dim=4, k=3)
    >>> attention(torch.randn(7, 8), [0, 3, 7]).shape  # two graphs, of three nodes and of four
    torch.Size([7, 8])
    """

    def __init__(  # noqa: PLR0913 -- options, by keyword
        self,
        dim: int,
        *,
        heads: int,
        key_dim: int | None = None,
        k: int,
        value_dim: int | None = None,
        output_projection: bool = False,
        dropout: float = 0.0,
        backend: str = "auto",
        legacy_padding: bool = False,
    ) -> None:
        super().__init__()
        problem.check_k(k)
        require_known_backend(backend)  # now, not at the first batch
        if value_dim is None or key_dim is None:
            problem.check_heads(dim, heads)
        if value_dim is None:
            value_dim = dim // heads
        if key_dim is None:
            key_dim = dim // heads
        if not output_projection and heads * value_dim != dim:
            raise UsageError(
                f"heads · value_dim is {heads} · {value_dim} = {heads * value_dim}, not dim = {dim};"
                " that needs output_projection=True."
            )
        self.heads = heads
        self.k = k
        self.dropout = dropout
        self.backend = backend
        self.legacy_padding = legacy_padding
        self.training_k: int | None = None
        self.query = Linear(dim, heads * key_dim)
        self.key = Linear(dim, heads * key_dim)
        self.value = Linear(dim, heads * value_dim)
        self.output = Linear(heads * value_dim, dim) if output_projection else nn.Identity()

    def reset_parameters(self) -> None:
        """Draw new weights in the order of the constructor."""
        for layer in self.children():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    _reset_parameters = reset_parameters  #: called by PyG's layers

    def forward(
        self,
        x: Tensor,
        ptr: Pointers = None,
        *,
        batch: Tensor | None = None,
    ) -> Tensor:
        """Attend within each graph: nodes of all graphs (N, dim) to the same.

        Parameters
        ----------
        x
            Nodes (N, dim). Or padded graphs (G, W, dim), as in ``torch_geometric.nn.attention``;
            padding is skipped and returned as zeros.
        ptr
            (G + 1) row numbers: graph g has the rows ``ptr[g]:ptr[g + 1]``; or a batch that has
            them; None: one graph. Of padded graphs a bool mask (G, W) of their nodes; None: all. A
            tensor of N other numbers is taken as ``batch``, as in PyG's ``layer(x, batch)``.
        batch
            (N,) sorted graph numbers of the nodes, instead of ``ptr``.

        Raises
        ------
        UsageError
            Nodes, pointers, mask or graph numbers that do not fit.
        """
        padded = isinstance(x, Tensor) and x.ndim == 3 and not x.is_nested
        if batch is not None and (padded or ptr is not None):
            raise UsageError(
                "batch came with ptr, or with padded graphs.", next="pass (N, dim) and one of them"
            )
        if padded:
            return self._attend_padded(x, ptr)

        # 1. Graphs: from pointers, or from a batch, which is checked once for all layers.
        x = problem.check_nodes(x, self.query.weight)
        ptr = _pointers_of(x, ptr, batch)
        if isinstance(ptr, GraphBatch):
            ptr = ptr.ptr

        # 2. Keys: the nodes; with legacy padding, also zero rows behind each graph's rows.
        rows = x
        key_ptr: Ptr = ptr
        if self.legacy_padding:
            rows, key_ptr = _pad_to_longest(x, ptr)

        k = self.k
        if self.training and self.training_k is not None:
            k = self.training_k

        # 3. Search and attend.
        queries, keys, values = self.project(x, rows)
        attended = attend_to_best(
            queries,
            keys,
            values,
            k,
            query_ptr=ptr,
            key_ptr=key_ptr,
            dropout=self.dropout if self.training else 0.0,
            backend=self.backend,
            repeat_first_key=self.legacy_padding,
        )
        joined_heads = attended.out.transpose(0, 1).flatten(1)
        return self.output(joined_heads)  # type: ignore[no-any-return]

    def _attend_padded(self, x: Tensor, mask: Pointers) -> Tensor:
        """Attend within padded graphs (G, W, dim); return zeros for padding."""
        if mask is None:
            mask = x.new_ones(x.shape[:2], dtype=torch.bool)
        expected = f"bool {tuple(x.shape[:2])}, one for each row of x"
        mask = problem.check_strided("mask", mask, expected, meta=True)
        if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
            raise UsageError(f"mask is {mask.dtype} {tuple(mask.shape)}, not {expected}.")
        rows: Tensor = self(x[mask], pointers_of_mask(mask))
        return rows.new_zeros(*mask.shape, rows.shape[1]).index_put((mask,), rows)

    def project(self, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (H, N, d) of ``x`` (N, dim), keys and values (H, M, d), (H, M, v) of ``rows`` or ``x``."""
        if rows is None:
            rows = x
        by_head = (self.heads, -1)
        return (
            self.query(x).unflatten(1, by_head).transpose(0, 1),
            self.key(rows).unflatten(1, by_head).transpose(0, 1),
            self.value(rows).unflatten(1, by_head).transpose(0, 1),
        )

    def extra_repr(self) -> str:
        """Return the options that no submodule shows."""
        dim = self.query.in_features
        return f"{dim}, heads={self.heads}, k={self.k}, backend={self.backend!r}"


def pointers_of_mask(present: Tensor) -> Tensor:
    """(G + 1) first rows of graphs or sequences of which a mask (G, W) has the rows, on the CPU."""
    ends = present.sum(1).cumsum(0)
    return nn.functional.pad(ends, (1, 0)).cpu()


def _pointers_of(x: Tensor, ptr: Pointers, batch: Tensor | None) -> Pointers:
    """Return pointers of ``batch``, or of a ``ptr`` that may be a batch vector of N integers."""
    if batch is not None:
        numbers = problem.check_strided(
            "batch", batch, "a tensor of graph numbers, one for each node"
        )
        return pointers_of_graph_numbers(numbers, len(x), either=False)  # type: ignore[no-any-return]
    if not isinstance(ptr, Tensor) or ptr.ndim != 1 or ptr.dtype not in {torch.int32, torch.int64}:
        return ptr
    if ptr.device.type == "meta" or not guard_or_false(len(ptr) == len(x)):
        return ptr
    return pointers_of_graph_numbers(ptr, len(x), either=True)  # type: ignore[no-any-return]


def set_training_k(model: nn.Module, k: int | None) -> None:
    """Let every :class:`KMIPAttention` of a model attend to k keys in training; None: to ``k``."""
    for module in model.modules():
        if isinstance(module, KMIPAttention):
            module.training_k = k


@torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
def _pad_to_longest(x: Tensor, ptr: Ptr) -> tuple[Tensor, list[int]]:
    """Append zero rows to each graph up to the longest; return rows and new pointers."""
    checked = problem.check_ptr("ptr", ptr, x.shape[0])
    rows, starts = keep_alive_for_capture(_padded_rows(checked, x.device))
    zeros = x.new_zeros(starts[-1], x.shape[1])
    return zeros.index_copy(0, rows, x), starts


@functools.lru_cache(8)  # all layers of a batch share an entry
@torch.inference_mode(False)  # also cached during training
def _padded_rows(ptr: tuple[int, ...], device: torch.device) -> tuple[Tensor, list[int]]:
    """Return the row of each node among padded graphs, and their pointers."""
    starts = torch.tensor(ptr)
    counts = starts.diff()
    longest = int(counts.max()) if len(counts) else 0
    offset = torch.arange(len(counts)) * longest - starts[:-1]
    rows = torch.arange(ptr[-1]) + offset.repeat_interleave(counts)
    return rows.to(device), [longest * g for g in range(len(counts) + 1)]
