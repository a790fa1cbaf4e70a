"""From a checked problem to launched kernels: order, pack, search; on a GPU or in the interpreter."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmip_data.models.search.gpu.ordering import centres_of, order_rows
from kmip_data.models.search.gpu.packing import pack_keys, pack_queries
from kmip_data.models.search.gpu.searching import search_tiles
from kmip_data.models.search.gpu.tiling import ORDERED_FROM, TileSizes, shape_for, tables_for
from kmip_data.models.search.problem import SearchProblem

# Sums and products of the kernels are not contracted: what the interpreter computes is what a GPU does.
OPTIONS: dict[str, Any] = {"enable_fp_fusion": False}
#: Compile-time arguments of both packing kernels.
PACKING: dict[str, Any] = {"CHUNK": 16, "num_warps": 4, **OPTIONS}
_PROGRAMS_A_PROCESSOR = 8  # more than fit at a time cost only scratch


def slack_of(width: int) -> float:
    """Bound on the error of a TF32 product of padded width D, relative to the norms of its operands.

    Operands are rounded to 11 significant bits (2⁻¹¹ + 2⁻²³ each), products are exact in float32,
    and tensor cores sum "with at least single precision" (PTX ISA), here taken as 2⁻²² a term.
    """
    return 1.01 * (2.0**-10 + 2.0**-20 + (width + 8) * 2.0**-22)


def fits_range(problem: SearchProblem) -> bool:
    """Whether no score, and no sum of rows, can leave the float32 range; else it is the dense backend's."""
    if not problem.queries.numel() or not problem.keys.numel():
        return True
    query, key = (rows.abs().amax().double() for rows in (problem.queries, problem.keys))
    return bool((query * key * problem.dim < 1e38) & (torch.maximum(query, key) < 1e30))


def run(problem: SearchProblem, values: Tensor | None = None, scale: float = 0.0) -> tuple[Tensor, ...]:
    """Search; scores and indices (H, N, k), or with ``values`` the attention's output (H, N, v) alone.

    ``values`` are (H, M, v), contiguous; ``scale`` is the factor of the scores in the softmax.
    """
    device = problem.device
    guard = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    with guard, torch.no_grad(), torch.autocast(device.type, enabled=False):
        return _run(problem, values, scale)


# Long: one launch after the other, each with the sizes of the one before.
def _run(problem: SearchProblem, values: Tensor | None, scale: float) -> tuple[Tensor, ...]:
    heads, count, dim = problem.queries.shape
    keys, device = problem.keys.shape[1], problem.device
    most_queries = int(np.diff(problem.query_ptr).max(initial=0))
    most_keys = int(np.diff(problem.key_ptr).max(initial=0))
    width = 0 if values is None else values.shape[2]
    shape = shape_for(dim, problem.k, most_queries, most_keys, width)
    tables = tables_for(problem, shape)

    def new(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    fused = values is not None
    if values is None:
        scores, indices = new(heads, count, problem.k), new(heads, count, problem.k, dtype=torch.int64)
        result: tuple[Tensor, ...] = (scores, indices)
        values = output = scores
    else:
        output = new(heads, count, width, dtype=values.dtype)
        result = (output,)
        scores, indices = new(1), new(1, dtype=torch.int64)
    query_tiles, key_tiles = len(tables.query_tiles), len(tables.key_tiles)
    if not query_tiles:
        return result

    ordered = most_keys >= ORDERED_FROM
    query_ptr, key_ptr = (torch.tensor(ptr, device=device) for ptr in (problem.query_ptr, problem.key_ptr))
    graphs = len(problem.key_ptr) - 1
    centres = centres_of(problem.keys, key_ptr, most_keys)
    key_order = query_order = new(1, dtype=torch.int32)
    if ordered:
        # Directions are ordered within one group of tiles, so that norms fall from group to group.
        group = _spans(shape.BT * shape.BN, shape.BN)
        key_order = order_rows(problem.keys, key_ptr, group, centres, by_norm=True)
        query_order = order_rows(
            problem.queries, query_ptr, _spans(most_queries, shape.BM), None, by_norm=False
        )
    key_scale = _key_scale(problem.keys)

    packing = {"D": shape.D, "ORDERED": ordered, **PACKING}
    packed_keys = new(heads * key_tiles * shape.BN, shape.D)
    key_rows = new(heads * key_tiles * shape.BN, dtype=torch.int32)
    axes = torch.zeros((heads * key_tiles + shape.BT, shape.D), device=device)  # a group reads past the last
    bounds = new(3, heads, key_tiles)
    if key_tiles:
        pack_keys[(key_tiles, heads)](
            problem.keys, key_order, _on(tables.key_tiles, device), centres, key_scale,
            packed_keys, key_rows, axes, bounds, keys, key_tiles, graphs, dim, BN=shape.BN, **packing,
        )  # fmt: skip
    packed_queries = new(heads * query_tiles * shape.BM, shape.D)
    query_rows = new(heads * query_tiles * shape.BM, dtype=torch.int32)
    norms = new(heads * query_tiles * shape.BM)
    affine = new(2, heads * query_tiles * shape.BM, dtype=torch.float64)
    pack_queries[(query_tiles, heads)](
        problem.queries, query_order, _on(tables.query_tiles, device), centres, key_scale,
        packed_queries, query_rows, norms, affine, count, query_tiles, graphs, dim, BM=shape.BM, **packing,
    )  # fmt: skip

    programs = min(heads * query_tiles, _programs(device))
    search_tiles[(programs,)](
        problem.queries, problem.keys, query_rows, packed_queries, norms, affine,
        key_rows, packed_keys, axes, bounds, _on(tables.work, device),
        torch.zeros(1, dtype=torch.int32, device=device),
        new(programs * shape.BM << shape.LOG_K2, dtype=torch.int64),
        new(programs * shape.BM << shape.LOG_C, dtype=torch.int32),
        new(programs * shape.BM, dtype=torch.int32),
        scores, indices, values, output,
        count, keys, query_tiles, key_tiles, heads, dim, problem.k, width,
        scale, slack_of(shape.D), **search_options(shape, ordered=ordered, fused=fused),
    )  # fmt: skip
    return result


def search_options(shape: TileSizes, *, ordered: bool, fused: bool) -> dict[str, Any]:
    """Compile-time arguments and options of the search kernel."""
    sizes = {name: value for name, value in vars(shape).items() if name.isupper()}
    return {**sizes, "SORTED": ordered, "FUSED": fused, "num_warps": shape.warps, "num_stages": 1, **OPTIONS}


def _spans(longest: int, tile: int) -> list[int]:
    """Halving spans from one that holds ``longest`` rows down to two tiles."""
    spans: list[int] = []
    span = 2 * tile
    while span < 2 * longest and span >= 2 * tile:
        spans.insert(0, span)
        span *= 2
    return spans


def _key_scale(keys: Tensor) -> Tensor:
    """(H,) float64 powers of two that bring |key| + |centre| to 1 at most."""
    heads, _, dim = keys.shape
    if not keys.numel():
        return torch.ones(heads, dtype=torch.float64, device=keys.device)
    largest = keys.abs().amax((1, 2)).double() * (2 * dim**0.5)
    exponent = torch.frexp(largest).exponent  # largest < 2^exponent
    # Written bit by bit: ldexp takes the power in float32, which tiny keys overflow.
    return ((1023 - exponent.long()) << 52).view(torch.float64)


def _on(table: NDArray[np.int32], device: torch.device) -> Tensor:
    return torch.from_numpy(table).to(device, non_blocking=True)


def _programs(device: torch.device) -> int:
    if device.type != "cuda":
        return 2  # the interpreter runs one after another
    return int(torch.cuda.get_device_properties(device).multi_processor_count) * _PROGRAMS_A_PROCESSOR
