"""Collected queries, keys and values, from which attention computes what the layer returned."""

import torch
from support.cases import check_each
from torch import nn

from kmip_data.models import KMIPAttention, kmip_attention
from kmip_data.models.analysis.projections import collect_projections


class TwoLayers(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.first = KMIPAttention(6, heads=2, key_dim=4, k=3, **options)
        self.second = KMIPAttention(6, heads=3, key_dim=2, k=2, **options)

    def forward(self, x, ptr):
        return self.second(self.first(x, ptr), ptr)


def test_collected_projections_reproduce_the_layer_output():
    def check(legacy):
        torch.manual_seed(0)
        model = TwoLayers(legacy_padding=legacy).eval()
        x = torch.randn(9, 6)
        with torch.no_grad(), collect_projections(model) as collected:
            model(x, [0, 4, 9])
            model(torch.randn(7, 6), torch.tensor([0, 7]))
            model.first(x)
        assert list(collected) == [model.first, model.second]
        assert [len(calls) for calls in collected.values()] == [3, 2]
        shapes = [tuple(rows.shape) for rows in collected[model.second][1]]
        assert shapes == [(3, 7, 2)] * 3
        assert all(not module._forward_pre_hooks for module in model.modules())
        with torch.no_grad():
            # Each graph by itself, so that nothing is padded.
            expected = torch.cat([model.first(x[:4]), model.first(x[4:])])
            again = kmip_attention(*collected[model.first][0], 3, query_ptr=[0, 4, 9])
        torch.testing.assert_close(again.transpose(0, 1).flatten(1), expected)

    check_each(check, [False, True])
