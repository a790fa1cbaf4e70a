"""Processes of a run, one per device, and their exchanges."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TypeVar

import torch
from torch import distributed

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.runtime.progress import print_status

T = TypeVar("T")

#: Seconds between checks of the other processes.
POLL_SECONDS = 1.0
#: Seconds within which an exchange with an ended process usually fails by itself.
GRACE_SECONDS = 10.0


def is_main_process() -> bool:
    """True for the process that writes and prints: the only one, or rank 0."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def join_processes(config: RunConfig, device_type: str) -> torch.device:
    """Return the device of this process, after starting or joining the run's other processes.

    Raises ``UsageError`` if torchrun started a different number of processes.
    """
    if config.processes > 1 and not distributed.is_initialized():
        if "RANK" not in os.environ:
            _start_other_processes(config)
        started = os.environ.get("WORLD_SIZE", "1")
        if started != str(config.processes):
            raise UsageError(
                f"{started} processes were started for a run of {config.processes}.",
                steps="start as many by torchrun as docs/devices.md says",
            )
        if device_type == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        distributed.init_process_group("nccl" if device_type == "cuda" else "gloo")
        atexit.register(distributed.destroy_process_group)
    if device_type == "cpu":
        return torch.device(device_type)
    return torch.device(device_type, torch.cuda.current_device())


def _start_other_processes(config: RunConfig) -> None:
    """Start the other processes of a run on this machine with the same command line."""
    if config.system.nodes > 1:
        raise UsageError(
            f"A run on {config.system.nodes} machines is started on each of them by torchrun.",
            steps="docs/devices.md shows how",
        )
    # 1. Reserve a port, and divide the cores, as by default each process would use all of them.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        _host, port = free.getsockname()
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(config.processes),
    }
    if "OMP_NUM_THREADS" not in os.environ:
        share = max(1, (os.cpu_count() or 1) // config.processes)
        os.environ["OMP_NUM_THREADS"] = str(share)
        torch.set_num_threads(share)

    # 2. Repeat the command line: a script, or a module with -m.
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = [os.path.abspath(sys.argv[0])]  # noqa: PTH100
    if spec is not None:
        program = ["-m", spec.name]
    command = [sys.executable, *program, *sys.argv[1:]]
    other_processes = []
    for number in range(1, config.processes):
        environment = {**os.environ, "RANK": str(number), "LOCAL_RANK": str(number)}
        other_processes.append(subprocess.Popen(command, env=environment))
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
    atexit.register(_end_processes, other_processes)
    threading.Thread(target=_exit_if_another_fails, args=(other_processes,), daemon=True).start()


def _exit_if_another_fails(other_processes: list[subprocess.Popen[bytes]]) -> None:
    """Exit when another process fails, because an exchange would wait until its timeout."""
    while not any(process.poll() for process in other_processes):
        time.sleep(POLL_SECONDS)
    # Usually an exchange fails first, or this process raises the same error.
    time.sleep(GRACE_SECONDS)
    print_status(f"Error: {lost_process_error()}")
    _end_processes(other_processes)
    os._exit(OutOfResources.exit_code)


def lost_process_error() -> OutOfResources:
    """Return the error for another process that has ended."""
    return OutOfResources(
        "Another process of this run has stopped responding.",
        steps="read its error message; if there is none, it was killed, usually because memory ran out",
    )


def is_lost_process(error: BaseException) -> bool:
    """True if an exchange failed because another process ended, by the messages of gloo and NCCL."""
    message = str(error)
    has_message = "gloo/transport" in message or "remote process exited" in message
    return isinstance(error, RuntimeError) and has_message


def _end_processes(other_processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait for the processes to end, then terminate and at last kill them; they write no files."""
    for act in ("terminate", "kill"):
        for process in other_processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
        for process in other_processes:
            getattr(process, act)()


def rank() -> int:
    """Return the rank of this process, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def all_gather(state: T) -> list[T]:
    """Gather ``state`` of every process, in order; all processes must call this."""
    if not distributed.is_initialized():
        return [state]
    states = [state] * distributed.get_world_size()
    distributed.all_gather_object(states, state)
    return states


def share_buffers(model: torch.nn.Module) -> None:
    """Copy the first process's buffers to every process, so that all evaluate the same network.

    Batch norm statistics differ, because processes had different graphs in the last step, and DDP
    synchronises them only before training steps.
    """
    if distributed.is_initialized():
        for buffer in model.buffers():
            distributed.broadcast(buffer, src=0)
