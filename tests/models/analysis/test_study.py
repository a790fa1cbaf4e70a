"""Collected projections, approximation error and cumulative weight: against a loop, and published figures."""

import math
import re
from itertools import product

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from support.cases import check_each
from torch import nn

from kmip_data.errors import UsageError
from kmip_data.models import KMIPAttention, kmip_attention
from kmip_data.models.analysis import study
from kmip_data.models.analysis.drawing import draw_results_over_k
from kmip_data.models.analysis.study import (
    Projections,
    approximation_curves,
    approximation_error,
    collect_projections,
    cumulative_weight,
    gaussian_projections,
    measure_curves,
    paper_ks,
)
from kmip_data.models.benchmarking.measuring import Measurement, draw_measurements
from kmip_data.strict_model import read_shipped


def slow_curves(queries, keys, values, ks):
    """Row by row in Python floats: error and cumulative weight."""
    heads, m, d = queries.shape
    n = keys.shape[1]
    error, weight = [0.0] * len(ks), [0.0] * len(ks)
    for h in range(heads):
        for i in range(m):
            scores = [
                float(queries[h, i].double() @ keys[h, j].double()) / math.sqrt(d) for j in range(n)
            ]
            exps = [math.exp(score) for score in scores]
            full = sum(e * values[h, j].double() for j, e in enumerate(exps)) / sum(exps)
            down = sorted(range(n), key=lambda j: -scores[j])
            for place, k in enumerate(ks):
                total = sum(exps[j] for j in down[:k])
                weight[place] += total / sum(exps)
                if k < n:
                    out = sum(exps[j] * values[h, j].double() for j in down[:k]) / total
                    error[place] += float((out - full).norm())
    return tuple(np.array(curve) / (heads * m) for curve in (error, weight))


def test_curves_equal_a_loop_and_the_shipped_attention(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 2, 9, 3, generator=generator)
    values = torch.randn(2, 9, 4, generator=generator)
    ks = (1, 2, 5, 8, 9, 20)
    error, weight = slow_curves(queries, keys, values, ks)
    for scratch in (2**26, 1):
        monkeypatch.setattr(study, "SCRATCH_BYTES", scratch)
        np.testing.assert_allclose(
            approximation_error(queries, keys, values, ks)[0], error, atol=1e-12
        )
        np.testing.assert_allclose(cumulative_weight(queries, keys, ks), weight, atol=1e-12)
    full = torch.nn.functional.scaled_dot_product_attention(queries, keys, values)
    distance = (kmip_attention(queries, keys, values, 5) - full).norm(dim=-1).mean()
    assert float(distance) == pytest.approx(error[2], rel=1e-4)


def test_paper_ks_are_reproduced_and_invalid_ks_are_refused():
    ks = paper_ks(5000)
    assert (len(ks), ks[-1]) == (43, 5000)
    assert {1, 2, 5, 11, 46, 95, 198, 1021, 2540} <= set(ks)
    assert (paper_ks(1), paper_ks(2)) == ((1,), (1, 2))
    rows = torch.zeros(1, 4, 2)
    for wrong in ((), (0, 1), (2, 2), (3, 1)):
        with pytest.raises(UsageError, match=re.escape(str(wrong))):
            cumulative_weight(rows, rows, wrong)


def test_study_uses_the_selected_layers_graphs_and_rows():
    one = gaussian_projections(6, 3, graphs=4)
    three = Projections(one.layers * 3, (6, 18), {})
    result = measure_curves(three, approximation_curves, ks=(1, 18, 19))
    assert result.samples == (
        (1, 0, 6),
        (2, 0, 6),
        (1, 1, 18),
        (2, 1, 18),
    )  # the first layer is left out
    mean, std = result.summary("k-MIP")
    assert mean[0] > 0
    assert mean[1] == mean[2] == std[2] == 0
    lines = result.to_csv().decode().splitlines()
    assert lines[0] == "layer,graph,nodes,k,k-MIP,normal outputs"
    assert len(lines) == 1 + 4 * 3
    few = measure_curves(one, approximation_curves, queries=2, ks=(1,))
    assert few.samples == tuple((0, graph, 6) for graph in range(4))  # the only layer
    assert measure_curves(one, approximation_curves).ks == paper_ks(6)


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
        batches = [(torch.randn(9, 6), [0, 4, 9]), (torch.randn(7, 6), torch.tensor([0, 7]))]
        with torch.no_grad(), collect_projections(model) as collector:
            for x, ptr in batches:
                model(x, ptr)
        projections = collector.projections(k=3)
        assert projections.sizes == (4, 5, 7)
        assert [tuple(t.shape) for t in projections.layers[1]] == [
            (3, 16, 2),
            (3, 16, 2),
            (3, 16, 2),
        ]
        assert all(not module._forward_pre_hooks for module in model.modules())
        with torch.no_grad():
            x = batches[0][0]
            expected = torch.cat(
                [model.first(x[:4]), model.first(x[4:])]
            )  # alone, so that nothing is padded
            queries, keys, values = (tensor[:, :9] for tensor in projections.layers[0])
            again = kmip_attention(queries, keys, values, 3, query_ptr=[0, 4, 9])
        torch.testing.assert_close(again.transpose(0, 1).flatten(1), expected)

    check_each(check, [False, True])


def test_a_single_layer_counts_its_graphs():
    layer = KMIPAttention(6, heads=2, key_dim=4, k=3).eval()
    with torch.no_grad(), collect_projections(layer) as collector:
        layer(torch.randn(9, 6), [0, 4, 9])
    assert collector.projections().sizes == (4, 5)


def test_study_uses_only_graphs_of_the_selected_sizes():
    model = TwoLayers().eval()
    with torch.no_grad(), collect_projections(model, sizes=(4, 6)) as collector:
        model(torch.randn(18, 6), [0, 3, 8, 15, 18])
        model(torch.randn(6, 6), [0, 6])
    assert collector.projections().sizes == (5, 6)
    assert collector.projections(1).layers[0][0].shape == (2, 5, 4)
    with torch.no_grad(), collect_projections(model, sizes=(50, None)) as collector:
        model(torch.randn(3, 6), [0, 3])
    with pytest.raises(UsageError, match="50"):
        collector.projections()


@pytest.fixture
def drawn(monkeypatch):
    """The axes of what was drawn last, their ticks in place."""
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **b: (figures.append(self), save(self, *a, **b))
    )
    return figures


def ticks(axis):
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1.get_text() for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
    ]


def test_plots_over_k_label_shares_and_short_logarithmic_axes(drawn, tmp_path):
    row = {"dataset": "helsinki", "metric": "accuracy", "seconds": 0.5}
    ours = [row | {"curve": "a run", "k": k, "test": test} for k, test in ((5, 0.2), (15, 0.22))]
    draw_results_over_k(
        [(ours, [{"curve": "the paper's", "k": 10, "test": 0.21, "seconds": 0}])],
        tmp_path / "p.png",
    )
    over_k, seconds, tradeoff = drawn[0].axes
    assert {"5", "10", "15"} & set(ticks(over_k.xaxis)), "less than a decade has ticks, too"
    assert "22 %" in ticks(over_k.yaxis)
    assert tradeoff.get_xlabel() == seconds.get_ylabel() == "seconds of a training epoch"
    assert seconds.get_yscale() == "log"
    assert seconds.get_ylim()[0] > 0.01, "no line goes down to a zero"


def test_a_sweep_has_one_legend_and_ticks_without_markup(drawn, tmp_path):
    known = {"mode": "inference", "status": "ok"}
    measurements = [
        Measurement(method=method, n=n, forward=(n / 1e6,), peak_bytes=n * 100, **known)
        for method, n in product(("auto", "full"), (100, 1000, 10_000))
    ]
    draw_measurements(
        measurements, tmp_path / "p.png", title="", paper=read_shipped("results", "efficiency")
    )
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert len(labels) == len(set(labels))
    assert {"auto, here", "full, here"} <= set(labels)
    time = drawn[0].axes[0]
    assert "1k" in ticks(time.xaxis)
    assert "1 ms" in ticks(time.yaxis)
