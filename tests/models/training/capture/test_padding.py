"""Padded batches: what is real learns what it learns without padding, and a graph serves many of them."""

from __future__ import annotations

import pytest
import torch
from support.builds.learnable import learnable_build, rings
from support.kernels.emulated_graph import EmulatedGraphs
from support.runs.captured import assert_same, learn
from torch_geometric.data import Batch, Data

from kmip_data.models.config import ModelConfig
from kmip_data.models.layers import gated_gcn
from kmip_data.models.layers.batch import COUNTED
from kmip_data.models.network import build_model
from kmip_data.models.training.capture import graphs as capture
from kmip_data.models.training.capture import steps
from kmip_data.models.training.capture.graphs import padded, rounded
from kmip_data.models.training.losses import LOSSES

#: Gradients are not scaled by themselves: those of biases before a norm are rounding errors alone.
SGD = {"name": "sgd", "momentum": 0.5, "lr": 2**-6}
PLAIN_KEYS = dict.fromkeys(("heads", "k", "key_dim"))
MODELS = {
    "k-mip": {},
    "as MalNet-Tiny": {"input_layers": 1, "local": {"kind": "gated-gcn", "residual": "inside"}},
    "as PascalVOC-SP": {"norm": "graph-layer", "k": 30, "attention": {"output_projection": True}},
    "gcn": {
        "local": {"kind": "gcn", "stack": "graphgym"},
        "attention": {"kind": "none"},
        **PLAIN_KEYS,
    },
    "gine": {"local": {"kind": "gine", "stack": "graphgym"}, "norm": "graph"},
    "gcne": {"local": {"kind": "gcne", "stack": "gnn-plus"}},
    "sage": {"local": {"kind": "sage", "self_loops": True}},
    "gat": {"local": {"kind": "gat"}, "norm": "layer"},
    "mlp": {"local": {"kind": "mlp", "stack": "graphgym"}, "norm": "none"},
    "attention": {"local": {"kind": "none"}},
}


@pytest.fixture(autouse=True)
def _operators_alone(monkeypatch):
    """The CPU's compiled kernels write to memory that no operator names."""
    monkeypatch.setattr(gated_gcn, "_fused", lambda *_: None)


@pytest.fixture(scope="module", params=["neighbor", "index"])
def clouds(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return learnable_build(folder / "build", graphs=19, varied=4, layout=request.param)


def near(plain, other):
    """Weights, statistics of batch norms, losses and metrics; plain sums have fewer rows."""
    for name, value in plain.state[0].items():
        error = float((other.state[0][name] - value).abs().max())
        assert error <= 1e-6 * max(1.0, float(value.abs().max())), (name, error)
    for (losses, metrics), (others, theirs) in zip(plain.epochs, other.epochs, strict=True):
        torch.testing.assert_close(losses, others, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(metrics, theirs, rtol=1e-5, atol=1e-6)


def test_padded_steps_are_plain_ones(clouds, tmp_path):  # of all models: one batch, below
    """Batches are drawn anew in every epoch, and few graphs serve them all."""
    training = {"epochs": 5, "accumulate": 1, "shuffle": True}
    changes = {"training": training, "model": {"dropout": 0.0}, "optimiser": SGD}
    graphs = EmulatedGraphs()
    plain = learn(clouds, tmp_path, **changes)
    other = learn(clouds, tmp_path, graphs, pad=True, **changes)
    assert other.told == []
    assert graphs.recorded <= 3
    assert graphs.replayed >= 15
    near(plain, other)


@pytest.mark.parametrize(("target", "pooling"), [("classes", "mean"), ("values", "max")])
def test_targets_of_graphs(target, pooling, tmp_path):
    build = rings(tmp_path / "build", target)
    training = {"epochs": 8, "accumulate": 2, "shuffle": True}
    model = {"dropout": 0.0, "pooling": pooling}
    changes = {"training": training, "model": model, "optimiser": SGD}
    graphs = EmulatedGraphs()
    plain = learn(build, tmp_path, **changes)
    other = learn(build, tmp_path, graphs, pad=True, **changes)
    assert other.told == []
    assert graphs.replayed > 5
    near(plain, other)


@pytest.mark.parametrize("precision", ["32", "bf16-mixed"])
def test_replayed_steps_are_padded_ones_bit_for_bit(precision, clouds, tmp_path, monkeypatch):
    """With dropout, two batches a step, moving rates, other batches in the recorded one's memory."""
    training = {"epochs": 6, "accumulate": 2, "shuffle": True, "precision": precision}
    changes = {"training": training, "model": {"dropout": 0.25}}
    graphs = EmulatedGraphs()
    replayed = learn(clouds, tmp_path, graphs, pad=True, **changes)
    assert graphs.replayed > 10
    monkeypatch.setattr(steps, "WARM_UP", 10**6)
    assert_same(learn(clouds, tmp_path, EmulatedGraphs(), pad=True, **changes), replayed)


def batch_of(sizes, *, table):
    """Random graphs with two edges a node, as a loader gives them."""
    generator = torch.Generator().manual_seed(1)
    graphs = []
    for n in sizes:
        x, y = (
            torch.randn(n, 5, generator=generator),
            torch.randint(0, 3, (n,), generator=generator),
        )
        sources = torch.randint(0, n, (n, 2), generator=generator)
        targets = torch.arange(n)[:, None].expand(-1, 2)
        pairs = torch.stack([sources, targets]).flatten(1)
        attr = torch.randn(2 * n, 4, generator=generator)
        graphs.append(Data(x=x, y=y, edge_index=pairs, edge_attr=attr, edge_rwse=attr))
    batch = Batch.from_data_list(graphs)
    if table:
        batch.neighbor = batch.edge_index[0].view(-1, 2)
        del batch.edge_index
    return batch


@pytest.mark.parametrize("table", [True, False], ids=["neighbor", "index"])
@pytest.mark.parametrize("model", MODELS)
def test_outputs_and_gradients_of_one_batch(model, table):
    """Those of real nodes as without padding, and none of padding."""
    given = {"layers": 3, "hidden_dim": 8, "dropout": 0.0, "attention": {"heads": 2, "k": 3}}
    given |= {name: value for name, value in MODELS[model].items() if name not in PLAIN_KEYS}
    config = ModelConfig.model_validate({**given, "edge_encoder": "linear"})
    batch, results = batch_of((7, 30, 2), table=table), []
    larger = padded(batch)
    assert larger[COUNTED].tolist() == [39, 78]
    assert torch.equal(larger.edge_rwse, larger.edge_attr)
    for given in (batch, larger):
        torch.manual_seed(0)
        network = build_model(config, in_channels=5, num_classes=3, edge_channels=4)
        given.x.requires_grad_().grad = None
        given.edge_attr.requires_grad_().grad = None
        logits = network(given)
        LOSSES["weighted_cross_entropy"](logits, given.y).backward()
        weights = [weight.grad for weight in network.parameters() if weight.grad is not None]
        of_edges = given.edge_attr.grad if given.edge_attr.grad is not None else torch.zeros(78, 1)
        assert not given.x.grad[39:].any()
        assert not of_edges[78:].any()
        flat = torch.cat([weight.flatten() for weight in weights])
        results.append([logits[:39], given.x.grad[:39], of_edges[:78], flat, *network.buffers()])
    for plain, other in zip(*results, strict=True):
        torch.testing.assert_close(plain, other, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(
    "loss", ["weighted_cross_entropy", "cross_entropy", "binary_cross_entropy", "l1"]
)
def test_losses_leave_padding_out(loss):
    torch.manual_seed(0)
    logits, target = torch.randn(9, 4, requires_grad=True), torch.randint(0, 4, (9,))
    if LOSSES[loss].kind != "single-label":
        target = torch.randint(0, 2, (9, 4))
        target = target.float() if loss == "l1" else target
    larger = torch.cat([logits.detach(), torch.full((5, 4), 1e4)]).requires_grad_()
    plain = LOSSES[loss](logits, target)
    other = LOSSES[loss](larger, capture._without_targets(target, 14))
    torch.testing.assert_close(plain, other)
    plain.backward(), other.backward()
    torch.testing.assert_close(logits.grad, larger.grad[:9])
    assert not larger.grad[9:].any()


def test_a_padded_batch_holds_the_batch():
    batch = batch_of((3, 5), table=False)
    batch.kind = torch.tensor([4, 5])
    batch._slice_dict["kind"] = torch.arange(3)
    larger = padded(batch)
    assert larger.ptr.tolist() == [0, 3, 8, 16]
    assert larger.batch.tolist() == batch.batch.tolist() + [2] * 8
    assert torch.equal(larger.x[:8], batch.x)
    assert torch.equal(larger.x[8:], batch.x)
    assert torch.equal(larger.edge_index[:, :16], batch.edge_index)
    assert larger.edge_index.shape == (2, 16)
    assert larger.kind.tolist() == [4, 5, 4]
    assert larger.y[8:].tolist() == [capture.PADDING] * 8
    assert COUNTED not in batch


def test_padded_neighbours_are_numbered_as_the_others():
    for kind, own in ((torch.uint16, 0), (torch.uint32, 0), (torch.int32, 8), (torch.int64, 8)):
        batch = batch_of((3, 5), table=True)
        batch.neighbor = batch.neighbor.to(kind)
        larger = padded(batch)
        assert larger.neighbor.dtype == kind
        assert larger.neighbor.long()[8:].tolist() == [[own + i] * 2 for i in range(8)]


def test_few_sizes_and_no_node_with_most_edges_of_padding():
    sizes = {rounded(count) for count in range(1, 2**16)}
    assert len(sizes) <= 4 * 12
    assert all(
        count <= rounded(count) <= max(1.25 * count, count + 15) for count in range(1, 2**16, 7)
    )
    assert all(size % 16 == 0 for size in sizes)
    larger = padded(batch_of((900,), table=False))
    loops = larger.edge_index[1][1800:].bincount()
    assert loops.max() <= 1 + (rounded(1800) - 1800) // (900 // capture.SPARE)


def test_what_has_no_statistics_is_not_padded():
    assert (
        padded(batch_of((1, 1), table=False)) is None
    )  # whether attributes are of nodes or graphs
    batch = batch_of((4, 3), table=False)
    batch.edge_index, batch.edge_attr = batch.edge_index[:, :1], batch.edge_attr[:1]
    assert padded(batch) is None
    assert padded(Data(x=torch.zeros(4, 1), edge_index=torch.zeros(2, 4, dtype=torch.long))) is None
