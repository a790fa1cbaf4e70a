"""Rows of `make bench`: both sides of a comparison compute the same, and rows state what they measured."""

from __future__ import annotations

import re
from importlib import import_module

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from support.cli import expect_success
from support.runs.reports import write_run
from support.shared import ROOT
from torch_geometric.data import Batch, Data

from benchmarks import attention, country, disk, keys, reading
from benchmarks.__main__ import TOPICS
from benchmarks.gated_gcn import DIM, ScatterGatedGCN
from benchmarks.methods import METHODS, SCRATCH_BYTES, random_inputs
from benchmarks.sizes import Learner
from benchmarks.training import rivals
from kmip_data.errors import UsageError
from kmip_data.models.attention.reference import attend_in_graph
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


def test_every_method_computes_the_attention_of_its_name(monkeypatch):
    monkeypatch.setitem(SCRATCH_BYTES, "cpu", 2**10)  # several blocks
    for name, k in (("auto", 5), ("naive", 5), ("full", 40), ("sdpa", 40)):
        leaves = [tensor.requires_grad_() for tensor in random_inputs(40, heads=2, d=4)]
        expected, *_ = attend_in_graph(*leaves, k)
        out = METHODS[name](*leaves, k)
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)
        theirs, ours = (torch.autograd.grad((o * o).sum(), leaves) for o in (expected, out))
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


def test_the_efficiency_experiment_ends_a_row_that_does_not_work(monkeypatch):
    monkeypatch.setattr(attention, "limit_memory", lambda _: None)  # not of this process
    result = CliRunner().invoke(attention.main, ["--method", "naive", "--max-n", "400"])
    lines = result.output.splitlines()
    assert lines[0].split()[:3] == ["inference", "100", "316"]
    assert lines[1].split()[0] == "naive"
    assert "A100: symbolic" in lines[2]

    def fail(*_: object) -> None:
        raise MemoryError("no memory for it")

    monkeypatch.setitem(METHODS, "naive", fail)
    (row,) = attention.measure_sizes("naive", "training", [100, 316], d=4, k=3, device="cpu")
    assert (row["n"], row["status"], row["note"]) == (100, "oom", "no memory for it")


def test_curves_over_k_are_those_of_a_loop_and_of_the_page():
    queries, all_keys, values = random_inputs(9, heads=2, d=3)
    ks = (1, 2, 5, 8, 9, 20)
    weights = torch.softmax(queries.double() @ all_keys.double().mT / 3**0.5, -1)
    largest = weights.sort(descending=True).values.mean((0, 1))
    expected = [float(largest[:k].sum()) for k in ks]
    assert keys.weight_on_best(queries, all_keys, ks) == pytest.approx(expected)
    distances = keys.approximation_curves((queries, all_keys, values), ks)["k-MIP"]
    assert distances[0] > distances[2] > 0
    assert distances[4:] == pytest.approx(0, abs=1e-6)
    assert (len(keys.paper_ks(5000)), keys.paper_ks(2), keys.paper_ks(1)) == (43, [1, 2], [1])

    result = CliRunner().invoke(
        keys.main, ["approximation", "--gaussian", "2500", "16", "--k", "1,5,11,95,198"]
    )
    printed = {line.split()[0]: line.split()[1] for line in result.output.splitlines()[1:6]}
    page = (ROOT / "docs/analysis.md").read_text("utf-8")
    for k, distance in printed.items():
        assert re.search(rf"^\| {k} \|.*\| {float(distance):.3f} \|$", page, re.MULTILINE)


def test_a_run_is_measured_without_its_first_layer(make_build, home, tmp_path):
    tiny = ("--epochs", 1, "--device", "cpu", "-q", "--set", "model.layers=3")
    train = ("train", "--dataset", make_build().path, *tiny, "--set", "model.hidden_dim=8")
    run = expect_success(*train, "--json").json["run"]
    words = ["cumulative-weight", run, "--k", "1,2", "--save", str(tmp_path / "w.png")]
    result = CliRunner().invoke(keys.main, words)
    assert "layers of each: 2" in result.output
    assert (tmp_path / "w.png").read_bytes()[:4] == b"\x89PNG"
    gcn = expect_success(*train, "--model", "gcn", "--json").json["run"]
    for wrong in (["approximation"], ["approximation", gcn]):
        assert isinstance(CliRunner().invoke(keys.main, wrong).exception, UsageError)


def test_runs_that_differ_in_k_alone_are_compared_with_the_paper(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path))
    for k, seconds in ((5, 10.0), (10, 20.0)):
        for seed in (0, 1):
            changes = [f"model.attention.k={k}"]
            spent = {"train_epoch": seconds + 2 * seed, "total": 100.0}
            write_run(tmp_path, 0.9 + 0.02 * seed, changes=changes, seconds=spent, seed=seed)
    write_run(tmp_path, 0.8, dataset="helsinki", model="gcn")
    picture = tmp_path / "k.png"
    lines = CliRunner().invoke(keys.main, ["influence", "--save", str(picture)]).output.splitlines()
    assert len(lines) == 1 + 2 + 9
    assert lines[1].split()[-6:] == ["5", "2", "91.00", "±", "1.41", "11"]
    assert lines[6].split()[-6:] == ["5", "5", "93.54", "±", "0.52", "26.4"]
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_frontier_contains_only_unbeaten_points():
    draws = np.random.default_rng(0)
    for _ in range(200):
        seconds, score = draws.integers(0, 8, (2, draws.integers(0, 9))).astype(float)
        chosen = [(seconds[at], score[at]) for at in keys.pareto_frontier(seconds, score)]
        points = set(zip(seconds.tolist(), score.tolist(), strict=True))
        beaten = {
            (time, value)
            for time, value in points
            if any(o != (time, value) and o[0] <= time and o[1] >= value for o in points)
        }
        assert chosen == sorted(points - beaten)


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
