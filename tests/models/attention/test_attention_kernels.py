"""Triton's attention kernels without a GPU: interpreted in one process, compiled in another; and on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.interpreted import child, interpreted, needs_interpreter, needs_triton, said

from kmip_data.models.attention import operators
from kmip_data.models.attention.kmip import attend_to_best

INTERPRETED = Path(__file__).with_name("kernels_interpreted.py")
needs_gpu = pytest.mark.skipif(
    not (torch.cuda.is_available() and operators.triton_runs(torch.device("cuda"))),
    reason="no CUDA device that Triton compiles for: kernels were only interpreted and compiled",
)


@needs_interpreter
@pytest.mark.slow
def test_kernels_in_the_interpreter() -> None:
    assert interpreted(INTERPRETED) >= 19


@needs_interpreter
@pytest.mark.torture
def test_longer_cases_in_the_interpreter() -> None:
    assert interpreted(INTERPRETED, "torture") >= 3


COMPILE = """
import json
from support.triton_compiled import compile_for
from kmip_data.models.attention.gpu import kernels, launch
numbers = "indices cuts"
floats = "scores values weights out grad keys slopes grad_queries queries grad_keys grad_values sums"
types = {**dict.fromkeys(floats.split(), "*fp32"), **dict.fromkeys(numbers.split(), "*i32")}
types |= {"keep": "*u8", "scale": "fp32", "order": "*i64", "start": "*i64"}
of_sums = {**types, "keys": "i32"}
found = []
for target in (80, 90):
    for k, width in ((10, 14), (15, 19), (10, 76), (1, 8)):
        sizes = launch._tile(k, width)
        for drop in (False, True):
            rows = compile_for(kernels.attend_rows, target, {"DROP": drop, **sizes}, types)
            found += [rows, compile_for(kernels.slope_rows, target, {"DROP": drop, **sizes}, types)]
    for width in (14, 76):
        sizes = launch._segment_sizes(width)
        found.append(compile_for(kernels.sum_segments, target, {"DROP": True, **sizes}, of_sums))
        found.append(compile_for(kernels.add_segments, target, sizes, of_sums))
print(json.dumps([vars(each) for each in found]))
"""


@needs_triton
@pytest.mark.slow
def test_kernels_compile_without_a_gpu_and_hardly_spill() -> None:
    """By the compiler of Triton 3.9 nothing at all, by that of 3.6 (CUDA 12.8) 8 bytes for sm_90."""
    found = json.loads(said("-c", COMPILE))
    assert len(found) == 2 * (4 * 2 * 2 + 2 * 2)
    assert max(kernel["spilled"] for kernel in found) <= 8
    assert max(kernel["registers"] for kernel in found) <= 200


def test_without_a_gpu_kernels_stay_away() -> None:
    """Importing attention loads no kernel, and tensors elsewhere go to torch operations."""
    program = (
        "import sys, torch; from kmip_data.models.attention import gathered, kmip, operators\n"
        "assert operators.kernels_for(torch.ones(1)) is gathered\n"
        "print([name for name in sys.modules if 'attention.gpu' in name])"
    )
    assert child("-c", program).stdout.strip() == "[]"


@needs_gpu
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(("dim", "width", "k"), [(10, 14, 15), (5, 76, 1), (19, 19, 100)])
def test_kernels_on_a_gpu(dim: int, width: int, k: int, dropout: float) -> None:
    """The same bits twice, those of the CPU to tolerance, one key chosen by all, and nothing waits."""
    generator = torch.Generator().manual_seed(3)
    queries, keys, values = (torch.randn(2, 20_000, size, generator=generator) for size in (dim, dim, width))
    queries.abs_()
    keys[:, 5_000] = 9
    ptr = [0, 1, 1, 500, 15_000, 20_000]
    keep = torch.rand(2, 20_000, k, generator=generator) >= dropout if dropout else None
    found = attend_to_best(queries, keys, values, k, query_ptr=ptr)
    scores, grad = found.weights.log(), torch.randn(found.out.shape, generator=generator)

    def run(device: str) -> list[torch.Tensor]:
        rows = [tensor.to(device).requires_grad_() for tensor in (queries, keys, values)]
        given = [tensor.to(device) for tensor in (scores, found.indices.int(), grad)]
        mask = None if keep is None else keep.to(device)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            out, weights = operators.attend(*rows, *given[:2], 1.0, mask, 2.0)
            return [out, weights, *torch.autograd.grad(out, rows, given[2])]
        finally:
            torch.cuda.set_sync_debug_mode("default")

    once, twice, expected = run("cuda"), run("cuda"), run("cpu")
    for a, b, c in zip(once, twice, expected, strict=True):
        assert torch.equal(a, b)
        size = c.abs().max().clamp_min(1e-6)
        torch.testing.assert_close(a.cpu() / size, c / size, rtol=1e-4, atol=1e-5)
