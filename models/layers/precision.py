"""How float32 products are taken on a GPU: in full, in TF32, or split into bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_split = False


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Within it the process takes products as a ``training.precision`` says.

    ``tf32``: all of float32, by PyTorch's own switch. ``bf16x3``: those of edges, whose kernel splits each
    number into two of bfloat16. Any other leaves things as they are. Backward passes take edges as their
    forward passes did.
    """
    global _split
    before = torch.get_float32_matmul_precision(), _split
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    _split = precision == "bf16x3"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        _split = before[1]


def splits() -> bool:
    """Whether products of edges are split."""
    return _split
