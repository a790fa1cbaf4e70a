"""Runs on two processes that share each batch, started as torchrun starts them.

As a program it is one of the two: it trains what a file lists and, in the first process, writes what
:meth:`Loss.divided` makes of rows that are dealt to both.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support.shared import ROOT
from torch import distributed

from kmip_data.builds.home import Home
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.train import resume, train
from kmip_data.models.training.tasks import LOSSES


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def on_two(*commands: Sequence[str], **environment: str) -> list[str]:
    """Run one command in each of two processes, both to their end; return what they wrote to stdout."""
    started = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **environment}
            | {"PYTHONPATH": str(ROOT / "tests")}
            | ({"LOCAL_RANK": str(rank), "RANK": str(rank)} if environment else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, command in enumerate(commands)
    ]
    try:
        written = [process.communicate(timeout=400) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors for _, errors in written)
    return [output for output, _ in written]


def train_on_two(home: Path, runs: Mapping[str, Mapping[str, Any]], losses: Mapping[str, Any]) -> Any:
    """Train every configuration on two processes, one named ``stopped…`` with a stop; return the losses."""
    todo, done = home / "todo.pt", home / "losses.pt"
    torch.save({"runs": json.dumps(dict(runs)), "losses": dict(losses)}, todo)
    command = [sys.executable, "-m", "support.two_processes", str(home)]
    on_two(command, command, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE="2")
    return torch.load(done)


def divided(name: str, weight: torch.Tensor, rows: Sequence[torch.Tensor], target: torch.Tensor) -> Any:
    """Loss and mean gradient of ``rows @ weight``, of which this process has those of its rank."""
    weight = weight.clone().requires_grad_()
    learned, whole = LOSSES[name].divided(rows @ weight, target)
    learned.backward()
    gradient = weight.grad / distributed.get_world_size()
    distributed.all_reduce(gradient)
    return whole, gradient


_end, _step = Loop.end_epoch, Loop.plain_step


def stopping(loop: Loop) -> None:
    """End an epoch, and the run with it, as Ctrl-C does."""
    _end(loop)
    raise KeyboardInterrupt


def stopping_within(loop: Loop, *given: Any, **options: Any) -> Any:
    """End the run after the first step of its second epoch, as Ctrl-C does."""
    if (loop.epoch, loop.batch) == (1, 2):
        raise KeyboardInterrupt
    return _step(loop, *given, **options)


def _main(home: Path) -> None:
    torch.set_num_threads(1)
    todo, rank = torch.load(home / "todo.pt"), int(os.environ["LOCAL_RANK"])
    for name, values in json.loads(todo["runs"]).items():
        config = config_from_mapping(values, "the test")
        if not name.startswith("stopped"):
            train(config, home=Home(home), name=name, quiet=True)
            continue
        with pytest.MonkeyPatch.context() as patch:
            if name == "stopped":
                patch.setattr(Loop, "end_epoch", stopping)
            else:
                patch.setattr(Loop, "plain_step", stopping_within)
            with pytest.raises(KeyboardInterrupt):
                train(config, home=Home(home), name=name, quiet=True)
        resume(name, home=Home(home), quiet=True)
    found = {
        case: divided(name, weight, rows[rank], targets[rank])
        for case, (name, weight, rows, targets) in todo["losses"].items()
    }
    if rank == 0:
        torch.save(found, home / "losses.pt")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
