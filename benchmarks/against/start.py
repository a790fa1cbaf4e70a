"""CPU seconds of fresh processes: start of commands, imports, and ``doctor``."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.peers import print_rows
from benchmarks.table import Row

PYG = (sys.executable, "-c", "import torch_geometric")


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure processes in turn, with a warm file cache."""
    runs = 2 if quick else 9
    commands = {
        "`kmip-data --help`": ((sys.executable, "-m", "kmip_data", "--help"), "≤ 0.1 s", 0.1),
        "`import kmip_data`": ((sys.executable, "-c", "import kmip_data"), "≤ 0.05 s", 0.05),
    }
    empty = (sys.executable, "-c", "pass")
    for what, (command, target, limit) in commands.items():
        mine, python, ratio, spread = compare_commands(command, empty, runs)
        yield Row(
            what=f"{what}, CPU seconds", against="Python alone", ours=mine, theirs=python, unit="s",
            ratio=ratio, spread=spread, target=target, met=mine <= limit,
        )  # fmt: skip

    dataset = (sys.executable, "-c", "from kmip_data import S3DIS")
    mine, theirs, ratio, spread = compare_commands(dataset, PYG, runs)
    yield Row(
        what="`from kmip_data import S3DIS`, CPU seconds", against="`import torch_geometric`",
        ours=mine, theirs=theirs, unit="s", ratio=ratio, spread=spread,
        target="at most 1.2 of its time", met=ratio >= 1 / 1.2,
    )  # fmt: skip

    doctor = (sys.executable, "-m", "kmip_data", "doctor")
    mine, theirs, ratio, spread = compare_commands(doctor, PYG, 1 if quick else 3)
    yield Row(
        what="`kmip-data doctor`, CPU seconds", against="`import torch_geometric`", ours=mine,
        theirs=theirs, unit="s", ratio=ratio, spread=spread, target="≤ 8 s", met=mine <= 8,
    )  # fmt: skip


def compare_commands(
    ours: tuple[str, ...], theirs: tuple[str, ...], runs: int
) -> tuple[float, float, float, tuple[float, float]]:
    """Return median CPU seconds of both, the median ratio theirs / ours, and its range."""
    cpu_seconds(ours)
    cpu_seconds(theirs)
    pairs = [(cpu_seconds(ours), cpu_seconds(theirs)) for _ in range(runs)]
    ratios = [peer / mine for mine, peer in pairs]
    mine = statistics.median(pair[0] for pair in pairs)
    peer = statistics.median(pair[1] for pair in pairs)
    return mine, peer, statistics.median(ratios), (min(ratios), max(ratios))


def cpu_seconds(command: tuple[str, ...]) -> float:
    """Run a command; return its CPU seconds, including children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    print_rows(rows(quick="--quick" in sys.argv))
