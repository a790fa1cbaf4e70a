"""Search kernels of a CUDA device: compiled by NVRTC on first use, cached on disk, launched."""

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

from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files.changes import write_file
from kmip_data.models.search.gpu.plan import NUMBERS, POINTERS, Launch, Program

log = logging.getLogger(__name__)

KERNELS = Path(__file__).parent / "kernels"


class _Search(ctypes.Structure):
    """``struct Search`` of kernels/common.cuh, which kernels take by value."""

    _fields_ = [("members", ctypes.c_longlong * (len(POINTERS) + len(NUMBERS)))]


class Card:
    """One CUDA device as what runs kernels."""

    def __init__(self, index: int) -> None:
        properties = torch.cuda.get_device_properties(index)
        capability = properties.major, properties.minor
        self.processors = int(properties.multi_processor_count)
        self.tensor_cores = 2 if capability >= (8, 0) else 1 if capability == (7, 5) else 0
        self._index, self._target = index, f"sm_{properties.major}{properties.minor}"
        self._kernels: dict[tuple[Program, str], Any] = {}
        self._modules: dict[Program, Any] = {}

    def launch(self, program: Program, launch: Launch, search: list[int]) -> None:
        """Run one kernel on torch's current stream."""
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
                next="use another search backend (dense), or see `kmip-data doctor`",
            ) from error


@functools.cache
def card_of(index: int) -> Card:
    """The card of that number."""
    return Card(index)


def compiled(program: Program, target: str) -> bytes:
    """Machine code of a program for a target such as ``sm_90``: from disk, or by NVRTC (some seconds)."""
    key = hashlib.sha256(repr((program, target, torch.version.cuda)).encode())  # whose NVRTC it is
    for source in sorted(KERNELS.iterdir()):
        key.update(source.read_bytes())
    folder = platformdirs.user_cache_dir("kmip-data", appauthor=False)
    kept = Path(folder, "kernels", f"{key.hexdigest()}.cubin")
    try:
        return kept.read_bytes()
    except OSError:
        started = time.perf_counter()
        log.warning("compiling the search kernels for %s, d = %d (once for each size) …", target, program.dim)
        code = compile_program(program, target)
        log.info("compiled in %.1f s", time.perf_counter() - started)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_file(kept, code)  # whole or not at all: others compile the same at the same time
    except (OSError, KmipDataError) as error:
        log.debug("compiled kernels are not kept: %s", error)
    return code


def compile_program(program: Program, target: str, log: IO[str] | None = None, **options: Any) -> bytes:
    """Machine code by NVRTC, which needs no card; ``options`` are those of ``cuda.core.ProgramOptions``."""
    from cuda.core import Program as Source
    from cuda.core import ProgramOptions

    macros = [(name, str(value)) for name, value in {**program.macros(), "EMULATED": 0}.items()]
    try:
        source = Source(
            (KERNELS / "search.cu").read_text("utf-8"),
            "c++",
            ProgramOptions(
                name="search.cu",
                arch=target,
                std="c++17",
                include_path=str(KERNELS),
                define_macro=macros,
                **options,
            ),
        )
        return bytes(source.compile("cubin", logs=log).code)
    except Exception as error:  # whatever NVRTC, or a machine without it, raises
        raise UsageError(
            "the search kernels could not be compiled",
            expected=f"an NVRTC that knows {target}, as CUDA builds of torch bring it",
            found=str(error).splitlines()[0],
            next="use another search backend (dense), or see `kmip-data doctor`",
        ) from error
