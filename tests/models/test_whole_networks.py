"""Every preset's whole network against formulas in float64: outputs, all gradients, running statistics.

The oracle, :class:`SlowNetwork`, is written from the papers' formulas alone, one graph after
another, with dense matrices; of the network it takes weights and buffers by name. Only batch norm
and the sum of losses see the batch as a whole. Dropout is left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support.cases import check_each
from support.oracles.slow_attention import ATTENTION, exphormer, exphormer_edges
from support.oracles.slow_models import (
    linear,
    slow_gat,
    slow_gated_gcn,
    slow_gcn,
    slow_gcne,
    slow_gine_sums,
    slow_sage,
)
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize
from torch_geometric.data import Batch, Data

from kmip_data.graphs.city_columns import family
from kmip_data.graphs.encoding import Graphs
from kmip_data.manifest import load_manifest
from kmip_data.models.config import ModelConfig, models
from kmip_data.models.network import build_model, fit_hidden_dim
from kmip_data.models.tables import ATOM, BOND
from kmip_data.models.training.config.presets import load_preset, preset_names, read_preset

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "gelu": gelu}


#: Terms of ``model.positional`` that take no channels.
UNDER = {"equivstable", "none"}


class State(NamedTuple):
    """One graph between two layers."""

    graph: Data
    x: Tensor  #: (n, d)
    e: Tensor  #: (E, d), a row for every edge even where they are alike
    distance: Tensor | None  #: (E, 1) squared distance of the ends
    virtual: Tensor  #: (V, d)
    attended: Any  #: edges of Exphormer


class SlowNetwork:
    """``network`` as formulas; ``weights`` take gradients, ``buffers`` change in training."""

    def __init__(self, network: nn.Module, config: ModelConfig) -> None:
        self.config, self.training = config, network.training
        self.weights = {
            name: p.detach().clone().requires_grad_() for name, p in network.named_parameters()
        }
        self.buffers = {name: b.clone() for name, b in network.named_buffers()}

    def __call__(self, graphs: Sequence[Data]) -> Tensor:
        """Predictions of all graphs, as the network lays them out."""
        states = self.encode(graphs)
        for number in range(self.config.layers):
            states = self.layer(f"layers.{number}.", number, states)
        return self.head([state.x for state in states])

    def under(self, prefix: str) -> dict[str, Tensor]:
        """Weights and buffers whose names begin with ``prefix``, without it."""
        both = {**self.weights, **self.buffers}
        return {
            name.removeprefix(prefix): value
            for name, value in both.items()
            if name.startswith(prefix)
        }

    def linear(self, name: str, x: Tensor) -> Tensor:
        return linear(self.weights, name, x)

    def batch_norm(self, name: str, parts: Sequence[Tensor]) -> list[Tensor]:
        """Over the rows of all graphs; training moves the running statistics a tenth of the way."""
        rows = torch.cat(list(parts))
        mean, variance = (self.buffers[f"{name}.running_{of}"] for of in ("mean", "var"))
        if self.training:
            self.buffers[f"{name}.running_mean"] = (0.9 * mean + 0.1 * rows.mean(0)).detach()
            self.buffers[f"{name}.running_var"] = (0.9 * variance + 0.1 * rows.var(0)).detach()
            self.buffers[f"{name}.num_batches_tracked"] = (
                self.buffers[f"{name}.num_batches_tracked"] + 1
            )
            mean, variance = rows.mean(0), rows.var(0, unbiased=False)
        scaled = (rows - mean) / (variance + 1e-5).sqrt()
        scaled = scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return list(scaled.split([len(part) for part in parts]))

    def norm(self, name: str, parts: Sequence[Tensor]) -> list[Tensor]:
        """The norm of the layers, ``config.norm``."""
        if self.config.norm == "batch":
            return self.batch_norm(name, parts)
        if self.config.norm == "none":
            return list(parts)
        found = []
        for x in parts:
            shift, over = (
                1.0,
                {"graph-layer": (0, 1), "layer": (1,), "graph": (0,)}[self.config.norm],
            )
            if self.config.norm == "graph":
                shift = self.weights[f"{name}.mean_scale"]
            centred = x - shift * x.mean(over, keepdim=True)
            variance = centred.square().mean(over, keepdim=True)
            scaled = centred / (variance + 1e-5).sqrt()
            found.append(scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"])
        return found

    def layer_norm(self, name: str, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
        scaled = (x - mean) / (variance + 1e-5).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def raw(self, name: str, kind: str, rows: Tensor, walks: Tensor | None = None) -> Tensor:
        if kind == "none":
            return rows
        if kind in {"atom", "bond"} or kind.startswith("types"):
            tables = self.under(f"{name}features.embeddings.")
            return sum(tables[f"{i}.weight"][rows[:, i]] for i in range(rows.shape[1]))
        if kind in {"voc", "coco", "voc-rwse32"}:
            rows = (rows - self.buffers[f"{name}mean"]) / self.buffers[f"{name}std"]
        if walks is not None:
            rows = torch.cat([rows, walks], 1)
        return self.linear(f"{name}linear", rows)

    def raw_edges(self, kind: str, graph: Data) -> Tensor:
        """Edge features (E, d): those of an encoder, and after a + a linear map of walks."""
        walks = getattr(graph, "edge_rwse", None)
        first, _, added = kind.partition("+")
        at = "edge_encoder.features." if added else "edge_encoder."
        if first == "dummy":
            e = self.weights[f"{at}embedding.weight"].expand(graph.edge_index.shape[1], -1)
        else:
            e = self.raw(at, first, graph.edge_attr, None if added else walks)
        return e + self.linear("edge_encoder.linear", walks) if added else e

    def encode(self, graphs: Sequence[Data]) -> list[State]:
        config = self.config
        beside = [term for term in config.positional.split("+") if term not in UNDER]
        name = "node_encoder." + "features." * len(beside)
        nodes = [self.raw(name, config.node_encoder, graph.x) for graph in graphs]
        if config.node_encoder == "block":
            nodes = [normalize(torch.relu(x), dim=1) for x in self.batch_norm(f"{name}norm", nodes)]
        if config.node_encoder == "linear-norm":
            nodes = [torch.relu(self.layer_norm(f"{name}norm", x)) for x in nodes]
        for number, term in enumerate(beside):
            at = "node_encoder." + "features." * (len(beside) - 1 - number) + "position."
            read = {"lappe": self.lappe, "signnet": self.signnet}.get(term, self.rwse)
            nodes = [torch.cat(pair, 1) for pair in zip(nodes, read(at, graphs), strict=True)]
        if config.node_encoder_norm:
            nodes = self.batch_norm("node_encoder_norm", nodes)
        for number in range(config.input_layers):
            mapped = [self.linear(f"input.{number}.linear", x) for x in nodes]
            nodes = [
                normalize(torch.relu(x), dim=1)
                for x in self.batch_norm(f"input.{number}.norm", mapped)
            ]
        return [self.state(graph, x) for graph, x in zip(graphs, nodes, strict=True)]

    def state(self, graph: Data, x: Tensor) -> State:
        config, index = self.config, graph.edge_index
        e = None
        if config.edge_encoder != "none":
            e = self.raw_edges(config.edge_encoder, graph)
        distance, virtual, attended = None, x[:0], None
        if "equivstable" in config.positional:
            place = self.linear("position.linear", graph.lappe_vectors.nan_to_num())
            distance = ((place[index[0]] - place[index[1]]) ** 2).sum(1, keepdim=True)
        if config.attention.kind == "exphormer":
            begin = self.under("begin.")
            virtual = begin.get("virtual.weight", virtual)
            expander = getattr(graph, "expander", None)
            attended = exphormer_edges(config.attention, begin, index, e, expander, len(x))
        return State(graph, x, e, distance, virtual, attended)

    def lappe(self, at: str, graphs: Sequence[Data]) -> list[Tensor]:
        """A perceptron of each eigenpair, summed.

        In training signs are drawn, by torch's generator.
        """
        signs = torch.ones(1, graphs[0].lappe_vectors.shape[1])
        if self.training:
            signs = torch.randint(0, 2, signs.shape) * 2 - 1
        found = []
        for graph in graphs:
            total: Tensor = torch.zeros(())
            for i, value in enumerate(graph.lappe_values.flatten()):
                if value.isnan():
                    continue
                entry = (graph.lappe_vectors * signs)[:, i]
                pair = torch.stack([entry, value.expand_as(entry)], 1)
                inner = torch.relu(self.linear(f"{at}each.0", pair))
                total = total + torch.relu(self.linear(f"{at}each.2", inner))
            found.append(total)
        return found

    def rwse(self, at: str, graphs: Sequence[Data]) -> list[Tensor]:
        rows = self.batch_norm(f"{at}norm", [graph.rwse for graph in graphs])
        return [self.linear(f"{at}linear", x) for x in rows]

    def signnet(self, at: str, graphs: Sequence[Data]) -> list[Tensor]:
        """Each eigenvector alone through the network, and negated; missing ones count in the norms."""
        keys, count = self.config.signnet, graphs[0].lappe_vectors.shape[1]
        both = []
        for sign in (1, -1):
            parts = [
                sign * graph.lappe_vectors.nan_to_num()[:, [i]]
                for graph in graphs
                for i in range(count)
            ]
            for number in range(keys.layers):
                if number:
                    parts = self.batch_norm(f"{at}norms.{number - 1}", parts)
                sums = []
                for place, x in enumerate(parts):
                    source, target = graphs[place // count].edge_index
                    sums.append(x.index_add(0, target, x[source]))
                parts = self.normed_perceptron(f"{at}phi.{number}.", sums)
            both.append(parts)
        found = []
        for number, graph in enumerate(graphs):
            mapped = [
                both[0][number * count + i] + both[1][number * count + i] for i in range(count)
            ]
            if keys.reader == "deepset":
                found.append(sum(mapped[: min(count, len(graph.lappe_vectors))]))
            else:
                found.append(torch.cat(mapped, 1))
        return self.normed_perceptron(f"{at}rho.", found)

    def normed_perceptron(self, at: str, parts: Sequence[Tensor]) -> list[Tensor]:
        """Linear layers; ReLU, then a batch norm between them."""
        last = len(self.under(f"{at}linears.")) // 2 - 1
        for number in range(last):
            inner = [torch.relu(self.linear(f"{at}linears.{number}", x)) for x in parts]
            parts = self.batch_norm(f"{at}norms.{number}", inner)
        return [self.linear(f"{at}linears.{last}", x) for x in parts]

    def layer(self, at: str, number: int, states: list[State]) -> list[State]:
        config, inputs = self.config, [state.x for state in states]
        branches: list[list[Tensor]] = []
        if config.local.kind != "none":
            passed, states = self.message_passing(f"{at}local.", number, states)
            if config.local.residual in {"inside", "outside"}:
                passed = [new + x for new, x in zip(passed, inputs, strict=True)]
            branches.append(self.norm(f"{at}norm_local", passed))
        if config.attention.kind != "none":
            attended, states = self.attention(f"{at}attention.", number, states)
            summed = [new + x for new, x in zip(attended, inputs, strict=True)]
            branches.append(self.norm(f"{at}norm_global", summed))
        found = [sum(parts) for parts in zip(*branches, strict=True)]
        if config.feed_forward:
            act = ACTIVATIONS[config.ffn_activation]
            fed = [
                h + self.linear(f"{at}linear_out", act(self.linear(f"{at}linear_in", h)))
                for h in found
            ]
            found = self.norm(f"{at}norm_out", fed)
        return [state._replace(x=x) for state, x in zip(states, found, strict=True)]

    def attention(
        self, at: str, number: int, states: list[State]
    ) -> tuple[list[Tensor], list[State]]:
        part, weights = self.config.attention, self.under(at)
        if part.kind != "exphormer":
            return [
                ATTENTION[part.kind](part, weights, state.x, number) for state in states
            ], states
        found = [exphormer(part, weights, torch.cat([s.x, s.virtual]), s.attended) for s in states]
        after = [
            s._replace(virtual=both[len(s.x) :]) for s, both in zip(states, found, strict=True)
        ]
        return [both[: len(s.x)] for s, both in zip(states, found, strict=True)], after

    def message_passing(
        self, at: str, number: int, states: list[State]
    ) -> tuple[list[Tensor], list[State]]:
        kind = self.config.local.kind
        if kind == "gated-gcn":
            return self.gated_gcn(at, states, last=number == self.config.layers - 1)
        act, stack = ACTIVATIONS[self.config.local.activation], self.config.local.stack
        if kind in {"gcn", "gat"}:
            convolve = {"gcn": slow_gcn, "gat": slow_gat}[kind]
            found = [convolve(self.under(at), state.x, state.graph.edge_index) for state in states]
        elif kind == "sage":
            loops = self.config.local.self_loops
            found = [
                slow_sage(self.under(at), state.x, state.graph.edge_index, self_loops=loops)
                for state in states
            ]
        elif kind == "gcne":
            found = [
                slow_gcne(self.under(at), state.x, state.e, state.graph.edge_index)
                for state in states
            ]
        elif kind == "mlp":
            found = [self.linear(f"{at}lin", state.x) for state in states]
        else:
            sums = [
                slow_gine_sums(state.x, state.e, state.graph.edge_index, self.closeness(at, state))
                for state in states
            ]
            inner = [
                (act if stack in {"lrgb", "none"} else torch.relu)(self.linear(f"{at}lin_in", x))
                for x in sums
            ]
            found = [self.linear(f"{at}lin_out", x) for x in inner]
            if stack == "lrgb":
                return found, states
        if self.config.local.residual == "linear":
            skips = [self.linear(f"{at}skip", state.x) for state in states]
            found = [h + skip for h, skip in zip(found, skips, strict=True)]
        if stack == "none":
            return found, states
        if stack == "layer-norm":
            found = [self.layer_norm(f"{at}norm", h) for h in found]
        if stack == "graphgym":
            return [normalize(act(h), dim=1) for h in self.batch_norm(f"{at}norm", found)], states
        if stack == "gnn-plus":
            found = self.batch_norm(f"{at}norm", found)
        return [act(h) for h in found], states

    def gated_gcn(
        self, at: str, states: list[State], *, last: bool
    ) -> tuple[list[Tensor], list[State]]:
        act = ACTIVATIONS[self.config.local.activation]
        nodes, edges = [], []
        for state in states:
            index = state.graph.edge_index
            closeness = self.closeness(at, state)
            new, pre = slow_gated_gcn(self.under(at), state.x, state.e, index, closeness)
            nodes.append(new)
            edges.append(pre)
        found = [act(x) for x in self.batch_norm(f"{at}norm_x", nodes)]
        if not last:
            rows = self.batch_norm(f"{at}norm_e", edges)
            keeps = float(self.config.local.edge_residual)
            states = [
                s._replace(e=keeps * s.e + act(new)) for s, new in zip(states, rows, strict=True)
            ]
        return found, states

    def closeness(self, at: str, state: State) -> Tensor | None:
        if state.distance is None:
            return None
        inner = torch.relu(self.linear(f"{at}closeness.0", state.distance))
        return torch.sigmoid(self.linear(f"{at}closeness.2", inner))

    def head(self, rows: list[Tensor]) -> Tensor:
        config, found = self.config, []
        if config.head in {"graph", "san"}:
            pool = {"mean": torch.mean, "max": torch.amax, "sum": torch.sum}[config.pooling]
            rows = [pool(x, 0, keepdim=True) for x in rows]
        for h in rows:
            if config.head == "san":
                for number in range(config.head_layers - 1):
                    inner = self.linear(f"head.linears.{number}", h)
                    h = ACTIVATIONS[config.head_activation](inner)  # noqa: PLW2901
                found.append(self.linear(f"head.linears.{config.head_layers - 1}", h))
                continue
            for number in range(config.head_layers - 1):
                h = ACTIVATIONS[config.head_activation](self.linear(f"head.hidden.{number}", h))  # noqa: PLW2901
                h = normalize(h, dim=1) if config.head_l2norm else h  # noqa: PLW2901
            found.append(self.linear("head.out", h))
        if config.head != "link":
            return torch.cat(found) * config.output_scale
        widest = max(len(x) for x in found)
        square = [
            nn.functional.pad(x @ x.T, (0, widest - len(x), 0, widest - len(x))) for x in found
        ]
        return torch.stack(square) * config.output_scale


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
        *(f"{dataset}/{model}" for dataset in (LINKS, OF_GRAPHS) for model in models()),
    }
)
LAYERS, WIDTH = (
    3,
    8,
)  #: what networks are cut to: that is where a first, a middle and a last layer are


#: Options that no preset sets, by model.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "gps-kmip": [
        *({"norm": norm} for norm in ("graph-layer", "layer", "graph")),
        {"norm": "none", "feed_forward": False, "local": "none"},
        *({"head": "graph", "pooling": pooling} for pooling in ("mean", "max", "sum")),
        {"head_layers": 3, "head_l2norm": False, "ffn_activation": "gelu"},
        {"local": {"residual": "inside"}},
        {"local": {"residual": "outside", "activation": "gelu"}},
        {"attention": {"k": 1, "key_dim": 7}},
        {"attention": {"value_dim": 6, "output_projection": True}},
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
            "positional": "lappe+signnet",
            "lappe": {"freqs": 5, "width": 3},
            "signnet": {"freqs": 5, "width": 4, "layers": 3, "hidden": 6, "post_layers": 3},
            "edge_encoder": "none",
            "norm": "none",
        },
        {
            "positional": "signnet",
            "signnet": {
                "freqs": 9,
                "width": 4,
                "layers": 2,
                "hidden": 5,
                "out": 6,
                "reader": "deepset",
                "post_layers": 1,
            },
        },
    ],
    "gps-bigbird": [
        {"attention": {"block_size": 2, "random_blocks": 1, "seed": 5}},
        {"attention": {"block_size": 1, "random_blocks": 0, "norm_eps": 1e-3}},
    ],
    "gps-performer": [{"attention": {"features": 7}}],
    "exphormer": [
        {"attention": {"self_loops": False}},
        {"attention": {"expander": 0, "output_projection": True}},
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
    found = {"dropout": 0.0, "head_dropout": 0.0, "input_dropout": 0.0}
    if hasattr(config.attention, "dropout"):
        found["attention"] = config.attention.model_copy(update={"dropout": 0.0})
    return config.model_copy(update=found)


def cut(config: ModelConfig) -> ModelConfig:
    """Three layers of eight channels beside those of a positional encoding, heads as narrow as that."""
    changes = {"layers": LAYERS, "parameter_budget": None}
    changes["hidden_dim"] = WIDTH + sum(position.width for position in config.positions)
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

    The deepest preset comes uncut as well, in its own depth and width.
    """
    found, known = {}, set()
    names = [name for name in CASES if name.split("/")[1] == model]
    whole = max(names, key=lambda name: (model_of(name).layers, name))
    config, table = model_of(whole), table_of(whole)
    found[f"{whole}, uncut"] = config, graphs_of(config, sizes_of(whole)[:1], table=table), table
    for name in names:
        table = table_of(name)
        for variant in read_preset(*name.split("/")).variants:
            config = cut(model_of(name, variant))
            key = repr(config), table, *sizes_of(name)
            if key not in known:
                known.add(key)
                found[f"{name}, {variant}"] = (
                    config,
                    graphs_of(config, sizes_of(name), table=table),
                    table,
                )
    for options in OPTIONS.get(model, []):
        config = ModelConfig(name=model, layers=2, hidden_dim=WIDTH + 8, dropout=0.0, **options)
        found[f"{model}, {options}"] = config, graphs_of(config, [31, 1, 12]), 0
    return found


def table_of(name: str) -> int:
    """Edges into each node where the dataset has as many for every node, 0 elsewhere."""
    expected = load_manifest(name.split("/")[0]).expected
    if not expected.avg_nodes or not expected.avg_edges:
        return 0
    degree = expected.avg_edges / expected.avg_nodes
    return 3 if abs(degree - round(degree)) < 0.01 else 0


def sizes_of(name: str) -> list[int]:
    """Nodes of the graphs: one for a dataset of one, else complete and sparse ones."""
    return [43] if family(name.split("/")[0]) == "city" else [31, 1, 4, 12]


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
            return torch.randint(0, int(kind[5:]), (rows, 1), generator=generator)
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
        of = Graphs(
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


def columns_of(config: ModelConfig) -> int:
    if config.node_encoder.startswith("types"):
        return 1
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
    sizes = {"in_channels": columns_of(config), "num_classes": 5, "edge_channels": edges}
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
    found = network(batch)
    torch.manual_seed(3)
    expected = slow(graphs)
    network.zero_grad()
    pull(found).backward()
    pull(expected).backward()
    torch.testing.assert_close(found, expected, atol=within, rtol=within)
    for name, parameter in network.named_parameters():
        gradient = slow.weights[name].grad
        gradient = torch.zeros_like(parameter) if gradient is None else gradient
        given = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        scale = max(1.0, gradient.abs().max().item())
        torch.testing.assert_close(
            given, gradient, atol=within * scale, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(buffer, slow.buffers[name], atol=within, rtol=within)


@pytest.mark.parametrize("model", sorted(models()))
def test_equals_the_oracle_in_every_variant(model: str) -> None:
    """Three layers of eight channels of each preset, all else as it says; the deepest as it is."""
    cases = cases_of(model)

    def check(name: str) -> None:
        config, graphs, table = cases[name]
        network = built(config)
        uncut = name.endswith("uncut")
        for training in (True,) if uncut else (True, False):
            within = 1e-9 if uncut else 1e-10
            compare(network.train(training), config, graphs, batch_of(graphs, table=table), within)

    check_each(check, cases)


@pytest.mark.parametrize("model", sorted(models()))
def test_equals_the_oracle_in_single_precision(model: str) -> None:
    """As it trains: compiled passes take float32 over a neighbour table."""
    config = cut(model_of(f"s3dis/{model}"))
    graphs, network = graphs_of(config, [31, 17], table=3), built(config)
    slow, batch = SlowNetwork(network, config), batch_of(graphs, table=3)
    network, batch.x = network.float(), batch.x.float()
    found, expected = network(batch), slow(graphs)
    pull(found).backward()
    pull(expected).backward()
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-4)
    gradients = [w.grad.abs().max().item() for w in slow.weights.values() if w.grad is not None]
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            gradient = slow.weights[name].grad
            size = gradient.abs().max().item()
            # That of a bias before a batch norm is 0: a sum of others that cancel, but for
            # rounding.
            size = max(gradients) if size < 1e-9 else size
            within = 1e-4 * size + 1e-4
            torch.testing.assert_close(parameter.grad.double(), gradient, atol=within, rtol=0)
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(
            buffer.double(), slow.buffers[name].double(), atol=1e-4, rtol=1e-4
        )


def test_every_model_has_every_task() -> None:
    pairs = {(model_of(name).head, name.split("/")[1]) for name in CASES}
    assert pairs >= set(itertools.product(["graph", "link"], models()))
