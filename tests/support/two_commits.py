"""Time start-up, reading, a build, the search and a training step of two checkouts in one run.

``python tests/support/two_commits.py OLD NEW`` (each with its ``.venv``) runs every task alternately in
both, as fresh processes on one thread, and prints the smallest CPU seconds of each and old over new.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 5
READING = """
import time
from kmip_data import GraphLoader, PeptidesFunc, S3DIS
for kind, size, epochs in ((S3DIS, 8, 20), (PeptidesFunc, 32, 1000)):
    graphs = kind(split="train", sample=True)
    def epoch(): return sum(len(batch.x) for batch in GraphLoader(graphs, size))
    epoch()
    begin = time.process_time()
    for _ in range(epochs): epoch()
    print(kind.__name__, time.process_time() - begin)
"""
SEARCH = """
import time, torch
from kmip_data.models import topk_inner_product
q, k = torch.randn(2, 1, 20000, 16, generator=torch.Generator().manual_seed(0))
topk_inner_product(q, k, 10)
begin = time.process_time()
for _ in range(5): topk_inner_product(q, k, 10)
print("search", time.process_time() - begin)
"""
STEP = """
import time, torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from kmip_data.cli.main import run
times = []
register_optimizer_step_post_hook(lambda *_: times.append(time.process_time()))
run(["train", "--dataset", "helsinki", "--epochs", "6", "--quiet"])
steps = sorted(b - a for a, b in zip(times, times[1:]))
print("step", steps[0])
"""


def measure(checkout: Path, home: str) -> dict[str, float]:
    """Return CPU seconds of each task, in one checkout and an empty home."""
    python = str(checkout / ".venv/bin/python")
    environment = os.environ | {"KMIP_DATA_HOME": home, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    result = {}

    def whole(name: str, *arguments: str) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [python, "-m", "kmip_data", *arguments]
        subprocess.run(command, env=environment, cwd="/", check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        result[name] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def inside(code: str) -> None:
        command = [python, "-c", code]
        done = subprocess.run(command, env=environment, cwd="/", check=True, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            name, _, value = line.rpartition(" ")
            if name in {"S3DIS", "PeptidesFunc", "search", "step"}:
                result[name] = float(value)

    whole("start-up: --help", "--help")
    whole("build s3dis --sample", "build", "s3dis", "--sample", "--jobs", "1", "--quiet")
    whole("build helsinki", "build", "helsinki", "--jobs", "1", "--quiet")
    whole("build peptides-func --sample", "build", "peptides-func", "--sample", "--jobs", "1", "--quiet")
    inside(READING)
    inside(SEARCH)
    inside(STEP)
    return result


def main(old: str, new: str) -> None:
    """Alternate between the checkouts and print the table."""
    best: dict[str, dict[str, float]] = {old: {}, new: {}}
    for _ in range(ROUNDS):
        for checkout in (old, new):
            with tempfile.TemporaryDirectory() as home:
                for name, seconds in measure(Path(checkout).resolve(), home).items():
                    best[checkout][name] = min(seconds, best[checkout].get(name, seconds))
    for name, seconds in best[old].items():
        print(f"{name:30} {seconds:8.3f} {best[new][name]:8.3f}  {seconds / best[new][name]:.2f}x")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:3])
