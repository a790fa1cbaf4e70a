"""How float32 products are taken on a GPU: in full, in TF32, or split into two of bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_split: str | None = "bf16x6"


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Within it the process takes products as a ``training.precision`` says.

    ``tf32``: all of float32, by PyTorch's own switch. ``bf16x3``: those of edges, whose kernel splits each
    number into two of bfloat16. Any other leaves things as they are, which for edges is three of bfloat16, as
    exact as float32. Backward passes take edges as their forward passes did.
    """
    global _split
    before = torch.get_float32_matmul_precision(), _split
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    _split = {"tf32": None, "bf16x3": "bf16x3"}.get(precision, "bf16x6")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        _split = before[1]


def splits() -> str | None:
    """How products of edges are split, in Triton's words; None: they are PyTorch's."""
    return _split
