"""How a failed allocation is told from other errors."""

from __future__ import annotations

import re

import torch

from kmip_data.errors import OutOfResources

_WORDS = re.compile(r"out of memory|can't allocate memory|not enough memory|bad_alloc", re.IGNORECASE)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether ``error`` is how a GPU, the CPU allocator, KeOps, Python or our own words for them say it."""
    if isinstance(error, OutOfResources):
        return is_out_of_memory(error.__cause__)
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _WORDS.search(str(error)) is not None
