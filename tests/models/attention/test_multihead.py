"""k-MIP instead of ``torch.nn.MultiheadAttention``: in its call, in GPSConv, in transformer layers."""

from __future__ import annotations

import copy
import io
import itertools
import pickle

import pytest
import torch
from support.cases import check_each
from support.raises import raises
from torch import nn
from torch_geometric.nn import GINConv, GPSConv
from torch_geometric.utils import to_dense_batch

from kmip_data.errors import UsageError
from kmip_data.models import KMIPAttention, KMIPMultiheadAttention

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
    def check_case(case) -> None:
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

    check_each(check_case, itertools.product([True, False], [True, False]))


def test_keys_and_values_may_have_other_widths() -> None:
    ours, theirs = pair(20, batch_first=True, kdim=5, vdim=3)
    query, key, value = rows(3, 5), torch.randn(3, 7, 5), torch.randn(3, 7, 3)
    torch.testing.assert_close(ours(query, key, value), theirs(query, key, value))
    with pytest.raises(UsageError) as caught:
        ours(query, query, query)
    assert "(batch, rows, 5), (batch, rows, 3)" in caught.value.expected


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
    out = ours(x, x, x, key_padding_mask=mask)[0]
    x[1, 4:] = torch.nan
    assert torch.equal(ours(x, x, x, key_padding_mask=mask)[0], out)
    torch.testing.assert_close(out[1, :4], ours(x[1, :4], x[1, :4], x[1, :4])[0])


def test_multihead_attention_runs_in_pygs_gps_conv() -> None:
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


def weights_of(layer: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in layer.parameters()]


def layers() -> list[nn.Module]:
    """Both classes, with every kind of weight."""
    return [
        KMIPMultiheadAttention(E, H, 3, batch_first=True),
        KMIPMultiheadAttention(E, H, 3, kdim=5, vdim=3),
        KMIPMultiheadAttention(E, H, 3, bias=False),
        KMIPAttention(E, heads=H, key_dim=3, k=3),
        KMIPAttention(E, heads=H, key_dim=3, k=3, output_projection=True),
    ]


def test_reset_parameters_draws_the_same_weights_as_the_constructor() -> None:
    torch.manual_seed(5)
    made = [weights_of(layer) for layer in layers()]
    reset = layers()
    torch.manual_seed(5)
    for layer in reset:
        layer.reset_parameters()
    for layer, expected in zip(reset, made, strict=True):
        assert all(map(torch.equal, weights_of(layer), expected))


def test_pyg_and_torch_reset_the_parameters() -> None:
    """GPSConv calls ``_reset_parameters``; others reset by name or apply a function."""
    theirs = GPSConv(E, GINConv(nn.Linear(E, E)), heads=H)
    for attention in (layers()[0], layers()[3]):
        conv = copy.deepcopy(theirs)
        conv.attn = attention
        before = weights_of(attention)
        conv.reset_parameters()
        assert not torch.equal(weights_of(attention)[0], before[0])
        assert all(bool(weight.isfinite().all()) for weight in weights_of(attention))

    ours, torchs = pair(3)
    for layer in (ours, torchs):
        torch.manual_seed(6)
        layer._reset_parameters()
    assert all(map(torch.equal, weights_of(ours), weights_of(torchs)))


def test_copies_of_every_kind_compute_the_same() -> None:
    for layer in layers():
        widths = (E, E, E)
        if isinstance(layer, KMIPMultiheadAttention):
            widths = (E, layer.kdim, layer.vdim)
        operands = [torch.randn(6, width) for width in widths]
        if isinstance(layer, KMIPAttention):
            operands = operands[:1]
        expected = layer(*operands)

        stored = io.BytesIO()
        torch.save(layer, stored)
        stored.seek(0)
        copies = [
            copy.deepcopy(layer),
            pickle.loads(pickle.dumps(layer)),
            torch.load(stored, weights_only=False),
        ]
        other = copy.deepcopy(layer)
        other.reset_parameters()
        other.load_state_dict(layer.state_dict())
        for copied in (*copies, other):
            out = copied(*operands)
            torch.testing.assert_close(out, expected, rtol=0, atol=0)
            assert repr(copied) == repr(layer)
            copied.reset_parameters()


def test_repr_shows_heads_and_k() -> None:
    assert "num_heads=2, k=3" in repr(layers()[0])
    assert f"KMIPAttention(\n  {E}, heads=2, k=3" in repr(layers()[3])


def test_an_unknown_backend_is_refused_when_a_layer_is_made() -> None:
    with raises(UsageError, naming="'dense'"):
        KMIPMultiheadAttention(E, H, 3, backend="dens")
    with raises(UsageError, naming="'dense'"):
        KMIPAttention(E, heads=H, key_dim=3, k=3, backend="dens")


class Weighted(nn.Module):
    """Attention over padded graphs whose sizes only the data know, with weights or without."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.attn, self.need_weights = (
            KMIPMultiheadAttention(E, H, 2, batch_first=True),
            need_weights,
        )

    def forward(self, x: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dense, mask = to_dense_batch(x, batch)
        return self.attn(
            dense, dense, dense, key_padding_mask=~mask, need_weights=self.need_weights
        )


@pytest.mark.parametrize(
    "kind", ["attention with weights", pytest.param("GPSConv", marks=pytest.mark.torture)]
)
def test_attention_compiles_to_one_graph_of_dynamic_sizes(kind: str) -> None:
    """GPSConv, and attention that returns weights of the padded size, compile without a graph break."""
    torch.manual_seed(0)
    x = rows(30).requires_grad_()
    batch = torch.tensor([0] * 20 + [1] * 3 + [2] * 7)
    if kind == "GPSConv":
        model = GPSConv(E, GINConv(nn.Linear(E, E)), heads=H, dropout=0.0)
        model.attn = KMIPMultiheadAttention(E, H, 2, batch_first=True)
        graph = [torch.randint(0, 3, (2, 40)), batch]
    else:
        model, graph = Weighted(True), [batch]

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    results = []
    for call in (model, compiled):
        out = call(x, *graph)
        outputs = list(out) if isinstance(out, tuple) else [out]
        results.append([*outputs, *torch.autograd.grad(outputs[0].square().sum(), x)])
    torch.testing.assert_close(*results)


def test_attention_without_a_mask_compiles_without_a_graph_break() -> None:
    """Without a mask there is no graph break even by torch's default, which captures no data-dependent sizes."""
    layer = KMIPMultiheadAttention(E, H, 2, batch_first=True)
    x = rows(2, 5)
    assert torch._dynamo.explain(layer)(x, x, x).graph_break_count == 0


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_kmip_attention_works_in_a_transformer_encoder(training: bool) -> None:
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
        out = encoder(x, src_key_padding_mask=mask)
        torch.testing.assert_close(out[~mask], expected(x, src_key_padding_mask=mask)[~mask])
        encoder.layers[0].self_attn.k = 1
        assert not torch.allclose(
            encoder(x, src_key_padding_mask=mask)[~mask], out[~mask], atol=1e-3
        )


def test_wrong_arguments_of_multihead_attention_are_named() -> None:
    def check_case(case) -> None:
        call, value = case
        with raises(UsageError, naming=value):
            call(KMIPMultiheadAttention(E, H, 3, batch_first=True), rows(2, 5))

    check_each(
        check_case,
        [
            (lambda layer, x: layer(x, x, x, attn_mask=torch.zeros(5, 5)), "attn_mask"),
            (lambda layer, x: layer(x, x, x, is_causal=True), "is_causal"),
            (lambda layer, x: layer(x, x, x, key_padding_mask=torch.zeros(5, 2)), "(2, 5)"),
            (lambda layer, x: layer(x, x, x, key_padding_mask=torch.ones(2, 5)), "torch.float32"),
            (lambda layer, x: layer(x, x, x[:, :4]), "(2, 4, 8)"),
            (lambda layer, x: layer(x[..., :4], x, x), "(2, 5, 4)"),
            (lambda layer, x: KMIPMultiheadAttention(8, 3, 4), 3),
        ],
    )


def test_k_of_no_keys_is_refused_by_the_constructors():
    for k in (0, -1, 2.5, True):
        with raises(UsageError, naming=k):
            KMIPAttention(8, heads=2, key_dim=4, k=k)
        with raises(UsageError, naming=k):
            KMIPMultiheadAttention(8, 2, k=k)
