"""Runs of several seeds at a time, each a process on GPUs of its own, or on its share of the cores."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import torch

from kmip_data.builds.home import Home
from kmip_data.errors import CheckFailed
from kmip_data.models.training.memory.machine import Device
from kmip_data.models.training.run.folders import RESULT_NAME
from kmip_data.models.training.run.result import RunResult, read_result
from kmip_data.runtime.processes import begin_process

LOOK = 0.2  #: seconds between looks at what runs
LINES = 12  #: of what a failed run said last


def run_side_by_side(
    runs: Sequence[Path],
    *,
    home: Home,
    at_once: int,
    device: Device,
    devices: int,
    tell: Callable[[str], None],
) -> list[RunResult]:
    """Train runs that have a configuration and no more, ``at_once`` of them at a time, on ``devices`` each.

    Raises ``CheckFailed`` where some did not finish, when the others did; ``KeyboardInterrupt`` on Ctrl-C,
    when every process has ended and how to resume each run was said.
    """
    waiting, faults = list(runs), {}
    running: dict[int, tuple[Path, subprocess.Popen[bytes], IO[bytes]]] = {}
    try:
        while waiting or running:
            for place in range(at_once):
                if place in running and running[place][1].poll() is not None:
                    run, process, said = running.pop(place)
                    with said:
                        said.seek(0)
                        last = said.read().decode(errors="replace").splitlines()[-LINES:]
                    if process.returncode or not (run / RESULT_NAME).is_file():
                        faults[run] = "\n    ".join([f"{run}: exit code {process.returncode}", *last])
                    tell(f"{run.name}: {'failed' if run in faults else 'done'}")
                if place not in running and waiting:
                    running[place] = _begin(waiting[0], place, home, at_once, device, devices)
                    tell(f"{waiting.pop(0).name}: begun")
            time.sleep(LOOK)
    finally:
        for _, process, _ in running.values():
            os.killpg(process.pid, signal.SIGTERM)
        for run, process, said in running.values():
            process.wait()
            said.close()
            tell(f"Stopped. Go on with: {_resume(run)}")
        for run in waiting:
            tell(f"Not begun. Begin with: {_resume(run)}")
    if faults:
        raise CheckFailed(
            f"{len(faults)} of {len(runs)} runs did not finish.",
            expected="a result of each seed",
            found="\n    ".join(["", *faults.values()]),
            left="the other runs with their results",
            next="\n    ".join(["", *map(_resume, faults)]),
        )
    return [read_result(run) for run in runs]


def _begin(
    run: Path, place: int, home: Home, at_once: int, device: Device, devices: int
) -> tuple[Path, subprocess.Popen[bytes], IO[bytes]]:
    said = tempfile.TemporaryFile()  # noqa: SIM115 -- open as long as the process writes
    arguments = ["train", "--resume", str(run), "--home", str(home.root), "--quiet"]
    if device.kind == "cuda":
        every = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        own = every.split(",")[place * devices : (place + 1) * devices]
        return run, begin_process(arguments, said, CUDA_VISIBLE_DEVICES=",".join(own)), said
    return run, begin_process(arguments, said, share=at_once * devices), said


def _resume(run: Path) -> str:
    return f"kmip-data train --resume {shlex.quote(str(run))}"
