"""Transductive training: an epoch with its evaluation on a generated city."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.table import Row, compare

if TYPE_CHECKING:
    from kmip_data.builds.home import Build
    from kmip_data.models.training.config.keys import RunConfig
    from kmip_data.models.training.data.run_data import RunData

STREETS = 1.328  #: a node, as London has them
NOTE = (
    "generated road-like graph, {nodes:,} nodes, {edges:,} edge columns, 67 features; preset of London,"
    " {layers} layers"
)


def rows(*, quick: bool = False) -> list[Row]:
    """Measure an epoch at 20,000 nodes (2,000 with ``quick``)."""
    nodes = 2_000 if quick else 20_000
    with tempfile.TemporaryDirectory() as folder:
        data, config = _open(write_city(Path(folder) / "streets", nodes), Path(folder), ["model.layers=2"])
        ours = partial(_epoch, data, config, together=True)
        theirs = partial(_epoch, data, _with_search(config, "dense"), together=False)
        times = compare(ours, theirs, repeats=1 if quick else 3)
    what = f"one transductive epoch with its evaluation, {nodes:,} nodes"
    against = "the same network evaluated part by part, search by matrix products"
    note = NOTE.format(nodes=nodes, edges=data.largest_batch.edges, layers=2)
    return [Row.compared(what, against, times, target=5, note=note)]


def write_city(folder: Path, nodes: int) -> Build:
    """Write a build of one graph as large and as sparse as a city, with random features and classes."""
    import torch
    from torch_geometric.data import Data

    import kmip_data

    generator = np.random.Generator(np.random.PCG64(0))
    # Of the streets of a grid to the right and down, as many as London has a node.
    side, each = int(nodes**0.5) + 1, np.arange(nodes)
    streets = np.concatenate([np.stack([each, (each + step) % nodes]) for step in (1, side)], axis=1)
    chosen = streets[:, generator.permutation(2 * nodes)[: int(STREETS * nodes)]]
    pair = np.unique(np.concatenate([chosen, chosen[::-1]], axis=1), axis=1)
    draw = generator.random(nodes)
    masks = {"train_mask": draw < 0.1, "val_mask": (draw >= 0.1) & (draw < 0.2), "test_mask": draw >= 0.2}
    graph = Data(
        x=torch.from_numpy(generator.standard_normal((nodes, 67), dtype=np.float32)),
        edge_index=torch.from_numpy(pair),
        y=torch.from_numpy(generator.integers(0, 10, nodes)),
        **{name: torch.from_numpy(mask) for name, mask in masks.items()},
    )
    return kmip_data.save(graph, folder)


def _open(build: Build, folder: Path, overrides: list[str]) -> tuple[RunData, RunConfig]:
    from kmip_data.builds.home import Home
    from kmip_data.models.training.config.overrides import apply_overrides
    from kmip_data.models.training.config.presets import load_preset
    from kmip_data.models.training.data.graphs import open_data

    config = apply_overrides(
        load_preset("london", as_="paper-depth"), [f"data.dataset={build.path}", *overrides]
    )
    data = open_data(config, home=Home(folder))
    return data, data.pinned(config)


def _with_search(config: RunConfig, name: str) -> RunConfig:
    from kmip_data.models.training.config.overrides import apply_overrides

    return apply_overrides(config, [f"model.attention.search={name}"])


def _epoch(data: RunData, config: RunConfig, *, together: bool) -> None:
    """One step, then all parts measured in one pass, or (upstream) val and test in a pass each."""
    import torch

    from kmip_data.models.training.run.module import TrainingModule, evaluate_parts

    module = TrainingModule(config, data)
    _step(module, data)
    for parts in [("train", "val", "test")] if together else [("val",), ("test",)]:
        evaluate_parts(module, data, parts, torch.device("cpu"))


def _step(module: Any, data: RunData) -> None:
    import torch

    optimiser = torch.optim.AdamW(module.parameters())
    (batch,) = data.batches(lambda: 0)
    module.learn(batch)[3].backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimiser.step()
