"""Training steps against networks of equal width and depth with other libraries' layers.

All rows take half an hour; measure a part with::

    python -m benchmarks.training peptides-func/gcn/32    # part of dataset/model/batch
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import GCNConv, GPSConv, ResGatedGraphConv
from torch_geometric.utils import to_dense_batch

from benchmarks.table import Row
from benchmarks.turns import seconds
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.benchmarking.measuring import SCRATCH_BYTES
from kmip_data.models.benchmarking.methods import Workload, attend_gathered, get_method
from kmip_data.models.benchmarking.result_text import describe_machine
from kmip_data.models.config import ModelConfig
from kmip_data.models.layers import linear
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.convolutions import GCN
from kmip_data.models.network import GPSNetwork


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
        self.ours, self.method = ours, get_method(method)

    def forward(self, x: Tensor, graphs: GraphBatch) -> Tensor:
        """Map nodes (N, dim) to new ones."""
        scratch_bytes = SCRATCH_BYTES[x.device.type]
        padded, is_node = to_dense_batch(x, graphs.graph_index)  # (G, n, dim)
        flat = self.ours.project(padded.flatten(0, 1))
        # (H · G, n, d): each graph of each head is a head of the search.
        queries, keys, values = (rows.unflatten(1, is_node.shape).flatten(0, 1) for rows in flat)
        k = min(self.ours.k, int(is_node.sum(1).min()))

        # An additional channel excludes padding.
        masked = torch.where(is_node, 0.0, -1e30).repeat(self.ours.heads, 1)
        searched_keys = torch.cat([keys, masked[..., None]], -1)
        searched_queries = nn.functional.pad(queries, (0, 1), value=1.0)
        assert self.method.search is not None
        indices = self.method.search(
            Workload(searched_queries, searched_keys, values, k), scratch_bytes
        )
        attended = attend_gathered(Workload(queries, keys, values, k), indices, scratch_bytes)
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

    symbolic = device == "cuda" and get_method("symbolic").why_unusable(device) is None
    if symbolic:
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
    rounds: int = 3
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


class MatrixProducts(TorchDispatchMode):
    """Record the operands of all matrix products while active."""

    def __init__(self) -> None:
        super().__init__()
        self.operands: list[tuple[Any, tuple[Tensor, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, recording the operands of matrix products."""
        aten = torch.ops.aten
        tensors = tuple(arg for arg in args if isinstance(arg, Tensor))
        if func in (aten.mm.default, aten.bmm.default):
            self.operands.append((func, tensors))
        elif func is aten.addmm.default:
            self.operands.append((aten.mm.default, tensors[1:]))
        elif func is torch.ops.mkldnn._linear_pointwise.default:
            self.operands.append((linear.onednn_linear, tensors))
        return func(*args, **(kwargs or {}))

    def seconds(self, repeats: int) -> float:
        """Return the median seconds of all recorded products."""

        def multiply() -> None:
            for product, operands in self.operands:
                product(*operands)

        with torch.no_grad():
            return statistics.median(seconds(multiply) for _ in range(repeats))


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
    from kmip_data.models.benchmarking.training_speed import TrainingBenchmark, compare_training
    from kmip_data.models.training.config.presets import config_for_data
    from kmip_data.models.training.data.open_data import open_data
    from kmip_data.models.training.devices import choose_device

    device = choose_device()
    config = config_for_data(case.dataset, model)
    if case.sample is not None:
        config = config.with_values("data", sample=True, parameters=case.sample)
    if case.batch is not None:
        config = config.with_values("training", batch_size=case.batch)
    data = open_data(config, home=Home(folder), quiet=True)
    other_layers = rivals(config.model, device.type)
    others = {name: other_layers[name] for name in other_layers if name not in case.without}

    def build_benchmark(name: str) -> TrainingBenchmark:
        benchmark = TrainingBenchmark(name, config, data, device)
        if name in others:
            others[name](benchmark.module.model, benchmark.config.model)
        return benchmark

    rounds, max_batches, duration = (1, 1, 1.0) if quick else (case.rounds, 5, 20.0)
    speeds = compare_training(
        dict.fromkeys((model, *others), build_benchmark),
        rounds=rounds,
        max_batches=max_batches,
        max_seconds=duration,
        log=partial(click.echo, err=True),
    )
    ours = speeds[0]
    assert ours.seconds is not None, ours.note
    profiled = build_benchmark(model)
    with MatrixProducts() as products:
        profiled.run(1)
    product_seconds = products.seconds(1 if quick else 5) / 2  # a warm-up step and one more

    sample = "" if case.sample is None else ", sample"
    batch = "" if case.batch is None else f", {case.batch} graphs"
    what = f"a training step, {case.dataset}{sample}{batch}: {model}"
    for speed in speeds[1:]:
        met = None if speed.ratio is None else speed.ratio >= target
        yield Row(
            what=what, against=f"{speed.name}{f': {speed.note}' if speed.note else ''}", unit="s",
            ours=ours.seconds, theirs=speed.seconds, ratio=speed.ratio, spread=speed.spread,
            target=f"≥ {target:g}×", met=met,
        )  # fmt: skip
    yield Row(
        what=what, against="only its matrix products", ours=ours.seconds, theirs=product_seconds,
        unit="s", ratio=product_seconds / ours.seconds,
    )  # fmt: skip


if __name__ == "__main__":
    for row in rows(only=sys.argv[1]):
        click.echo(row.markdown("training"))
    click.echo(describe_machine())
