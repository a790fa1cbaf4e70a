"""GPU search from a checked problem to launched kernels, without waiting for the device.

The kernels are CUDA C++, compiled by NVRTC on first use and cached on disk.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import time
from pathlib import Path
from typing import IO, Any

import platformdirs
import torch
from torch import Tensor

from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files.changes import write_file
from kmip_data.models.search.gpu.plan import NUMBERS, POINTERS, Launch, Program, plan_of
from kmip_data.models.search.problem import NotFinite, SearchProblem

log = logging.getLogger(__name__)

KERNELS = Path(__file__).parent / "kernels"
_INSTEAD = "use another search backend (dense), or see `kmip-data doctor`"


def run(problem: SearchProblem, device: Device | Any) -> tuple[Tensor, Tensor]:
    """Scores (H, N, k) and indices (H, N, k) by the rule; nothing here waits for the device.

    NaN or infinity is found by the kernels and raised by the next search on that device, as
    :class:`~kmip_data.models.search.problem.NotFinite`: asking now would make the host wait.
    """
    not_finite = _flag(problem.device)
    if not_finite.item():
        not_finite.zero_()
        raise NotFinite(
            f"queries or keys of an earlier search on {problem.device} hold NaN or infinity",
            next="look for a diverged training step (lower the learning rate, clip gradients) or damaged"
            " input; --set model.attention.search=dense names the place",
        )
    scores, indices = problem.new_result()
    if not problem.queries.shape[1] or not problem.keys.shape[1]:
        return scores, indices
    # Kernels read two numbers at once; a view may begin anywhere.
    queries, keys = (
        rows.clone() if rows.data_ptr() % 8 else rows for rows in (problem.queries, problem.keys)
    )
    plan = plan_of(problem, device.processors, device.tensor_cores)
    if problem.keep is not None:
        problem.keep.append(plan)
    scratch = torch.empty(plan.scratch_bytes, dtype=torch.uint8, device=problem.device)
    members = {name: scratch.data_ptr() + offset for name, offset in plan.scratch_starts.items()}
    members |= {name: plan.tables.data_ptr() + offset for name, offset in plan.table_starts.items()}
    members |= {
        "queries": queries.data_ptr(),
        "keys": keys.data_ptr(),
        "hint": 0 if problem.hint is None else problem.hint.data_ptr(),
        "starts": 0 if problem.starts is None else problem.starts.data_ptr(),
        "not_finite": not_finite.data_ptr(),
        "scores": scores.data_ptr(),
        "indices": indices.data_ptr(),
        **plan.numbers,
    }
    search = [members.get(name, 0) for name in (*POINTERS, *NUMBERS)]
    for launch in plan.launches:
        device.launch(plan.program, launch, search)
    return scores, indices


def forget_not_finite(device: torch.device) -> None:
    """Drop what earlier searches found: the run that they were part of has ended."""
    _flag(device).zero_()


@functools.cache
@torch.inference_mode(False)  # the host may write to it in training, too
def _flag(device: torch.device) -> Tensor:
    """One int32 that kernels of a device write to and the host reads: pinned, so both see the same memory."""
    return torch.zeros(1, dtype=torch.int32, pin_memory=device.type == "cuda")


class _Search(ctypes.Structure):
    """``struct Search`` of kernels/common.cuh, which kernels take by value."""

    _fields_ = [("members", ctypes.c_longlong * (len(POINTERS) + len(NUMBERS)))]


class Device:
    """One CUDA device: loads the search kernels and launches them."""

    def __init__(self, index: int) -> None:
        properties = torch.cuda.get_device_properties(index)
        capability = properties.major, properties.minor
        self.processors = int(properties.multi_processor_count)
        #: as ``TENSOR_CORES`` of the kernels
        self.tensor_cores = 2 if capability >= (8, 0) else 1 if capability == (7, 5) else 0
        self._index, self._target = index, f"sm_{properties.major}{properties.minor}"
        self._kernels: dict[tuple[Program, str], Any] = {}
        self._modules: dict[Program, Any] = {}

    def launch(self, program: Program, launch: Launch, search: list[int]) -> None:
        """Run one kernel on torch's current stream; ``search`` holds the members of ``struct Search``."""
        from cuda.bindings import driver

        kernel = self._kernels.get((program, launch.name))
        if kernel is None:
            kernel = self._kernels[program, launch.name] = self._load(program, launch.name)
        argument = _Search((ctypes.c_longlong * len(search))(*search))
        arguments = ctypes.c_void_p(ctypes.addressof(argument))
        stream = torch.cuda.current_stream(self._index).cuda_stream
        (error,) = driver.cuLaunchKernel(
            kernel, *launch.grid, 1, launch.threads, 1, 1, 0, stream, ctypes.addressof(arguments), 0
        )
        if error != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"CUDA driver: {error.name} from search kernel {launch.name}")

    def _load(self, program: Program, name: str) -> Any:
        from cuda.bindings import driver
        from cuda.core import ObjectCode

        code = None if program in self._modules else compiled(program, self._target)
        try:
            if code is not None:
                self._modules[program] = ObjectCode.from_cubin(code)
            return driver.CUfunction(int(self._modules[program].get_kernel(name).handle))
        except Exception as error:  # whatever the driver has against it
            self._modules.pop(program, None)
            raise UsageError(
                "the search kernels could not be loaded",
                expected="an NVIDIA driver for the CUDA version that torch was built for, or a newer one",
                found=f"torch for CUDA {torch.version.cuda}, kernels for {self._target}: {error}",
                next=_INSTEAD,
            ) from error


device_of = functools.cache(Device)  #: the device of an index


def compiled(program: Program, target: str) -> bytes:
    """Machine code of a program for a target such as ``sm_90``: from disk, or by NVRTC (some seconds)."""
    key = hashlib.sha256(repr((program, target, torch.version.cuda)).encode())  # whose NVRTC it is
    for source in sorted(KERNELS.iterdir()):
        key.update(source.read_bytes())
    folder = platformdirs.user_cache_dir("kmip-data", appauthor=False)
    cached = Path(folder, "kernels", f"{key.hexdigest()}.cubin")
    try:
        return cached.read_bytes()
    except OSError:
        started = time.perf_counter()
        log.warning("compiling the search kernels for %s, d = %d (once for each size) …", target, program.dim)
        code = compile_program(program, target)
        log.info("compiled in %.1f s", time.perf_counter() - started)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_file(cached, code)  # atomic: other processes compile the same at the same time
    except (OSError, KmipDataError) as error:
        log.debug("compiled kernels are not cached: %s", error)
    return code


def compile_program(program: Program, target: str, log: IO[str] | None = None, **options: Any) -> bytes:
    """Machine code by NVRTC, which needs no GPU; ``options`` are those of ``cuda.core.ProgramOptions``."""
    try:
        from cuda.core import Program as Source
        from cuda.core import ProgramOptions

        macros = [(name, str(value)) for name, value in {**program.macros(), "EMULATED": 0}.items()]
        given = {"arch": target, "std": "c++17", "include_path": str(KERNELS), "define_macro": macros}
        text = (KERNELS / "search.cu").read_text("utf-8")
        source = Source(text, "c++", ProgramOptions(name="search.cu", **given, **options))
        return bytes(source.compile("cubin", logs=log).code)
    except Exception as error:  # whatever NVRTC, or a machine without it, raises
        raise UsageError(
            f"the search kernels could not be compiled for {target}",
            expected="an NVRTC that knows it, as CUDA builds of torch bring it",
            found=str(error).splitlines()[0],
            next=_INSTEAD,
        ) from error
