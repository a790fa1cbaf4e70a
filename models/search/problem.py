"""Checked search problems, the input of every backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from kmip_data.arrays import I64, Array
from kmip_data.errors import OutOfResources, UsageError
from kmip_data.runtime import reused_buffers


class NotFinite(UsageError):
    """Queries or keys contain NaN or infinity, or their inner products overflow."""


_DIVERGED_REMEDY = (
    "look for a diverged training step (lower the learning rate, clip gradients) or damaged input"
)
#: Dtypes of queries, keys and values.
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class SearchProblem:
    """Checked queries, keys and graph pointers, in float32 or float64.

    Queries and keys are contiguous, on one device and without gradient. Half precision is widened,
    which is exact. On CUDA, they may not be finite until :func:`check_finite` is called.
    """

    queries: Tensor  #: (H, N, d)
    keys: Tensor  #: (H, M, d)
    k: int  #: keys per query, at least 1; may exceed the size of a graph
    query_ptr: tuple[int, ...]  #: (G + 1) graph g has the queries ``query_ptr[g]:query_ptr[g + 1]``
    key_ptr: tuple[int, ...]  #: (G + 1) graph g has the keys ``key_ptr[g]:key_ptr[g + 1]``
    has_int32_indices: bool = False  #: return int32 instead of int64 indices

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return self.queries.shape[0]

    @property
    def dim(self) -> int:
        """Channels d of a query or key."""
        return self.queries.shape[2]

    @property
    def device(self) -> torch.device:
        """Device of the queries and keys."""
        return self.queries.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of operands and scores, ``float32`` or ``float64``."""
        return self.queries.dtype

    @cached_property
    def query_rows(self) -> I64:
        """Start and stop of each graph's query rows, (G, 2)."""
        return row_ranges(self.query_ptr)

    @cached_property
    def key_rows(self) -> I64:
        """Start and stop of each graph's key rows, (G, 2)."""
        return row_ranges(self.key_ptr)

    def new_result(self, index_dtype: torch.dtype = torch.int64) -> tuple[Tensor, Tensor]:
        """Allocate scores (H, N, k) and indices (H, N, k).

        If a graph has fewer than k keys, all entries start as −inf and −1; else they are
        uninitialised, and the backend must write all of them.
        """
        shape = (*self.queries.shape[:2], self.k)
        if self.device.type == "cpu":  # reuse memory: allocation takes longer than many searches
            float_type = np.dtype(f"f{self.dtype.itemsize}")
            index_type = np.dtype(f"i{index_dtype.itemsize}")
            scores = torch.from_numpy(reused_buffers.reused_array(shape, float_type))
            indices = torch.from_numpy(reused_buffers.reused_array(shape, index_type))
        else:
            scores = torch.empty(shape, dtype=self.dtype, device=self.device)
            indices = torch.empty(shape, dtype=index_dtype, device=self.device)
        sizes = self.key_rows[:, 1] - self.key_rows[:, 0]
        if sizes.min(initial=self.k) < self.k:
            scores.fill_(-torch.inf)
            indices.fill_(-1)
        return scores, indices


def row_ranges(ptr: Sequence[int] | I64) -> I64:
    """Convert pointers (G + 1) to the start and stop of each graph's rows, (G, 2)."""
    starts = np.asarray(ptr, np.int64)
    return np.column_stack([starts[:-1], starts[1:]])


def check_k(k: int) -> None:
    """Raise ``UsageError`` unless ``k`` is a positive integer."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise UsageError(f"k must be an integer of at least 1, not {k!r}.")


def make_problem(
    queries: Tensor,
    keys: Tensor,
    k: int,
    query_ptr: Tensor | Sequence[int] | None = None,
    key_ptr: Tensor | Sequence[int] | None = None,
    *,
    has_int32_indices: bool = False,
) -> SearchProblem:
    """Return the problem of queries (H, N, d), keys (H, M, d) and pointers (G + 1), or raise ``UsageError``."""
    queries = check_rows("queries", queries)
    keys = check_rows("keys", keys)
    same_type = queries.dtype == keys.dtype and queries.device == keys.device
    same_shape = queries.shape[0] == keys.shape[0] and queries.shape[2] == keys.shape[2]
    if not same_type or not same_shape:
        raise UsageError(
            "queries and keys differ in dtype, device, heads or row length:"
            f" {_describe_tensor(queries)} and {_describe_tensor(keys)}."
        )
    check_k(k)

    # 1. Check the pointers.
    rows = queries.shape[1]
    key_rows = keys.shape[1]
    if key_ptr is None and query_ptr is not None and rows == key_rows:
        key_ptr = query_ptr
    starts = parse_pointers("query_ptr", query_ptr, rows)
    shared = key_ptr is query_ptr and rows == key_rows
    key_starts = starts if shared else parse_pointers("key_ptr", key_ptr, key_rows)
    if len(starts) != len(key_starts):
        raise UsageError(
            "query_ptr and key_ptr split into different numbers of graphs:"
            f" they have length {len(starts)} and length {len(key_starts)}."
        )

    # 2. Check the values, and widen half precision. On a GPU, the host would have to wait for the
    # check: see ``topk.search_checked``.
    if queries.device.type != "cuda":
        check_finite(queries, keys)
    dtype = torch.promote_types(queries.dtype, torch.float32)
    queries = queries.detach().to(dtype).contiguous()
    keys = keys.detach().to(dtype).contiguous()
    return SearchProblem(queries, keys, k, starts, key_starts, has_int32_indices)


def parse_pointers(name: str, ptr: Tensor | Sequence[int] | None, rows: int) -> tuple[int, ...]:
    """Return pointers (G + 1) as a tuple, after checking that they ascend from 0 to ``rows``."""
    if ptr is None:
        return (0, rows)
    starts = _pointer_array(name, ptr)
    if len(starts) < 1 or starts[0] != 0 or starts[-1] != rows:
        ends = f"{starts[0]} … {starts[-1]}" if len(starts) else "no entries"
        raise UsageError(
            f"{name} must begin with 0 and end with the number of rows, {rows}; it is {ends}."
        )
    falls = np.flatnonzero(starts[1:] < starts[:-1])
    if len(falls):
        graph = int(falls[0])
        raise UsageError(
            f"{name} decreases: {name}[{graph}] = {starts[graph]},"
            f" {name}[{graph + 1}] = {starts[graph + 1]}."
        )
    return tuple(starts.tolist())


def search_memory_error(problem: SearchProblem, error: BaseException) -> OutOfResources:
    """Return an error that states the size of the result and ways to need less memory."""
    rows = problem.queries.shape[1]
    keys = problem.keys.shape[1]
    result = problem.heads * rows * problem.k * (problem.dtype.itemsize + 8) / 2**30
    return OutOfResources(
        f"Memory ran out in the k-MIP search of {problem.heads} heads, {rows:,} queries, {keys:,} keys, d ="
        f" {problem.dim}, k = {problem.k}: the result alone takes {result:.3g} GiB.",
        found=str(error).splitlines()[0].rpartition("DefaultCPUAllocator: ")[2] or "MemoryError",
        steps="use a smaller k, fewer heads or fewer graphs per batch; on a GPU, the search 'dense'"
        " works in tiles of bounded memory",
    )


def check_strided(
    name: str,
    value: object,
    expected: str = "a torch.Tensor",
    *,
    meta: bool = False,
) -> Tensor:
    """Return ``value`` if it is a strided tensor, with lazy negation and conjugation resolved.

    Raises :class:`UsageError` for other objects, for sparse, nested and quantised tensors, and for
    tensors on the meta device unless ``meta``.
    """
    if not isinstance(value, Tensor):
        description = type(value).__name__
    elif value.is_nested:
        description = "a nested tensor"
    elif value.is_quantized or value.layout != torch.strided:
        description = f"{value.dtype} in the layout {value.layout}"
    elif value.device.type == "meta" and not meta:
        description = "a tensor on the meta device, which has no values"
    elif torch.compiler.is_compiling():
        return value
    else:
        return value.resolve_conj().resolve_neg()
    raise UsageError(f"{name} is not a dense tensor, {expected}, but {description}.")


def _pointer_array(name: str, ptr: Tensor | Sequence[int]) -> Array:
    expected = "a one-dimensional integer tensor, or a list, of G + 1 row numbers"
    if isinstance(ptr, Tensor):
        ptr = check_strided(name, ptr, expected).detach().cpu()
        if ptr.is_floating_point():
            ptr = ptr.float()  # NumPy has no bfloat16
    try:
        starts = np.asarray(ptr)
    except (ValueError, TypeError, OverflowError):  # for example a list of unequal lists
        starts = np.empty((0, 0))
    if starts.ndim != 1 or (len(starts) and starts.dtype.kind not in "iu"):
        raise UsageError(f"{name} is not {expected}, but has shape {starts.shape}, {starts.dtype}.")
    return starts


def _describe_tensor(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)}, {tensor.dtype} on {tensor.device}"


def check_rows(name: str, rows: Tensor, *, meta: bool = False) -> Tensor:
    """Return ``rows`` if they are queries or keys (H, R, d), or raise :class:`UsageError`."""
    rows = check_strided(name, rows, meta=meta)
    if rows.ndim != 3 or rows.shape[0] < 1 or rows.shape[2] < 1 or rows.dtype not in FLOATS:
        expected = "(heads, rows, d), heads and d at least 1, float16, bfloat16, float32 or float64"
        raise UsageError(f"{name} are {_describe_tensor(rows)}, not {expected}.")
    return rows


def check_nodes(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x`` if it is (N, c) and fits ``weight`` (…, c), or raise :class:`UsageError`."""
    expected = f"(N, {weight.shape[1]}), {weight.dtype} on {weight.device}"
    x = check_strided("x", x, expected, meta=weight.device.type == "meta")
    fits = (
        x.ndim == 2
        and x.shape[1] == weight.shape[1]
        and x.device == weight.device
        and x.dtype in FLOATS
    )
    if not fits or (x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type)):
        raise UsageError(
            f"The nodes x do not fit the layer: they are {_describe_tensor(x)}, not {expected}."
        )
    return x


def check_heads(dim: int, heads: int) -> None:
    """Raise ``UsageError`` unless the heads divide the channels."""
    if dim < 1 or heads < 1 or dim % heads:
        raise UsageError(f"dim cannot be split among the heads: dim = {dim}, heads = {heads}.")


def check_finite(queries: Tensor, keys: Tensor) -> None:
    """Raise if queries (H, N, d) or keys (H, M, d) contain NaN or infinity; waits for the device."""
    operands = {"queries": queries}
    if keys is not queries:
        operands["keys"] = keys
    for name, rows in operands.items():
        # One pass: a sum is finite only if all values are. An overflowing sum proves nothing.
        if math.isfinite(_sum_values(rows.detach())):
            continue
        positions = (~torch.isfinite(rows)).nonzero()
        if len(positions):
            first = positions[0].tolist()
            raise NotFinite(
                f"{name} are not all finite and cannot be ranked: {float(rows[*first])} at {first} and"
                f" {len(positions) - 1} more.",
                steps=_DIVERGED_REMEDY,
            )


def overflow_error(dtype: torch.dtype) -> NotFinite:
    """Return the error for finite queries and keys whose inner products overflow."""
    dtype_name = str(dtype).removeprefix("torch.")
    return NotFinite(
        f"Inner products of queries and keys overflow {dtype_name}.", steps=_DIVERGED_REMEDY
    )


def check_largest_scores(scores: Tensor, indices: Tensor) -> None:
    """Raise if the largest of a query's scores overflowed, so that the softmax is undefined.

    Scores (H, N, k) descend. An overflow to −inf below a finite score gives the correct weight, 0.
    """
    largest = scores[..., 0]
    if math.isfinite(_sum_values(largest)):
        return
    overflowed = ~torch.isfinite(largest) & (indices[..., 0] >= 0)
    if bool(overflowed.any()):
        raise overflow_error(scores.dtype)


def _sum_values(rows: Tensor) -> float:
    """Sum all values in at least float32.

    On the CPU, NumPy does: torch's threads would spin for 9 ms on cores that the search needs
    (2,526 nodes, d = 64: 9.8 and 6 ms).
    """
    dtype = torch.promote_types(rows.dtype, torch.float32)
    if rows.device.type == "cpu" and rows.dtype == dtype:
        with np.errstate(all="ignore"):
            return float(rows.numpy().sum())
    return float(rows.sum(dtype=dtype))
