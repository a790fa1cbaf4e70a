"""k-MIP attention: each query attends to the k keys of its graph with the largest inner product."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import guard_or_false

from kmip_data.errors import Setting, UsageError, answer_unknown_keywords
from kmip_data.models.attention import reference
from kmip_data.models.attention.gate import Gate, apply_gate, build_gate
from kmip_data.models.attention.operators import (
    attend,
    is_in_func_transform,
    pointers_from_graph_index,
)
from kmip_data.models.attention.overflow import check_attention_weights
from kmip_data.models.layers.batch import BatchOrPointers, GraphBatch
from kmip_data.models.layers.linear import Linear
from kmip_data.models.search import problem
from kmip_data.models.search.topk import get_backend, search_op
from kmip_data.runtime.memory import keep_alive_for_capture

Pointers = Tensor | Sequence[int] | None
REFERENCE_BACKEND = "reference"  #: backend that evaluates the formula in torch operations


def kmip_attention(  # noqa: PLR0913 -- options, by keyword
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    query_ptr: Pointers = None,
    *,
    key_ptr: Pointers = None,
    dropout: float = 0.0,
    backend: str = "auto",
    repeat_first_key: bool = False,
) -> Tensor:
    """Softmax attention over the k best keys of each query (paper, Algorithm 1, lines 1 to 4).

    It is differentiable once, in queries, keys and values, through the chosen pairs. Besides its
    operands, it saves one weight and one index per chosen pair for the backward pass. Gradients are
    bitwise reproducible, on the CPU for any number of threads. On CUDA in float64 or without
    Triton, they are so only under ``torch.use_deterministic_algorithms(True)``.

    Parameters
    ----------
    queries, keys, values
        (H, N, d), (H, M, d) and (H, M, v) of one dtype and device. Scores are scaled by 1/√d.
    k
        Keys per query; graphs with fewer keys use all of them.
    query_ptr, key_ptr
        See :func:`~kmip_data.models.search.topk.topk_inner_product`.
    backend
        Search backend, or ``"reference"``: the formula in torch operations, with all inner products
        (H, N, M) in memory. It is differentiable any number of times, also by ``torch.func`` (grad,
        vjp, jvp).
    dropout
        Dropout probability of attention weights.
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
        A ``ValueError``, if an argument does not fit or a query's largest score overflows. On CUDA,
        the result of an overflow is undefined, and the next search or attention on the device
        raises the error.
    """
    return kmip_attention_with_weights(
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


class AttentionResult(NamedTuple):
    """Output of attention, with weights and chosen keys."""

    out: Tensor  #: (H, N, v)
    weights: Tensor  #: (H, N, k) softmax before dropout, without gradient
    indices: Tensor  #: (H, N, k) int32 or int64 rows of the chosen keys; −1: none


def kmip_attention_with_weights(  # noqa: PLR0913 -- options, by keyword
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    *,
    query_ptr: Pointers = None,
    key_ptr: Pointers = None,
    dropout: float = 0.0,
    backend: str = "auto",
    repeat_first_key: bool = False,
) -> AttentionResult:
    """Like :func:`kmip_attention`, but also return weights and indices, (H, N, k) each."""
    queries, keys, values = _check_operands(queries, keys, values)
    require_known_backend(backend)
    problem.check_k(k)
    if backend == REFERENCE_BACKEND:
        return _attend_by_formula(
            queries, keys, values, k, query_ptr, key_ptr, dropout, repeat=repeat_first_key
        )
    if is_in_func_transform(queries, keys, values):
        raise UsageError(
            "torch.func and forward-mode derivatives cannot differentiate k-MIP attention's kernels.",
            steps=[
                Setting(backend=REFERENCE_BACKEND),
                "instead of vmap, concatenate the batch along the heads, or along the rows with query_ptr",
            ],
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
    dropout_mask = torch.rand_like(scores) >= dropout if dropout > 0 else None

    # 3. Attend to the chosen keys.
    scale = 1 / math.sqrt(queries.shape[2])
    kept_scale = 1 / (1 - dropout) if dropout < 1 else 0.0
    out, weights = attend(queries, keys, values, scores, indices, scale, dropout_mask, kept_scale)
    return AttentionResult(out, weights, indices)


def require_known_backend(backend: str) -> None:
    """Raise ``UsageError``, with the most similar name, if the backend does not exist."""
    if not isinstance(backend, str) or backend not in {"auto", REFERENCE_BACKEND}:
        get_backend(backend)


def _attend_by_formula(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    query_ptr: Pointers,
    key_ptr: Pointers,
    dropout: float,
    *,
    repeat: bool,
) -> AttentionResult:
    """Attend by the formula in :mod:`kmip_data.models.attention.reference`."""
    if repeat:
        raise UsageError(
            "The reference does not support legacy padding, which repeats the first key.",
            steps=Setting({"model.attention.search": "auto"}),
        )
    query_starts = problem.parse_pointers("query_ptr", query_ptr, queries.shape[1])
    if key_ptr is None and keys.shape[1] == queries.shape[1]:
        key_ptr = query_ptr
    key_starts = problem.parse_pointers("key_ptr", key_ptr, keys.shape[1])
    if len(query_starts) != len(key_starts):
        raise UsageError(
            f"query_ptr has {len(query_starts) - 1} graphs, key_ptr {len(key_starts) - 1}.",
            steps="pass both for the same graphs",
        )
    attended = reference.attend_by_graph(
        queries, keys, values, k, query_starts, key_starts, dropout
    )
    check_attention_weights(attended[1])
    return AttentionResult(*attended)


def _check_operands(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Check the operands and resolve lazy negation; the search checks queries and keys further."""
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


def _pointer_tensor(name: str, ptr: Pointers, rows: Tensor) -> Tensor | None:
    """Convert pointers to a tensor, which the search checks."""
    if ptr is None:
        return None
    if isinstance(ptr, Tensor):
        return problem.check_strided(name, ptr, meta=rows.device.type == "meta")
    return torch.tensor(problem.parse_pointers(name, ptr, rows.shape[1]))


def _repeat_first_key(scores: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Fill empty slots with the graph's first key and its score."""
    # A query with empty slots chose all keys of its graph, so the lowest index is the first key.
    is_empty = indices < 0
    largest_index = torch.iinfo(indices.dtype).max
    first_key = indices.masked_fill(is_empty, largest_index).amin(-1, keepdim=True)
    # All other keys contribute 0 to this sum.
    first_score = scores.masked_fill(indices != first_key, 0).sum(-1, keepdim=True)
    # Graphs without keys stay empty.
    first_key = first_key.masked_fill(is_empty.all(-1, keepdim=True), -1)
    return torch.where(is_empty, first_score, scores), torch.where(is_empty, first_key, indices)


class KMIPAttention(nn.Module):
    """Multi-head k-MIP self-attention over a batch of graphs (paper, Algorithm 1).

    Parameters
    ----------
    dim, heads
        Input and output channels, and number of heads H.
    k
        Keys per query; graphs with fewer nodes use all of them.
    key_dim, value_dim
        Channels of a head's queries and keys, and of its values; ``dim / heads`` by default.
    output_projection
        End with a linear layer (W_O of Algorithm 1). The published configurations concatenate the
        heads instead, so ``heads · value_dim`` must be ``dim``.
    dropout
        Dropout probability of attention weights in training. The paper states 0.5; its code ignored
        it for k-MIP.
    backend
        Search backend: ``"auto"``, a name from :func:`kmip_data.models.search.topk.backend_status`,
        or ``"reference"``, as in :func:`kmip_attention`.
    legacy_padding
        Reproduce the published code: graphs are zero-padded to the largest of the batch, and queries
        attend to padding as to any node (its key and value are the biases). If k exceeds that size,
        the first key is repeated. A graph's result then depends on its batch.
    gate
        ``"output"``: multiply each head's output by a learned number
        (:class:`~kmip_data.models.attention.gate.HeadGate`).

    Attributes
    ----------
    training_k
        Keys per query in training; None: ``k``. It may be changed each epoch.

    Examples
    --------
    >>> import torch
    >>> from kmip_data.models import KMIPAttention
    >>> attention = KMIPAttention(8, heads=2, key_dim=4, k=3)
    >>> attention(torch.randn(7, 8), [0, 3, 7]).shape  # two graphs, of three nodes and of four
    torch.Size([7, 8])
    """

    @answer_unknown_keywords(
        **dict.fromkeys(["channels", "embed_dim", "in_channels", "hidden_dim"], "dim=…"),
        **dict.fromkeys(["num_heads", "nhead"], "heads=…"),
        head_dim="key_dim=… and value_dim=…",
    )
    def __init__(  # noqa: PLR0913 -- options, by keyword
        self,
        dim: int,
        heads: int,
        k: int,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        output_projection: bool = False,
        dropout: float = 0.0,
        backend: str = "auto",
        legacy_padding: bool = False,
        gate: Gate = "none",
    ) -> None:
        super().__init__()
        problem.check_k(k)
        require_known_backend(backend)
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
        self.gate = build_gate(gate, dim, heads)

    def reset_parameters(self) -> None:
        """Redraw the weights in the order of the constructor."""
        for layer in self.children():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    _reset_parameters = reset_parameters  #: name that PyG's layers call

    def forward(
        self,
        x: Tensor,
        ptr: BatchOrPointers = None,
        *,
        batch: Tensor | None = None,
    ) -> Tensor:
        """Attend within each graph: (N, dim) → (N, dim).

        Parameters
        ----------
        x
            Nodes (N, dim), or padded graphs (G, W, dim), as in ``torch_geometric.nn.attention``;
            padding is skipped and returned as zeros.
        ptr
            (G + 1) pointers: graph g has the rows ``ptr[g]:ptr[g + 1]``; or a
            :class:`~kmip_data.models.layers.batch.GraphBatch`; None: one graph. For padded graphs,
            a bool mask (G, W) of their nodes; None: all. Another tensor of N integers is read as
            ``batch``, as in PyG's ``layer(x, batch)``.
        batch
            (N,) sorted graph indices of the nodes, instead of ``ptr``.

        Raises
        ------
        UsageError
            Nodes, pointers, mask or graph indices do not fit.
        """
        padded = isinstance(x, Tensor) and x.ndim == 3 and not x.is_nested
        if batch is not None and (padded or ptr is not None):
            raise UsageError(
                "batch came with ptr, or with padded graphs.", steps="pass (N, dim) and one of them"
            )
        if padded:
            return self._attend_padded(x, ptr)

        # 1. Read the pointers, or take the pointers of a batch, which are already checked.
        x = problem.check_nodes(x, self.query.weight)
        ptr = _parse_pointers(x, ptr, batch)
        if isinstance(ptr, GraphBatch):
            ptr = ptr.ptr

        # 2. Keys are the nodes and, with legacy padding, zero rows after each graph's nodes.
        rows = x
        key_ptr: Pointers = ptr
        if self.legacy_padding:
            rows, key_ptr = _pad_to_longest(x, ptr)

        k = self.k
        if self.training and self.training_k is not None:
            k = self.training_k

        # 3. Search and attend.
        queries, keys, values = self.project(x, rows)
        attended = kmip_attention_with_weights(
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
        return self.output(apply_gate(self.gate, x, joined_heads))  # type: ignore[no-any-return]

    def _attend_padded(self, x: Tensor, mask: BatchOrPointers) -> Tensor:
        """Attend within padded graphs (G, W, dim), returning zeros for padding."""
        if mask is None:
            mask = x.new_ones(x.shape[:2], dtype=torch.bool)
        expected = f"bool {tuple(x.shape[:2])}, one for each row of x"
        mask = problem.check_strided("mask", mask, expected, meta=True)
        if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
            raise UsageError(f"mask is {mask.dtype} {tuple(mask.shape)}, not {expected}.")
        rows: Tensor = self(x[mask], pointers_from_mask(mask))
        return rows.new_zeros(*mask.shape, rows.shape[1]).index_put((mask,), rows)

    def project(self, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Project ``x`` to queries (H, N, d), and ``rows`` or ``x`` to keys (H, M, d) and values (H, M, v)."""
        if rows is None:
            rows = x
        by_head = (self.heads, -1)
        return (
            self.query(x).unflatten(1, by_head).transpose(0, 1),
            self.key(rows).unflatten(1, by_head).transpose(0, 1),
            self.value(rows).unflatten(1, by_head).transpose(0, 1),
        )

    def extra_repr(self) -> str:
        """Describe the options that no submodule shows."""
        dim = self.query.in_features
        return f"{dim}, heads={self.heads}, k={self.k}, backend={self.backend!r}"


def pointers_from_mask(mask: Tensor) -> Tensor:
    """Return pointers (G + 1), on the CPU, to the rows of each graph that a mask (G, W) selects."""
    ends = mask.sum(1).cumsum(0)
    return nn.functional.pad(ends, (1, 0)).cpu()


def _parse_pointers(x: Tensor, ptr: BatchOrPointers, batch: Tensor | None) -> BatchOrPointers:
    """Return pointers from ``batch``, or from a ``ptr`` that may be a batch vector of N integers."""
    if batch is not None:
        numbers = problem.check_strided(
            "batch", batch, "a tensor of graph numbers, one for each node"
        )
        return pointers_from_graph_index(numbers, len(x), allow_pointers=False)  # type: ignore[no-any-return]
    if not isinstance(ptr, Tensor) or ptr.ndim != 1 or ptr.dtype not in {torch.int32, torch.int64}:
        return ptr
    if ptr.device.type == "meta" or not guard_or_false(len(ptr) == len(x)):
        return ptr
    return pointers_from_graph_index(ptr, len(x), allow_pointers=True)  # type: ignore[no-any-return]


def set_training_k(model: nn.Module, k: int | None) -> None:
    """Set the keys per query in training for every :class:`KMIPAttention`; None: ``k``."""
    for module in model.modules():
        if isinstance(module, KMIPAttention):
            module.training_k = k


@torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
def _pad_to_longest(x: Tensor, ptr: Pointers) -> tuple[Tensor, list[int]]:
    """Zero-pad each graph to the longest; return the rows and new pointers."""
    checked = problem.parse_pointers("ptr", ptr, x.shape[0])
    rows, starts = keep_alive_for_capture(_padded_positions(checked, x.device))
    zeros = x.new_zeros(starts[-1], x.shape[1])
    return zeros.index_copy(0, rows, x), starts


@functools.lru_cache(8)  # one entry serves all layers of a batch
@torch.inference_mode(False)  # the cached tensors are also used in training
def _padded_positions(ptr: tuple[int, ...], device: torch.device) -> tuple[Tensor, list[int]]:
    """Return the position of each node among padded graphs, and their pointers."""
    starts = torch.tensor(ptr)
    counts = starts.diff()
    longest = int(counts.max()) if len(counts) else 0
    offset = torch.arange(len(counts)) * longest - starts[:-1]
    rows = torch.arange(ptr[-1]) + offset.repeat_interleave(counts)
    return rows.to(device), [longest * g for g in range(len(counts) + 1)]
