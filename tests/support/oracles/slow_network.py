"""Every network of the package as formulas in float64, one graph after another.

Written from the papers' formulas alone, with dense matrices; of a network :class:`SlowNetwork` takes
weights and buffers by name. Only batch norm and the sum of losses see the batch as a whole. Dropout
is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from support.oracles.slow_attention import ATTENTION, exphormer, exphormer_edges
from support.oracles.slow_layers import (
    ACTIVATIONS,
    MESSAGE_PASSING,
    Neighborhood,
    linear,
    slow_gated_gcn,
)
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch_geometric.data import Data

from kmip_data.models.config import ModelConfig
from kmip_data.models.layers.message_passing import ConvolutionComponent

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
        normed = []
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
            normed.append(scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"])
        return normed

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
        """Edge features (E, d): from an encoder, and after a + a linear map of walks."""
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
            read = {"lappe": self.lappe}.get(term, self.rwse)
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
        encoded = []
        for graph in graphs:
            total: Tensor = torch.zeros(())
            for i, value in enumerate(graph.lappe_values.flatten()):
                if value.isnan():
                    continue
                entry = (graph.lappe_vectors * signs)[:, i]
                pair = torch.stack([entry, value.expand_as(entry)], 1)
                inner = torch.relu(self.linear(f"{at}pair_encoder.0", pair))
                total = total + torch.relu(self.linear(f"{at}pair_encoder.2", inner))
            encoded.append(total)
        return encoded

    def rwse(self, at: str, graphs: Sequence[Data]) -> list[Tensor]:
        rows = self.batch_norm(f"{at}norm", [graph.rwse for graph in graphs])
        return [self.linear(f"{at}linear", x) for x in rows]

    def layer(self, at: str, number: int, states: list[State]) -> list[State]:
        config, inputs = self.config, [state.x for state in states]
        branches: list[list[Tensor]] = []
        if config.local.kind != "none":
            passed, states = self.message_passing(f"{at}local.", number, states)
            if getattr(config.local, "residual", "none") in {"inside", "outside"}:
                passed = [new + x for new, x in zip(passed, inputs, strict=True)]
            branches.append(self.norm(f"{at}norm_local", passed))
        if config.attention.kind != "none":
            attended, states = self.attention(f"{at}attention.", number, states)
            summed = [new + x for new, x in zip(attended, inputs, strict=True)]
            branches.append(self.norm(f"{at}norm_global", summed))
        nodes = [sum(parts) for parts in zip(*branches, strict=True)]
        if config.feed_forward:
            act = ACTIVATIONS[config.ffn_activation]
            fed = [
                h + self.linear(f"{at}linear_out", act(self.linear(f"{at}linear_in", h)))
                for h in nodes
            ]
            nodes = self.norm(f"{at}norm_out", fed)
        return [state._replace(x=x) for state, x in zip(states, nodes, strict=True)]

    def attention(
        self, at: str, number: int, states: list[State]
    ) -> tuple[list[Tensor], list[State]]:
        part, weights = self.config.attention, self.under(at)
        if part.kind != "exphormer":
            assert part.kind in ATTENTION, (
                f"attention {part.kind!r} has no formula: add one to ATTENTION in"
                " tests/support/oracles/slow_attention.py"
            )
            return [
                ATTENTION[part.kind](part, weights, state.x, number) for state in states
            ], states
        attended = [
            exphormer(part, weights, torch.cat([s.x, s.virtual]), s.attended) for s in states
        ]
        after = [
            s._replace(virtual=both[len(s.x) :]) for s, both in zip(states, attended, strict=True)
        ]
        return [both[: len(s.x)] for s, both in zip(states, attended, strict=True)], after

    def message_passing(
        self, at: str, number: int, states: list[State]
    ) -> tuple[list[Tensor], list[State]]:
        local = self.config.local
        kind = local.kind
        if kind == "gated-gcn":
            return self.gated_gcn(at, states, last=number == self.config.layers - 1)
        assert kind in MESSAGE_PASSING, (
            f"message passing {kind!r} has no formula: add one to MESSAGE_PASSING in"
            " tests/support/oracles/slow_layers.py"
        )
        nodes = []
        for state in states:
            index, closeness = state.graph.edge_index, self.closeness(at, state)
            graph = Neighborhood(local, self.under(at), state.x, state.e, index, closeness)
            nodes.append(MESSAGE_PASSING[kind](graph))
        if not isinstance(local, ConvolutionComponent):
            return nodes, states

        act, stack = ACTIVATIONS[local.activation], local.stack
        if kind == "gine" and stack == "lrgb":
            return nodes, states
        if local.residual == "linear":
            skips = [self.linear(f"{at}skip", state.x) for state in states]
            nodes = [h + skip for h, skip in zip(nodes, skips, strict=True)]
        if stack == "none":
            return nodes, states
        if stack == "layer-norm":
            nodes = [self.layer_norm(f"{at}norm", h) for h in nodes]
        if stack == "graphgym":
            return [normalize(act(h), dim=1) for h in self.batch_norm(f"{at}norm", nodes)], states
        if stack == "gnn-plus":
            nodes = self.batch_norm(f"{at}norm", nodes)
        return [act(h) for h in nodes], states

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
        activated = [act(x) for x in self.batch_norm(f"{at}norm_x", nodes)]
        if not last:
            rows = self.batch_norm(f"{at}norm_e", edges)
            keeps = float(self.config.local.edge_residual)
            states = [
                s._replace(e=keeps * s.e + act(new)) for s, new in zip(states, rows, strict=True)
            ]
        return activated, states

    def closeness(self, at: str, state: State) -> Tensor | None:
        if state.distance is None:
            return None
        inner = torch.relu(self.linear(f"{at}closeness.0", state.distance))
        return torch.sigmoid(self.linear(f"{at}closeness.2", inner))

    def head(self, rows: list[Tensor]) -> Tensor:
        config, outputs = self.config, []
        if config.head in {"graph", "san"}:
            pool = {
                "mean": torch.mean,
                "max": torch.amax,
                "sum": torch.sum,
                "first": lambda x, _, keepdim: x[:1],
            }[config.pooling]
            rows = [pool(x, 0, keepdim=True) for x in rows]
        for h in rows:
            if config.head == "san":
                for number in range(config.head_layers - 1):
                    inner = self.linear(f"head.linears.{number}", h)
                    h = ACTIVATIONS[config.head_activation](inner)  # noqa: PLW2901
                outputs.append(self.linear(f"head.linears.{config.head_layers - 1}", h))
                continue
            for number in range(config.head_layers - 1):
                h = ACTIVATIONS[config.head_activation](self.linear(f"head.hidden.{number}", h))  # noqa: PLW2901
                h = normalize(h, dim=1) if config.head_l2norm else h  # noqa: PLW2901
            outputs.append(self.linear("head.out", h))
        if config.head != "link":
            return torch.cat(outputs) * config.output_scale
        widest = max(len(x) for x in outputs)
        square = [
            nn.functional.pad(x @ x.T, (0, widest - len(x), 0, widest - len(x))) for x in outputs
        ]
        return torch.stack(square) * config.output_scale
