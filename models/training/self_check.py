"""Self-check of a GPU: every part that has kernels of its own, against plain PyTorch, once a device.

Each part is a child process, so that an illegal address or a hang ends there; all begin at the same time,
which compiles in parallel. What fails is left out of this process (``LEFT_OUT`` of ``models/context.py``).
The checks themselves are in :mod:`kmip_data.models.training.self_check_parts`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
import torch

from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files.changes import write_file
from kmip_data.models.context import LEFT_OUT
from kmip_data.models.training.machine import Device

log = logging.getLogger(__name__)

OK = "ok"
LIMIT = 60.0  #: seconds of all parts together, with compiling
SWITCH = "KMIP_DATA_SELF_CHECK"  #: environment variable; ``off`` checks nothing
#: What takes the place of a part that fails.
INSTEAD = {
    "search": "the next search backend",
    "attention": "PyTorch operators",
    "edges": "PyTorch operators",
    "norms": "PyTorch operators",
    "capture": "plain steps",
}
_CHILD = ("-m", "kmip_data.models.training.self_check_parts")
_MODELS = Path(__file__).resolve().parents[1]
_SOURCES = ("search", "attention", "layers", "training/capture", "training/self_check_parts.py")
_PACKAGES = ("torch", "triton", "cuda-core", "cuda-bindings")


class Sizes(NamedTuple):
    """Sizes of a network that decide which kernels it runs; the defaults are the paper's on S3DIS."""

    dim: int = 5  #: channels of a query and a key of one head
    width: int = 14  #: channels of a value of one head
    k: int = 10
    heads: int = 4
    hidden: int = 56  #: channels of nodes and edges


def sizes_of(model: Any) -> Sizes:
    """Return the sizes of a :class:`~kmip_data.models.config.ModelConfig`."""
    attention, usual = model.attention, Sizes()
    heads = getattr(attention, "heads", usual.heads)
    k = getattr(attention, "k", usual.k)
    width = getattr(attention, "value_dim", None) or max(1, model.hidden_dim // heads)
    dim = getattr(attention, "key_dim", usual.dim)
    return Sizes(dim, width, k if isinstance(k, int) else max(k), heads, model.hidden_dim)


def before_run(model: Any, device: Device) -> None:
    """Check the GPU of a run, unless that is done or switched off; leave out what fails, with one warning."""
    if device.kind != "cuda" or os.environ.get(SWITCH, "").lower() == "off":
        return
    leave_out(found_on("cuda", sizes_of(model)), device.name)


def leave_out(found: Mapping[str, str], name: str) -> None:
    """Leave the failed parts out of this process, and warn about them once."""
    failed = {part: reason for part, reason in found.items() if reason != OK and not _is_busy(reason)}
    if failed.items() <= LEFT_OUT.items():
        return
    LEFT_OUT.update(failed)
    lines = [f"{part} ({reason}), instead {INSTEAD[part]}" for part, reason in failed.items()]
    log.warning(
        "the self-check of %s leaves out: %s. The run continues, slower. Please report it with the output of"
        " `kmip-data doctor --json`.", name, "; ".join(lines),
    )  # fmt: skip


def found_on(device: str, sizes: Sizes) -> dict[str, str]:
    """Return ``ok`` or the reason of each part on a device, from the cache where it was checked before."""
    path = _cache(device, sizes)
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
        if isinstance(found, dict) and found.keys() == INSTEAD.keys():
            return {str(part): str(reason) for part, reason in found.items()}
    log.warning("checking the kernels for this GPU, once: up to %.0f s, with compiling …", LIMIT)
    found = check(device, sizes)
    # A busy machine may only have been slow to compile, or had no memory left.
    if not any(_is_late(reason) or _is_busy(reason) for reason in found.values()):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps(found).encode())
        except (OSError, KmipDataError) as error:
            log.debug("the self-check is not cached: %s", error)
    return found


def check(
    device: str,
    sizes: Sizes,
    parts: Sequence[str] = tuple(INSTEAD),
    *,
    child: Sequence[str] = _CHILD,
    limit: float = LIMIT,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Check parts in child processes, all at once; ``child`` are the arguments of Python that begin one."""
    until = time.monotonic() + limit
    path = os.pathsep.join(sys.path)  # a child finds the package where this process did
    variables = {**os.environ, "PYTHONPATH": path, **(environment or {})}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        begun = {}
        for part in parts:
            output = Path(folder, part)
            command = [sys.executable, *child, part, device, json.dumps(sizes)]
            with output.open("wb") as file:
                process = subprocess.Popen(command, stdout=file, stderr=file, env=variables)
            stack.callback(process.kill)
            begun[part] = process, output
        return {part: _verdict(process, until, output, limit) for part, (process, output) in begun.items()}


def _verdict(process: subprocess.Popen[bytes], until: float, output: Path, limit: float) -> str:
    try:
        code = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"no result within {limit:.0f} s"
    if code < 0:
        return f"its process died: {signal.Signals(-code).name}"
    lines = output.read_text("utf-8", "replace").strip().splitlines()
    return OK if code == 0 else lines[-1][:300] if lines else f"exit status {code}"


def _is_late(reason: str) -> bool:
    return reason.startswith("no result within")


def _is_busy(reason: str) -> bool:
    """True if other processes have the memory of the GPU, or all of it: that says nothing about kernels."""
    return any(words in reason for words in ("out of memory", "busy or unavailable"))


def _cache(device: str, sizes: Sizes) -> Path:
    """File of a result: by GPU, driver, packages, sources and sizes."""
    key = hashlib.sha256(json.dumps([*_hardware(device), *sizes]).encode())
    for name in _SOURCES:
        for source in _files(_MODELS / name):
            key.update(source.read_bytes())
    folder = platformdirs.user_cache_dir("kmip-data", appauthor=False)
    return Path(folder, "self-check", f"{key.hexdigest()}.json")


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from sorted(each for each in path.rglob("*") if each.suffix in {".py", ".cu", ".cuh"})


def _hardware(device: str) -> Iterator[Any]:
    if device == "cuda":
        yield torch.cuda.get_device_name()
        yield from torch.cuda.get_device_capability()
    yield from (_driver(), torch.version.cuda, nvrtc_version())
    for package in _PACKAGES:
        try:
            yield importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield None


def _driver() -> str | None:
    try:
        return Path("/proc/driver/nvidia/version").read_text("utf-8").splitlines()[0]
    except OSError:
        return None


def nvrtc_version() -> str | None:
    """Return the version of NVRTC, which compiles the search, if there is one."""
    from kmip_data.models.search.gpu import launch

    with contextlib.suppress(UsageError):
        return launch.nvrtc_version()
    return None
