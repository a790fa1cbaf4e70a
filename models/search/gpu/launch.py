"""Launch of a GPU search, without waiting for the device.

The kernels are CUDA C++, compiled by NVRTC on first use and cached on disk.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import platformdirs
import torch
from torch import Tensor

from kmip_data.arrays import I64
from kmip_data.errors import Command, KmipDataError, Setting, Step, UsageError
from kmip_data.files.atomic_writes import write_file
from kmip_data.models.search.gpu.plan import (
    NARROW_INDEX,
    SCRATCH_MEMBERS,
    Launch,
    Program,
    get_search_plan,
)
from kmip_data.models.search.problem import NotFinite, SearchProblem
from kmip_data.runtime.memory import keep_alive_for_capture

log = logging.getLogger(__name__)

KERNELS = Path(__file__).parent / "kernels"
_compilations = itertools.count(1)  # numbers the programs that this process compiles
_DENSE = Setting({"model.attention.search": "dense"})
_FALLBACK_STEPS: list[Step] = [_DENSE, Command("kmip-data doctor")]


def search_on_gpu(problem: SearchProblem, device: SearchDevice | Any) -> tuple[Tensor, Tensor]:
    """Return scores and indices (H, N, k) by the rule, without waiting for the device.

    Kernels detect NaN and infinity. The next search on the device raises
    :class:`~kmip_data.models.search.problem.NotFinite`, as an immediate check would have to wait.
    """
    not_finite = not_finite_flag(problem.device)
    scores, indices = problem.new_result(torch.int32 if problem.has_int32_indices else torch.int64)
    if not problem.queries.shape[1] or not problem.keys.shape[1]:
        return scores, indices
    # Kernels read two numbers at once, but a view may have any alignment.
    rows = [
        tensor.clone() if tensor.data_ptr() % 8 else tensor
        for tensor in (problem.queries, problem.keys)
    ]
    plan = keep_alive_for_capture(get_search_plan(problem, device.processors))
    scratch = torch.empty(plan.scratch_bytes, dtype=torch.uint8, device=problem.device)
    tensors = (*rows, *plan.starts, not_finite, scores, indices)
    members = plan.members.copy()
    members[: len(tensors)] = [tensor.data_ptr() for tensor in tensors]
    members[SCRATCH_MEMBERS] += scratch.data_ptr()
    members[NARROW_INDEX] = problem.has_int32_indices
    device.launch(plan.program, plan.launches[int(plan.has_tables) :], members)
    plan.has_tables = True
    return scores, indices


def reset_not_finite_flags(device: torch.device) -> None:
    """Reset the flag of earlier searches, after a run has ended."""
    _flag_of_device(device).zero_()


def not_finite_flag(device: torch.device) -> Tensor:
    """Return the int32 flag that kernels set if queries, keys or best products are not finite.

    Raises ``NotFinite`` if an earlier kernel has set it.
    """
    not_finite = _flag_of_device(device)
    if not_finite.item():
        not_finite.zero_()
        raise NotFinite(
            f"queries, keys or their inner products in an earlier search on {device} are NaN or infinite.",
            steps=["lower the learning rate, clip gradients; 'dense' names the row", _DENSE],
        )
    return not_finite


@functools.cache
@torch.inference_mode(False)  # the host also writes to it in training
def _flag_of_device(device: torch.device) -> Tensor:
    """Return the device's pinned int32, which kernels write and the host reads."""
    return torch.zeros(1, dtype=torch.int32, pin_memory=device.type == "cuda")


class SearchDevice:
    """CUDA device that loads and launches the search kernels."""

    def __init__(self, index: int) -> None:
        properties = torch.cuda.get_device_properties(index)
        self.processors = int(properties.multi_processor_count)
        self._index = index
        self._architecture = f"sm_{properties.major}{properties.minor}"
        self._kernels: dict[Program, dict[str, object]] = {}
        self._modules: dict[Program, Any] = {}

    def launch(
        self,
        program: Program,
        launches: Sequence[Launch],
        members: I64,
    ) -> None:
        """Launch kernels on torch's current stream with the ``members`` (n,) of ``struct Search``."""
        from cuda.bindings import driver

        kernels = self._kernels.setdefault(program, {})
        stream = torch.cuda.current_stream(self._index).cuda_stream
        parameters = np.array([members.ctypes.data])  # kernels take the struct by value
        for name, *grid, threads in launches:
            if name not in kernels:
                kernels[name] = self._load_kernel(program, name)
            arguments = (*grid, 1, threads, 1, 1, 0, stream, parameters.ctypes.data, 0)
            (error,) = driver.cuLaunchKernel(kernels[name], *arguments)
            # A thread that has not used the device has no context yet.
            if error == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
                kernels[name] = self._load_kernel(program, name)
                (error,) = driver.cuLaunchKernel(kernels[name], *arguments)
            if error != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"CUDA driver: {error.name} from search kernel {name}")

    def _load_kernel(self, program: Program, name: str) -> object:
        from cuda.bindings import driver
        from cuda.core import Device as CudaDevice
        from cuda.core import ObjectCode

        CudaDevice(self._index).set_current()
        code = machine_code(program, self._architecture)
        try:
            if program not in self._modules:
                self._modules[program] = ObjectCode.from_cubin(code)
            return driver.CUfunction(int(self._modules[program].get_kernel(name).handle))
        except Exception as error:  # any error of the driver
            raise UsageError(
                f"Search kernels for {self._architecture} from {cache_folder()} do not load: {error}",
                steps=[
                    f"move that folder away; update the NVIDIA driver to CUDA {torch.version.cuda} or newer",
                    *_FALLBACK_STEPS,
                ],
            ) from error


get_device = functools.cache(SearchDevice)  #: returns the device with an index


def cache_folder() -> Path:
    """Return the folder of compiled programs."""
    return Path(platformdirs.user_cache_dir("kmip-data", appauthor=False), "kernels")


def machine_code(program: Program, architecture: str) -> bytes:
    """Load the machine code of a program for an architecture such as ``sm_90``, or compile it (seconds)."""
    key = hashlib.sha256(repr((program, architecture, nvrtc_version())).encode())
    for source in sorted(KERNELS.iterdir()):
        key.update(source.read_bytes())
    cached = cache_folder() / f"{key.hexdigest()}.cubin"
    with suppress(OSError):
        return cached.read_bytes()
    number = next(_compilations)
    log.log(
        logging.WARNING if number == 1 else logging.INFO,
        "compiling search program %d for %s, d = %d (once for each size, 2 to 4 s, kept in %s)",
        number,
        architecture,
        program.dim,
        cached.parent,
    )
    code = compile_program(program, architecture)
    with suppress(OSError, KmipDataError):  # without a cache, it is compiled in every process
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_file(cached, code)  # atomic, as other processes may compile the same program
    return code


@functools.cache
def nvrtc_version() -> str:
    """Return the version of NVRTC, such as ``13.5``.

    Raises ``UsageError`` if it cannot be loaded.
    """
    try:
        from cuda.bindings import nvrtc

        return ".".join(map(str, nvrtc.nvrtcVersion()[1:]))
    except Exception as error:
        # ImportError, or any error of cuda.bindings without the library.
        raise UsageError(f"NVRTC cannot be loaded: {error}", steps=_FALLBACK_STEPS) from error


def compile_program(
    program: Program,
    architecture: str,
    log: IO[str] | None = None,
    **options: object,
) -> bytes:
    """Compile a program to machine code by NVRTC, which needs no GPU.

    ``options`` are passed to ``cuda.core.ProgramOptions``.
    """
    try:
        from cuda.core import Program as Source
        from cuda.core import ProgramOptions

        macros = [(name, str(value)) for name, value in {**program.macros(), "EMULATED": 0}.items()]
        settings = {
            "arch": architecture,
            "std": "c++17",
            "include_path": str(KERNELS),
            "define_macro": macros,
        }
        text = (KERNELS / "search.cu").read_text("utf-8")
        source = Source(text, "c++", ProgramOptions(name="search.cu", **settings, **options))
        return bytes(source.compile("cubin", logs=log).code)
    except Exception as error:  # any error of NVRTC, or its absence
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"NVRTC cannot compile the search for {architecture}: {reason}", steps=_FALLBACK_STEPS
        ) from error
