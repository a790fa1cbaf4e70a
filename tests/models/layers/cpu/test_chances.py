"""Dropout by blocks: the numbers and the state of PyTorch's generator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from kmip_data.models.layers import norms
from kmip_data.models.layers.cpu import chances

INTEL = "GenuineIntel" in Path("/proc/cpuinfo").read_text()


@pytest.mark.skipif(INTEL, reason="PyTorch draws from MKL on this processor")
@pytest.mark.parametrize("count", [1, 311, 312, 313, 1_000, 70_001])
@pytest.mark.parametrize("p", [0.1, 1 / 3, 0.5])
@pytest.mark.parametrize("drawn", [0, 1, 623])  # numbers before: an odd one splits an element
def test_masks_gradients_and_generator_are_pytorchs(count, p, drawn):
    torch.manual_seed(count)
    x = torch.randn(count).requires_grad_()
    if drawn:
        torch.empty(drawn, dtype=torch.int32).random_()
    before = torch.get_rng_state()
    expected = torch.nn.functional.dropout(x, p)
    after = torch.get_rng_state()

    torch.set_rng_state(before)
    result = chances.dropout(x, p)
    assert torch.equal(torch.get_rng_state(), after)
    assert torch.equal(result, expected)
    slope = torch.randn(count)
    (gradient,) = torch.autograd.grad(result, x, slope)
    (of_torch,) = torch.autograd.grad(expected, x, slope)
    assert torch.equal(gradient, of_torch)


def test_masks_follow_the_definition_of_the_generator():
    torch.manual_seed(7)
    kept = torch.empty(2_000, dtype=torch.bool)
    chances.draw_chances(kept, 0.3)
    words = np.random.RandomState(7).randint(0, 2**32, 4_000, dtype=np.uint64)
    high, low = words[::2], words[1::2]
    numbers = ((high << np.uint64(32)) | low) & np.uint64(2**53 - 1)
    assert kept.tolist() == (numbers / 2.0**53 < 0.3).tolist()


def test_what_is_not_finite_stays_so_and_rows_of_any_layout():
    x = torch.full((300, 300), torch.nan).T
    assert chances.dropout(x, 0.5).isnan().all()
    x = torch.arange(90_000.0).view(300, 300).T
    torch.manual_seed(0)
    result = norms.dropout(x, 0.5)
    torch.manual_seed(0)
    assert torch.equal(result, chances.dropout(x.contiguous(), 0.5))
    assert torch.equal(result[result != 0], 2 * x[result != 0])
