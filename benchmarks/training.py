"""Training steps against networks of equal width and depth with other libraries' layers.

All rows take half an hour; measure a part with::

    python -m benchmarks.training peptides-func/gcn/32    # part of dataset/model/batch
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GPSConv, ResGatedGraphConv
from torch_geometric.utils import to_dense_batch

from benchmarks.methods import SEARCHES, attend_to_chosen
from benchmarks.table import Row, compare_all, describe_machine
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.config import ModelConfig
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.convolutions import GCN
from kmip_data.models.network import GPSNetwork
from kmip_data.models.precision import float32_product_precision
from kmip_data.models.search.backends import keops
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.devices import Device, choose_device
from kmip_data.models.training.memory_estimate import estimate_step_memory
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.training_module import TrainingModule


class PyGLayer(nn.Module):
    """PyTorch Geometric's ``GPSConv`` around its gated convolution, with our layers' interface.

    ``ResGatedGraphConv`` is its closest layer to GatedGCN, with gates from both ends and the edge,
    but unchanged edge features. Attention uses the same dropout as ours.
    """

    def __init__(self, config: ModelConfig, attention: str, *, reads_edges: bool) -> None:
        super().__init__()
        dim = config.hidden_dim
        conv = ResGatedGraphConv(dim, dim, edge_dim=dim if reads_edges else None)
        max_heads = getattr(config.attention, "heads", 4)
        heads = next(number for number in range(max_heads, 0, -1) if dim % number == 0)
        options = {"dropout": getattr(config.attention, "dropout", 0.0)}
        self.layer = GPSConv(
            dim,
            conv,
            heads=heads,
            dropout=config.dropout,
            attn_type=attention,
            attn_kwargs=options,
        )

    def forward(
        self, x: Tensor, e: Tensor | None, graphs: GraphBatch
    ) -> tuple[Tensor, Tensor | None]:
        """Map nodes (N, dim) to new ones; ``e`` has a row per edge, or one row for all."""
        index = graphs.edges.index
        features = (
            {} if e is None else {"edge_attr": e.reshape(-1, x.shape[1]).expand(index.shape[1], -1)}
        )
        return self.layer(x, index, graphs.graph_index, **features), e


class UpstreamAttention(nn.Module):
    """k-MIP attention as in the paper's code, with the weights of ours.

    Pads graphs to the largest, searches without gradient, with KeOps' symbolic matrices
    (``symbolic``) or matrix product and ``topk`` (``naive``), then gathers, and applies softmax.
    """

    def __init__(self, ours: KMIPAttention, method: str) -> None:
        super().__init__()
        self.ours, self.search = ours, SEARCHES[method]

    def forward(self, x: Tensor, graphs: GraphBatch) -> Tensor:
        """Map nodes (N, dim) to new ones."""
        padded, is_node = to_dense_batch(x, graphs.graph_index)  # (G, n, dim)
        flat = self.ours.project(padded.flatten(0, 1))
        # (H · G, n, d): each graph of each head is a head of the search.
        queries, keys, values = (rows.unflatten(1, is_node.shape).flatten(0, 1) for rows in flat)
        k = min(self.ours.k, int(is_node.sum(1).min()))

        # An additional channel excludes padding.
        masked = torch.where(is_node, 0.0, -1e30).repeat(self.ours.heads, 1)
        searched_keys = torch.cat([keys, masked[..., None]], -1)
        searched_queries = nn.functional.pad(queries, (0, 1), value=1.0)
        indices = self.search(searched_queries, searched_keys, k)
        attended = attend_to_chosen(queries, keys, values, indices)
        rows = attended.unflatten(0, (-1, len(is_node))).permute(1, 2, 0, 3)[is_node]  # (N, H, v)
        return self.ours.output(rows.flatten(1))  # type: ignore[no-any-return]


def _replace_by_pyg(attention: str) -> Callable[[GPSNetwork, ModelConfig], None]:
    def replace(network: GPSNetwork, config: ModelConfig) -> None:
        reads_edges = network.reads_edges
        layers = (PyGLayer(config, attention, reads_edges=reads_edges) for _ in network.layers)
        network.layers = nn.ModuleList(layers)
        network.begin = None

    return replace


class PyGGCN(nn.Module):
    """PyTorch Geometric's ``GCNConv``, followed by our batch norm, activation and dropout."""

    def __init__(self, ours: GCN) -> None:
        super().__init__()
        dim = ours.lin.weight.shape[0]
        self.conv = GCNConv(dim, dim, bias=ours.has_bias)
        self.ours = ours

    def forward(
        self, x: Tensor, e: Tensor | None, graphs: GraphBatch
    ) -> tuple[Tensor, Tensor | None]:
        """Map nodes (N, dim) to new ones."""
        return self.ours.apply_stack(self.conv(x, graphs.edges.index), graphs), e


def _replace_gcn_by_pyg(network: GPSNetwork, _: ModelConfig) -> None:
    for layer in network.layers:
        assert isinstance(layer.local, GCN)
        layer.local = PyGGCN(layer.local)


def _replace_attention_by_upstream(method: str) -> Callable[[GPSNetwork, ModelConfig], None]:
    def replace(network: GPSNetwork, _: ModelConfig) -> None:
        for layer in network.layers:
            ours = layer.attention
            assert isinstance(ours, KMIPAttention)
            layer.attention = UpstreamAttention(ours, method)

    return replace


def rivals(
    config: ModelConfig, device: str
) -> dict[str, Callable[[GPSNetwork, ModelConfig], None]]:
    """Return the functions that convert a model's network to each rival, by name."""
    if config.name == "gcn":
        return {"PyG GCNConv": _replace_gcn_by_pyg}
    if config.attention.kind == "transformer":
        return {"PyG GPSConv, multihead": _replace_by_pyg("multihead")}

    if device == "cuda" and keops.why_unusable(device) is None:
        upstream = {"k-MIP as upstream (KeOps)": _replace_attention_by_upstream("symbolic")}
    else:
        upstream = {
            "k-MIP as upstream (padded, matrix product and topk)": _replace_attention_by_upstream(
                "naive"
            ),
        }
    others = {f"PyG GPSConv, {kind}": _replace_by_pyg(kind) for kind in ("multihead", "performer")}
    return others | upstream


@dataclass(frozen=True)
class TrainingCase:
    """Dataset to train on, and the target ratio of each model."""

    dataset: str
    targets: dict[str, float]
    sample: dict[str, int] | None = None  #: parameters of the sample; None for the real dataset
    batch: int | None = None  #: graphs per step; None for the preset's
    rounds: int = 5
    without: tuple[str, ...] = ()  #: rivals whose step exceeds 12 GiB


MODEL_TARGETS = {"gps-kmip": 2.0, "gps-transformer": 2.0, "gcn": 1.5}
#: PyG's gated convolution stores several tensors of 1,048,576 edges in each of 8 layers.
EDGE_LAYERS = ("PyG GPSConv, multihead", "PyG GPSConv, performer")
TRAINING_CASES = (
    TrainingCase("helsinki", MODEL_TARGETS),
    TrainingCase("peptides-func", MODEL_TARGETS, {"limit": 600}, batch=32),
    # With the preset's 200 peptides PyG's padded attention needs more than 20 GiB.
    TrainingCase(
        "peptides-func",
        {"gps-kmip": 2.0, "gcn": 1.5},
        {"limit": 600},
        batch=200,
        rounds=2,
        without=EDGE_LAYERS,
    ),
    # Upstream's search takes 20 s per step.
    TrainingCase(
        "s3dis",
        {"gps-kmip": 2.0, "gcn": 1.5},
        {"limit": 24},
        rounds=2,
        without=EDGE_LAYERS,
    ),
    # PyG's edges of two rooms fit in memory.
    TrainingCase("s3dis", {"gps-transformer": 2.0}, {"limit": 24}, batch=2, rounds=2),
)


def rows(*, quick: bool = False, only: str = "") -> Iterator[Row]:
    """Measure steps of three models on three datasets, against PyG's layers and upstream's k-MIP.

    ``only`` selects cases whose ``dataset/model/batch`` contains it.
    """
    for case in TRAINING_CASES[1:2] if quick else TRAINING_CASES:
        with tempfile.TemporaryDirectory() as folder:
            for model, target in case.targets.items():
                if only in f"{case.dataset}/{model}/{case.batch}":
                    yield from _measure_steps(case, model, target, Path(folder), quick=quick)


def _measure_steps(
    case: TrainingCase, model: str, target: float, folder: Path, *, quick: bool
) -> Iterator[Row]:
    """Measure steps of one model in turn with those of its rivals."""
    from kmip_data.builds.home import Home
    from kmip_data.models.training.config.presets import config_for_data
    from kmip_data.models.training.data.open_data import open_data

    device = choose_device()
    config = config_for_data(case.dataset, model)
    if case.sample is not None:
        config = config.with_values("data", sample=True, parameters=case.sample)
    if case.batch is not None:
        config = config.with_values("training", batch_size=case.batch)
    data = open_data(config, home=Home(folder), quiet=True)
    other_layers = rivals(config.model, device.type)
    others = [name for name in other_layers if name not in case.without]
    ours = training_step(config, data, device)
    peers = {name: training_step(config, data, device, other_layers[name]) for name in others}
    compared = compare_all(ours, peers, repeats=1 if quick else case.rounds)

    sample = "" if case.sample is None else ", sample"
    batch = "" if case.batch is None else f", {case.batch} graphs"
    what = f"a training step, {case.dataset}{sample}{batch}: {model}"
    for name, times in compared.items():
        yield Row.from_times(what, name, times, target=target)


def training_step(
    config: RunConfig,
    data: RunData,
    device: Device,
    convert: Callable[[GPSNetwork, ModelConfig], None] | None = None,
) -> Callable[[], None]:
    """Return a training step as in ``train``, ready to run; ``convert`` changes the network first.

    Each call trains on the first batches of another epoch, without CUDA graphs.
    """
    config = data.pin_settings(config)
    # Recompute layers if memory is short.
    recompute = estimate_step_memory(config, data, device).recompute
    torch.manual_seed(config.training.seed)
    module = TrainingModule(config, data, recompute=recompute)
    if convert is not None:
        convert(module.model, config.model)
    loop = Loop(module, data, torch.device(device.type))

    def step() -> None:
        with float32_product_precision(config.training.precision):
            loop.train_epoch(config.training.accumulate)
        if device.type == "cuda":
            torch.cuda.synchronize()
        loop.epoch += 1
        loop.batches_done = 0
        module.metrics.reset()

    return step


if __name__ == "__main__":
    for row in rows(only=sys.argv[1]):
        click.echo(row.markdown("training"))
    click.echo(describe_machine())
