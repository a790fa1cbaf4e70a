"""Compile the kernels for a GPU that is not there, and read what they take of it.

``python tests/support/triton_resources.py`` prints the table of ``docs/triton.md``. It cannot run in a
process in which Triton interprets.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kmip_data.models.search.gpu.launch import OPTIONS, PACKING, search_options
from kmip_data.models.search.gpu.packing import pack_keys, pack_queries
from kmip_data.models.search.gpu.searching import search_tiles
from kmip_data.models.search.gpu.tiling import shape_for

TARGETS = (80, 90)
#: (d, k, nodes of the largest graph, fused)
CONFIGURATIONS = (
    (10, 10, 100_000, False),
    (10, 10, 100_000, True),
    (10, 100, 100_000, False),
    (10, 1000, 100_000, False),
    (64, 10, 100_000, False),
    (256, 10, 100_000, False),
    (5, 20, 480, False),
    (5, 4, 8, False),
)

_ARGUMENTS = {
    "*i32": "order tiles rows query_rows key_rows work ticket noted noted_counts",
    "*fp64": "affine key_scale",
    "*i64": "best indices",
    "*fp32": "queries keys centres packed axes bounds norms packed_queries packed_keys scores values output",
    "fp32": "softmax_scale slack",
}
_TYPES = {name: kind for kind, names in _ARGUMENTS.items() for name in names.split()}  #: the others are i32


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes.

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


def compile_for(kernel: Any, capability: int, options: dict[str, Any]) -> Resources:
    """Compile a kernel to a cubin for a compute capability (80, 90) and read its resources.

    ``options`` are its compile-time arguments and the compiler's own, as they are passed to a launch.
    """
    constants = {name: value for name, value in options.items() if name in kernel.arg_names}
    settings = {name: value for name, value in options.items() if name not in constants}
    signature = {
        name: "constexpr" if name in constants else _TYPES.get(name, "i32") for name in kernel.arg_names
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


def search_resources(capability: int, dim: int, k: int, nodes: int, *, fused: bool) -> Resources:
    """Resources of the search kernel as a problem of that size would launch it."""
    shape = shape_for(dim, k, nodes, nodes, dim if fused else 0)
    return compile_for(search_tiles, capability, search_options(shape, ordered=nodes > 4096, fused=fused))


def packing_resources(capability: int) -> tuple[Resources, Resources]:
    """Resources of the packing kernels for d = 10 and whole tiles."""
    keys = {"BN": 64, "D": 16, "ORDERED": True, **PACKING}
    queries = {"BM": 64, "D": 16, "ORDERED": True, **PACKING}
    return compile_for(pack_keys, capability, keys), compile_for(pack_queries, capability, queries)


def _main() -> None:
    print(f"Triton {triton.__version__}, {OPTIONS}", file=sys.stderr)  # noqa: T201
    print("| kernel | d | k | nodes | target | registers | spilled | shared | tensor cores |")  # noqa: T201
    print("|---|---|---|---|---|---|---|---|---|")  # noqa: T201
    for target in TARGETS:
        for name, found in zip(("pack_keys", "pack_queries"), packing_resources(target), strict=True):
            _row(name, "10 | – | –", target, found)
        for dim, k, nodes, fused in CONFIGURATIONS:
            found = search_resources(target, dim, k, nodes, fused=fused)
            _row("search, fused" if fused else "search", f"{dim} | {k} | {nodes:,}", target, found)


def _row(name: str, problem: str, target: int, found: Resources) -> None:
    print(  # noqa: T201
        f"| {name} | {problem} | sm_{target} | {found.registers} | {found.spilled} B | {found.shared} B"
        f" | {found.tensor_cores} |",
        flush=True,
    )


if __name__ == "__main__":
    _main()
