"""Distance of k-MIP from full attention, and attention weight of the k best keys, over many graphs.

Both rank the keys of each query, a block of queries at a time. Sums are float64, so that results do
not depend on their order. The paper's own plot of the distance was computed with the keys in the
wrong order (docs/analysis.md).
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
from kmip_data.files.reading import csv_bytes
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.layers.batch import batch_pointers
from kmip_data.runtime.progress import Progress

SCRATCH_BYTES = 64 * 2**20  #: bytes of a block
Curves = Mapping[str, F64]
Layer = Sequence[Tensor]  #: queries, keys and values
Measure = Callable[["Sample", Sequence[int]], Curves]


class Sample(NamedTuple):
    """Projections of one layer on one graph of n nodes, in float32."""

    layer: int  #: counted from 0
    graph: int
    queries: Tensor  #: (H, n, d)
    keys: Tensor  #: (H, n, d)
    values: Tensor  #: (H, n, v)


@dataclass(frozen=True)
class Projections:
    """Queries, keys and values of attention layers, for the same graphs."""

    #: layer by layer (queries (H, N, d), keys (H, N, d), values (H, N, v)), nodes of all graphs one
    #: after another, one floating dtype, before the factor 1/√d
    layers: tuple[Layer, ...]
    sizes: tuple[int, ...]  #: nodes of each graph
    #: origin: ``sample`` (generated data), dataset, run, k …
    about: Mapping[str, object] = field(default_factory=dict)

    def samples(self, layers: Sequence[int]) -> Iterator[Sample]:
        """Yield each layer of each graph, graph by graph."""
        for graph, end in enumerate(np.cumsum(self.sizes)):
            rows = slice(end - self.sizes[graph], end)
            for layer in layers:
                tensors = [tensor[:, rows].float() for tensor in self.layers[layer]]
                yield Sample(layer, graph, *tensors)


def gaussian_projections(n: int, d: int, *, graphs: int = 1) -> Projections:
    """Return standard normal queries, keys and values: ``graphs`` graphs of n nodes, one layer and head."""
    # A fixed seed, so that the results in the docs can be reproduced.
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 1, graphs * n, d, generator=generator)
    about = {"data": "Gaussian", "n": n, "d": d, "seed": 0}
    return Projections(((queries, keys, values),), (n,) * graphs, about)


class Recorder:
    """Recorded projections of every k-MIP layer of a model, on the CPU."""

    def __init__(
        self, layers: list[KMIPAttention], sizes: tuple[int, int | None] = (1, None)
    ) -> None:
        self.layers = layers
        self._range = sizes
        self.calls: list[list[Layer]] = [[] for _ in layers]  #: records of each layer, in order
        self.sizes: list[int] = []  #: nodes of each graph recorded

    def record_input(
        self,
        layer: int,
        module: KMIPAttention,
        args: tuple[Tensor, ...],
    ) -> None:
        """Record the graphs of the size range in a layer's input (N, d); layer 0 also counts them."""
        x, *rest = args
        ptr = rest[0] if rest else None
        least = self._range[0]
        most = self._range[1] or len(x)

        graphs = []
        for start, stop in pairwise(batch_pointers(ptr, len(x))):
            if least <= stop - start <= most:
                graphs.append((start, stop))

        if graphs:
            rows = torch.cat([torch.arange(start, stop) for start, stop in graphs])
            # Layers do not keep their projections: compute them again.
            projected = module.project(x)
            self.calls[layer].append([tensor.detach().cpu()[:, rows] for tensor in projected])
        if layer == 0:
            self.sizes += [stop - start for start, stop in graphs]

    def projections(self, graphs: int | None = None, **about: object) -> Projections:
        """Return the first ``graphs`` graphs (default: all) of all forward passes, joined.

        Raises ``UsageError`` if none was recorded.
        """
        if not self.sizes:
            least, most = self._range
            raise UsageError(
                f"No graph has {least:,} to {most or 'any number of'} nodes.",
                next="choose another --nodes A..B; --queries 1000 makes large graphs faster",
            )

        # Drop surplus graphs of the last batch.
        sizes = self.sizes[:graphs]
        nodes = sum(sizes)
        layers = []
        for calls in self.calls:
            joined = [torch.cat(tensors, 1)[:, :nodes] for tensors in zip(*calls, strict=True)]
            layers.append(tuple(joined))
        return Projections(tuple(layers), tuple(sizes), about)


@contextlib.contextmanager
def record_projections(
    model: nn.Module, *, sizes: tuple[int, int | None] = (1, None)
) -> Iterator[Recorder]:
    """Record the projections of every :class:`KMIPAttention` of ``model`` inside the block.

    Padding (``legacy_padding``), whose keys and values are the biases, is left out, and so are
    graphs outside the range ``sizes``. Compiled code skips hooks, so it runs uncompiled.
    """
    attentions = [module for module in model.modules() if isinstance(module, KMIPAttention)]
    recorder = Recorder(attentions, sizes)
    hooks = []
    for layer, module in enumerate(attentions):
        hook = partial(recorder.record_input, layer)
        hooks.append(module.register_forward_pre_hook(hook))

    try:
        with torch.compiler.set_stance("force_eager"):
            yield recorder
    finally:
        for handle in hooks:
            handle.remove()


def record_run(
    run: str | os.PathLike[str],
    *,
    split: str = "test",
    graphs: int = 10,
    sizes: tuple[int, int | None] = (1, None),
    home: Home | None = None,
) -> Projections:
    """Record the first ``graphs`` graphs of a part with the best weights of ``run``, in eval mode.

    Only graphs whose number of nodes lies in ``sizes`` count; a transductive run has one graph and
    ignores the part. Takes ``home``, and raises, as
    :func:`kmip_data.models.training.run.evaluate.evaluate` does; ``UsageError`` also if the model
    has no k-MIP attention.
    """
    from kmip_data.models.training.run.evaluate import open_run

    opened = open_run(run, home=home)
    data = opened.data
    data.check_part(split)

    with (
        opened.load_for_inference("recording") as module,
        record_projections(module.model, sizes=sizes) as recorder,
    ):
        if not recorder.layers:
            raise UsageError(
                f"{run} has no k-MIP attention to record.",
                next="use a run of the model gps-kmip",
            )

        for _, batches in data.evaluation_passes((split,)):
            for batch in batches:
                on_device = batch.to(opened.device.type)
                module.model(on_device)
                if len(recorder.sizes) >= graphs:
                    break

    about = {
        "run": str(opened.folder),
        "model": opened.result.model,
        **data.build.card.identity,
        "k": max(attention.k for attention in recorder.layers),
        "split": data.split_name,
        "part": split,
        "legacy_padding": recorder.layers[0].legacy_padding,
    }
    return recorder.projections(graphs, **about)


@dataclass(frozen=True)
class Study:
    """Curves over k for each sample."""

    ks: tuple[int, ...]  #: values of k
    samples: tuple[tuple[int, int, int], ...]  #: (layer, graph, nodes) of each sample
    curves: Curves  #: name → (samples, len(ks))

    def summary(self, name: str) -> tuple[F64, F64]:
        """Average over layers, then return mean and standard deviation (ddof 0) over graphs: (len(ks),)."""
        # Layers first: layers of one graph are not independent samples. Each graph has all of them.
        layers = len({layer for layer, *_ in self.samples})
        by_graph = self.curves[name].reshape(-1, layers, len(self.ks))
        means = by_graph.mean(1)
        return means.mean(0), means.std(0)

    def to_csv(self) -> bytes:
        """Return CSV text with one line per sample and k."""
        rows = []
        for number, sample in enumerate(self.samples):
            for column, k in enumerate(self.ks):
                values = [f"{curve[number, column]:.9g}" for curve in self.curves.values()]
                rows.append([*sample, k, *values])

        header = ["layer", "graph", "nodes", "k", *self.curves]
        return csv_bytes(header, rows)


def run_study(
    projections: Projections,
    measure: Measure,
    *,
    ks: Sequence[int] | None = None,
    queries: int | None = None,
    quiet: bool = True,
) -> Study:
    """Apply a measure, :func:`approximation_curves` or :func:`weight_share`, to layers and graphs.

    Takes all graphs (work is quadratic in their nodes) and all layers but the first, whose input
    has many equal rows, unless it is the only one. ``ks`` must increase; default: the paper's, up
    to the largest graph. ``queries``: number of random queries per graph, each against all keys.
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
        for sample in projections.samples(layers):
            n = sample.keys.shape[1]
            if queries is not None and queries < n:
                rows = torch.randperm(n, generator=generator)[:queries]
                sample = sample._replace(queries=sample.queries[:, rows])  # noqa: PLW2901
            measured.append(measure(sample, ks))
            samples.append((sample.layer, sample.graph, n))
            progress.update(1)

    curves = {}
    for name in measured[0]:
        curves[name] = np.stack([of_sample[name] for of_sample in measured])
    return Study(ks, tuple(samples), curves)


def approximation_curves(sample: Sample, ks: Sequence[int]) -> Curves:
    """Return the distance from full attention of k-MIP attention and of standard normal outputs."""
    error, random = approximation_error(
        sample.queries,
        sample.keys,
        sample.values,
        ks,
        seed=sample.graph,
    )
    return {"k-MIP": error, "normal outputs": np.full(len(ks), random)}


def weight_share(sample: Sample, ks: Sequence[int]) -> Curves:
    """Return the cumulative attention weight of the sample, and of Gaussian data of the same size."""
    # Not the seed of gaussian_projections: its data would be compared with themselves.
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

    First the errors of k-MIP attention for each k, (len(ks),), 0 where k ≥ n; then of standard
    normal outputs, the paper's baseline, drawn from ``seed``. ``ks`` must increase. Queries are (H,
    m, d), keys (H, n, d), values (H, n, v): m queries against the n keys of one graph.
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

        # Attention over the k best keys for all k at once, by prefix sums over the ranked keys.
        weights, order = _ranked_weights(scores)
        numerators, denominators = _prefix_sums(weights, value[order], ks)
        outputs = numerators / denominators[..., None]
        distances = (outputs - full[:, None]).norm(dim=-1)
        error += distances.sum(0)

    count = queries.shape[0] * queries.shape[1]
    # For k ≥ n both attentions are equal: what remains is rounding.
    inside = torch.tensor(ks) < keys.shape[1]
    means = torch.where(inside, error / count, 0.0)
    return means.numpy(), random / count


def cumulative_weight(queries: Tensor, keys: Tensor, ks: Sequence[int]) -> F64:
    """Return the sum of the k largest softmax weights, mean over queries and heads, for each k: (len(ks),).

    As in the published code, scores are scaled by 1/√d and queries averaged; the formula in the
    paper's text does neither. Queries (H, m, d), keys (H, n, d) of one graph; k increases; for k ≥
    n the weight is 1.
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

    A geometric progression of ratio 1.2, rounded, each value once.

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
    """Return ``ks`` as a tuple; raise UsageError unless they increase from 1 or more."""
    ks = tuple(ks)
    rises = all(low < high for low, high in pairwise(ks))
    if not ks or ks[0] < 1 or not rises:
        raise UsageError(f"The values of k must be ascending integers of at least 1, not {ks}.")
    return ks


def _score_blocks(queries: Tensor, keys: Tensor, width: int) -> Iterator[tuple[int, Tensor]]:
    """Yield a head and float64 scores q · k / √d (rows, n) of some of its queries, in blocks of bounded size.

    ``width``: additional float64 numbers per pair of query and key.
    """
    # Per pair: scores, ranked scores, weights, order, and the caller's numbers.
    numbers = width + 4
    bytes_of_query = 8 * numbers * max(1, keys.shape[1])
    step = max(1, SCRATCH_BYTES // bytes_of_query)
    for head in range(queries.shape[0]):
        transposed = keys[head].double().mT
        for block in torch.split(queries[head], step):
            products = block.double() @ transposed
            yield head, products / math.sqrt(queries.shape[2])


def _ranked_weights(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return softmax weights and keys, both (rows, n), by decreasing weight, ties by index."""
    ranked, order = scores.sort(dim=-1, descending=True, stable=True)
    return torch.softmax(ranked, -1), order


def _prefix_sums(weights: Tensor, values: Tensor, ks: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return Σ_{j<k} w_j v_j (rows, len(ks), v) and Σ_{j<k} w_j (rows, len(ks)), for each k."""
    # Add each key once, for any number of k: sums between consecutive k, then a running total.
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
