"""Apply a measure of attention to many layers and graphs, and summarise it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kmip_data.errors import UsageError
from kmip_data.files.changes import csv_bytes
from kmip_data.models.analysis.measures import approximation_error, check_ks, cumulative_weight, paper_ks
from kmip_data.models.analysis.projections import Projections, Sample
from kmip_data.runtime.progress import Progress

Curves = Mapping[str, NDArray[np.float64]]
Measure = Callable[[Sample, Sequence[int]], Curves]


@dataclass(frozen=True)
class Choice:
    """Samples of a study. The paper's: 50 graphs of more than 1,000 nodes, without the first layer."""

    #: counted from 0; ``None``: all but the first, whose input has many equal rows (the only one where there
    #: is one)
    layers: tuple[int, ...] | None = None
    graphs: int = 50  #: at most this many of those large enough, the first ones
    #: min_nodes, max_nodes: sizes of graphs taken; the work grows with the square of the size unless
    #: ``queries`` is set
    min_nodes: int = 1
    max_nodes: int = 5000
    #: measure this many random nodes of each graph, each against all keys; ``None``: all
    queries: int | None = None
    seed: int = 0  #: draws those nodes


@dataclass(frozen=True)
class Study:
    """Curves over k for each sample."""

    ks: tuple[int, ...]  #: values of k
    samples: tuple[tuple[int, int, int], ...]  #: (layer, graph, nodes) of each sample
    curves: Curves  #: name → (samples, len(ks))

    def summary(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and standard deviation (ddof 0) over graphs of the mean over layers: (len(ks),)."""
        graphs = np.array([graph for _, graph, _ in self.samples])
        means = np.stack([self.curves[name][graphs == graph].mean(0) for graph in np.unique(graphs)])
        return means.mean(0), means.std(0)

    def to_csv(self) -> bytes:
        """Return a CSV file with a line for each sample and k."""
        rows = (
            [*sample, k, *(f"{curve[number, place]:.9g}" for curve in self.curves.values())]
            for number, sample in enumerate(self.samples)
            for place, k in enumerate(self.ks)
        )
        return csv_bytes(["layer", "graph", "nodes", "k", *self.curves], rows)


def gaussian_projections(n: int, d: int, *, heads: int = 1, graphs: int = 1, seed: int = 0) -> Projections:
    """Return standard normal queries, keys and values: ``graphs`` graphs of n nodes, one layer."""
    generator = torch.Generator().manual_seed(seed)
    queries, keys, values = torch.randn(3, heads, graphs * n, d, generator=generator)
    ptr = tuple(range(0, graphs * n + 1, n))
    return Projections(((queries, keys, values),), ptr, {"data": "Gaussian", "n": n, "d": d, "seed": seed})


def run_study(
    projections: Projections,
    measure: Measure,
    *,
    choice: Choice = Choice(),
    ks: Sequence[int] | None = None,
    quiet: bool = True,
) -> Study:
    """Apply a measure, :func:`approximation` or :func:`weight_share`, to the chosen layers and graphs.

    ``ks`` increase; default: the paper's, up to the largest graph. Raises ``UsageError`` if no graph or layer
    fits the choice.
    """
    layers, graphs = _chosen(projections, choice)
    sizes = projections.sizes
    ks = check_ks(ks) if ks is not None else paper_ks(max(sizes[graph] for graph in graphs))
    samples, found = [], []
    generator = torch.Generator().manual_seed(choice.seed)
    total = len(layers) * len(graphs)
    with Progress("layers of graphs", total, unit="layer", quiet=quiet) as progress:
        for sample in projections.samples(layers, graphs):
            n = sample.keys.shape[1]
            if choice.queries is not None and choice.queries < n:
                rows = torch.randperm(n, generator=generator)[: choice.queries]
                sample = sample._replace(queries=sample.queries[:, rows])  # noqa: PLW2901
            found.append(measure(sample, ks))
            samples.append((sample.layer, sample.graph, n))
            progress.update(1)
    curves = {name: np.stack([curve[name] for curve in found]) for name in found[0]}
    return Study(ks, tuple(samples), curves)


def approximation(sample: Sample, ks: Sequence[int]) -> Curves:
    """Return the distance to full attention of k-MIP attention, as published, and of normal outputs."""
    found = approximation_error(sample.queries, sample.keys, sample.values, ks, seed=sample.graph)
    random = np.full(len(ks), found.random)
    return {"k-MIP": found.error, "as published": found.published, "random": random}


def weight_share(sample: Sample, ks: Sequence[int]) -> Curves:
    """Return the cumulative attention weight of the sample, and of Gaussian data of its size."""
    generator = torch.Generator().manual_seed(1_000_003 + sample.graph)  # not those of gaussian_projections
    queries, keys = (
        torch.randn(rows[:1].shape, generator=generator) for rows in (sample.queries, sample.keys)
    )
    return {
        "k-MIP": cumulative_weight(sample.queries, sample.keys, ks),
        "Gaussian": cumulative_weight(queries, keys, ks),
    }


def _chosen(projections: Projections, choice: Choice) -> tuple[list[int], list[int]]:
    count = len(projections.layers)
    layers = list(choice.layers if choice.layers is not None else range(min(1, count - 1), count))
    if not layers or not all(0 <= layer < count for layer in layers):
        raise UsageError(
            "There is no such layer.",
            expected=f"0 … {count - 1}",
            found=", ".join(map(str, layers)) or "none",
            next="name other --layers",
        )
    sizes = projections.sizes
    fit = [g for g, size in enumerate(sizes) if max(1, choice.min_nodes) <= size <= choice.max_nodes]
    if not fit:
        found = f"{len(sizes)} graphs of {min(sizes):,} to {max(sizes):,} nodes" if sizes else "no graph"
        raise UsageError(
            "No graph has the size asked for.",
            expected=f"{choice.min_nodes:,} to {choice.max_nodes:,} nodes",
            found=found,
            next="other --min-nodes and --max-nodes (with --queries 1000, a large graph takes less time)",
        )
    return layers, fit[: choice.graphs]
