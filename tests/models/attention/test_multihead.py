"""k-MIP instead of ``torch.nn.MultiheadAttention``: in its call, in GPSConv, in transformer layers."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from support.cases import check_each
from torch import nn
from torch_geometric.nn import GINConv, GPSConv

from kmip_data.errors import UsageError
from kmip_data.models import KMIPMultiheadAttention

E, H = 8, 2


def pair(k: int, **options) -> tuple[KMIPMultiheadAttention, nn.MultiheadAttention]:
    """Ours and torch's, with the same weights."""
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(E, H, **options)
    ours = KMIPMultiheadAttention(E, H, k, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, E, generator=torch.Generator().manual_seed(sum(shape)))


def test_all_keys_is_multihead_attention() -> None:
    def holds(case) -> None:
        batch_first, bias = case
        ours, theirs = pair(20, batch_first=batch_first, bias=bias)
        query, key = (rows(3, 5), rows(3, 7)) if batch_first else (rows(5, 3), rows(7, 3))
        value = key + 1
        mask = torch.arange(7) >= torch.tensor([7, 4, 1])[:, None]
        for average in (True, False):
            options = dict(key_padding_mask=mask, average_attn_weights=average)
            torch.testing.assert_close(
                *(layer(query, key, value, **options) for layer in (ours, theirs))
            )
        assert ours(query, key, value, need_weights=False)[1] is None

    check_each(holds, itertools.product([True, False], [True, False]))


def test_keys_and_values_of_other_widths() -> None:
    ours, theirs = pair(20, batch_first=True, kdim=5, vdim=3)
    query, key, value = rows(3, 5), torch.randn(3, 7, 5), torch.randn(3, 7, 3)
    torch.testing.assert_close(ours(query, key, value), theirs(query, key, value))
    with pytest.raises(UsageError, match="do not go together") as caught:
        ours(query, query, query)
    assert "(batch, rows, 5), (batch, rows, 3)" in str(caught.value)


def test_float_masks_and_single_sequences() -> None:
    ours, theirs = pair(20)
    x, mask = rows(6), torch.tensor([0.0, 0, -torch.inf, 0, -torch.inf, 0])
    torch.testing.assert_close(
        *(layer(x, x + 0, x, key_padding_mask=mask) for layer in (ours, theirs))
    )


def test_few_keys_get_all_the_weight() -> None:
    ours, _ = pair(2, batch_first=True)
    x = rows(4, 9)
    out, weights = ours(x, x, x, average_attn_weights=False)
    assert bool(((weights > 0).sum(-1) == 2).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, H, 9))
    value = nn.functional.linear(x, ours.in_proj_weight[2 * E :], ours.in_proj_bias[2 * E :])
    mixed = torch.einsum("bhls,bshc->blhc", weights, value.view(4, 9, H, E // H)).flatten(2)
    torch.testing.assert_close(out, ours.out_proj(mixed))


def test_padding_changes_nothing() -> None:
    ours, _ = pair(3, batch_first=True)
    x, mask = rows(2, 9), torch.arange(9) >= torch.tensor([[9], [4]])
    found = ours(x, x, x, key_padding_mask=mask)[0]
    x[1, 4:] = torch.nan
    assert torch.equal(ours(x, x, x, key_padding_mask=mask)[0], found)
    torch.testing.assert_close(found[1, :4], ours(x[1, :4], x[1, :4], x[1, :4])[0])


def test_in_gps_conv() -> None:
    torch.manual_seed(0)
    conv = GPSConv(E, GINConv(nn.Linear(E, E)), heads=H, dropout=0.0).eval()
    expected = copy.deepcopy(conv)
    conv.attn = KMIPMultiheadAttention(E, H, k=50, batch_first=True)
    conv.attn.load_state_dict(expected.attn.state_dict())
    x, batch = rows(30), torch.tensor([0] * 20 + [1] * 3 + [2] * 7)
    edge_index = torch.randint(0, 3, (2, 40))
    torch.testing.assert_close(conv(x, edge_index, batch), expected(x, edge_index, batch))
    conv.attn.k = 2
    x = x.requires_grad_()
    out = conv.train()(x, edge_index, batch)
    assert not torch.allclose(out, expected(x, edge_index, batch), atol=1e-3)
    out.square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in conv.attn.parameters())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_in_a_transformer_encoder(training: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True)
    expected = nn.TransformerEncoder(copy.deepcopy(layer), 2, enable_nested_tensor=False).train(
        training
    )
    layer.self_attn = KMIPMultiheadAttention(E, H, k=50, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).train(training)
    encoder.load_state_dict(expected.state_dict())
    x, mask = rows(3, 9), torch.arange(9) >= torch.tensor([[9], [4], [7]])
    with torch.inference_mode(not training):  # where torch's own layers leave the Python code
        found = encoder(x, src_key_padding_mask=mask)
        torch.testing.assert_close(found[~mask], expected(x, src_key_padding_mask=mask)[~mask])
        encoder.layers[0].self_attn.k = 1
        assert not torch.allclose(
            encoder(x, src_key_padding_mask=mask)[~mask], found[~mask], atol=1e-3
        )


def test_refusals() -> None:
    def holds(case) -> None:
        call, word = case
        with pytest.raises(UsageError) as caught:
            call(KMIPMultiheadAttention(E, H, 3, batch_first=True), rows(2, 5))
        assert word in str(caught.value)

    check_each(
        holds,
        [
            (lambda layer, x: layer(x, x, x, attn_mask=torch.zeros(5, 5)), "no attn_mask"),
            (lambda layer, x: layer(x, x, x, is_causal=True), "is_causal=True"),
            (lambda layer, x: layer(x, x, x, key_padding_mask=torch.zeros(5, 2)), "(2, 5)"),
            (lambda layer, x: layer(x, x, x, key_padding_mask=torch.ones(2, 5)), "0 or -inf"),
            (lambda layer, x: layer(x, x, x[:, :4]), "(2, 4, 8)"),
            (lambda layer, x: layer(x[..., :4], x, x), "(batch, rows, 8)"),
            (lambda layer, x: KMIPMultiheadAttention(8, 3, 4), "num_heads = 3"),
        ],
    )
