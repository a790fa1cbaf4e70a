"""The contribution to PyTorch Geometric passes its own test there, and computes what ours does."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
import torch
import torch_geometric.nn.attention
from support.shared import ROOT

from kmip_data.errors import UsageError
from kmip_data.models import KMIPAttention, KMIPMultiheadAttention

FOLDER = ROOT / "docs" / "upstream"


def loaded(*parts: str) -> ModuleType:
    """A file of the contribution as a module."""
    spec = importlib.util.spec_from_file_location(
        f"upstream_{parts[-1][:-3]}", FOLDER.joinpath(*parts)
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def theirs() -> type[torch.nn.Module]:
    return loaded("torch_geometric", "nn", "attention", "kmip.py").KMIPAttention


def test_its_own_test_passes_in_the_installed_pyg(monkeypatch):
    monkeypatch.setattr(torch_geometric.nn.attention, "KMIPAttention", theirs(), raising=False)
    own = vars(loaded("test", "nn", "attention", "test_kmip_attention.py"))
    tests = [function for name, function in own.items() if name.startswith("test_")]
    assert len(tests) == 4
    for test in tests:
        test()


def test_its_style_is_that_of_the_package():
    """Its lines and quotes are PyG's, and it imports torch alone."""
    text = (FOLDER / "torch_geometric" / "nn" / "attention" / "kmip.py").read_text("utf-8")
    assert max(map(len, text.splitlines())) <= 79
    imported = [line for line in text.splitlines() if line.startswith(("import", "from"))]
    assert not [
        line
        for line in imported
        if line.split()[1].partition(".")[0] not in {"math", "typing", "torch"}
    ]
    performer = torch_geometric.nn.attention.PerformerAttention
    assert theirs().forward.__annotations__ == performer.forward.__annotations__


@pytest.mark.parametrize("k", [1, 3, 50])
def test_equal_to_ours_in_every_form(k):
    torch.manual_seed(k)
    x = torch.randn(3, 12, 16, requires_grad=True)
    mask = torch.arange(12) < torch.tensor([12, 5, 0])[:, None]
    upstream = theirs()(16, heads=4, k=k, head_channels=4)
    ours = KMIPAttention(16, heads=4, key_dim=4, k=k, output_projection=True)
    torchs = KMIPMultiheadAttention(16, 4, k=k, batch_first=True)
    with torch.no_grad():
        weights = [upstream.q.weight, upstream.k_lin.weight, upstream.v.weight]
        for layer, weight in zip((ours.query, ours.key, ours.value), weights, strict=True):
            layer.weight.copy_(weight)
            layer.bias.zero_()
        torchs.in_proj_weight.copy_(torch.cat(weights))
        for output in (ours.output, torchs.out_proj):
            output.load_state_dict(upstream.attn_out.state_dict())
    wanted, dense = upstream(x, mask), ours(x, mask)
    torch.testing.assert_close(dense[mask], wanted[mask])
    assert not dense[~mask].any()
    torch.testing.assert_close(torchs(x, x, x, ~mask, need_weights=False)[0][mask], wanted[mask])
    packed = ours(x[mask], torch.tensor([0, 12, 17, 17]))
    assert torch.equal(dense[mask], packed)
    torch.testing.assert_close(ours(x[:1])[0], upstream(x[:1])[0])
    gradients = [torch.autograd.grad(out[mask].square().sum(), x)[0] for out in (wanted, dense)]
    torch.testing.assert_close(*gradients)


def test_a_mask_that_does_not_fit_is_named():
    ours = KMIPAttention(16, heads=4, key_dim=4, k=2)
    for mask in (torch.ones(2, 5), torch.ones(2, 4, dtype=torch.bool), [0, 5]):
        with pytest.raises(UsageError, match="mask"):
            ours(torch.randn(2, 5, 16), mask)
