"""Section 8: what bounds the four longest kernels, as the profiler of the CUDA toolkit counts it."""

from __future__ import annotations

import csv
import shutil
import sys

from gpu import children
from gpu.results import Recorder

KERNELS = "regex:collect|thresholds|multiply|gate"
METRICS = {
    "gpu__time_duration.sum": "time",
    "launch__registers_per_thread": "registers",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "processors, % of peak",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory, % of peak",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps, % of most",
}
PROGRAM = """
import torch
from gpu.steps import warm
from kmip_data.models.search import topk_inner_product
rows = torch.randn(4, 100_000, 10, device="cuda")
topk_inner_product(rows, rows, 10, backend="cuda")
warm(0)
"""


def run(record: Recorder) -> None:
    """Record the metrics of the first launch of each kernel."""
    tool = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if record.dry or tool is None:
        record("profile", status="skipped", note="no GPU" if record.dry else "ncu is not installed")
        return
    metrics = ("--metrics", ",".join(METRICS), "--csv")
    command = [tool, "--clock-control", "none", "-k", KERNELS, "-c", "24", *metrics]
    done = children.run([*command, sys.executable, "-c", PROGRAM])
    record.show(done.stdout[-8_000:] + done.stderr[-2_000:])
    lines = done.stdout.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        record("profile", status="failed", note=children.last_line(done))
        return
    seen = set()
    for row in csv.DictReader(lines[start:]):
        what = row["Kernel Name"].split("(")[0], METRICS.get(row["Metric Name"], row["Metric Name"])
        if what not in seen:
            seen.add(what)
            record(": ".join(what), row["Metric Value"], row["Metric Unit"], kind="figure")
