"""Processes that train one run together: started here, by torchrun or by SLURM, and what they exchange."""

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

    Raises ``UsageError`` where the launcher started another number of processes than the run wants.
    """
    wanted = config.processes
    if wanted > 1 and not distributed.is_initialized():
        _take_ranks_of_slurm(wanted)
        if "RANK" not in os.environ:
            _start_others(config)
        if int(os.environ.get("WORLD_SIZE", "1")) != wanted:
            raise UsageError(
                f"{os.environ.get('WORLD_SIZE', '1')} processes were started for a run of {wanted}.",
                expected="--nproc-per-node of torchrun equal to --devices, --nnodes to --set system.nodes",
                found=f"system.devices = {config.system.devices}, system.nodes = {config.system.nodes}",
                next="docs/training.md, Several devices",
            )
        if kind == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
        atexit.register(_leave)
    return torch.device(kind) if kind == "cpu" else torch.device(kind, torch.cuda.current_device())


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _take_ranks_of_slurm(wanted: int) -> None:
    """Translate what ``srun`` sets, where it started as many tasks as the run has processes, for PyTorch."""
    found = os.environ
    if "RANK" in found or found.get("SLURM_NTASKS") != str(wanted) or "SLURM_PROCID" not in found:
        return
    first = "127.0.0.1"
    if int(found.get("SLURM_NNODES", "1")) > 1:
        hosts = subprocess.run(
            ["scontrol", "show", "hostnames", found["SLURM_JOB_NODELIST"]],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        first = hosts.stdout.split()[0]
    found.setdefault("MASTER_ADDR", first)
    found.setdefault("MASTER_PORT", str(20_000 + int(found.get("SLURM_JOB_ID", "0")) % 10_000))
    found |= {"RANK": found["SLURM_PROCID"], "WORLD_SIZE": str(wanted)}
    found["LOCAL_RANK"] = found.get("SLURM_LOCALID", "0")


def _start_others(config: RunConfig) -> None:
    """Become the first process of a run on this machine; the others run the same command line."""
    if config.system.nodes > 1:
        raise UsageError(
            f"A run on {config.system.nodes} machines is started on each of them.",
            expected="torchrun, or srun under SLURM",
            found="one command",
            next=f"torchrun --nnodes {config.system.nodes} --nproc-per-node {config.system.devices} …"
            " -m kmip_data train …; see docs/training.md",
        )
    processes = config.processes
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    if "OMP_NUM_THREADS" not in os.environ:  # each would take all cores
        share = max(1, (os.cpu_count() or 1) // processes)
        os.environ["OMP_NUM_THREADS"] = str(share)
        torch.set_num_threads(share)
    main: Any = sys.modules["__main__"]
    begin = [os.path.abspath(sys.argv[0])] if main.__spec__ is None else ["-m", main.__spec__.name]  # noqa: PTH100
    command = [sys.executable, *begin, *sys.argv[1:]]
    others = [
        subprocess.Popen(command, env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(1, processes)
    ]
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
    atexit.register(_end, others)
    threading.Thread(target=_watch, args=(others,), daemon=True).start()


def _watch(others: list[subprocess.Popen[bytes]]) -> None:
    """End this process when another one fails: an exchange would wait for it until its time limit."""
    while any(process.poll() is None for process in others):
        if failed := next((process for process in others if process.poll()), None):
            time.sleep(GRACE)  # most often this process meets the same error, and says it itself
            _end(others)
            os._exit(abs(failed.returncode) or 1)
        time.sleep(LOOK)


def _end(others: list[subprocess.Popen[bytes]]) -> None:
    for process in others:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK)  # it got the same signal, and is about to end
    for process in others:
        process.terminate()
    for process in others:
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()


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


def first_decides(choice: bool) -> bool:
    """Return what the first process chose; all must call this."""
    return bool(gathered(choice)[0])


def share_buffers(model: torch.nn.Module) -> None:
    """Give every process the first one's buffers.

    Each has met other graphs in its last step, so their batch norm statistics differ; DDP shares them
    before a training step only, and an evaluation over processes must be of one network.
    """
    if distributed.is_initialized():
        for buffer in model.buffers():
            distributed.broadcast(buffer, src=0)
