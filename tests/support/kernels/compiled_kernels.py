"""Compile Triton's kernels for GPUs that are not there, in a process in which Triton does not interpret."""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kmip_data.models.attention.gpu import kernels as attention
from kmip_data.models.attention.gpu import launch
from kmip_data.models.layers.gpu import gate_kernels
from kmip_data.models.layers.gpu.gate_kernels import OPTIONS, channels_per_tile
from kmip_data.models.layers.gpu.gated_edges import (
    DIFFERENTIATE_TILE,
    EDGE_TILE,
    GATE_TILE,
    SOURCES_TILE,
    STEPS_PER_PROGRAM,
    options_by_node,
)


def compile_for(
    kernel: Any, capability: int, options: dict[str, Any], types: dict[str, str]
) -> dict[str, int]:
    """Compile a kernel to a cubin for a compute capability (80, 90) and read its resources.

    ``options`` are its compile-time arguments and the compiler's own, as they are passed to a
    launch; ``types`` the types of its other arguments by name, i32 where they have none. Returns the
    ``registers`` and ``spilled`` bytes (its whole stack frame) of a thread, and the ``shared``
    bytes of a program.
    """
    names = kernel.arg_names
    constants = {name: value for name, value in options.items() if name in names}
    settings = {name: value for name, value in options.items() if name not in constants}
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32") for name in names
    }
    pointers = [place for place, name in enumerate(names) if signature[name].startswith("*")]
    aligned = {(place,): [["tt.divisibility", 16]] for place in pointers}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=settings)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        command = [str(tool), "--dump-resource-usage", str(cubin)]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", report)}
    spilled = counts["STACK"] + counts["LOCAL"]
    return {"registers": counts["REG"], "spilled": spilled, "shared": compiled.metadata.shared}


_OF_PAIRS = "scores values weights out grad keys grad_scores grad_queries queries grad_keys grad_values sums"
_PAIRS = {
    **dict.fromkeys(_OF_PAIRS.split(), "*fp32"),
    **dict.fromkeys(("indices", "cuts", "not_finite"), "*i32"),
    "dropout_mask": "*u8",
    "scale": "fp32",
    "order": "*i64",
    "start": "*i64",
}


def of_attention(capability: int, *, brief: bool) -> dict[str, dict[str, int]]:
    """Resources of the kernels of attention."""
    compiled = {}
    for (k, width), drop in itertools.product(
        ((10, 14), (15, 19), (10, 76), (1, 8)), (True, False)
    ):
        sizes = launch._tile_sizes(k, width) | ({} if drop else {"dropout_mask": None})
        if drop or not brief:
            for kernel in (attention.attend_rows, attention.attend_rows_backward):
                name = f"{kernel.__name__}, k = {k}, {width}, dropout {drop}"
                compiled[name] = compile_for(kernel, capability, sizes, _PAIRS)
        if brief:
            break
    for width in (76,) if brief else (14, 76):
        for kernel in (attention.sum_segments, attention.add_segments):
            sizes = launch._segment_sizes(width)
            name = f"{kernel.__name__}, {width}"
            compiled[name] = compile_for(kernel, capability, sizes, {**_PAIRS, "keys": "i32"})
    return compiled


#: (d, k), 0: a list of edges, as S3DIS and ShapeNet-Part, superpixels and cities have them
SIZES = ((56, 32), (64, 16), (76, 16), (100, 16), (76, 0))
_FLOATS = (
    "quotient inverse parts norm grad_quotient of_message at_target at_source message grad_target grad_source"
    " grad_message"
)
_STORED = "pre old new grad grad_pre"  # in either type
_TYPES = {
    **dict.fromkeys(["start", "end", "edge", "seed"], "*i64"),
    **dict.fromkeys(_FLOATS.split(), "*fp32"),
    "dropped": "i64",
    "kept_scale": "fp32",
}


def of_layers(capability: int, *, brief: bool) -> dict[str, dict[str, int]]:
    """Resources of each kernel as a layer launches it, by name; ``brief``: in the first size."""
    compiled = {}
    chosen = SIZES[:1] if brief else SIZES
    for (d, k), edges in itertools.product(chosen, ("bf16",) if brief else ("fp32", "bf16")):
        block = channels_per_tile(d)
        sizes = {"D": d, "BC": block, **OPTIONS}
        gate, back = (options_by_node(shape, d, k) for shape in (GATE_TILE, DIFFERENTIATE_TILE))
        rows = {"BE": EDGE_TILE // block, **sizes}
        launches = {
            "gate_edges": {"ADD": True, "STATISTICS": True, **gate},
            "differentiate_gate": back,
            "sum_at_sources": {"BN": SOURCES_TILE // block, **sizes},
            "update_edges": {"SHARED": False, **rows},
            "sum_norm_gradients": {"STEPS": STEPS_PER_PROGRAM, **rows},
        }
        types = {**_TYPES, **dict.fromkeys(_STORED.split(), f"*{edges}")}
        for name, options in launches.items():
            kernel = getattr(gate_kernels, name)
            what = f"{name}, d = {d}, k = {k}, {edges}"
            compiled[what] = compile_for(kernel, capability, options, types)
    return compiled


def resources_of_kernels(*, brief: bool) -> dict[str, dict[str, int]]:
    """Resources of each kernel by GPU and name; ``brief``: a few sizes for one GPU."""
    return {
        f"sm_{target} {name}": resources
        for target, of in itertools.product((90,) if brief else (80, 90), (of_attention, of_layers))
        for name, resources in of(target, brief=brief).items()
    }
