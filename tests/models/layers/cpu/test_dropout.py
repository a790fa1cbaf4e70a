"""Dropout by a hash: its chances, its gradient, its seed, and where torch's own stays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kmip_data.models.layers import norms
from kmip_data.models.layers.cpu.dropout import apply_dropout_mask, dropout
from kmip_data.runtime import parallel


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_keeps_each_value_with_its_chance(p: float) -> None:
    torch.manual_seed(0)
    out = dropout(torch.ones(400_000), p)
    kept = out > 0
    assert abs(float(kept.float().mean()) - (1 - p)) < 4 * (p * (1 - p) / 400_000) ** 0.5
    assert torch.allclose(out[kept], torch.tensor(1 / (1 - p)))
    # Neighbours do not hang together, nor do the masks of two seeds.
    other = dropout(torch.ones(400_000), p) > 0
    deviations = kept.float() - (1 - p)
    for following in (deviations.roll(1), deviations.roll(16), other.float() - (1 - p)):
        assert abs(float((deviations * following).mean())) < 5 * p * (1 - p) / 400_000**0.5


def test_masks_follow_the_definition_of_the_hash() -> None:
    seed = (7 << 32) | 11
    number = np.arange(5, 2_005, dtype=np.uint64)
    mask = np.uint64(2**32 - 1)
    hashed = number ^ np.uint64(11)
    hashed = (hashed ^ (hashed >> np.uint64(17))) * np.uint64(0xED5AD4BB) & mask
    hashed ^= np.uint64(7)
    hashed = (hashed ^ (hashed >> np.uint64(11))) * np.uint64(0xAC4C1B51) & mask
    hashed = (hashed ^ (hashed >> np.uint64(15))) * np.uint64(0x31848BAB) & mask
    hashed ^= hashed >> np.uint64(14)
    kept = apply_dropout_mask(torch.ones(2_000), 0.3, seed, 5) > 0
    assert kept.tolist() == (hashed >= round(0.3 * 2**32)).tolist()


def test_gradient_flows_where_the_value_did() -> None:
    x = torch.randn(300, 70, requires_grad=True)
    slope = torch.randn(70, 300).T  # any layout
    out = dropout(x, 0.3)
    (gradient,) = torch.autograd.grad(out, x, slope)
    scale = np.float32(1 / 0.7)
    torch.testing.assert_close(out, torch.where(out != 0, x * scale, 0.0))
    torch.testing.assert_close(gradient, torch.where(out != 0, slope * scale, 0.0))


def test_torchs_seed_decides_for_any_number_of_threads(monkeypatch) -> None:
    monkeypatch.setattr("kmip_data.models.layers.cpu.dropout.MIN_VALUES_PER_THREAD", 100)
    x = torch.randn(3_001)
    results = []
    with parallel.restore_thread_limit():
        for count in (1, 2):
            parallel.set_num_threads(count)
            torch.manual_seed(5)
            results.append(dropout(x, 0.5))
    assert torch.equal(*results)
    assert not torch.equal(results[0], dropout(x, 0.5))


def test_small_tensors_and_other_dtypes_use_torchs_dropout() -> None:
    for x in (torch.randn(100), torch.randn(norms.MIN_HASHED_ELEMENTS, dtype=torch.float64)):
        torch.manual_seed(1)
        out = norms.dropout(x, 0.4)
        torch.manual_seed(1)
        assert torch.equal(out, torch.nn.functional.dropout(x, 0.4))
    many = torch.randn(norms.MIN_HASHED_ELEMENTS)
    torch.manual_seed(1)
    out = norms.dropout(many, 0.4)
    torch.manual_seed(1)
    assert torch.equal(out, dropout(many, 0.4))
    assert torch.equal(norms.dropout(many, 0.0), many)
    assert bool((norms.dropout(many, 1.0) == 0).all())
