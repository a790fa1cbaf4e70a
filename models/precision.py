"""Precision of a forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def float32_product_precision(precision: str) -> Iterator[None]:
    """Allow TF32 in float32 matrix products inside the block if ``precision`` is ``tf32``."""
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else previous)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(previous)


@contextmanager
def autocast(precision: str, device: str, *, cache_casts: bool = True) -> Iterator[None]:
    """Run a forward pass in ``precision`` inside the block.

    Training sets ``cache_casts=False``, so that a weight's gradients accumulate in float32.
    """
    dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    is_mixed = precision.endswith("mixed")
    half = torch.autocast(device, dtype, enabled=is_mixed, cache_enabled=cache_casts)
    with float32_product_precision(precision), half:
        yield
