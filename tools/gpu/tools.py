"""Sections 2, 3, 4 and 8, in processes of their own: compute-sanitizer, tests that need a GPU, and ncu."""

from __future__ import annotations

import csv
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from tools.gpu.results import Recorder

ROOT = Path(__file__).resolve().parents[2]


def run(command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that finds the package and its tests in this checkout, and return what it printed."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": path.rstrip(os.pathsep)} | variables
    return subprocess.run(
        list(command), env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a failed command said last."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1][:300] if lines else f"exit status {done.returncode}"


def _tool(record: Recorder, name: str) -> str | None:
    """Return the path of a program of the CUDA toolkit; record why it is not used."""
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if record.dry or found is None:
        record(name, status="skipped", note="no GPU" if record.dry else "not installed")
        return None
    return found


# ---- 3 and 4: the tests that need a GPU, many at a time ----------------------------------------------------
KERNELS = (
    "tests/models/attention/test_attention_kernels.py",
    "tests/models/layers/gated_edges_kernels.py",
)
CAPTURE = "tests/models/training/capture/test_on_a_gpu.py"
OTHERS = ("tests/kmip_data/reading/test_loader.py",)


def kernels(record: Recorder) -> None:
    """Run the tests of attention and edges, in which nothing is interpreted."""
    run_tests(record, KERNELS, processes=12)


def capture(record: Recorder) -> None:
    """Run the tests of captured steps and of what else asks for a GPU."""
    run_tests(record, [CAPTURE], processes=12)
    run_tests(record, OTHERS, filters="on_a_gpu", processes=4)


def run_tests(record: Recorder, files: Sequence[str], *, filters: str = "", processes: int) -> None:
    """Run tests and record each that failed; on a CPU count those of the files."""
    names = ", ".join(Path(file).stem for file in files)
    if record.dry:
        texts = [(ROOT / file).read_text("utf-8") for file in files]
        count = sum(len(re.findall(r"^def test_", text, re.MULTILINE)) for text in texts)
        record(names, status="skipped", note=f"{count} tests would run on a GPU")
        return
    # Not torture: it takes minutes by itself. No other configuration: a plain pytest is enough.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "-m",
        "not torture",
        *("-p", "no:cacheprovider"),
    ]
    command += ["-k", filters] if filters else []
    command += ["-n", str(processes)] if importlib.util.find_spec("xdist") is not None else []
    done = run([*command, *files])
    record.show(done.stdout[-20_000:] + done.stderr[-5_000:])
    for name, why in re.findall(r"^(?:FAILED|ERROR) (\S+)(?: - (.*))?$", done.stdout, re.MULTILINE):
        record(name, status="failed", note=why[:300])
    passed = sum(map(int, re.findall(r"(\d+) passed", done.stdout)))
    status = "ok" if done.returncode == 0 and passed else "failed"
    record(f"tests passed: {names}", passed, "tests", status=status, kind="figure")


# ---- 2: compute-sanitizer on two searches ------------------------------------------------------------------
SEARCHES = {"ordered, shared keys": (10, True, 4, 1), "k = 100": (100, False, 1, 0)}


def sanitizer(record: Recorder) -> None:
    """Record the errors that each tool counts."""
    if (tool := _tool(record, "compute-sanitizer")) is None:
        return

    def check(work: tuple[str, str]) -> None:
        name, what = work
        program = f"from tools.gpu.tools import search; search(*{SEARCHES[what]})"
        command = [tool, "--tool", name, sys.executable, "-c", program]
        done = run(command, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
        record.show(f"{name}, {what}\n" + done.stdout[-4_000:] + done.stderr[-2_000:])
        # "ERROR SUMMARY: 0 errors"; of racecheck "RACECHECK SUMMARY: 0 hazards displayed".
        found = re.findall(r"SUMMARY: (\d+)", done.stdout)
        if found and done.returncode == 0:
            record(f"{name}: {what}", int(found[-1]), "errors", target=0, kind="figure")
        else:
            record(f"{name}: {what}", status="failed", note=last_line(done))

    works = list(product(("memcheck", "racecheck", "synccheck"), SEARCHES))
    with ThreadPoolExecutor(len(works)) as pool:
        list(pool.map(check, works))


def search(k: int, *shape: int) -> None:
    """Search twice among few keys."""
    import torch

    from kmip_data.models.search import topk_inner_product
    from tools.gpu.exactness import shaped

    with shaped(*shape):
        rows = torch.randn(2, 700, 10, device="cuda")
        for _ in range(2):
            topk_inner_product(rows, rows, k, query_ptr=[0, 0, 200, 700], backend="cuda")
        torch.cuda.synchronize()


# ---- 8: what bounds the four longest kernels, as the profiler of the CUDA toolkit counts it ----------------
METRICS = {
    "gpu__time_duration.sum": "time",
    "launch__registers_per_thread": "registers",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "processors, % of peak",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory, % of peak",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps, % of most",
}
PROGRAM = """
import torch
from tools.gpu.steps import warm
from kmip_data.models.search import topk_inner_product
rows = torch.randn(4, 100_000, 10, device="cuda")
topk_inner_product(rows, rows, 10, backend="cuda")
warm(0)
"""


def profile(record: Recorder) -> None:
    """Record the metrics of the first launch of each kernel."""
    if (tool := _tool(record, "ncu")) is None:
        return
    command = [
        tool,
        "--clock-control",
        "none",
        "-k",
        "regex:collect|thresholds|multiply|gate",
        "-c",
        "24",
    ]
    command += ["--metrics", ",".join(METRICS), "--csv", sys.executable, "-c", PROGRAM]
    done = run(command)
    record.show(done.stdout[-8_000:] + done.stderr[-2_000:])
    lines = done.stdout.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        record("profile", status="failed", note=last_line(done))
        return
    seen = set()
    for row in csv.DictReader(lines[start:]):
        what = row["Kernel Name"].split("(")[0], METRICS.get(row["Metric Name"], row["Metric Name"])
        if what not in seen:
            seen.add(what)
            record(": ".join(what), row["Metric Value"], row["Metric Unit"], kind="figure")
