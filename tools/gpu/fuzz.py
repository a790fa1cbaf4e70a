"""Random searches with unusual numbers and shapes, compared with the backend ``dense``.

``tests/models/search`` uses them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from kmip_data.errors import UsageError
from kmip_data.models.search import topk_inner_product
from kmip_data.models.search.problem import SearchProblem, make_problem

KINDS = ("coarse", "near one", "extreme", "any bits", "mixed")
EXTREMES = [0.0, -0.0, 2.0**-149, -(2.0**-149), 1e-30, -1e-30, 1e19, -1e19, 3e38, -3e38]
FAMILIES = ("normal", "tight", "mixed scale", "shifted", "duplicates", "denormal", *KINDS)
Search = Callable[[SearchProblem], tuple[torch.Tensor, torch.Tensor]]


def problems(
    seed: int, device: torch.device, *, most: int, dims: tuple[int, ...]
) -> Iterator[tuple[str, SearchProblem]]:
    """Yield descriptions and searches without end: graphs with up to ``most`` keys, or none."""
    rng = np.random.default_rng(seed)
    while True:
        dim, k = int(rng.choice(dims)), int(rng.choice([1, 2, 5, 10, 15, 24]))
        heads, graphs = int(rng.choice([1, 2, 8])), int(rng.integers(1, 5))
        sizes = [0, 1, 2, k, k + 1, 17, 64, 65, most // 2, most]
        queries = np.cumsum([0, *rng.integers(0, 30, graphs)]).tolist()
        keys = np.cumsum([0, *rng.choice(sizes, graphs)]).tolist()
        family = str(rng.choice(FAMILIES))
        rows = [rows_of(family, rng, (heads, ptr[-1], dim)) for ptr in (queries, keys)]
        if rng.random() < 0.2:
            rows[0] *= np.float32(rng.choice([0.0, -0.0]))
        tensors = [torch.from_numpy(np.ascontiguousarray(row)).to(device) for row in rows]
        name = f"d {dim}, k {k}, {heads} heads, {queries}, {keys}, {family}"
        try:
            yield name, make_problem(*tensors, k, queries, keys)
        except UsageError:  # numbers that every search refuses
            continue


def rows_of(family: str, rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Draw rows of a family: ties, tiny differences, very different scales, denormals."""
    if family in KINDS:
        return numbers(family, rng, shape)
    drawn = rng.standard_normal(shape)
    if family == "tight":
        drawn = 1 + drawn * 1e-6
    elif family == "mixed scale":
        drawn *= 10.0 ** rng.uniform(-30, 30, (*shape[:-1], 1))
    elif family == "shifted":
        drawn += 10.0 ** rng.integers(-3, 9)
    elif family == "duplicates" and shape[1]:
        drawn = drawn[:, rng.integers(0, max(1, shape[1] // 6), shape[1])]
    elif family == "denormal":
        drawn *= 2.0**-140
    return drawn.astype(np.float32)


def numbers(kind: str, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw float32 numbers of one kind: with many ties and near ties, or extreme for arithmetic."""
    if kind == "coarse":
        return (generator.integers(-4, 5, shape) / 4).astype(np.float32)
    if kind == "near one":
        return (1 + generator.integers(0, 4, shape) * 2.0**-23).astype(np.float32)
    if kind == "extreme":
        return generator.choice(np.array(EXTREMES, np.float32), shape)
    if kind == "any bits":
        bits = generator.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
        return np.where(np.isfinite(bits), bits, np.float32(0.5))
    mixed = (numbers(of, generator, shape) for of in ("coarse", "extreme"))
    return np.where(generator.random(shape) < 0.5, *mixed)


def differs(problem: SearchProblem, search: Search) -> bool:
    """Return True if a search does not return the bits of ``dense``."""
    result = search(problem)
    options = {"query_ptr": problem.query_ptr, "key_ptr": problem.key_ptr, "backend": "dense"}
    expected = topk_inner_product(problem.queries, problem.keys, problem.k, **options)
    bits = (scores.contiguous().view(torch.int32) for scores, _ in (result, expected))
    return not (torch.equal(result[1], expected[1]) and torch.equal(*bits))
