"""Distance of k-MIP from full attention, and attention weight of the k best keys, over many graphs.

Both analyses rank the keys of each query, a block of queries at a time. Sums are float64, so that
results do not depend on their order. The paper's own plot of the distance was computed with the
keys in the wrong order (docs/analysis.md).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from kmip_data.arrays import F64
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.small_files import csv_bytes
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.layers.batch import batch_pointers
from kmip_data.runtime.progress import Progress

SCRATCH_BYTES = 64 * 2**20  #: largest size of a block
Curves = Mapping[str, F64]  #: name -> one value per k
LayerProjections = Sequence[Tensor]  #: queries, keys and values
#: Maps a sample and the values of k to curves.
CurveFunction = Callable[["LayerSample", Sequence[int]], Curves]


class LayerSample(NamedTuple):
    """Projections of one layer on one graph of n nodes, in float32."""

    layer: int  #: index of the layer, from 0
    graph: int  #: index of the graph
    queries: Tensor  #: (H, n, d)
    keys: Tensor  #: (H, n, d)
    values: Tensor  #: (H, n, v)


@dataclass(frozen=True)
class Projections:
    """Queries, keys and values of attention layers for the same graphs."""

    #: Queries (H, N, d), keys (H, N, d) and values (H, N, v) of each layer, in one floating dtype,
    #: before scaling by 1/√d; the nodes of all graphs are concatenated.
    layers: tuple[LayerProjections, ...]
    sizes: tuple[int, ...]  #: nodes of each graph
    origin: Mapping[str, object] = field(
        default_factory=dict
    )  #: origin, such as dataset, run and k

    def layer_samples(self, layers: Sequence[int]) -> Iterator[LayerSample]:
        """Yield the given layers of each graph, graph by graph."""
        for graph, end in enumerate(np.cumsum(self.sizes)):
            rows = slice(end - self.sizes[graph], end)
            for layer in layers:
                tensors = [tensor[:, rows].float() for tensor in self.layers[layer]]
                yield LayerSample(layer, graph, *tensors)


def gaussian_projections(n: int, d: int, *, graphs: int = 1) -> Projections:
    """Draw standard normal projections of ``graphs`` graphs of n nodes, with one layer and one head."""
    # The seed is fixed, so that the results in the docs can be reproduced.
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 1, graphs * n, d, generator=generator)
    origin = {"data": "Gaussian", "n": n, "d": d, "seed": 0}
    return Projections(((queries, keys, values),), (n,) * graphs, origin)


class ProjectionCollector:
    """Collector of the projections of every k-MIP layer of a model, on the CPU."""

    def __init__(
        self, layers: list[KMIPAttention], sizes: tuple[int, int | None] = (1, None)
    ) -> None:
        self.layers = layers
        self._size_range = sizes
        #: for each layer, the projections of each forward pass
        self.calls: list[list[LayerProjections]] = [[] for _ in layers]
        self.sizes: list[int] = []  #: nodes of each collected graph

    def collect_input(
        self,
        layer: int,
        module: KMIPAttention,
        args: tuple[Tensor, ...],
    ) -> None:
        """Collect the projections of a layer's input (N, d), for graphs within the size range."""
        x, *rest = args
        ptr = rest[0] if rest else None
        least = self._size_range[0]
        most = self._size_range[1] or len(x)

        graphs = []
        for start, stop in pairwise(batch_pointers(ptr, len(x))):
            if least <= stop - start <= most:
                graphs.append((start, stop))

        if graphs:
            rows = torch.cat([torch.arange(start, stop) for start, stop in graphs])
            # A hook sees only the input, so project it again.
            projected = module.project(x)
            self.calls[layer].append([tensor.detach().cpu()[:, rows] for tensor in projected])
        if layer == 0:
            self.sizes += [stop - start for start, stop in graphs]

    def projections(self, graphs: int | None = None, **origin: object) -> Projections:
        """Concatenate the first ``graphs`` graphs (default: all) of all forward passes.

        Raises ``UsageError`` if no graph was collected.
        """
        if not self.sizes:
            least, most = self._size_range
            raise UsageError(
                f"No graph has {least:,} to {most or 'any number of'} nodes.",
                next="choose another --nodes A..B; --queries 1000 makes large graphs faster",
            )

        # Drop surplus graphs of the last batch.
        sizes = self.sizes[:graphs]
        nodes = sum(sizes)
        layers = []
        for calls in self.calls:
            projections = [torch.cat(rows, 1)[:, :nodes] for rows in zip(*calls, strict=True)]
            layers.append(tuple(projections))
        return Projections(tuple(layers), tuple(sizes), origin)


@contextlib.contextmanager
def collect_projections(
    model: nn.Module, *, sizes: tuple[int, int | None] = (1, None)
) -> Iterator[ProjectionCollector]:
    """Collect the projections of every :class:`KMIPAttention` of ``model`` inside the block.

    Graphs outside the range ``sizes`` are left out, and so is padding (``legacy_padding``). The
    model runs uncompiled, because compiled code skips hooks.
    """
    attentions = [module for module in model.modules() if isinstance(module, KMIPAttention)]
    collector = ProjectionCollector(attentions, sizes)
    hooks = []
    for layer, module in enumerate(attentions):
        hook = partial(collector.collect_input, layer)
        hooks.append(module.register_forward_pre_hook(hook))

    try:
        with torch.compiler.set_stance("force_eager"):
            yield collector
    finally:
        for handle in hooks:
            handle.remove()


def collect_run_projections(
    run: str | os.PathLike[str],
    *,
    split: str = "test",
    graphs: int = 10,
    sizes: tuple[int, int | None] = (1, None),
    home: Home | None = None,
) -> Projections:
    """Collect the projections of the first ``graphs`` graphs of a part, with the best weights of ``run``.

    The model is in eval mode. Only graphs whose number of nodes is within ``sizes`` count. A
    transductive run has one graph and ignores the part. Raises the errors of
    :func:`kmip_data.models.training.run.evaluate_run.evaluate`, and ``UsageError`` if the model has no
    k-MIP attention.
    """
    from kmip_data.models.training.run.finished_run import open_run

    opened = open_run(run, home=home)
    data = opened.data
    data.check_part(split)

    with (
        opened.load_for_inference("collecting projections") as module,
        collect_projections(module.model, sizes=sizes) as collector,
    ):
        if not collector.layers:
            raise UsageError(
                f"{run} has no k-MIP attention to record.",
                next="use a run of the model gps-kmip",
            )

        for _, batches in data.evaluation_passes((split,)):
            for batch in batches:
                on_device = batch.to(opened.device.type)
                module.model(on_device)
                if len(collector.sizes) >= graphs:
                    break

    origin = {
        "run": str(opened.folder),
        "model": opened.result.model,
        **data.build.card.identity,
        "k": max(attention.k for attention in collector.layers),
        "split": data.split_name,
        "part": split,
        "legacy_padding": collector.layers[0].legacy_padding,
    }
    return collector.projections(graphs, **origin)


@dataclass(frozen=True)
class CurvesOverK:
    """Curves over k for each sample."""

    ks: tuple[int, ...]  #: values of k
    samples: tuple[tuple[int, int, int], ...]  #: (layer, graph, nodes) of each sample
    curves: Curves  #: name -> (samples, len(ks))

    def summary(self, name: str) -> tuple[F64, F64]:
        """Return mean and standard deviation (ddof 0) over graphs, (len(ks),), of layer averages."""
        # Average over layers first: layers of one graph are not independent samples.
        layers = len({layer for layer, *_ in self.samples})
        by_graph = self.curves[name].reshape(-1, layers, len(self.ks))
        means = by_graph.mean(1)
        return means.mean(0), means.std(0)

    def to_csv(self) -> bytes:
        """Return the curves as CSV, with one line per sample and k."""
        rows = []
        for number, sample in enumerate(self.samples):
            for column, k in enumerate(self.ks):
                values = [f"{curve[number, column]:.9g}" for curve in self.curves.values()]
                rows.append([*sample, k, *values])

        header = ["layer", "graph", "nodes", "k", *self.curves]
        return csv_bytes(header, rows)


def measure_curves(
    projections: Projections,
    measure: CurveFunction,
    *,
    ks: Sequence[int] | None = None,
    queries: int | None = None,
    quiet: bool = True,
) -> CurvesOverK:
    """Apply :func:`approximation_curves` or :func:`cumulative_weight_curves` to layers and graphs.

    Work is quadratic in the nodes of a graph. The first layer, whose input has many equal rows, is
    left out unless it is the only one. ``ks`` must ascend; by default, they are the paper's, up to
    the largest graph. ``queries`` is the number of random queries per graph; None: all.
    """
    count = len(projections.layers)
    sizes = projections.sizes
    layers = range(min(1, count - 1), count)
    ks = tuple(ks) if ks is not None else paper_ks(max(sizes))

    samples = []
    measured = []
    generator = torch.Generator().manual_seed(0)
    steps = len(layers) * len(sizes)
    with Progress("layers of graphs", steps, unit="layer", quiet=quiet) as progress:
        for sample in projections.layer_samples(layers):
            n = sample.keys.shape[1]
            if queries is not None and queries < n:
                rows = torch.randperm(n, generator=generator)[:queries]
                sample = sample._replace(queries=sample.queries[:, rows])  # noqa: PLW2901
            measured.append(measure(sample, ks))
            samples.append((sample.layer, sample.graph, n))
            progress.update(1)

    curves = {}
    for name in measured[0]:
        curves[name] = np.stack([sample_curves[name] for sample_curves in measured])
    return CurvesOverK(ks, tuple(samples), curves)


def approximation_curves(sample: LayerSample, ks: Sequence[int]) -> Curves:
    """Return the distances of k-MIP attention and of standard normal outputs from full attention."""
    error, random = approximation_error(
        sample.queries,
        sample.keys,
        sample.values,
        ks,
        seed=sample.graph,
    )
    return {"k-MIP": error, "normal outputs": np.full(len(ks), random)}


def cumulative_weight_curves(sample: LayerSample, ks: Sequence[int]) -> Curves:
    """Return the cumulative attention weights of the sample and of Gaussian data of the same size."""
    # The seed differs from gaussian_projections, which would be compared with itself.
    generator = torch.Generator().manual_seed(1_000_003 + sample.graph)
    queries = torch.randn(sample.queries[:1].shape, generator=generator)
    keys = torch.randn(sample.keys[:1].shape, generator=generator)
    gaussian = cumulative_weight(queries, keys, ks)
    return {
        "k-MIP": cumulative_weight(sample.queries, sample.keys, ks),
        "Gaussian": gaussian,
    }


def approximation_error(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    ks: Sequence[int],
    *,
    seed: int = 0,
) -> tuple[F64, float]:
    """Return mean Euclidean distances from full attention (scaled by 1/√d), over nodes and heads.

    Returns the distances of k-MIP attention for each k, (len(ks),), which are 0 for k ≥ n, and the
    distance of standard normal outputs drawn from ``seed``, the paper's baseline. ``ks`` must
    ascend. Queries are (H, m, d), and keys (H, n, d) and values (H, n, v) belong to one graph.
    """
    ks = check_ks(ks)
    generator = torch.Generator().manual_seed(seed)
    error = torch.zeros(len(ks), dtype=torch.float64)
    random = 0.0
    for head, scores in _score_blocks(queries, keys, values.shape[2]):
        value = values[head].double()
        full = torch.softmax(scores, -1) @ value

        noise = torch.randn(full.shape, generator=generator, dtype=torch.float64)
        distances = (noise - full).norm(dim=-1)
        random += float(distances.sum())

        # Prefix sums over the ranked keys give attention to the k best keys for all k at once.
        weights, order = _ranked_weights(scores)
        numerators, denominators = _prefix_sums(weights, value[order], ks)
        outputs = numerators / denominators[..., None]
        distances = (outputs - full[:, None]).norm(dim=-1)
        error += distances.sum(0)

    count = queries.shape[0] * queries.shape[1]
    # For k ≥ n both attentions are equal up to rounding.
    leaves_out_keys = torch.tensor(ks) < keys.shape[1]
    means = torch.where(leaves_out_keys, error / count, 0.0)
    return means.numpy(), random / count


def cumulative_weight(queries: Tensor, keys: Tensor, ks: Sequence[int]) -> F64:
    """Return the sum of the k largest softmax weights, averaged over queries and heads, for each k.

    As in the published code, scores are scaled by 1/√d and queries are averaged; the formula in the
    paper's text does neither. Queries (H, m, d) and keys (H, n, d) belong to one graph. ``ks`` must
    ascend; for k ≥ n the sum is 1. The result is (len(ks),).
    """
    ks = check_ks(ks)
    last = torch.tensor(ks).clamp_max(keys.shape[1]) - 1
    total = torch.zeros(len(ks), dtype=torch.float64)
    for _, scores in _score_blocks(queries, keys, 1):
        weights, _ = _ranked_weights(scores)
        cumulative = weights.cumsum(1)[:, last]
        total += cumulative.sum(0)
    mean = total / (queries.shape[0] * queries.shape[1])
    return mean.numpy()


def paper_ks(largest: int) -> tuple[int, ...]:
    """Return the values of k in the paper's experiment, up to and including ``largest``.

    They are a geometric progression with ratio 1.2, rounded, without duplicates.

    >>> paper_ks(20)
    (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 18, 20)
    """
    ks = []
    value = 1.0
    while round(value) < largest:
        ks.append(round(value))
        value *= 1.2
    return (*dict.fromkeys(ks), largest)


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Return ``ks`` as a tuple, or raise ``UsageError`` unless they ascend from at least 1."""
    ks = tuple(ks)
    is_ascending = all(low < high for low, high in pairwise(ks))
    if not ks or ks[0] < 1 or not is_ascending:
        raise UsageError(f"The values of k must be ascending integers of at least 1, not {ks}.")
    return ks


def _score_blocks(queries: Tensor, keys: Tensor, width: int) -> Iterator[tuple[int, Tensor]]:
    """Yield a head and float64 scores q · k / √d (rows, n) of a block of its queries.

    ``width`` is the number of float64 values that the caller needs per pair.
    """
    # Besides, each pair needs a score, a ranked score, a weight and an index.
    values_per_pair = width + 4
    bytes_per_query = 8 * values_per_pair * max(1, keys.shape[1])
    step = max(1, SCRATCH_BYTES // bytes_per_query)
    for head in range(queries.shape[0]):
        transposed = keys[head].double().mT
        for block in torch.split(queries[head], step):
            products = block.double() @ transposed
            yield head, products / math.sqrt(queries.shape[2])


def _ranked_weights(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return softmax weights in descending order and their keys, both (rows, n); ties by index."""
    ranked, order = scores.sort(dim=-1, descending=True, stable=True)
    return torch.softmax(ranked, -1), order


def _prefix_sums(weights: Tensor, values: Tensor, ks: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return Σ_{j<k} w_j v_j (rows, len(ks), v) and Σ_{j<k} w_j (rows, len(ks)), for each k."""
    # Add each key once: sum between consecutive k, then accumulate the sums.
    bounds = [min(k, weights.shape[1]) for k in (0, *ks)]
    numerators = []
    denominators = []
    for start, stop in pairwise(bounds):
        weight = weights[:, start:stop]
        weighted = weight[:, None] @ values[:, start:stop]
        numerators.append(weighted.squeeze(1))
        denominators.append(weight.sum(1))

    numerator = torch.stack(numerators, 1).cumsum(1)
    denominator = torch.stack(denominators, 1).cumsum(1)
    return numerator, denominator
