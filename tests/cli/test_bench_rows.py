"""Rows of `make bench`: both sides of a comparison compute the same, and rows state what they measured."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch_geometric.data import Batch, Data

from benchmarks import country, disk, reading
from benchmarks.__main__ import TOPICS
from benchmarks.gated_gcn import DIM, ScatterGatedGCN
from benchmarks.sizes import Learner
from benchmarks.training import rivals
from kmip_data.models.config import ModelConfig
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.layers.gated_gcn import GatedGCN
from kmip_data.models.network import build_model

CONFIG = ModelConfig(hidden_dim=16, layers=2, dropout=0.0, edge_encoder="linear")


def test_every_topic_has_rows() -> None:
    assert {"reading", "knn"} < set(TOPICS)
    assert all(hasattr(import_module(f"benchmarks.{topic}"), "rows") for topic in TOPICS)


def test_the_scatter_layer_computes_the_same_as_ours() -> None:
    torch.manual_seed(0)
    layer = GatedGCN(DIM, dropout=0.0, residual=False)
    neighbor = torch.randint(0, 30, (30, 4))
    index = torch.stack([neighbor.flatten(), torch.arange(30).repeat_interleave(4)])
    x, e = torch.randn(30, DIM, requires_grad=True), torch.randn(30, 4, DIM, requires_grad=True)
    grads = torch.randn(30, DIM), torch.randn(30, 4, DIM)
    x_scattered, e_scattered = ScatterGatedGCN(layer)(x, e.view(-1, DIM), index)
    ours = layer(x, e, read_batch(Data(x=x, neighbor=neighbor)))
    results = []
    for outputs in (ours, (x_scattered, e_scattered.view_as(e))):
        gradients = torch.autograd.grad(outputs, (x, e, layer.C.weight, layer.E.weight), grads)
        results.append((*outputs, *gradients))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def _batch(*sizes: int) -> Batch:
    graphs = []
    for size in sizes:
        edges = torch.randint(size, (2, 3 * size))
        graphs.append(
            Data(x=torch.randn(size, 5), edge_index=edges, edge_attr=torch.randn(3 * size, 2))
        )
    return Batch.from_data_list(graphs)


def _gradients(network, batch):
    """Return the output and all gradients, with norms that have seen nothing before."""
    network.zero_grad()
    for norm in (module for module in network.modules() if hasattr(module, "num_batches_tracked")):
        norm.reset_running_stats()
    output = network(batch)
    output.square().sum().backward()
    return output, [
        weight.grad.clone() for weight in network.parameters() if weight.grad is not None
    ]


def test_upstreams_k_mip_attention_computes_the_same_as_ours():
    for sizes in ((30,), (14, 30, 21)):
        torch.manual_seed(0)
        network = build_model(CONFIG, in_channels=5, out_channels=3, edge_channels=2)
        batch = _batch(*sizes)
        ours, gradients = _gradients(network, batch)
        rivals(CONFIG, "cpu")["k-MIP as upstream (padded, matrix product and topk)"](
            network, CONFIG
        )
        theirs, again = _gradients(network, batch)
        assert torch.allclose(ours, theirs, atol=1e-4), sizes
        pairs = zip(gradients, again, strict=True)
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-2) for a, b in pairs), sizes


@pytest.mark.slow
def test_reading_and_disk_benchmarks_have_rows(monkeypatch):
    for name, small in (("NODES_PER_GRAPH", 64), ("MIN_BATCHES_PER_TURN", 1)):
        monkeypatch.setattr(f"benchmarks.readers.{name}", small)
    monkeypatch.setattr(reading, "keep_freed_memory", lambda: None)  # not in this process
    rows = list(reading.rows(quick=True))
    targets = [row.target for row in rows if row.target]  # installed rivals have none
    assert targets == [f"≥ {n}×" for n in (5, 3, 12, 3, 3)]
    assert all(row.spread[0] <= row.ratio <= row.spread[1] for row in rows)
    bytes_on_disk = list(disk.rows(quick=True))
    assert [row.target for row in bytes_on_disk] == ["≥ 5×", "≥ 3.5×"]
    assert all(row.met for row in bytes_on_disk)  # bytes do not depend on the machine
    assert bytes_on_disk[0].markdown("disk").startswith("| disk | bytes on disk a graph, s3dis | ")


def test_the_growth_table_shows_exponents_and_the_first_stage_out_of_memory():
    sizes = []
    for nodes in (10**4, 10**5, 10**6, 10**7):
        more = nodes if nodes > 10**4 else 0  # the smallest has the start of processes alone
        costs = {stage: country.Cost(1 + 1e-3 * more**0.5, 1e3 * more) for stage in country.STAGES}
        costs["features"] = country.Cost(2 + 1e-6 * more**1.5, 9 + 2e3 * more)
        costs["build"] = country.Cost(
            9.0 if nodes < 10**7 else 0, 5, "refused: no room" * (nodes > 10**6)
        )
        sizes.append(country.Country(nodes, costs))
    assert country.fit_growth(sizes, "features", "seconds") == pytest.approx(
        (1.5, 2 + 1e-6 * 10**13.5)
    )
    sizes[1].costs["training batch"] = country.Cost(0.5, 5)
    lines = "\n".join(country.report(sizes))
    assert "Extrapolated, features is the first to run out of memory" in lines
    assert "refused: no room, 0.00 GiB" in lines
    assert "neighbours: 2,000." in lines


def test_the_stages_of_a_build_are_measured_where_they_run():
    result = country.measure_country(1_000, commands=False)
    assert not [
        (stage, cost) for stage, cost in result.costs.items() if cost.reason or not cost.seconds
    ]


def test_accuracy_at_a_time_limit_uses_the_best_validation_so_far() -> None:
    learner = Learner.__new__(Learner)
    learner.curve = [(1.0, 0.1, 0.2), (2.0, 0.5, 0.4), (3.0, 0.3, 0.9), (4.0, 0.6, 0.5)]
    assert [learner.accuracy(seconds) for seconds in (0.5, 1, 2.9, 3, 9)] == [0, 0.2, 0.4, 0.4, 0.5]
