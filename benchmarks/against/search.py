"""Exact inner-product search against FAISS and ScaNN, with all cores on both sides.

Keys change in every training step, so each side builds its index on each call. An argument, such as
"k = 100", "one norm" or "trained", selects rows by name.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

import faiss
import numpy as np
import scann
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from benchmarks.methods import random_inputs
from benchmarks.peers import print_rows
from benchmarks.table import Row, compare_all, thread_count
from benchmarks.turns import seconds
from kmip_data.models.search.topk import topk_inner_product
from kmip_data.runtime.parallel import available_cores

Rows = NDArray[np.float32]  #: (N, d) queries or keys of one head
SearchResult = tuple[Rows, NDArray[np.int64]]  #: scores and keys, (N, k) each


def faiss_knn(queries: Rows, keys: Rows, k: int) -> SearchResult:
    """Search with FAISS' function without an index."""
    return faiss.knn(queries, keys, k, metric=faiss.METRIC_INNER_PRODUCT)


def faiss_flat(queries: Rows, keys: Rows, k: int) -> SearchResult:
    """Search with FAISS' exact index."""
    index = faiss.IndexFlatIP(keys.shape[1])
    index.add(keys)
    return index.search(queries, k)


def scann_brute_force(queries: Rows, keys: Rows, k: int) -> SearchResult:
    """Search with ScaNN without a tree or hashing."""
    builder = scann.scann_ops_pybind.builder(keys, k, "dot_product")
    searcher = builder.score_brute_force().build()
    batches = [searcher.search_batched_parallel(part) for part in split_queries(queries)]
    indices, scores = map(np.concatenate, zip(*batches, strict=True))
    return scores, indices.astype(np.int64)


def split_queries(queries: Rows) -> list[Rows]:
    """Split queries into blocks of 4,096, because ScaNN stores all scores: 40 GB for 100,000."""
    return np.array_split(queries, range(4_096, len(queries), 4_096))


SIDES: dict[str, Callable[[Rows, Rows, int], SearchResult]] = {
    "FAISS knn": faiss_knn,
    "FAISS IndexFlatIP": faiss_flat,
    "ScaNN brute force": scann_brute_force,
}
MAX_REPEATED_SECONDS = 30.0  #: slower sides are only timed once, while checking them
PACKAGES = ("faiss-cpu", "scann")


def rows(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measure Gaussian rows, rows of one norm, and queries and keys of a trained network.

    ``only`` selects rows whose name contains it.
    """
    nodes = 2_048 if quick else 100_000
    repeats = 1 if quick else 3
    epochs = 2 if quick else 30
    with thread_count(available_cores()):
        queries, keys, _ = random_inputs(nodes)
        for k, target in ((10, 10), (100, 5)):
            what = f"search, {nodes:,} nodes, d = 10, k = {k}, Gaussian"
            if only in what:
                yield from compare_sides(what, queries, keys, k, repeats, target=target)

        what = f"search, {nodes:,} nodes of one norm, d = 64, k = 10"
        if only in what:
            queries, keys, _ = (normalize(rows, dim=-1) for rows in random_inputs(nodes, d=64))
            yield from compare_sides(what, queries, keys, 10, repeats, target=2.5)

        if only in "trained":
            for name, operands in train_and_record(epochs).items():
                heads, count, width = operands[0].shape
                what = f"search, {name}: {heads} head of {count:,} nodes, d = {width}, k = 10"
                yield from compare_sides(what, *operands, 10, 3 * repeats, target=2.5)


def compare_sides(
    what: str,
    queries: torch.Tensor,
    keys: torch.Tensor,
    k: int,
    repeats: int,
    *,
    target: float,
) -> Iterator[Row]:
    """Check that all sides return the same scores, then time them in turn."""
    sides = {
        name: partial(search_heads, side, queries.numpy(), keys.numpy(), k)
        for name, side in SIDES.items()
    }
    scores, _ = topk_inner_product(queries, keys, k)
    tolerance = 1e-4 * float(scores.abs().max())
    slow = {}
    for name in list(sides):
        started = time.perf_counter()
        difference = np.abs(sides[name]() - scores.numpy()).max()
        duration = time.perf_counter() - started
        assert difference <= tolerance, f"{name} differs by {difference:.3g}"
        if duration > MAX_REPEATED_SECONDS:
            slow[name] = duration
            del sides[name]

    ours = partial(topk_inner_product, queries, keys, k)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    options = {"target": target, "note": f"search: {versions}"}
    for name, times in compare_all(ours, sides, repeats=repeats, warmup=0).items():
        yield Row.from_times(what, name, times, **options)
    for name, duration in slow.items():
        yield Row.from_figures(what, f"{name}, once", seconds(ours), duration, "s", **options)


def search_heads(
    side: Callable[[Rows, Rows, int], SearchResult], queries: Rows, keys: Rows, k: int
) -> NDArray[np.float32]:
    """Search all heads sequentially; return the scores (H, N, k)."""
    return np.stack([side(*operands, k)[0] for operands in zip(queries, keys, strict=True)])


def train_and_record(epochs: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Train one head of 64 dimensions on Helsinki; return queries and keys of first and last layer."""
    from kmip_data.cli.main import run_command_line
    from kmip_data.models.attention import kmip

    recorded: list[tuple[torch.Tensor, torch.Tensor]] = []
    search = kmip.search_op

    def record(queries: torch.Tensor, keys: torch.Tensor, *rest: object) -> object:
        recorded.append((queries, keys))
        del recorded[:-4]  # keep the last forward pass, of four layers
        return search(queries, keys, *rest)

    settings = ("model.layers=4", "model.hidden_dim=64", "model.attention.heads=1")
    settings += ("model.attention.key_dim=64", "model.attention.value_dim=64")
    command = ["train", "helsinki", "--epochs", str(epochs), "--quiet"]
    for setting in settings:
        command += ["--set", setting]
    kmip.search_op = record
    try:
        with tempfile.TemporaryDirectory() as home:
            os.environ["KMIP_DATA_HOME"] = home
            run_command_line(command)
    finally:
        kmip.search_op = search

    names = {f"first layer after {epochs} epochs on Helsinki": 0, f"last after {epochs} epochs": -1}
    layers = {}
    for name, layer in names.items():
        queries, keys = recorded[layer]
        layers[name] = (queries.detach().clone(), keys.detach().clone())
    return layers


if __name__ == "__main__":
    only = [argument for argument in sys.argv[1:] if argument != "--quick"]
    print_rows(rows(quick="--quick" in sys.argv, only=" ".join(only)))
