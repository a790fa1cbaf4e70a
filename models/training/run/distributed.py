"""Processes that train one run together: started here or by torchrun, and what they exchange."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import torch
from torch import distributed

from kmip_data.errors import UsageError
from kmip_data.models.training.config.keys import RunConfig

LOOK = 1.0  #: seconds between looks at the other processes
GRACE = 10.0  #: seconds in which a terminated process may end by itself


def join(config: RunConfig, kind: str) -> torch.device:
    """Return the device of this process; where a run has several, start or meet the others first.

    Raises ``UsageError`` where torchrun started another number of processes than the run wants.
    """
    if config.processes > 1 and not distributed.is_initialized():
        if "RANK" not in os.environ:
            _start_others(config)
        if (found := os.environ.get("WORLD_SIZE", "1")) != str(config.processes):
            raise UsageError(
                f"{found} processes were started for a run of {config.processes}.",
                next="torchrun with --nproc-per-node as --devices, and --nnodes as --set system.nodes=…",
            )
        if kind == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
        atexit.register(_leave)
    return torch.device(kind) if kind == "cpu" else torch.device(kind, torch.cuda.current_device())


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _start_others(config: RunConfig) -> None:
    """Become the first process of a run on this machine; the others run the same command line."""
    if config.system.nodes > 1:
        raise UsageError(
            f"A run on {config.system.nodes} machines is started on each of them by torchrun.",
            next=f"torchrun --nnodes {config.system.nodes} --nproc-per-node {config.system.devices} …"
            " -m kmip_data train …; see docs/training.md",
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    os.environ |= {**address, "WORLD_SIZE": str(config.processes)}
    if "OMP_NUM_THREADS" not in os.environ:  # each would take all cores
        share = max(1, (os.cpu_count() or 1) // config.processes)
        os.environ["OMP_NUM_THREADS"] = str(share)
        torch.set_num_threads(share)
    main: Any = sys.modules["__main__"]
    begin = [os.path.abspath(sys.argv[0])] if main.__spec__ is None else ["-m", main.__spec__.name]  # noqa: PTH100
    command = [sys.executable, *begin, *sys.argv[1:]]
    others = [
        subprocess.Popen(command, env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(1, config.processes)
    ]
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
    atexit.register(_end, others)
    threading.Thread(target=_watch, args=(others,), daemon=True).start()


def _watch(others: list[subprocess.Popen[bytes]]) -> None:
    """End this process when another one fails: an exchange would wait for it until its time limit."""
    while any(process.poll() is None for process in others):
        if failed := next((process for process in others if process.poll()), None):
            time.sleep(GRACE)  # most often this process meets the same error, and prints it itself
            _end(others)
            os._exit(abs(failed.returncode) or 1)
        time.sleep(LOOK)


def _end(others: list[subprocess.Popen[bytes]]) -> None:
    """Wait for processes that are about to end, then terminate, then kill them."""
    for patience, act in ((LOOK, "terminate"), (GRACE, "kill")):
        for process in others:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
        for process in others:
            getattr(process, act)()


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def gathered(state: Any) -> list[Any]:
    """Return ``state`` of every process, in order; all must call this."""
    if not distributed.is_initialized():
        return [state]
    states = [None] * distributed.get_world_size()
    distributed.all_gather_object(states, state)
    return states


def share_buffers(model: torch.nn.Module) -> None:
    """Give every process the first one's buffers.

    Each has met other graphs in its last step, so their batch norm statistics differ; DDP shares them
    before a training step only, and an evaluation over processes must be of one network.
    """
    if distributed.is_initialized():
        for buffer in model.buffers():
            distributed.broadcast(buffer, src=0)
