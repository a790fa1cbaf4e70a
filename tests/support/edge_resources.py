"""GPU resources of a layer's kernels, without a GPU: ``python tests/support/edge_resources.py``."""

from __future__ import annotations

import itertools
from typing import Any

from support.triton_compiled import compile_for

from kmip_data.models.layers.gpu import gate_kernels, norm_kernels, products
from kmip_data.models.layers.gpu.gated_edges import DIFFERENTIATE, GATE, SOURCES, by_node
from kmip_data.models.layers.gpu.norm_kernels import OPTIONS, channels_of_a_tile
from kmip_data.models.layers.gpu.norms import FINISH, ROWS, STEPS

#: (d, k), 0: a list of edges, as S3DIS and ShapeNet-Part, superpixels and cities have them
SIZES = ((56, 32), (64, 16), (76, 16), (100, 16), (76, 0))
_FLOATS = (
    "quotient inverse parts norm grad_quotient of_message at_target at_source message grad_target grad_source"
    " grad_message scale shift running_mean running_variance constants"
)
_STORED = "pre old new grad grad_pre rows more out of_rows of_more given"  # in either type
_TYPES = {
    **dict.fromkeys(["start", "end", "edge", "seed", "after", "batches", "first", "first_nodes"], "*i64"),
    **dict.fromkeys(_FLOATS.split(), "*fp32"),
    "deviation": "*fp64",
    **dict.fromkeys(["dropped", "after_dropped"], "i64"),
    **dict.fromkeys(["kept_scale", "after_scale", "share"], "fp32"),
}


def edge_resources(capability: int, *, brief: bool = False) -> dict[str, dict[str, Any]]:
    """Resources of each kernel as a layer would launch it, by name; ``brief``: in the first size alone."""
    found, chosen = {}, SIZES[:1] if brief else SIZES
    plain = itertools.product(chosen, ("bf16",) if brief else ("fp32", "bf16"), (False,))
    of_padding = [(size, "fp32", True) for size in dict.fromkeys((chosen[0], chosen[-1]))]
    for (d, k), edges, padded in (*plain, *of_padding):
        block = channels_of_a_tile(d)
        sizes = {"D": d, "BC": block, **OPTIONS}
        gate, back = (by_node(shape, d, k) for shape in (GATE, DIFFERENTIATE))
        rows = {"BE": ROWS // block, **sizes}
        # An argument that is None is no argument of the compiled kernel.
        nodes = {} if padded else {"first_nodes": None}
        first = {} if padded else {"first": None}
        norm = {"SHARED": False, "RELU": True}
        launches = {
            "gate": {"ADD": True, "STATISTICS": True, **nodes, **gate},
            "differentiate": {**nodes, **back},
            "sum_at_sources": {"BN": SOURCES // block, **sizes},
            "add_and_count": {"STEPS": STEPS, **first, **rows},
            "finish": {"D": d, "EPS": 1e-5, "MOMENTUM": 0.1, "NOTE": True, **FINISH},
            "update": {**norm, **rows},
            "sum_gradients": {"STEPS": STEPS, "RELU": True, **rows},
            "finish_gradients": {"D": d, **first, **FINISH},
            "spread_gradients": {"RELU": True, **first, **rows},
        }
        types = {**_TYPES, **dict.fromkeys(_STORED.split(), f"*{edges}")}
        for name, options in launches.items():
            own = {"rows": "i32"} if name in {"spread_gradients", "update"} else {}
            if name == "finish_gradients":
                own = {"out": "*fp32"}
            kernel = getattr(gate_kernels, name, None) or getattr(norm_kernels, name)
            taken = compile_for(kernel, capability, options, types | own)
            found[f"{name}, d = {d}, k = {k}, {edges}{', padded' if padded else ''}"] = vars(taken)
    splits = (("fp32", "bf16x6"), ("fp32", "bf16x3"), ("bf16", "bf16x3"))[: 1 if brief else 3]
    for d, (edges, split) in itertools.product(sorted({d for d, _ in chosen}), splits):
        options = {"D": d, "BR": products.ROWS, **products.widths(d), "PRECISION": split, **OPTIONS}
        stored = ["rows", "weight", "addend", "out", "pre", "new"]
        types = {**_TYPES, **dict.fromkeys(stored, f"*{edges}")}
        for name, forward in (("form_and_multiply", True), ("multiply_and_sum", False)):
            absent = dict.fromkeys(["addend", "parts"] if forward else ["new"])
            flags = {"SHARED": False, "num_stages": 1, **absent}
            taken = compile_for(products.multiply, capability, {**options, **flags}, types)
            found[f"{name}, d = {d}, {edges}, {split}"] = vars(taken)
    return found


if __name__ == "__main__":
    for target in (80, 90):
        for name, taken in edge_resources(target).items():
            print(f"sm_{target}", name, *(f"{key} {value}" for key, value in taken.items()))  # noqa: T201
