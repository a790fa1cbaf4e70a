"""Every preset's whole network against formulas in float64: outputs, all gradients, running statistics."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from support.cases import check_each
from support.oracles.slow_network import SlowNetwork
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from kmip_data.graphs.city_columns import dataset_family
from kmip_data.graphs.encoding import ConcatenatedGraphs
from kmip_data.manifest import load_manifest
from kmip_data.models.config import ATTENTION, MESSAGE_PASSING, ModelConfig, known_models
from kmip_data.models.network import build_model, fit_hidden_dim
from kmip_data.models.registries import ATOM, BOND, node_encoders
from kmip_data.models.training.config.presets import load_preset, preset_names, read_preset


def pull(out: Tensor) -> Tensor:
    """A sum of all predictions, each with a weight of its own, to take gradients of."""
    return (
        out * torch.arange(out.numel(), dtype=out.dtype).mul(math.e).sin().view(out.shape)
    ).sum()


#: Presets, and settings of our own where a task has no preset of a model.
LINKS, OF_GRAPHS = "pcqm-contact", "malnet-tiny"
CASES = sorted(
    {
        *preset_names(),
        *(f"{dataset}/{model}" for dataset in (LINKS, OF_GRAPHS) for model in known_models()),
    }
)
#: Networks are cut to three layers (a first, a middle and a last one) of eight channels.
LAYERS = 3
WIDTH = 8


#: Options that no preset sets, by model.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "gps-kmip": [
        *({"norm": norm} for norm in ("graph-layer", "layer", "graph")),
        {"norm": "none", "feed_forward": False, "local": "none"},
        *({"head": "graph", "pooling": pooling} for pooling in ("mean", "max", "sum", "first")),
        {"head_layers": 3, "head_l2norm": False, "ffn_activation": "gelu"},
        {"local": {"residual": "inside"}},
        {"local": {"residual": "outside", "activation": "gelu"}},
        {"attention": {"k": 1, "key_dim": 7}},
        {"attention": {"value_dim": 6, "output_projection": True, "gate": "output"}},
        {"attention": {"gate": "output"}},
        {"positional": "equivstable", "node_encoder_norm": True, "input_layers": 2},
        {
            "local": {"kind": "gine", "stack": "none", "residual": "outside", "activation": "gelu"},
            "positional": "equivstable+rwse",
            "rwse": {"width": 3, "steps": 5},
            "equivstable": {"freqs": 3},
            "node_encoder": "types7",
            "edge_encoder": "types3",
            "head": "san",
            "head_layers": 3,
            "pooling": "max",
            "head_activation": "gelu",
        },
        {
            "local": {"kind": "gcn", "stack": "none", "residual": "outside"},
            "positional": "lappe+rwse",
            "lappe": {"freqs": 5, "width": 3},
            "rwse": {"width": 3, "steps": 5},
            "edge_encoder": "none",
            "norm": "none",
        },
    ],
    "gps-transformer": [
        {"attention": {"gate": "output"}},
        {"attention": {"k": 3, "temperature": "log-n:4"}},
        {"attention": {"temperature": "adaptive"}},
    ],
    "gps-bigbird": [
        {"attention": {"gate": "output"}},
        {"attention": {"block_size": 2, "random_blocks": 1, "seed": 5}},
        {"attention": {"block_size": 1, "random_blocks": 0, "norm_eps": 1e-3}},
    ],
    "gps-performer": [{"attention": {"features": 7, "gate": "output"}}],
    "exphormer": [
        {"attention": {"self_loops": False}},
        {"attention": {"gate": "output"}},
        {"attention": {"expander": 0, "output_projection": True, "gate": "output"}},
        {"attention": {"virtual_nodes": 0, "clamp": 0.1}},
        {"attention": {"real_edges": False, "virtual_nodes": 1}, "local": "none"},
    ],
    **{
        model: [
            {"local": {"stack": stack, "activation": activation}}
            for stack in ("lrgb", "graphgym", "gnn-plus", "graphgps")[: 4 if model == "gine" else 3]
            for activation in ("relu", "gelu")
        ]
        for model in ("gcn", "gcn-plus", "gat", "gine", "mlp")
    },
    "sage": [
        {"local": {"stack": "graphgym", "self_loops": True}},
        {"local": {"stack": "layer-norm", "residual": "linear"}, "node_encoder": "none"},
    ],
}


def model_of(name: str, variant: str = "code") -> ModelConfig:
    """The preset's network without dropout."""
    config = load_preset(*name.split("/"), variant).model
    changes = {"dropout": 0.0, "head_dropout": 0.0, "input_dropout": 0.0}
    if hasattr(config.attention, "dropout"):
        changes["attention"] = config.attention.model_copy(update={"dropout": 0.0})
    return config.model_copy(update=changes)


def cut(config: ModelConfig) -> ModelConfig:
    """Three layers of eight channels next to the channels of a positional encoding, heads as narrow."""
    changes = {"layers": LAYERS, "parameter_budget": None}
    changes["hidden_dim"] = WIDTH + sum(encoding.width for encoding in config.positional_encodings)
    attention = {}
    if hasattr(config.attention, "heads"):
        attention["heads"] = math.gcd(config.attention.heads, changes["hidden_dim"])
    if config.attention.kind == "performer":
        attention["head_dim"] = 6
    if isinstance(getattr(config.attention, "k", None), tuple):
        attention["k"] = config.attention.k[:LAYERS]
    changes["attention"] = config.attention.model_copy(update=attention)
    return config.model_copy(update=changes)


def cases_of(model: str) -> dict[str, tuple[ModelConfig, list[Data], int]]:
    """Cut networks of a model's presets by name, with graphs.

    Presets that are cut to the same come once.
    """
    cases, known = {}, set()
    for name in names_of(model):
        table = table_of(name)
        for variant in read_preset(*name.split("/")).variants:
            config = cut(model_of(name, variant))
            key = repr(config), table, *sizes_of(name)
            if key not in known:
                known.add(key)
                cases[f"{name}, {variant}"] = (
                    config,
                    graphs_of(config, sizes_of(name), table=table),
                    table,
                )
    for options in OPTIONS.get(model, []):
        config = ModelConfig(name=model, layers=2, hidden_dim=WIDTH + 8, dropout=0.0, **options)
        cases[f"{model}, {options}"] = config, graphs_of(config, [31, 1, 12]), 0
    return cases


def names_of(model: str) -> list[str]:
    return [name for name in CASES if name.split("/")[1] == model]


def table_of(name: str) -> int:
    """Edges into each node where the dataset has as many for every node, 0 elsewhere."""
    expected = load_manifest(name.split("/")[0]).expected
    if not expected.avg_nodes or not expected.avg_edges:
        return 0
    degree = expected.avg_edges / expected.avg_nodes
    return 3 if abs(degree - round(degree)) < 0.01 else 0


def sizes_of(name: str) -> list[int]:
    """Nodes of the graphs: one for a dataset of one, else complete and sparse ones."""
    return [43] if dataset_family(name.split("/")[0]) == "city" else [31, 1, 4, 12]


def graphs_of(config: ModelConfig, sizes: list[int], *, table: int = 0) -> list[Data]:
    """Graphs with the columns that a network reads; edges to itself and edges that are there twice.

    ``table``: so many edges into each node; 0: a number that differs by node, none for some.
    """
    generator, made = torch.Generator().manual_seed(5), []

    def features(kind: str, integers: tuple[int, ...], columns: int, rows: int) -> Tensor:
        if kind in {"atom", "bond"}:
            return torch.stack(
                [torch.randint(0, n, (rows,), generator=generator) for n in integers], 1
            )
        if kind.startswith("types"):
            low = min(types_of(kind))
            return torch.randint(0, low, (rows, len(types_of(kind))), generator=generator)
        return torch.randn(rows, columns, generator=generator, dtype=torch.float64)

    for n in sizes:
        target = torch.arange(n).repeat_interleave(table or 1)
        if not table:
            target = torch.randint(0, n, (3 * n,), generator=generator).sort().values
        source = torch.randint(0, n, (len(target),), generator=generator)
        graph = Data(x=features(config.node_encoder, ATOM.sizes, columns_of(config), n))
        graph.edge_index = torch.stack([source, target])
        encoder = config.edge_encoder.partition("+")[0]
        if encoder not in {"dummy", "none"}:
            graph.edge_attr = features(encoder, BOND.sizes, 2, len(target))
        of = ConcatenatedGraphs(
            np.array([0, n]), np.array([0, len(target)]), graph.edge_index.numpy(), [f"graph/{n}"]
        )
        for encoding in config.encodings:
            values = encoding.compute(of, lambda: None)
            for column in encoding.columns():
                value = torch.from_numpy(values[column.key])
                graph[column.attribute] = (
                    value.double() if value.is_floating_point() else value.long()
                )
        made.append(graph)
    return made


def types_of(kind: str) -> tuple[int, ...]:
    """Types of each column that an encoder embeds."""
    encoder = node_encoders()[kind]
    assert encoder.integers is not None
    return encoder.integers.sizes


def columns_of(config: ModelConfig) -> int:
    if config.node_encoder.startswith("types"):
        return len(types_of(config.node_encoder))
    return {"atom": 9, "voc": 14, "coco": 14}.get(config.node_encoder, 6)


def batch_of(graphs: list[Data], *, table: int = 0) -> Batch:
    batch = Batch.from_data_list(graphs)
    if table:
        batch.neighbor = batch.edge_index[0].view(-1, table)
        del batch.edge_index
    return batch


def built(config: ModelConfig) -> nn.Module:
    """The network in float64, its biases, norms and running statistics off their start."""
    torch.manual_seed(11)
    encoder = config.edge_encoder.partition("+")[0]
    edges = {"bond": 3, "dummy": None, "none": None}.get(encoder, 2)
    sizes = {"in_channels": columns_of(config), "out_channels": 5, "edge_channels": edges}
    network = build_model(fit_hidden_dim(config, **sizes), **sizes).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.3)
        for name, buffer in network.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.3)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return network


def compare(
    network: nn.Module, config: ModelConfig, graphs: list[Data], batch: Batch, within: float
) -> None:
    """Outputs, gradients of every parameter and, after it, every buffer."""
    slow = SlowNetwork(network, config)
    torch.manual_seed(3)  # signs of eigenvectors
    out = network(batch)
    torch.manual_seed(3)
    expected = slow(graphs)
    network.zero_grad()
    pull(out).backward()
    pull(expected).backward()
    torch.testing.assert_close(out, expected, atol=within, rtol=within)
    for name, parameter in network.named_parameters():
        gradient = slow.weights[name].grad
        gradient = torch.zeros_like(parameter) if gradient is None else gradient
        actual = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        scale = max(1.0, gradient.abs().max().item())
        torch.testing.assert_close(
            actual, gradient, atol=within * scale, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(buffer, slow.buffers[name], atol=within, rtol=within)


@pytest.mark.parametrize("model", sorted(known_models()))
def test_equals_the_oracle_in_every_variant(model: str) -> None:
    """Three layers of eight channels of each preset, all else as it says.

    Evaluation, where only norms and dropout differ, is compared for one preset and every option.
    """
    cases = cases_of(model)
    evaluated = {next(iter(cases)), *(name for name in cases if name.startswith(f"{model}, "))}

    def check(name: str) -> None:
        config, graphs, table = cases[name]
        network = built(config)
        for training in (True, False) if name in evaluated else (True,):
            compare(network.train(training), config, graphs, batch_of(graphs, table=table), 1e-10)

    check_each(check, cases)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=[] if model == "gcn" else pytest.mark.torture)
        for model in sorted(known_models())
    ],
)
def test_the_deepest_preset_equals_the_oracle_in_its_depth_and_width(model: str) -> None:
    name = max(names_of(model), key=lambda name: (model_of(name).layers, name))
    config, table = model_of(name), table_of(name)
    graphs = graphs_of(config, sizes_of(name)[:1], table=table)
    compare(built(config).train(), config, graphs, batch_of(graphs, table=table), 1e-9)


@pytest.mark.parametrize("model", sorted(known_models()))
def test_equals_the_oracle_in_single_precision(model: str) -> None:
    """Compiled kernels, which need float32 and a neighbour table as in training, equal the oracle."""
    config = cut(model_of(f"s3dis/{model}"))
    graphs, network = graphs_of(config, [31, 17], table=3), built(config)
    slow, batch = SlowNetwork(network, config), batch_of(graphs, table=3)
    network, batch.x = network.float(), batch.x.float()
    out, expected = network(batch), slow(graphs)
    pull(out).backward()
    pull(expected).backward()
    torch.testing.assert_close(out.double(), expected, atol=1e-4, rtol=1e-4)
    gradients = [w.grad.abs().max().item() for w in slow.weights.values() if w.grad is not None]
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            gradient = slow.weights[name].grad
            size = gradient.abs().max().item()
            # The gradient of a bias before a batch norm is 0: a sum of others that cancel, but for
            # rounding.
            size = max(gradients) if size < 1e-9 else size
            within = 1e-4 * size + 1e-4
            torch.testing.assert_close(parameter.grad.double(), gradient, atol=within, rtol=0)
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(
            buffer.double(), slow.buffers[name].double(), atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        *(("local", kind) for kind in MESSAGE_PASSING if kind != "none"),
        *(("attention", kind) for kind in ATTENTION if kind != "none"),
    ],
)
def test_every_kind_equals_its_formula_with_the_default_keys(section: str, kind: str) -> None:
    """Kinds that no preset uses are included."""
    sections = {"local": {"kind": "none"}, "attention": {"kind": "none"}, section: {"kind": kind}}
    config = ModelConfig(
        name="gps-none", layers=2, hidden_dim=WIDTH, dropout=0.0, edge_encoder="linear", **sections
    )
    graphs = graphs_of(config, [31, 1, 12])
    compare(built(config), config, graphs, batch_of(graphs), 1e-10)


def test_every_model_has_every_task() -> None:
    pairs = {(model_of(name).head, name.split("/")[1]) for name in CASES}
    assert pairs >= set(itertools.product(["graph", "link"], known_models()))
