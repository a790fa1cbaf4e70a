import pytest
import torch

from torch_geometric.nn.attention import KMIPAttention


def test_kmip_attention():
    x = torch.randn(1, 4, 16)
    mask = torch.ones([1, 4], dtype=torch.bool)
    attn = KMIPAttention(channels=16, heads=4, k=2)
    out = attn(x, mask)
    assert out.shape == (1, 4, 16)
    assert str(attn) == 'KMIPAttention(heads=4, k=2, head_channels=64)'

    with pytest.raises(ValueError, match="at least 1"):
        KMIPAttention(channels=16, k=0)


def test_kmip_attention_is_full_attention_for_large_k():
    x = torch.randn(2, 5, 8)
    attn = KMIPAttention(channels=8, heads=2, k=100, head_channels=4)
    mha = torch.nn.MultiheadAttention(8, 2, bias=True, batch_first=True)
    with torch.no_grad():
        mha.in_proj_weight.copy_(
            torch.cat([attn.q.weight, attn.k_lin.weight, attn.v.weight]))
        mha.in_proj_bias.zero_()
        mha.out_proj.weight.copy_(attn.attn_out.weight)
        mha.out_proj.bias.copy_(attn.attn_out.bias)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    expected, _ = mha(x, x, x, key_padding_mask=~mask)
    assert torch.allclose(attn(x, mask)[mask], expected[mask], atol=1e-6)


def test_kmip_attention_ignores_padding():
    attn = KMIPAttention(channels=8, heads=2, k=3)
    x = torch.randn(2, 6, 8)
    mask = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    out = attn(x, mask)
    assert torch.allclose(out[1, :2], attn(x[1:, :2])[0], atol=1e-6)
    assert not attn(x, torch.zeros_like(mask)).isnan().any()


def test_kmip_attention_gradients():
    attn = KMIPAttention(channels=8, heads=2, k=1, dropout=0.5)
    x = torch.randn(1, 6, 8, requires_grad=True)
    attn(x).sum().backward()
    assert x.grad is not None and not x.grad.isnan().any()
    attn.reset_parameters()
