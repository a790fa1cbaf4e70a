"""Precision of a run, and records of a forward pass, which the batch carries from network to layers."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack

T = TypeVar("T")
Searched = tuple[Tensor, Tensor]  #: scores and indices of a search, (H, N, k) each


@dataclass(frozen=True, eq=False)
class ForwardContext:
    """Records of one forward pass; the default has none."""

    #: Receives the tensors and plans that a recorded CUDA graph reads: it knows addresses only. The
    #: recorded batch brings it. A search then runs outside of its operator, which carries no context.
    keep: list[Any] | None = None
    #: Receives results of searches: first pass of a recomputed layer.
    record: list[Searched] | None = None
    #: Results of searches, instead of searching: second pass of a recomputed layer, with the same
    #: queries and keys. Batch norms then leave their running statistics alone.
    replay: Iterator[Searched] | None = None

    @property
    def repeated(self) -> bool:
        """True in the second pass of a recomputed layer."""
        return self.replay is not None

    def kept(self, plan: T) -> T:
        """Return ``plan``, which a cache may drop, and keep it alive on request."""
        if self.keep is not None:
            self.keep.append(plan)
        return plan

    def searched(self, search: Callable[[], Searched]) -> Searched:
        """Return the result of a search: the one of the first pass, or that of ``search()``."""
        if self.replay is not None:
            return next(self.replay)
        result = search()
        if self.record is not None:
            self.record.append(result)
        return result


PLAIN = ForwardContext()


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """Let PyTorch's float32 matrix products use TF32 inside the block if ``precision`` is ``tf32``."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def autocast(precision: str, device: str, *, cached: bool = True) -> Iterator[None]:
    """Context in which a forward pass runs in ``precision``.

    Training is not ``cached``: without kept casts each use of a weight adds its gradient in
    float32.
    """
    dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    half = torch.autocast(device, dtype, enabled=precision.endswith("mixed"), cache_enabled=cached)
    with float32_products(precision), half:
        yield


#: Parts of the GPU's code that failed the self-check of this device, and why: slower ways take
#: their places. They are ``search``, ``attention``, ``edges`` and ``capture``.
LEFT_OUT: dict[str, str] = {}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
@functools.cache
def triton_runs(device: torch.device) -> bool:
    """Return True if Triton compiles for the device; its launchers need a C compiler."""
    return (
        device.type == "cuda"
        and importlib.util.find_spec("triton") is not None
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))
    )


def takes_passes(*tensors: Tensor) -> bool:
    """True if functions of compiled passes take the tensors: float32 on a CPU.

    torch.compile cannot trace them, and torch.func not differentiate them.
    """
    if torch.compiler.is_compiling() or peek_interpreter_stack() is not None:
        return False
    return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)


def kernels_run(part: str, device: torch.device) -> bool:
    """Return True if a part's Triton kernels compile for the device and passed its self-check."""
    return part not in LEFT_OUT and triton_runs(device)
