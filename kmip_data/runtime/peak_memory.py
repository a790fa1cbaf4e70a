"""The most memory that this process has held."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path


def peak_host_memory() -> int:
    """Peak resident set of this process in bytes, since it began."""
    # getrusage's figure begins at that of the process that started this one.
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
