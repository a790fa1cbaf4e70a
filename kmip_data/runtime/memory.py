"""Memory of this process, used and free, and which errors are failed allocations."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kmip_data.errors import OutOfResources

GROUPS = Path("/sys/fs/cgroup")  #: control groups, version 2; ``memory`` in it: version 1
_NAMES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
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


def free_host_memory() -> int:
    """Bytes that this process can still get: what the system has, within the process's limits."""
    import psutil

    available = int(psutil.virtual_memory().available)
    return max(0, min([available, *(limit - used for limit, used in _limits())]))


def _limits() -> Iterator[tuple[int, int]]:
    """Limits of this process and what is used of each, by ``ulimit`` and by control groups."""
    import psutil

    held = psutil.Process().memory_info()
    for kind, used in ((resource.RLIMIT_AS, held.vms), (resource.RLIMIT_DATA, getattr(held, "data", 0))):
        if (limit := resource.getrlimit(kind)[0]) != resource.RLIM_INFINITY:
            yield limit, used
    for group in (GROUPS, GROUPS / "memory"):
        for names in _NAMES:
            with suppress(OSError, ValueError):  # no such group, or no limit ("max")
                limit, used = (int((group / name).read_text("ascii")) for name in names)
                stat = dict(line.split() for line in (group / "memory.stat").read_text("ascii").splitlines())
                yield limit, used - int(stat.get("inactive_file", 0))  # pages of files are given up first
