"""Triton's attention kernels on a GPU.

Without one they are interpreted and compiled, see tests/models.
"""

from __future__ import annotations

import pytest
import torch

from kmip_data.models import kernel_availability
from kmip_data.models.attention import operators
from kmip_data.models.attention.kmip import kmip_attention_with_weights

needs_gpu = pytest.mark.skipif(
    not (
        torch.cuda.is_available() and kernel_availability.is_triton_available(torch.device("cuda"))
    ),
    reason="no CUDA device that Triton compiles for: kernels were only interpreted and compiled",
)


@needs_gpu
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(("dim", "width", "k"), [(10, 14, 15), (5, 76, 1), (19, 19, 100)])
def test_kernels_on_a_gpu_are_deterministic_and_equal_the_cpu(
    dim: int, width: int, k: int, dropout: float
) -> None:
    """The same bits twice, the CPU's result to tolerance, one key chosen by all, and nothing waits."""
    generator = torch.Generator().manual_seed(3)
    queries, keys, values = (
        torch.randn(2, 20_000, size, generator=generator) for size in (dim, dim, width)
    )
    queries.abs_()
    keys[:, 5_000] = 9
    ptr = [0, 1, 1, 500, 15_000, 20_000]
    dropout_mask = torch.rand(2, 20_000, k, generator=generator) >= dropout if dropout else None
    attended = kmip_attention_with_weights(queries, keys, values, k, query_ptr=ptr)
    scores, grad = attended.weights.log(), torch.randn(attended.out.shape, generator=generator)

    def run(device: str) -> list[torch.Tensor]:
        rows = [tensor.to(device).requires_grad_() for tensor in (queries, keys, values)]
        on_device = [tensor.to(device) for tensor in (scores, attended.indices.int(), grad)]
        mask = None if dropout_mask is None else dropout_mask.to(device)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            out, weights = operators.attend(*rows, *on_device[:2], 1.0, mask, 2.0)
            return [out, weights, *torch.autograd.grad(out, rows, on_device[2])]
        finally:
            torch.cuda.set_sync_debug_mode("default")

    once, twice, expected = run("cuda"), run("cuda"), run("cpu")
    for a, b, c in zip(once, twice, expected, strict=True):
        assert torch.equal(a, b)
        size = c.abs().max().clamp_min(1e-6)
        torch.testing.assert_close(a.cpu() / size, c / size, rtol=1e-4, atol=1e-5)
