"""The search kernels on a CPU: compiled by g++ with ``cuda_emulation.h``, launched as on a GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from kmip_data.models.search.gpu.launch import KERNELS
from kmip_data.models.search.gpu.plan import Launch, Program

COMPILER = shutil.which("g++")


class EmulatedDevice:
    """A device of two processors whose kernels run on the CPU.

    Programs are compiled into ``folder`` once.
    """

    processors = 2

    def __init__(self, folder: Path, kernels: Path = KERNELS) -> None:
        self.folder, self.kernels = folder, kernels
        self.launched: list[str] = []
        self._libraries: dict[Program, ctypes.CDLL] = {}

    def launch(
        self, program: Program, launches: Sequence[Launch], members: NDArray[np.int64]
    ) -> None:
        library = self._library(program)
        for name, *sizes in launches:
            self.launched.append(name)
            getattr(library, f"run_{name}")(*sizes, ctypes.c_void_p(members.ctypes.data))

    def _library(self, program: Program) -> ctypes.CDLL:
        if program not in self._libraries:
            macros = program.macros() | {"EMULATED": 1}
            target = self.folder / ("_".join(map(str, macros.values())) + ".so")
            with FileLock(target.with_suffix(".lock")):  # of several processes one compiles
                if not target.exists():
                    command = [
                        *(
                            str(COMPILER),
                            "-std=c++20",
                            "-O1",
                            "-w",
                            "-U_FORTIFY_SOURCE",
                            "-shared",
                            "-fPIC",
                        ),
                        *(f"-D{name}={value}" for name, value in macros.items()),
                        *(f"-I{Path(__file__).parent}", f"-I{self.kernels}", "-x", "c++"),
                        *(str(self.kernels / "search.cu"), "-o", str(target)),
                    ]
                    subprocess.run(command, check=True)
            self._libraries[program] = ctypes.CDLL(str(target))
        return self._libraries[program]
