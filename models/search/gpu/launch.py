"""From a checked problem to launched kernels, without waiting for the device."""

from __future__ import annotations

import functools
from typing import Protocol

import torch
from torch import Tensor

from kmip_data.models.search.gpu.plan import NUMBERS, POINTERS, Launch, Program, plan_of
from kmip_data.models.search.problem import NotFinite, SearchProblem


class Driver(Protocol):
    """What runs kernels: :class:`~kmip_data.models.search.gpu.card.Card`, or their emulation in tests."""

    processors: int
    tensor_cores: int  #: as ``TENSOR_CORES`` of the kernels

    def launch(self, program: Program, launch: Launch, search: list[int]) -> None:
        """Run one kernel; ``search`` holds the members of ``struct Search``."""


def run(problem: SearchProblem, driver: Driver) -> tuple[Tensor, Tensor]:
    """Scores (H, N, k) and indices (H, N, k) by the rule; nothing here waits for the device.

    NaN or infinity is found by the kernels and raised by the next search on that device, as
    :class:`~kmip_data.models.search.problem.NotFinite`: asking now would make the host wait.
    """
    not_finite = _flag(problem.device)
    if not_finite.item():
        not_finite.zero_()
        raise NotFinite(
            "queries or keys of an earlier search hold a value that cannot be ranked",
            expected="finite numbers",
            found=f"NaN or infinity on {problem.device}, found while that search ran",
            next="look for a diverged training step (lower the learning rate, clip gradients) or damaged"
            " input; --set model.attention.search=dense names the place",
        )
    scores, indices = problem.new_result()
    if not problem.queries.shape[1] or not problem.keys.shape[1]:
        return scores, indices
    queries, keys = _aligned(problem.queries), _aligned(problem.keys)
    plan = plan_of(problem, driver.processors, driver.tensor_cores)
    if problem.keep is not None:
        problem.keep.append(plan)
    scratch = torch.empty(plan.scratch_bytes, dtype=torch.uint8, device=problem.device)
    members = {name: scratch.data_ptr() + place for name, place in plan.scratch_starts.items()}
    members |= {name: plan.tables.data_ptr() + place for name, place in plan.table_starts.items()}
    members |= {
        "queries": queries.data_ptr(),
        "keys": keys.data_ptr(),
        "hint": 0 if problem.hint is None else problem.hint.data_ptr(),
        "starts": 0 if problem.starts is None else problem.starts.data_ptr(),
        "not_finite": not_finite.data_ptr(),
        "scores": scores.data_ptr(),
        "indices": indices.data_ptr(),
        **plan.numbers,
    }
    search = [members.get(name, 0) for name in (*POINTERS, *NUMBERS)]
    for launch in plan.launches:
        driver.launch(plan.program, launch, search)
    return scores, indices


def forget_not_finite(device: torch.device) -> None:
    """Leave untold what earlier searches found: the run that they were of has ended."""
    _flag(device).zero_()


def _aligned(rows: Tensor) -> Tensor:
    """Rows that begin where two numbers can be read at once; a view may begin anywhere."""
    return rows.clone() if rows.data_ptr() % 8 else rows


@functools.cache
@torch.inference_mode(False)  # the host may write to it in training, too
def _flag(device: torch.device) -> Tensor:
    """One int32 that kernels of a device write to and the host reads: pinned, so both see the same memory."""
    return torch.zeros(1, dtype=torch.int32, pin_memory=device.type == "cuda")
