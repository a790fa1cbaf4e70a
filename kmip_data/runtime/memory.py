"""Peak memory of this process, and which errors are failed allocations."""

from __future__ import annotations

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

from kmip_data.errors import OutOfResources

_WORDS = re.compile(r"out of memory|can't allocate memory|not enough memory|bad_alloc", re.IGNORECASE)


def is_out_of_memory(error: BaseException | None) -> bool:
    """True if ``error`` is a failed allocation of a GPU, PyTorch, KeOps, Python or one of ours."""
    import torch

    if isinstance(error, OutOfResources):
        return is_out_of_memory(error.__cause__)
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _WORDS.search(str(error)) is not None


def peak_host_memory() -> int:
    """Peak resident set of this process in bytes, since it began."""
    # getrusage's figure begins at that of the process that started this one.
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
