"""Distance of k-MIP attention to full attention, and attention weight of the k best keys, over many graphs.

Both put the keys of each query in order, a block of queries at a time. All sums are float64: these are
analyses, whose figures should not depend on the order of a sum. The paper's own figure of the distance was
computed with the keys in the wrong order (docs/analysis.md).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from kmip_data.arrays import F64
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.reading import csv_bytes
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.layers.batch import pointers
from kmip_data.runtime.progress import Progress

SCRATCH = 64 * 2**20  #: bytes of a block
Curves = Mapping[str, F64]
Layer = tuple[Tensor, Tensor, Tensor]
Measure = Callable[["Sample", Sequence[int]], Curves]


class Sample(NamedTuple):
    """One layer on one graph of n nodes, in float32."""

    layer: int  #: counted from 0
    graph: int
    queries: Tensor  #: (H, n, d)
    keys: Tensor  #: (H, n, d)
    values: Tensor  #: (H, n, v)


@dataclass(frozen=True)
class Projections:
    """Queries, keys and values of attention layers, for the same graphs."""

    #: layer by layer (queries (H, N, d), keys (H, N, d), values (H, N, v)), nodes of all graphs one after
    #: another, one floating dtype, before the factor 1/√d
    layers: tuple[Layer, ...]
    sizes: tuple[int, ...]  #: nodes of each graph
    #: plain values on their origin: ``sample`` (generated data), dataset, run, k …
    about: Mapping[str, Any] = field(default_factory=dict)

    def samples(self, layers: Sequence[int]) -> Iterator[Sample]:
        """Yield every chosen layer on every graph, graph by graph."""
        for graph, end in enumerate(np.cumsum(self.sizes)):
            rows = slice(end - self.sizes[graph], end)
            for layer in layers:
                yield Sample(
                    layer, graph, *(tensor[:, rows].float() for tensor in self.layers[layer])
                )


def gaussian_projections(n: int, d: int, *, graphs: int = 1) -> Projections:
    """Return standard normal queries, keys and values: ``graphs`` graphs of n nodes, one layer and head."""
    queries, keys, values = torch.randn(
        3, 1, graphs * n, d, generator=torch.Generator().manual_seed(0)
    )
    about = {"data": "Gaussian", "n": n, "d": d, "seed": 0}
    return Projections(((queries, keys, values),), (n,) * graphs, about)


class Recorder:
    """Projections of every k-MIP layer of a model, of the graphs recorded so far, on the CPU."""

    def __init__(
        self, layers: list[KMIPAttention], sizes: tuple[int, int | None] = (1, None)
    ) -> None:
        self.layers = layers
        self._range = sizes
        self.calls: list[list[Layer]] = [[] for _ in layers]  #: of each layer, in order
        self.sizes: list[int] = []  #: nodes of each graph recorded

    def hook(
        self, layer: int, module: KMIPAttention, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Record the graphs of the right size from the input of a layer; layer 0 counts them."""
        given = dict(zip(("x", "ptr"), args, strict=False)) | options
        x, (least, most) = given["x"], self._range
        bounds = pairwise(pointers(given.get("ptr"), len(x)))
        graphs = [
            (start, stop) for start, stop in bounds if least <= stop - start <= (most or len(x))
        ]
        if graphs:
            rows = torch.cat([torch.arange(start, stop) for start, stop in graphs])
            queries, keys, values = (tensor.detach().cpu()[:, rows] for tensor in module.project(x))
            self.calls[layer].append((queries, keys, values))
        if layer == 0:
            self.sizes += [stop - start for start, stop in graphs]

    def projections(self, graphs: int | None = None, **about: Any) -> Projections:
        """Return the first ``graphs`` graphs (default: all) of all forward passes, joined.

        Raises ``UsageError`` if none was recorded.
        """
        if not self.sizes:
            limits = "{:,} to {} nodes".format(self._range[0], self._range[1] or "any number of")
            step = "another --nodes A..B (with --queries 1000, a large graph takes less time)"
            raise UsageError(f"There is no graph to record of {limits}.", next=step)
        sizes = self.sizes[:graphs]
        layers = list[Layer]()
        for calls in self.calls:
            queries, keys, values = (
                torch.cat(each, 1)[:, : sum(sizes)] for each in zip(*calls, strict=True)
            )
            layers.append((queries, keys, values))
        return Projections(tuple(layers), tuple(sizes), about)


@contextlib.contextmanager
def recording(model: nn.Module, *, sizes: tuple[int, int | None] = (1, None)) -> Iterator[Recorder]:
    """Record within the block the projections of every :class:`KMIPAttention` of ``model``.

    Padding (``legacy_padding``), whose keys and values are the biases, is left out, and so are graphs outside
    the range ``sizes``. Compiled code, which skips the hooks, runs uncompiled.
    """
    attentions = [module for module in model.modules() if isinstance(module, KMIPAttention)]
    recorder = Recorder(attentions, sizes)
    hooks = [
        module.register_forward_pre_hook(partial(recorder.hook, layer), with_kwargs=True)
        for layer, module in enumerate(attentions)
    ]
    try:
        with torch.compiler.set_stance("force_eager"):
            yield recorder
    finally:
        for hook in hooks:
            hook.remove()


def record_run(
    run: str | os.PathLike[str],
    *,
    split: str = "test",
    graphs: int = 10,
    sizes: tuple[int, int | None] = (1, None),
    home: Home | None = None,
    device: str | None = None,
) -> Projections:
    """Record the first ``graphs`` graphs of a part of the split by the best weights of ``run``, in eval mode.

    Only graphs with a number of nodes in the range ``sizes`` count; a transductive run has one graph,
    whatever the part. Takes ``home`` and ``device``, and raises, as
    :func:`kmip_data.models.training.run.evaluate.evaluate` does; ``UsageError`` also if the model has no
    k-MIP attention.
    """
    from kmip_data.models.training.run.evaluate import open_run

    opened = open_run(run, home=home, device=device)
    data = opened.data
    data.check_part(split)
    with opened.applied("recording") as module, recording(module.model, sizes=sizes) as recorder:
        if not recorder.layers:
            raise UsageError(
                f"{run} has no k-MIP attention to record.", next="a run of the model gps-kmip"
            )
        for _, batches in data.passes((split,)):
            for batch in batches:
                module.model(batch.to(opened.device.kind))
                if len(recorder.sizes) >= graphs:
                    break
    about = {"run": str(opened.folder), "model": opened.result.model, **data.build.card.identity}
    about |= {
        "k": max(attention.k for attention in recorder.layers),
        "split": data.split_name,
        "part": split,
    }
    return recorder.projections(graphs, **about, legacy_padding=recorder.layers[0].legacy_padding)


@dataclass(frozen=True)
class Study:
    """Curves over k for each sample."""

    ks: tuple[int, ...]  #: values of k
    samples: tuple[tuple[int, int, int], ...]  #: (layer, graph, nodes) of each sample
    curves: Curves  #: name → (samples, len(ks))

    def summary(self, name: str) -> tuple[F64, F64]:
        """Return mean and standard deviation (ddof 0) over graphs of the mean over layers: (len(ks),)."""
        graphs = np.array([graph for _, graph, _ in self.samples])
        means = np.stack(
            [self.curves[name][graphs == graph].mean(0) for graph in np.unique(graphs)]
        )
        return means.mean(0), means.std(0)

    def to_csv(self) -> bytes:
        """Return a CSV file with a line for each sample and k."""
        rows = (
            [*sample, k, *(f"{curve[number, place]:.9g}" for curve in self.curves.values())]
            for number, sample in enumerate(self.samples)
            for place, k in enumerate(self.ks)
        )
        return csv_bytes(["layer", "graph", "nodes", "k", *self.curves], rows)


def run_study(
    projections: Projections,
    measure: Measure,
    *,
    ks: Sequence[int] | None = None,
    queries: int | None = None,
    quiet: bool = True,
) -> Study:
    """Apply a measure, :func:`approximation` or :func:`weight_share`, to layers and graphs.

    Takes all graphs (the work grows with the square of their nodes), and all layers but the first, whose
    input has many equal rows, unless it is alone. ``ks`` rise; default: the paper's, up to the largest graph.
    ``queries``: so many random nodes of each graph, each against all keys.
    """
    count = len(projections.layers)
    sizes = projections.sizes
    layers = range(min(1, count - 1), count)
    ks = tuple(ks) if ks is not None else paper_ks(max(sizes))
    samples = []
    found = []
    generator = torch.Generator().manual_seed(0)
    with Progress(
        "layers of graphs", len(layers) * len(sizes), unit="layer", quiet=quiet
    ) as progress:
        for sample in projections.samples(layers):
            n = sample.keys.shape[1]
            if queries is not None and queries < n:
                rows = torch.randperm(n, generator=generator)[:queries]
                sample = sample._replace(queries=sample.queries[:, rows])  # noqa: PLW2901
            found.append(measure(sample, ks))
            samples.append((sample.layer, sample.graph, n))
            progress.update(1)
    curves = {name: np.stack([curve[name] for curve in found]) for name in found[0]}
    return Study(ks, tuple(samples), curves)


def approximation(sample: Sample, ks: Sequence[int]) -> Curves:
    """Return the distance to full attention of k-MIP attention, and of normal outputs."""
    error, random = approximation_error(
        sample.queries, sample.keys, sample.values, ks, seed=sample.graph
    )
    return {"k-MIP": error, "normal outputs": np.full(len(ks), random)}


def weight_share(sample: Sample, ks: Sequence[int]) -> Curves:
    """Return the cumulative attention weight of the sample, and of Gaussian data of its size."""
    generator = torch.Generator().manual_seed(
        1_000_003 + sample.graph
    )  # not those of gaussian_projections
    queries, keys = (
        torch.randn(of[:1].shape, generator=generator) for of in (sample.queries, sample.keys)
    )
    found = cumulative_weight(sample.queries, sample.keys, ks)
    return {"k-MIP": found, "Gaussian": cumulative_weight(queries, keys, ks)}


def approximation_error(
    queries: Tensor, keys: Tensor, values: Tensor, ks: Sequence[int], *, seed: int = 0
) -> tuple[F64, float]:
    """Return mean Euclidean distances to full attention (scaled by 1/√d), over nodes and heads.

    First (len(ks),) those of k-MIP attention for each of rising k, 0 where k ≥ n; then that of standard
    normal outputs, the paper's yardstick, drawn from ``seed``. Queries are (H, m, d), keys (H, n, d), values
    (H, n, v): m queries against the n keys of one graph.
    """
    ks = check_ks(ks)
    generator = torch.Generator().manual_seed(seed)
    error = torch.zeros(len(ks), dtype=torch.float64)
    random = 0.0
    for head, scores in _score_blocks(queries, keys, values.shape[2]):
        value = values[head].double()
        full = torch.softmax(scores, -1) @ value
        noise = torch.randn(full.shape, generator=generator, dtype=torch.float64)
        random += float((noise - full).norm(dim=-1).sum())
        weights, order = _ranked_weights(scores)
        numerators, denominators = _prefix_sums(weights, value[order], ks)
        error += (numerators / denominators[..., None] - full[:, None]).norm(dim=-1).sum(0)
    count = queries.shape[0] * queries.shape[1]
    inside = torch.tensor(ks) < keys.shape[1]
    return torch.where(inside, error / count, 0.0).numpy(), random / count


def cumulative_weight(queries: Tensor, keys: Tensor, ks: Sequence[int]) -> F64:
    """Return the sum of the k largest softmax weights, mean over queries and heads, for each k: (len(ks),).

    As the published code computes it: scores are scaled by 1/√d, and the sum over queries is a mean;
    the formula in the paper's text has neither. Queries (H, m, d), keys (H, n, d) of one graph; values of k
    rise, and where k ≥ n it is 1.
    """
    ks = check_ks(ks)
    last = torch.tensor(ks).clamp_max(keys.shape[1]) - 1
    total = torch.zeros(len(ks), dtype=torch.float64)
    for _, scores in _score_blocks(queries, keys, 1):
        total += _ranked_weights(scores)[0].cumsum(1)[:, last].sum(0)
    return (total / (queries.shape[0] * queries.shape[1])).numpy()


def paper_ks(largest: int) -> tuple[int, ...]:
    """Return the values of k of the paper's experiment, up to ``largest``, which is the last.

    A geometric progression of ratio 1.2, rounded, each value once.

    >>> paper_ks(20)
    (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 18, 20)
    """
    found = []
    value = 1.0
    while round(value) < largest:
        found.append(round(value))
        value *= 1.2
    return (*dict.fromkeys(found), largest)


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Return ``ks`` as a tuple; raise UsageError unless they increase from 1 or more."""
    ks = tuple(ks)
    if not ks or ks[0] < 1 or any(low >= high for low, high in pairwise(ks)):
        raise UsageError(f"The values of k are wrong: {ks}.", next="whole numbers ≥ 1 that rise")
    return ks


def _score_blocks(queries: Tensor, keys: Tensor, width: int) -> Iterator[tuple[int, Tensor]]:
    """Yield a head and float64 scores q · k / √d (rows, n) of some of its queries, in blocks of bounded size.

    ``width``: further float64 numbers that each pair of a query and a key needs.
    """
    step = max(1, SCRATCH // (8 * max(1, keys.shape[1]) * (width + 4)))
    for head in range(queries.shape[0]):
        every = keys[head].double().mT
        for some in torch.split(queries[head], step):
            yield head, some.double() @ every / math.sqrt(queries.shape[2])


def _ranked_weights(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return softmax weights and keys, both (rows, n), the largest first; equal ones by index."""
    ranked, order = scores.sort(dim=-1, descending=True, stable=True)
    return torch.softmax(ranked, -1), order


def _prefix_sums(weights: Tensor, values: Tensor, ks: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return Σ_{j<k} w_j v_j (rows, len(ks), v) and Σ_{j<k} w_j (rows, len(ks)), for each k."""
    bounds = [min(k, weights.shape[1]) for k in (0, *ks)]
    parts = [slice(start, stop) for start, stop in pairwise(bounds)]
    numerators = torch.stack([(weights[:, None, p] @ values[:, p]).squeeze(1) for p in parts], 1)
    denominators = torch.stack([weights[:, p].sum(1) for p in parts], 1)
    return numerators.cumsum(1), denominators.cumsum(1)
