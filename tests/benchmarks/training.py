"""Training steps against networks of the same width and depth with other people's layers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from benchmarks.table import Row
from torch import Tensor, nn
from torch_geometric.nn import GPSConv, ResGatedGraphConv

from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.config import ModelConfig
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.network import GPSNetwork
from kmip_data.models.profiling.measuring import CHUNK
from kmip_data.models.profiling.methods import Workload, attend_gathered, get_method, pad


class PyGLayer(nn.Module):
    """PyTorch Geometric's ``GPSConv`` around its gated convolution, called as the layers of our networks.

    ``ResGatedGraphConv`` is the nearest it has to GatedGCN: gates from both ends and the edge, edge
    features that stay what they are.
    """

    def __init__(
        self, dim: int, *, heads: int, attention: str, dropout: float, reads_edges: bool
    ) -> None:
        super().__init__()
        conv = ResGatedGraphConv(dim, dim, edge_dim=dim if reads_edges else None)
        heads = next(number for number in range(heads, 0, -1) if dim % number == 0)
        self.layer = GPSConv(dim, conv, heads=heads, dropout=dropout, attn_type=attention)

    def forward(
        self, x: Tensor, e: Tensor | None, graphs: GraphBatch
    ) -> tuple[Tensor, Tensor | None]:
        """Nodes (N, dim) to the same; ``e`` are those of every edge, or one row for all."""
        index = graphs.edges.index
        features = (
            {} if e is None else {"edge_attr": e.reshape(-1, x.shape[1]).expand(index.shape[1], -1)}
        )
        return self.layer(x, index, graphs.graph, **features), e


class UpstreamAttention(nn.Module):
    """k-MIP attention as the paper's code computes it, with the weights of ours.

    Graphs are padded to the largest; a search without gradient, by KeOps' symbolic matrices
    (``symbolic``) or by matrix product and ``topk`` (``naive``); then gather, softmax, multiply.
    """

    def __init__(self, ours: KMIPAttention, method: str) -> None:
        super().__init__()
        self.ours, self.method = ours, get_method(method)

    def forward(self, x: Tensor, graphs: GraphBatch) -> Tensor:
        """Nodes (N, dim) to the same."""
        work = pad(Workload(*self.ours.project(x), ptr=tuple(graphs.ptr.tolist()), k=self.ours.k))
        assert self.method.search is not None
        indices = self.method.search(work, CHUNK[x.device.type])
        rows = attend_gathered(work, indices, CHUNK[x.device.type]).transpose(1, 2)  # (G, n, H, v)
        rows = rows.flatten(0, 1) if work.real is None else rows[work.real]
        return self.ours.output(rows.flatten(1))  # type: ignore[no-any-return]


def _in_pyg(attention: str) -> Callable[[GPSNetwork, ModelConfig], None]:
    def replace(network: GPSNetwork, config: ModelConfig) -> None:
        options: dict[str, Any] = {
            "heads": getattr(config.attention, "heads", 4),
            "dropout": config.dropout,
        }
        options |= {"attention": attention, "reads_edges": network.reads_edges}
        layers = (PyGLayer(config.hidden_dim, **options) for _ in range(config.layers))
        network.layers, network.begin = nn.ModuleList(layers), None

    return replace


def _as_upstream(method: str) -> Callable[[GPSNetwork, ModelConfig], None]:
    def replace(network: GPSNetwork, _: ModelConfig) -> None:
        for layer in network.layers:
            ours = layer.attention
            assert isinstance(ours, KMIPAttention)
            layer.attention = UpstreamAttention(ours, method)

    return replace


def rivals(
    config: ModelConfig, device: str
) -> dict[str, Callable[[GPSNetwork, ModelConfig], None]]:
    """Names of a model's rivals, and the functions that turn its network into them."""
    found = {
        f"PyG GPSConv, {attention}": _in_pyg(attention) for attention in ("multihead", "performer")
    }
    if config.attention.kind == "k-mip":
        symbolic = device == "cuda" and get_method("symbolic").unusable(device) is None
        name, how = (
            ("symbolic", "KeOps") if symbolic else ("naive", "padded, matrix product and topk")
        )
        found[f"k-MIP as upstream ({how})"] = _as_upstream(name)
    return found


def rows(*, quick: bool = False) -> list[Row]:
    """Measure the preset of Helsinki: our networks, PyTorch Geometric's GPSConv, k-MIP as upstream."""
    from kmip_data.builds.home import Home
    from kmip_data.models.profiling.training import Contestant, compare_training
    from kmip_data.models.training.config.presets import config_for
    from kmip_data.models.training.data.graphs import open_data
    from kmip_data.models.training.machine import choose_device

    device = choose_device()
    with tempfile.TemporaryDirectory() as folder:
        config = config_for("helsinki", "gps-kmip")
        data = open_data(config, home=Home(Path(folder)), quiet=True)
        others = {None: None, **rivals(config.model, device.kind)}

        def contestant(name: str, replace: Any) -> Contestant:
            made = Contestant(name, config, data, device)
            if replace is not None:
                replace(made.module.model, made.config.model)
            return made

        makers = {
            name or "gps-kmip": partial(contestant, replace=each) for name, each in others.items()
        }
        rounds, most, seconds = (1, 1, 1.0) if quick else (5, 20, 60.0)
        log = partial(click.echo, err=True)
        paces = compare_training(makers, rounds=rounds, most=most, seconds=seconds, log=log)
    what = "training step of gps-kmip, 2,526 nodes, 12 layers"
    return [
        Row(
            what=what, against=pace.name, ours=paces[0].seconds, theirs=pace.seconds, unit="s",
            ratio=pace.ratio, spread=pace.spread, note=pace.note,
        )
        for pace in paces[1:]
    ]  # fmt: skip
