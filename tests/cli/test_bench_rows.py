"""Rows of `make bench`: both sides of a comparison compute the same, and rows state what they measured."""

from __future__ import annotations

import pytest
import torch
from benchmarks import attention_gpu, disk, gated_gcn, reading, startup
from benchmarks.gated_gcn import DIM, ScatterGatedGCN
from benchmarks.table import markdown_table, print_rows
from benchmarks.training import rivals
from benchmarks.transductive import write_city
from support.emulated_graph import EmulatedGraphs
from torch_geometric.data import Batch, Data

import kmip_data
from kmip_data.models.config import ModelConfig
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.layers.gated_gcn import GatedGCN
from kmip_data.models.network import build_model
from kmip_data.models.profiling.methods import Method


def test_the_scatter_form_is_the_same_layer() -> None:
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
        found = torch.autograd.grad(outputs, (x, e, layer.C.weight, layer.E.weight), grads)
        results.append((*outputs, *found))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def _batch(*sizes: int) -> Batch:
    graphs = []
    for size in sizes:
        edges = torch.randint(size, (2, 3 * size))
        graphs.append(Data(x=torch.randn(size, 5), edge_index=edges, edge_attr=torch.randn(3 * size, 2)))
    return Batch.from_data_list(graphs)


CONFIG = ModelConfig(hidden_dim=16, layers=2, dropout=0.0, edge_encoder="linear")


def _gradients(network, batch):
    """Return the output and all gradients, with norms that have seen nothing before."""
    network.zero_grad()
    for norm in (module for module in network.modules() if hasattr(module, "num_batches_tracked")):
        norm.reset_running_stats()
    output = network(batch)
    output.square().sum().backward()
    return output, [weight.grad.clone() for weight in network.parameters() if weight.grad is not None]


def test_upstreams_form_of_k_mip_attention_computes_the_same():
    for sizes in ((30,), (30, 30), (14, 30, 21)):
        torch.manual_seed(0)
        network = build_model(CONFIG, in_channels=5, num_classes=3, edge_channels=2)
        batch = _batch(*sizes)
        ours, gradients = _gradients(network, batch)
        rivals(CONFIG, "cpu")["k-MIP as upstream (padded, matrix product and topk)"](network, CONFIG)
        theirs, again = _gradients(network, batch)
        assert torch.allclose(ours, theirs, atol=1e-4), sizes
        pairs = zip(gradients, again, strict=True)
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-2) for a, b in pairs), sizes


def test_pygs_layers_have_the_width_and_depth_of_ours():
    for attention in ("multihead", "performer"):
        for encoder in ("linear", "dummy"):
            config = CONFIG.model_copy(update={"edge_encoder": encoder})
            network = build_model(config, in_channels=5, num_classes=3, edge_channels=2)
            rivals(config, "cpu")[f"PyG GPSConv, {attention}"](network, config)
            assert [layer.layer.channels for layer in network.layers] == [16, 16]
            assert network(_batch(7, 12)).shape == (19, 3)
    config = ModelConfig.model_validate({"attention": {"kind": "transformer"}})
    assert not any("upstream" in name for name in rivals(config, "cpu"))


def test_rows_of_memory_and_disk_meet_their_targets(monkeypatch):
    monkeypatch.setattr(gated_gcn, "peak", lambda side, graphs, points: {"ours": 1.0, "theirs": 3.0}[side])
    monkeypatch.setattr(gated_gcn, "K", 2)
    monkeypatch.setattr(gated_gcn, "compare", lambda a, b, repeats: (a(), b(), (1.0, 2.5, 2.5, (2, 3)))[2])
    time, memory = gated_gcn.rows(quick=True)
    assert time.met
    assert memory.ratio == 3.0
    found = disk.rows(quick=True)
    assert [row.target for row in found] == ["≥ 5×", "≥ 3.5×"]
    assert all(row.met for row in found)  # bytes do not depend on the machine


@pytest.mark.slow
def test_rows_of_reading_and_startup():
    found = list(reading.rows(quick=True))
    assert [row.target for row in found if row.target] == [f"≥ {n}×" for n in (5, 3, 15, 5, 15, 3, 3)]
    assert all(row.spread[0] <= row.ratio <= row.spread[1] for row in found)
    assert [row.target for row in startup.rows(quick=True)] == ["< 0.1 s", "< 0.3 s"]


def test_the_generated_city_is_as_sparse_as_london(tmp_path):
    write_city(tmp_path / "c", 900)
    graph = kmip_data.open(tmp_path / "c")[0]
    assert graph.num_nodes == 900
    assert 2.5 < graph.num_edges / 900 <= 2 * 1.328
    assert graph.is_undirected()
    assert (graph.train_mask.int() + graph.val_mask.int() + graph.test_mask.int() == 1).all()


CASES = (attention_gpu.Case((40,) * 3, 1e6, heads=2, k=5), attention_gpu.Case((90,), 1e-6))


def test_gpu_rows_use_the_same_calls_on_a_cpu(monkeypatch):
    found = list(attention_gpu.rows(device="cpu", cases=CASES, sizes=(60,)))
    assert found[0].what == "search, 3 × 40 nodes, 2 heads, d = 10, k = 5"
    assert [row.met for row in found[:2]] == [True, False]
    assert all(row.ours > 0 for row in found)
    for naive, flash in (found[2:4], found[4:]):
        assert naive.against.startswith("naive")
        assert (naive.ratio >= 1) is naive.met
        assert flash.theirs is flash.met is None, "FlashAttention is not on the CPU"
    attend = Method.attend
    for large, timed in (("naive", "ours"), ("auto", "theirs")):

        def limited(self, work, chunk, large=large):
            if self.name == large:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return attend(self, work, chunk)

        monkeypatch.setattr(Method, "attend", limited)
        naive, *others = attention_gpu.rows(device="cpu", cases=(), sizes=(60,))
        assert len(others) == 3
        assert naive.ratio is naive.met is None
        assert getattr(naive, timed) > 0
        assert "out of memory" in naive.note


class _Event:
    """A CUDA event in whose time each replay takes 2 ms."""

    recorder = None

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.replayed = self.recorder.replayed

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 2.0 * (other.replayed - self.replayed)


def test_a_search_is_also_timed_as_a_cuda_graph(monkeypatch, capsys):
    graphs = _Event.recorder = EmulatedGraphs()
    monkeypatch.setattr(attention_gpu, "CudaGraphs", lambda device: graphs)
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    product = lambda queries, keys, k, **_: (queries @ keys.mT).topk(k)
    monkeypatch.setattr(attention_gpu, "topk_inner_product", product)
    cases = [case._replace(target=target) for case, target in zip(CASES, (1.9, 2.1), strict=True)]
    found = list(attention_gpu.rows(device="cpu", cases=cases, sizes=()))
    assert [(row.captured, row.met) for row in found] == [(0.002, False), (0.002, True)]
    print_rows([("attention_gpu", row) for row in found], "", quick=False, markdown=False, as_json=False)
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["what", "against", "ours", "captured"]
    assert all(" 2 ms " in line for line in lines[:2])
    assert "; captured 2 ms |" in markdown_table([("attention_gpu", found[0])], "")
