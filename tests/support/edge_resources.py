"""What GatedGCN's kernels take of a GPU that is not there: ``python tests/support/edge_resources.py``."""

from __future__ import annotations

import itertools
from typing import Any

from support.triton_compiled import compile_for

from kmip_data.models.layers.gpu import gate_kernels as kernels
from kmip_data.models.layers.gpu import products
from kmip_data.models.layers.gpu.gated_edges import (
    BLOCK,
    DIFFERENTIATE,
    GATE,
    ROWS,
    SOURCES,
    STEPS,
    by_node,
)
from kmip_data.models.layers.gpu.tiles import OPTIONS, channels_of_a_tile

#: (d, k), 0: a list of edges, as S3DIS and ShapeNet-Part, superpixels and cities have them
SIZES = ((56, 32), (64, 16), (76, 16), (76, 0))
_FLOATS = (
    "quotient inverse parts norm grad_quotient of_message at_target at_source message grad_target grad_source"
    " grad_message"
)
_TYPES = {
    **dict.fromkeys(["start", "end", "edge", "seed"], "*i64"),
    **dict.fromkeys(_FLOATS.split(), "*fp32"),
    "dropped": "i64",
    "kept_scale": "fp32",
}


def edge_resources(capability: int) -> dict[str, dict[str, Any]]:
    """Resources of each kernel in each size, as a layer would launch it, by name."""
    found = {}
    for (d, k), edges in itertools.product(SIZES, ("fp32", "bf16")):
        block = channels_of_a_tile(d)
        sizes = {"D": d, "BC": block, **OPTIONS}
        gate, back = (by_node(shape, d, k) for shape in (GATE, DIFFERENTIATE))
        launches = {
            "gate": {"ADD": True, "STATISTICS": True, **gate},
            "update": {"D": d, "BLOCK": BLOCK, "SHARED": False, "DROP": True, **OPTIONS},
            "sum_gradients": {"STEPS": STEPS, "BE": ROWS // block, "DROP": True, **sizes},
            "differentiate": {"UPDATE": True, "DROP": True, **back},
            "sum_at_sources": {"BN": SOURCES // block, **sizes},
        }
        types = {**_TYPES, **dict.fromkeys(("pre", "old", "new", "grad", "grad_pre"), f"*{edges}")}
        for name, options in launches.items():
            taken = compile_for(getattr(kernels, name), capability, options, types)
            found[f"{name}, d = {d}, k = {k}, {edges}"] = vars(taken)
    for d in sorted({d for d, _ in SIZES}):
        options = {"D": d, "BR": products.ROWS, **products.widths(d), "ADD": True, "PRECISION": "bf16x3"}
        types = dict.fromkeys(["rows", "weight", "addend", "out"], "*fp32")
        taken = compile_for(products.multiply, capability, {**options, **OPTIONS}, types)
        found[f"multiply, d = {d}, fp32"] = vars(taken)
    return found


if __name__ == "__main__":
    for target in (80, 90):
        for name, taken in edge_resources(target).items():
            print(f"sm_{target}", name, *(f"{key} {value}" for key, value in taken.items()))  # noqa: T201
