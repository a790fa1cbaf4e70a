"""A part of the self-check with an emulated GPU on the CPU, whole or broken on purpose.

The search is compiled by g++, Triton interprets its kernels, and a CUDA graph is a list of
operators. It stands in for ``python -m kmip_data.models.training.self_check``, with one argument
before its own: the damage.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from support.kernels.cuda_emulator import EmulatedDevice
from support.kernels.emulated_graph import EmulatedGraphs

from kmip_data.models import kernel_availability
from kmip_data.models.attention import operators
from kmip_data.models.kernel_availability import DISABLED_GPU_FEATURES
from kmip_data.models.layers import gated_gcn
from kmip_data.models.search.backends import cuda
from kmip_data.models.search.gpu import plan
from kmip_data.models.search.gpu.launch import search_on_gpu
from kmip_data.models.training import self_check as parts
from kmip_data.models.training.capture import cuda_graphs

ROOT = Path(__file__).parents[3]
SIZES = {"heads": 2, "k": 4, "key_dim": 5, "value_dim": 7, "hidden_dim": 12}
#: environment of a child process, without the folder of its search programs (EMULATED_KERNELS)
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    "TRITON_INTERPRET": "1",
    "OMP_NUM_THREADS": "1",
}


def lower_size_thresholds() -> None:
    """Order keys of few rows and share them, so that few rows do what otherwise many do."""
    plan._MIN_ORDERED_KEYS, plan._MANY_ROWS, plan._SOME_ROWS = 300, 1_200, 10**9
    plan._MAX_BUCKETS_PER_ROW = 10**9
    parts.BATCH_ROWS, parts.SORTED_ROWS, parts.SHARED_ROWS = 90, 300, 400
    parts.GRAPHS_PER_SIZE = 1


def emulate_search(folder: Path) -> None:
    """Let the backend ``cuda`` search on an emulated device, whose programs stay in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    device = EmulatedDevice(folder)
    cuda.why_unusable = lambda _: None
    cuda.search = lambda problem: search_on_gpu(problem, device)


def use_kernels_on_cpu(part: str) -> None:
    """Send tensors of the CPU to the kernels; captured steps are of operators alone."""
    from kmip_data.models.layers.gpu import gated_edges

    cuda_graphs.CudaGraphs = _Graphs  # type: ignore[misc]
    if part == "capture":
        gated_gcn._find_kernel = lambda *_: None
        return
    operators._uses_cpu_kernels = lambda _: False
    kernel_availability.is_triton_available = lambda _: True
    gated_gcn._find_kernel = lambda *args: (
        gated_edges.gated_edges
        if args[-1].C.weight.dtype == torch.float32 and "edges" not in DISABLED_GPU_FEATURES
        else None
    )


class _Graphs(EmulatedGraphs):
    def __init__(self, _device: torch.device) -> None:
        super().__init__()


def scale_results(part: str) -> None:
    """Let the kernels of a part give a result that is 1 % too large, and the gradients of that."""
    from kmip_data.models.attention.gpu import launch
    from kmip_data.models.layers.gpu import gated_edges

    module, name = {
        "attention": (launch, "forward"),
        "edges": (gated_edges, "gated_edges"),
    }[part]
    function = getattr(module, name)

    def wrong(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        return 1.01 * result[0], result[1]

    setattr(module, name, wrong)


def main(damage: str, part: str, device: str, sizes: str) -> None:
    lower_size_thresholds()
    emulate_search(Path(os.environ["EMULATED_KERNELS"]))
    use_kernels_on_cpu(part)
    if damage == "other result":
        scale_results(part)
    parts.main(part, device, sizes)


if __name__ == "__main__":
    main(*sys.argv[1:])
