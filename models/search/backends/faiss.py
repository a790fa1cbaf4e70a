"""Search with FAISS' exact flat index, head by head and graph by graph: to compare with, CPU only.

FAISS ranks float32 sums and knows nothing of the rule: it is asked for a few more keys than wanted, and
what its bound does not prove is scored whole.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from kmip_data.models.search.cpu.filtering import search_by_graph
from kmip_data.models.search.problem import SearchProblem
from kmip_data.runtime.presence import install_command

NAME = "faiss"
SUMMARY = "FAISS IndexFlatIP with exact ranking (faiss-cpu)"
AUTO = "only by name"
RANK: dict[str, int] = {}


def unusable(device_type: str) -> str | None:
    """Why it cannot run on this kind of device."""
    if device_type != "cpu":
        return f"runs on the CPU only, not on {device_type}"
    if importlib.util.find_spec("faiss"):
        return None
    return f"faiss is not installed: {install_command('faiss')}"


def refuses(problem: SearchProblem) -> str | None:
    """Why it cannot take this problem."""
    return None if problem.dtype == torch.float32 else f"takes float32, not {problem.dtype}"


def search(problem: SearchProblem) -> tuple[Tensor, Tensor]:
    """Scores (H, N, k) and indices (H, N, k) by the rule."""
    return search_by_graph(problem, _flat_index)


def _flat_index(queries: Tensor, keys: Tensor, count: int) -> Tensor:
    """(H, N, count) rows of ``keys`` with the largest float32 inner products; −1 where FAISS ranks none."""
    import faiss

    found = torch.empty((*queries.shape[:2], count), dtype=torch.int64)
    for head in range(queries.shape[0]):
        index = faiss.IndexFlatIP(queries.shape[2])
        index.add(keys[head].numpy())
        found[head] = torch.from_numpy(index.search(queries[head].numpy(), count)[1])
    return found
