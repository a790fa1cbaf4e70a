"""Brute-force search in compiled code, all cores, no scratch to speak of; CPU only."""

from __future__ import annotations

import importlib.util

import numpy as np
import torch
from torch import Tensor

from kmip_data.models.search.problem import SearchProblem
from kmip_data.threads import for_ranges

NAME = "cpu"
SUMMARY = "compiled brute force with exact ranking (numba)"
AUTO = "auto takes it on the CPU up to d = 24"

_WIDEST = 24  # d above which matrix products win (measured: docs/adr/0050)
_PAIRS_A_RANGE = 100_000  # fewer are not worth handing to a thread


def unusable(device_type: str) -> str | None:
    """Why it cannot run on this kind of device."""
    if device_type != "cpu":
        return f"runs on the CPU only, not on {device_type}"
    return None if importlib.util.find_spec("numba") else "numba is not installed"


def refuses(problem: SearchProblem) -> str | None:
    """Why it cannot take this problem."""
    return None if problem.dtype == torch.float32 else f"takes float32, not {problem.dtype}"


def rank(problem: SearchProblem) -> int:
    """Order of choice for ``auto``."""
    return 10 if problem.dim <= _WIDEST else 0


def search(problem: SearchProblem) -> tuple[Tensor, Tensor]:
    """Scores (H, N, k) and indices (H, N, k) by the rule."""
    from kmip_data.models.search.cpu_kernel import search_rows

    scores, indices = problem.new_result()
    arrays = [tensor.numpy() for tensor in (problem.queries, problem.keys, scores, indices)]
    queries, keys, best, which = arrays
    query_ptr = np.array(problem.query_ptr, np.int64)
    key_ptr = np.array(problem.key_ptr, np.int64)
    largest = int(np.diff(key_ptr).max(initial=0))

    def rows(start: int, stop: int) -> None:
        search_rows(queries, keys, query_ptr, key_ptr, problem.k, start, stop, best, which)

    for_ranges(rows, queries.shape[0] * queries.shape[1], grain=max(1, _PAIRS_A_RANGE // max(1, largest)))
    return scores, indices
