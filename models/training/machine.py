"""Device, processes and logger of a run."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import distributed

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun

T = TypeVar("T")


@dataclass(frozen=True)
class Device:
    """Selected device."""

    type: Literal["cpu", "cuda"]
    name: str  #: name for messages and ``result.json``: ``cpu`` or the GPU's name
    reason: str  #: reason for selecting it

    @property
    def hardware(self) -> str:
        """GPU name, or processor and number of PyTorch's threads, which affect floating-point sums."""
        if self.type == "cuda":
            return self.name
        return f"{processor_model()}, {count_with_noun(torch.get_num_threads(), 'thread')}"


def processor_model() -> str:
    """Return the processor's model name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        name = re.search(r"(?m)^model name\s*:\s*(.*)$", cpuinfo.read_text("utf-8"))
        if name is not None:
            return name[1].strip()
    return platform.processor()


def choose_device(requested: str = "auto", devices: int = 1) -> Device:
    """Choose the device; ``auto`` uses a GPU if PyTorch sees one.

    Raises ``UsageError`` if fewer GPUs exist than the run needs.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if requested == "cpu" or (requested == "auto" and not count):
        return Device("cpu", "cpu", "requested" if requested == "cpu" else "PyTorch sees no GPU")
    if devices > count:
        raise UsageError(
            f"The run needs {count_with_noun(devices, 'GPU')};"
            f" PyTorch {torch.__version__} sees {count or 'none'}.",
            next="without a GPU: --device cpu",
        )
    reason = "requested" if requested == "cuda" else "PyTorch sees it"
    return Device("cuda", torch.cuda.get_device_name(0), reason)


def is_main_process() -> bool:
    """True for the process that writes and prints: the only one, or rank 0."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def check_precision(precision: str, device: Device, *, finished: bool = False) -> None:
    """Raise ``UsageError`` if the device does not support the precision.

    The precision of a ``finished`` run cannot change, so the error suggests only another device.
    """
    if precision in ("tf32", "16-mixed") and device.type == "cpu":
        step = "--device cuda"
        if not finished:
            step = f"--set training.precision=32 or bf16-mixed, or {step}"
        raise UsageError(f"A CPU cannot compute in {precision}.", next=step)


#: Seconds between checks of the other processes.
POLL_SECONDS = 1.0
#: Seconds within which an exchange with an ended process usually fails by itself.
GRACE_SECONDS = 10.0


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
                next="torchrun with --nproc-per-node as --devices, and --nnodes as --set system.nodes=…",
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
            next=f"torchrun --nnodes {config.system.nodes} --nproc-per-node {config.system.devices} …"
            " -m kmip_data train …; see docs/devices.md",
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
        next="read its error message; if there is none, it was killed, usually because memory ran out",
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


#: Function of the values by name, and the epoch.
Logger = Callable[[dict[str, float], int], None]


def check_logger(name: str) -> None:
    """Raise ``UsageError`` if a logger's package is not installed."""
    if name != "csv" and importlib.util.find_spec(name) is None:
        raise UsageError(
            f"The logger {name!r} needs the package of the same name.",
            next=f"pip install {name}, or --set system.logger=csv",
        )


def build_logger(config: RunConfig, folder: Path | None, project: str) -> Logger:
    """Return the run's logger, in addition to ``metrics.csv``; it does nothing without a folder."""
    if folder is None or config.system.logger == "csv":
        return lambda *_: None
    if config.system.logger == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(str(folder / "tensorboard"))

        def to_tensorboard(values: dict[str, float], epoch: int) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, epoch)
            writer.flush()

        return to_tensorboard
    import wandb

    run = wandb.init(
        dir=folder, name=folder.name, project=project, config=config.model_dump(mode="json")
    )
    return lambda values, epoch: run.log({**values, "epoch": epoch})
