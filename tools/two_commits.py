"""Time start-up, reading, a build, the search and a training step of two checkouts in one run.

``python tools/two_commits.py OLD NEW`` (each with its ``.venv``) runs every task
alternately in both, as fresh processes on one thread, and prints the smallest CPU seconds of each
and old over new.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 5
COMMANDS = ("--help", "build s3dis --sample --jobs 1 --quiet", "build helsinki --jobs 1 --quiet")
COMMANDS += ("build peptides-func --sample --jobs 1 --quiet",)
#: Programs that print a name and seconds, a line each; after those commands, which make their data.
PROGRAMS = (
    """
import time
from kmip_data import GraphLoader, PeptidesFunc, S3DIS
for kind, size, epochs in ((S3DIS, 8, 20), (PeptidesFunc, 32, 1000)):
    graphs = kind(split="train", sample=True)
    def epoch(): return sum(len(batch.x) for batch in GraphLoader(graphs, size))
    epoch()
    begin = time.process_time()
    for _ in range(epochs): epoch()
    print("TIMED reading", kind.__name__, time.process_time() - begin)
""",
    """
import time, torch
from kmip_data.models import topk_inner_product
q, k = torch.randn(2, 1, 20000, 16, generator=torch.Generator().manual_seed(0))
topk_inner_product(q, k, 10)
begin = time.process_time()
for _ in range(5): topk_inner_product(q, k, 10)
print("TIMED search", time.process_time() - begin)
""",
    """
import time
from torch.optim.optimizer import register_optimizer_step_post_hook
from kmip_data.cli.main import run
times = []
register_optimizer_step_post_hook(lambda *_: times.append(time.process_time()))
run(["train", "--dataset", "helsinki", "--epochs", "6", "--quiet"])
print("TIMED step", min(b - a for a, b in zip(times, times[1:])))
""",
)


def measure(checkout: Path, home: str) -> dict[str, float]:
    """Return CPU seconds of each task, in one checkout and an empty home."""
    environment = os.environ | {
        "KMIP_DATA_HOME": home,
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }
    result = {}

    def run(*words: str) -> tuple[str, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [str(checkout / ".venv/bin/python"), *words]
        done = subprocess.run(
            command, env=environment, cwd="/", check=True, capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    for command in COMMANDS:
        _, result[command] = run("-m", "kmip_data", *command.split())
    for program in PROGRAMS:
        for line in run("-c", program)[0].splitlines():
            if line.startswith("TIMED "):
                name, _, seconds = line.removeprefix("TIMED ").rpartition(" ")
                result[name] = float(seconds)
    return result


def main(old: str, new: str) -> None:
    """Alternate between the checkouts and print the table."""
    best: dict[str, dict[str, float]] = {old: {}, new: {}}
    for _ in range(ROUNDS):
        for checkout, least in best.items():
            with tempfile.TemporaryDirectory() as home:
                for name, seconds in measure(Path(checkout).resolve(), home).items():
                    least[name] = min(seconds, least.get(name, seconds))
    for name, seconds in best[old].items():
        print(f"{name:45} {seconds:8.3f} {best[new][name]:8.3f}  {seconds / best[new][name]:.2f}x")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:3])
