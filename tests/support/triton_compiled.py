"""Compile a Triton kernel for a GPU that is not there, and read what it takes of it.

It cannot run in a process in which Triton interprets.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@dataclass(frozen=True)
class Resources:
    """Resources of one compiled kernel.

    Attributes
    ----------
    registers, spilled
        Of a thread; spilled in bytes (its whole stack frame).
    shared
        Bytes of a program.
    tensor_cores
        The instruction that multiplies: ``wgmma``, ``mma.sync`` or ``none``.
    """

    registers: int
    spilled: int
    shared: int
    tensor_cores: str


def compile_for(kernel: Any, capability: int, options: dict[str, Any], types: dict[str, str]) -> Resources:
    """Compile a kernel to a cubin for a compute capability (80, 90) and read its resources.

    ``options`` are its compile-time arguments and the compiler's own, as they are passed to a launch;
    ``types`` those of its other arguments by name, i32 where they have none.
    """
    constants = {name: value for name, value in options.items() if name in kernel.arg_names}
    settings = {name: value for name, value in options.items() if name not in constants}
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names
    }
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*")
    }
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=settings)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        report = subprocess.run(
            [str(tool), "--dump-resource-usage", str(cubin)], capture_output=True, text=True, check=True
        ).stdout
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", report)}
    ptx = compiled.asm["ptx"]
    cores = next((name for name in ("wgmma", "mma.sync") if name in ptx), "none")
    return Resources(found["REG"], found["STACK"] + found["LOCAL"], compiled.metadata.shared, cores)
