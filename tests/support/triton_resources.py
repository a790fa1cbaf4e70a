"""What the kernels of the search take of a GPU that is not there.

``python tests/support/triton_resources.py`` prints the table of ``docs/triton.md``. It cannot run in a
process in which Triton interprets.
"""

from __future__ import annotations

import sys

import triton
from support.triton_compiled import Resources, compile_for

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


def search_resources(capability: int, dim: int, k: int, nodes: int, *, fused: bool) -> Resources:
    """Resources of the search kernel as a problem of that size would launch it."""
    shape = shape_for(dim, k, nodes, nodes, dim if fused else 0)
    return compile_for(
        search_tiles, capability, search_options(shape, ordered=nodes > 4096, fused=fused), _TYPES
    )


def packing_resources(capability: int) -> tuple[Resources, Resources]:
    """Resources of the packing kernels for d = 10 and whole tiles."""
    keys = {"BN": 64, "D": 16, "ORDERED": True, **PACKING}
    queries = {"BM": 64, "D": 16, "ORDERED": True, **PACKING}
    return compile_for(pack_keys, capability, keys, _TYPES), compile_for(
        pack_queries, capability, queries, _TYPES
    )


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
