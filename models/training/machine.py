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
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun

T = TypeVar("T")


@dataclass(frozen=True)
class Device:
    """The chosen device, and the reason."""

    type: Literal["cpu", "cuda"]
    #: Name for messages and ``result.json``: ``cpu`` or the GPU's name.
    name: str
    reason: str

    @property
    def hardware(self) -> str:
        """GPU name, or processor with PyTorch's threads, which affect floating-point sums."""
        if self.type == "cuda":
            return self.name
        return f"{processor_model()}, {count_with_noun(torch.get_num_threads(), 'thread')}"


def processor_model() -> str:
    """Return the model of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        name = re.search(r"(?m)^model name\s*:\s*(.*)$", cpuinfo.read_text("utf-8"))
        if name is not None:
            return name[1].strip()
    return platform.processor()


def choose_device(wanted: str = "auto", devices: int = 1) -> Device:
    """Choose the device; ``auto`` uses a GPU if PyTorch sees one.

    Raises ``UsageError`` if a requested GPU does not exist.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and not count):
        return Device("cpu", "cpu", "requested" if wanted == "cpu" else "PyTorch sees no GPU")
    if devices > count:
        raise UsageError(
            f"The run needs {count_with_noun(devices, 'GPU')};"
            f" PyTorch {torch.__version__} sees {count or 'none'}.",
            next="without a GPU: --device cpu",
        )
    reason = "requested" if wanted == "cuda" else "PyTorch sees it"
    return Device("cuda", torch.cuda.get_device_name(0), reason)


def is_main_process() -> bool:
    """True if this process writes and prints: the only one, or rank 0 of torchrun."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def check_precision(precision: str, device: Device, *, finished: bool = False) -> None:
    """Raise ``UsageError`` if the device does not support the precision, which a ``finished`` run keeps."""
    if precision in ("tf32", "16-mixed") and device.type == "cpu":
        step = "--device cuda"
        if not finished:
            step = f"--set training.precision=32 or bf16-mixed, or {step}"
        raise UsageError(f"A CPU cannot compute in {precision}.", next=step)


#: Seconds between checks of the other processes.
POLL_SECONDS = 1.0
#: Seconds until an exchange with an ended process fails by itself.
GRACE_SECONDS = 10.0


def join_processes(config: RunConfig, device_type: str) -> torch.device:
    """Return the device of this process; with several processes, start or join the others first.

    Raises ``UsageError`` if torchrun started a different number of processes.
    """
    if config.processes > 1 and not distributed.is_initialized():
        if "RANK" not in os.environ:
            _start_others(config)
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


def _start_others(config: RunConfig) -> None:
    """Become the first process of a run on this machine; the others run the same command line."""
    if config.system.nodes > 1:
        raise UsageError(
            f"A run on {config.system.nodes} machines is started on each of them by torchrun.",
            next=f"torchrun --nnodes {config.system.nodes} --nproc-per-node {config.system.devices} …"
            " -m kmip_data train …; see docs/devices.md",
        )
    # 1. A free port, and a share of the cores; by default each process would use all of them.
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

    # 2. The same command line: a script, or a module with -m.
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = [os.path.abspath(sys.argv[0])]  # noqa: PTH100
    if spec is not None:
        program = ["-m", spec.name]
    command = [sys.executable, *program, *sys.argv[1:]]
    others = []
    for number in range(1, config.processes):
        environment = {**os.environ, "RANK": str(number), "LOCAL_RANK": str(number)}
        others.append(subprocess.Popen(command, env=environment))
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
    atexit.register(_end_processes, others)
    threading.Thread(target=_end_with_others, args=(others,), daemon=True).start()


def _end_with_others(others: list[subprocess.Popen[bytes]]) -> None:
    """End this process when another one fails, as exchanges would wait until their time limit."""
    while not any(process.poll() for process in others):
        time.sleep(POLL_SECONDS)
    # Usually an exchange fails meanwhile, or this process hits the same error.
    time.sleep(GRACE_SECONDS)
    print_status(f"Error: {lost_process_error()}")
    _end_processes(others)
    os._exit(OutOfResources.exit_code)


def lost_process_error() -> OutOfResources:
    """Return the error for the loss of another process."""
    return OutOfResources(
        "Another process of this run has stopped responding.",
        next="see its error; without one it was killed, usually because memory ran out",
    )


def is_lost_process(error: BaseException) -> bool:
    """True if an exchange failed because another process ended, judged by messages of gloo and NCCL."""
    message = str(error)
    lost_words = "gloo/transport" in message or "remote process exited" in message
    return isinstance(error, RuntimeError) and lost_words


def _end_processes(others: list[subprocess.Popen[bytes]]) -> None:
    """Wait for processes that are about to end, then terminate, then kill them: only the first one writes."""
    for act in ("terminate", "kill"):
        for process in others:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
        for process in others:
            getattr(process, act)()


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def all_gather(state: T) -> list[T]:
    """Gather ``state`` of every process, in order; all processes must call this."""
    if not distributed.is_initialized():
        return [state]
    states = [state] * distributed.get_world_size()
    distributed.all_gather_object(states, state)
    return states


def share_buffers(model: torch.nn.Module) -> None:
    """Copy the first process's buffers to every process.

    Batch norm statistics differ, as processes had different graphs in the last step. DDP
    synchronises them before training steps only, but an evaluation needs one network.
    """
    if distributed.is_initialized():
        for buffer in model.buffers():
            distributed.broadcast(buffer, src=0)


#: Called with values by name, and the epoch.
Logger = Callable[[dict[str, float], int], None]


def check_logger(name: str) -> None:
    """Raise ``UsageError`` with the package to install if a logger's package is missing."""
    if name != "csv" and importlib.util.find_spec(name) is None:
        raise UsageError(
            f"The logger {name!r} needs the package of that name.",
            next=f"pip install {name}, or --set system.logger=csv",
        )


def build_logger(config: RunConfig, folder: Path | None, project: str) -> Logger:
    """Return the run's logger.

    ``metrics.csv`` is always written, and without a folder nothing else.
    """
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
