"""Small sweeps: a home with data to train on, plans, and a driver that can be killed.

    python -m support.runs.sweeps PLAN HOME JOBS

runs a plan by the stand-in for training.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kmip_data.models.sweeps import running

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = (sys.executable, "-m", "support.runs.stand_in_train")
#: A network that trains in no time.
SMALL = ["model.layers=1", "model.hidden_dim=8", "training.batch_size=4", "system.device=cpu"]


def write_plan(path: Path, **keys: Any) -> Path:
    """Write a plan: by default two models and two seeds on ``clouds``."""
    import tomli_w

    values = {
        "about": "a test",
        "datasets": ["clouds"],
        "models": ["gps-kmip", "gps-none"],
        "seeds": "0..1",
    }
    path.write_text(tomli_w.dumps({**values, "epochs": 3, **keys}))
    return path


def stand_in_environment(**settings: Any) -> dict[str, str]:
    """Variables with which processes find the stand-in and know what it is to do."""
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "STAND_IN": json.dumps(settings),
        "OMP_NUM_THREADS": "1",
    }


def start_sweep(plan: Path, home: Path, jobs: int = 2, **settings: Any) -> subprocess.Popen[bytes]:
    """Start a sweep as a process."""
    words = [sys.executable, "-m", "support.runs.sweeps", str(plan), str(home), str(jobs)]
    return subprocess.Popen(words, env=stand_in_environment(**settings), cwd=ROOT)


def count_events(home: Path) -> Counter[str]:
    """Count the events of runs: ``NAME start``, ``NAME epoch 0``."""
    path = home / "events"
    return Counter(path.read_text().splitlines() if path.exists() else ())


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the test's own limit ends it."""
    while not condition():
        time.sleep(0.02)


def main(plan: str, home: str, jobs: str) -> None:
    """Run a plan."""
    from kmip_data.builds.home import Home
    from kmip_data.models.sweeps.plans import expand_plan, read_sweep_plan
    from kmip_data.runtime.signals import TERMINATION_SIGNALS, unwind_on_signal

    for number in TERMINATION_SIGNALS:
        signal.signal(number, unwind_on_signal)
    running.PROGRAM_COMMAND = PROGRAM
    sweep_plan, place = read_sweep_plan(plan), Home.locate(home)
    folder = place.path / "sweeps" / sweep_plan.name
    running.run_sweep(
        expand_plan(sweep_plan, place),
        home=place,
        folder=folder,
        jobs=int(jobs),
        options={"quiet": True},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
