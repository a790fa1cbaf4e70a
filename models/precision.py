"""Precision of a forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def float32_product_precision(precision: str) -> Iterator[None]:
    """Allow TF32 in float32 matrix products inside the block if ``precision`` is ``tf32``."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def autocast(precision: str, device: str, *, cached: bool = True) -> Iterator[None]:
    """Context in which a forward pass runs in ``precision``.

    Training is not ``cached``: without cached casts, gradients of a weight accumulate in float32.
    """
    dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    half = torch.autocast(device, dtype, enabled=precision.endswith("mixed"), cache_enabled=cached)
    with float32_product_precision(precision), half:
        yield
