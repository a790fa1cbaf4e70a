"""Section 2: compute-sanitizer on two searches: ordered with shared keys, and k = 100."""

from __future__ import annotations

import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

from gpu import children
from gpu.results import Recorder

TOOLS = ("memcheck", "racecheck", "synccheck")
SEARCHES = {"ordered, shared keys": (10, True, 4, 1), "k = 100": (100, False, 1, 0)}


def run(record: Recorder) -> None:
    """Record the errors that each tool counts."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if record.dry or tool is None:
        record("compute-sanitizer", status="skipped", note="no GPU" if record.dry else "not installed")
        return

    def check(work: tuple[str, str]) -> None:
        name, what = work
        program = f"from gpu.sanitizer import search; search(*{SEARCHES[what]})"
        command = [tool, "--tool", name, sys.executable, "-c", program]
        done = children.run(command, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
        record.show(f"{name}, {what}\n" + done.stdout[-4_000:] + done.stderr[-2_000:])
        # "ERROR SUMMARY: 0 errors"; of racecheck "RACECHECK SUMMARY: 0 hazards displayed".
        found = re.findall(r"SUMMARY: (\d+)", done.stdout)
        if found and done.returncode == 0:
            record(f"{name}: {what}", int(found[-1]), "errors", target=0, kind="figure")
        else:
            record(f"{name}: {what}", status="failed", note=children.last_line(done))

    works = [(tool_name, what) for tool_name in TOOLS for what in SEARCHES]
    with ThreadPoolExecutor(len(works)) as pool:
        list(pool.map(check, works))


def search(k: int, *shape: int) -> None:
    """Search twice among few keys."""
    import torch
    from gpu.exactness import shaped

    from kmip_data.models.search import topk_inner_product

    with shaped(*shape):
        rows = torch.randn(2, 700, 10, device="cuda")
        for _ in range(2):
            topk_inner_product(rows, rows, k, query_ptr=[0, 0, 200, 700], backend="cuda")
        torch.cuda.synchronize()
