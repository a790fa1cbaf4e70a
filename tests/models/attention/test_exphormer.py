"""Exphormer: equal to loops over edges and heads; virtual nodes, expanders, counts, memory, training."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from support.cases import check_each
from support.city_data import streets_build
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.graphs.encodings.expander import expander_targets
from kmip_data.models import ExphormerAttention, ExphormerEdges, ModelConfig, build_model, read_batch
from kmip_data.models.attention.exphormer import expander_edges
from kmip_data.models.layers.batch import EdgeList, NeighborTable
from kmip_data.models.network import count_parameters
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.data.graphs import open_data

D, HEADS, V = 8, 2, 3
MIXED, LARGE = (13, 1, 2, 7, 12), (13, 11)  #: with complete graphs, and where all edges fit a table


def graphs(sizes: tuple[int, ...], *, table: bool, k: int = 3) -> Batch:
    """Graphs with features, an expander and edges, k into each node; their table where asked for."""
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    made = []
    for n in sizes:
        neighbor = torch.randint(0, n, (n, k), generator=generator)
        index = torch.stack([neighbor.flatten(), torch.arange(n).repeat_interleave(k)])
        attr = torch.randn(n * k, 4, generator=generator, dtype=torch.float64)
        x = torch.randn(n, D, generator=generator, dtype=torch.float64)
        expander = torch.from_numpy(expander_targets(n, 3, rng)).long()
        made.append(Data(x=x, edge_index=index, edge_attr=attr, expander=expander))
    batch = Batch.from_data_list(made)
    if table:
        batch.neighbor = batch.edge_index[0].view(-1, k)
        del batch.edge_index
    return batch


def parts(**options: Any) -> tuple[ExphormerEdges, ExphormerAttention]:
    torch.manual_seed(1)
    own = {name: options.pop(name) for name in ("clamp", "output_projection", "dropout") if name in options}
    begin = ExphormerEdges(D, **{"virtual_nodes": V, **options}).double()
    return begin, ExphormerAttention(D, heads=HEADS, **own).double()


def slow_edges(begin: ExphormerEdges, batch: Batch, e: Tensor) -> list[tuple[int, int, Tensor]]:
    """Source, target and features of every edge, one by one; virtual nodes come after all others."""
    found = []
    nodes = int(batch.num_nodes)
    if begin.real_edges:
        rows = e.reshape(-1, D)
        table = getattr(batch, "neighbor", None)
        index = read_batch(batch).edges.index if table is not None else batch.edge_index
        for i, (source, target) in enumerate(index.t().tolist()):
            found.append((source, target, rows[i if len(rows) > 1 else 0]))
    ptr = batch.ptr.tolist()
    for g, (start, stop) in enumerate(itertools.pairwise(ptr)):
        links = []
        if begin.expander and stop - start <= 10:
            links = [(i, j) for i in range(start, stop) for j in range(start, stop) if i != j]
        elif begin.expander:
            for i in range(start, stop):
                for j in (batch.expander[i] + start).tolist():
                    links += [(i, j), (j, i)]
        links = [(i, j) for i, j in links if i != j or begin.self_loops]
        found += [(i, j, begin.expander_edge.weight[0]) for i, j in links]
        for v in range(0 if begin.virtual is None else V):
            place = nodes + v * (len(ptr) - 1) + g
            found += [(i, place, begin.edge_in.weight[v]) for i in range(start, stop)]
            found += [(place, i, begin.edge_out.weight[v]) for i in range(start, stop)]
    return found


def slow_attention(layer: ExphormerAttention, states: Tensor, edges: list[tuple[int, int, Tensor]]) -> Tensor:
    """The formula, edge by edge and head by head, over nodes and virtual nodes alike."""
    width = D // HEADS
    above = [[torch.zeros(width, dtype=torch.float64) for _ in range(HEADS)] for _ in states]
    below = [[torch.zeros((), dtype=torch.float64) for _ in range(HEADS)] for _ in states]
    for source, target, features in edges:
        k, q = layer.key.weight @ states[source], layer.query.weight @ states[target]
        v, e = layer.value.weight @ states[source], layer.edge.weight @ features
        for head in range(HEADS):
            own = slice(head * width, (head + 1) * width)
            score = (k[own] * q[own] / math.sqrt(width) * e[own]).sum()
            weight = torch.exp(torch.clamp(score, -layer.clamp, layer.clamp))
            above[target][head] = above[target][head] + weight * v[own]
            below[target][head] = below[target][head] + weight
    rows = [
        torch.cat([a / (b + 1e-6) for a, b in zip(*pair, strict=True)])
        for pair in zip(above, below, strict=True)
    ]
    return layer.output(torch.stack(rows))


def first_states(begin: ExphormerEdges, batch: Batch, x: Tensor) -> Tensor:
    if begin.virtual is None:
        return x
    return torch.cat([x, begin.virtual.weight.repeat_interleave(batch.num_graphs, 0)])


def gradients(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    total = sum((output * torch.arange(output.numel()).view(output.shape).cos()).sum() for output in outputs)
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    return [torch.zeros_like(i) if g is None else g for g, i in zip(found, inputs, strict=True)]


@pytest.mark.parametrize(
    ("sizes", "table", "shared", "options"),
    [
        ((12, 1, 2, 4), False, True, {}),
        ((12, 1, 2, 4), True, False, {}),
        ((12, 11), True, True, {}),
        ((12, 11), True, False, {"self_loops": False}),
        ((13,), False, False, {}),
        ((12, 1, 2), False, True, {"real_edges": False}),
        ((12, 1, 2), False, False, {"expander": False}),
        ((12, 1, 2), True, True, {"virtual_nodes": 0, "clamp": 0.1}),
        ((11, 3), False, True, {"output_projection": True}),
    ],
)
def test_equals_the_slow_oracle_over_two_layers_with_all_gradients(
    sizes: tuple[int, ...], table: bool, shared: bool, options: dict[str, Any]
) -> None:
    batch = graphs(sizes, table=table)
    begin, first = parts(**options)
    second = parts(**options)[1]
    second.load_state_dict({name: 1.1 * value for name, value in first.state_dict().items()})
    x = batch.x.clone().requires_grad_()
    e = torch.randn(1, D, dtype=torch.float64) if shared else batch.edge_attr @ torch.ones(4, D).double()
    if table and not shared:
        e = e.view(*batch.neighbor.shape, D)
    e = e.requires_grad_()
    graph_batch = read_batch(batch, ("expander",))
    modules = nn.ModuleList([begin, first, second])
    (carried,) = begin(e, graph_batch)
    h, carried = first(x, graph_batch, carried)
    h, carried = second(h, graph_batch, carried)
    states, edges = first_states(begin, batch, x), slow_edges(begin, batch, e)
    states = slow_attention(second, slow_attention(first, states, edges), edges)
    found, expected = [h, carried.virtual.flatten(0, 1)], [states[: len(x)], states[len(x) :]]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)
    modules.eval()
    once, between = first(x, graph_batch, *begin(e, graph_batch))
    assert torch.equal(second(once, graph_batch, between)[0], h)
    inputs = [x, e, *(p for p in modules.parameters() if p.requires_grad)]
    for a, b in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


def run(batch: Any, begin: ExphormerEdges, layer: ExphormerAttention) -> Tensor:
    """Nodes after two passes through a layer, so that virtual nodes matter."""
    graph_batch = read_batch(batch, ("expander",))
    (carried,) = begin(torch.ones(1, D, dtype=torch.float64), graph_batch)
    x, carried = layer(batch.x, graph_batch, carried)
    return layer(x, graph_batch, carried)[0]


def test_a_batch_is_its_graphs_alone() -> None:
    def holds(sizes) -> None:
        begin, layer = parts()
        batch = graphs(sizes, table=False)
        alone = torch.cat([run(graph, begin, layer) for graph in batch.to_data_list()])
        torch.testing.assert_close(run(batch, begin, layer), alone, atol=1e-12, rtol=1e-12)

    check_each(holds, [MIXED, LARGE, (1,), (2,), (10,), (11, 10)])


def test_expanders_are_a_table_unless_a_graph_is_complete_or_loops_are_left_out() -> None:
    large, mixed = (read_batch(graphs(sizes, table=False), ("expander",)) for sizes in (LARGE, MIXED))
    table = expander_edges(large)
    assert isinstance(table, NeighborTable)
    assert table.neighbor.shape == (24, 6)
    listed = expander_edges(large, self_loops=False)
    assert isinstance(listed, EdgeList)
    proper = table.index[:, table.index[0] != table.index[1]]
    assert sorted(proper.t().tolist()) == sorted(listed.index.t().tolist())
    assert isinstance(expander_edges(mixed), EdgeList)


def test_targets_that_are_no_permutation_are_edges_too() -> None:
    data = Data(x=torch.ones(12, 1), edge_index=torch.zeros(2, 0).long(), expander=torch.zeros(12, 1).long())
    index = expander_edges(read_batch(data, ("expander",))).index
    assert sorted(index.t().tolist()) == sorted([[i, 0] for i in range(12)] + [[0, i] for i in range(12)])


@pytest.mark.parametrize(
    ("expander", "error"),
    [(None, UsageError), (torch.full((12, 1), 12), DamagedInput), (torch.full((12, 1), -2), DamagedInput)],
)
def test_an_expander_that_is_not_there_or_leads_out_of_its_graph_is_refused(expander, error) -> None:
    data = Data(x=torch.ones(12, D).double(), edge_index=torch.zeros(2, 0).long(), expander=expander)
    with pytest.raises(error, match="expander") as caught:
        run(data, *parts())
    assert "kmip-data" in str(caught.value)


def test_dropout_acts_on_weights_in_training_alone_and_not_on_their_sum(monkeypatch) -> None:
    batch = read_batch(graphs(LARGE, table=False), ("expander",))
    begin, layer = parts(dropout=0.3)
    (carried,) = begin(torch.ones(1, D, dtype=torch.float64), batch)
    assert not torch.equal(layer(batch.x, batch, carried)[0], layer(batch.x, batch, carried)[0])
    plain = parts()[1](batch.x, batch, carried)[0]
    assert torch.equal(layer.eval()(batch.x, batch, carried)[0], plain)
    chances = []

    def doubled(weight: Tensor, chance: float, training: bool) -> Tensor:
        chances.append(chance)
        return 2 * weight if training else weight

    monkeypatch.setattr(nn.functional, "dropout", doubled)
    torch.testing.assert_close(layer.train()(batch.x, batch, carried)[0], 2 * plain)
    assert set(chances) == {0.3}


def network(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    given = {"name": "exphormer", "layers": 3, "hidden_dim": D, "dropout": 0.2, **options}
    return build_model(ModelConfig(**given), in_channels=D, num_classes=4).double()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layers": 1},
        {"attention": {"kind": "exphormer", "expander": 0, "virtual_nodes": 1}},
        {"attention": {"kind": "exphormer", "expander": 0, "virtual_nodes": 0}},
        {"attention": {"kind": "exphormer", "real_edges": False}, "local": {"kind": "none"}},
    ],
)
def test_every_weight_that_wants_a_gradient_gets_one(options) -> None:
    """Otherwise training on several processes would wait for it for ever."""
    model = network(**options)
    model(graphs(MIXED, table=False)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None] == []


def test_layers_attend_to_the_features_of_edges_as_they_were_encoded() -> None:
    """Message passing updates the edges; attention goes on with the first ones."""
    model, batch, given = network(norm="none").eval(), graphs(LARGE, table=True), []
    for layer in model.layers:
        layer.attention.register_forward_pre_hook(lambda _, inputs: given.append(inputs[2].edges))
    model(batch)
    assert len(given) == 3
    assert all(edges is model.edge_encoder.embedding.weight for edges in given)


@pytest.mark.parametrize(
    ("attention", "word"),
    [
        ({"real_edges": False, "expander": 0, "virtual_nodes": 0}, "nothing is left"),
        ({"heads": 3}, "heads"),
        ({"clamp": 0}, "greater than 0"),
        ({"expander": -1}, "greater than or equal to 0"),
    ],
)
def test_configurations_that_make_no_sense(attention, word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        ModelConfig(name="exphormer", hidden_dim=8, attention={"kind": "exphormer", **attention})


CITY = {"in_channels": 67, "num_classes": 10}
ATOMS = {
    "node_encoder": "atom", "edge_encoder": "bond", "positional": "lappe", "head": "graph", "head_layers": 1,
    "in_channels": 9, "edge_channels": 3,
}  # fmt: skip
PIXELS = {
    "node_encoder": "voc", "edge_encoder": "voc", "positional": "lappe", "head_layers": 3,
    "in_channels": 14, "edge_channels": 2,
}  # fmt: skip
#: Dataset: parameters, layers, hidden_dim, heads, permutations (0: configured and switched off), virtual
#: nodes, norm, others. The count of cities is that of upstream's model, those of the others are ours.
COUNTS: dict[str, tuple[int, int, int, int, int, int, str, dict[str, Any]]] = {
    "cities": (503_074, 8, 68, 4, 3, 3, "graph", CITY),
    "pascalvoc-sp": (509_013, 4, 96, 8, 5, 0, "batch", {**PIXELS, "num_classes": 21}),
    "coco-sp": (498_993, 7, 72, 4, 11, 0, "batch", {**PIXELS, "num_classes": 81}),
    "peptides-func": (445_914, 8, 64, 4, 0, 1, "batch", {**ATOMS, "num_classes": 10}),
    "peptides-struct": (425_971, 4, 88, 4, 0, 6, "batch", {**ATOMS, "num_classes": 11}),
    "shapenet-part": (295_046, 8, 52, 4, 3, 3, "batch", {"in_channels": 6, "num_classes": 50}),
    "s3dis": (293_241, 8, 52, 4, 3, 3, "batch", {"in_channels": 9, "num_classes": 13}),
}


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def count_by_hand(name: str) -> int:
    """From the formulas of one layer's parts and the sizes of the encoders."""
    _, layers, d, _, _, virtual, norm, more = COUNTS[name]
    norms, feed_forward = 3 * (3 if norm == "graph" else 2) * d, 4 * d * d + 3 * d
    layer = 5 * d * d + 9 * d + 4 * d * d + norms + feed_forward
    width = d - 16 if "positional" in more else d
    atoms = more.get("node_encoder") == "atom"
    nodes = 174 * width if atoms else linear(more["in_channels"], width)
    position = linear(2, 32) + linear(32, 16) if width < d else 0
    edges = 13 * d if atoms else linear(2, d) if "edge_channels" in more else d
    head = (more.get("head_layers", 2) - 1) * linear(d, d) + linear(d, more["num_classes"])
    return layers * layer + nodes + position + edges + (1 + 3 * virtual) * d + head


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_count_of(name: str) -> None:
    count, layers, dim, heads, expander, virtual, norm, more = COUNTS[name]
    attention = {"kind": "exphormer", "heads": heads, "expander": expander, "virtual_nodes": virtual}
    sizes = {key: more[key] for key in ("in_channels", "num_classes", "edge_channels") if key in more}
    options = {key: value for key, value in more.items() if key not in sizes}
    options |= {"layers": layers, "hidden_dim": dim, "norm": norm, "attention": attention}
    with torch.device("meta"):
        found = count_parameters(build_model(ModelConfig(name="exphormer", **options), **sizes))
    assert found == count_by_hand(name) == count


def test_sampled_neighbourhoods_have_no_expander(tmp_path: Path) -> None:
    build = streets_build(tmp_path / "build", nodes=60)
    training = {"neighbors": (3,), "batch_size": 8}
    sections = {"training": training, "model": {"name": "exphormer", "hidden_dim": 8}}
    given = {"data": {"dataset": str(build.path)}, "system": {"device": "cpu"}, **sections}
    with pytest.raises(UsageError, match="expander"):
        open_data(config_from_mapping(given, "the test"), home=Home(tmp_path))
    sections["model"]["attention"] = {"kind": "exphormer", "expander": 0}
    assert open_data(config_from_mapping(given, "the test"), home=Home(tmp_path)).build.card.label
