"""Which keys the queries of a run choose, and where the gradients of its keys go.

The paper's backward pass runs through the chosen pairs alone, so a key that no query chooses learns nothing
from attention. These figures say how many there are, and how uneven the rest is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kmip_data.builds.home import Home
from kmip_data.models.analysis.recording import first_batches, kmip_layers
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.search.topk import topk_inner_product
from kmip_data.models.training.config.schedules import KSchedule
from kmip_data.models.training.run.checkpoint import (
    KEPT,
    LAST,
    WEIGHTS,
    put_weights,
    read_checkpoint,
    read_weights,
)
from kmip_data.models.training.run.evaluate import OpenedRun, open_run
from kmip_data.models.training.run.module import TrainingModule, of_part

FIGURES = ("chosen", "unused", "hubs", "entropy")
HUBS = 0.01  #: share of the keys, the most chosen ones, that are called hubs


def coverage(
    run: str | Path,
    *,
    part: str = "train",
    graphs: int = 50,
    home: Home | None = None,
    device: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure every k-MIP layer of ``run`` with each of its weights that are there: a row each.

    Eval mode and float32, with the k that training had in the epoch of the weights; padding
    (``legacy_padding``) is left out. Figures are means over the first ``graphs`` graphs of ``part``:

    - ``chosen``: share of the keys of a head that at least one query of their graph chose;
    - ``unused``: share of the nodes whose keys no query chose, in no head;
    - ``hubs``: share of the links of a head that go to its most chosen :data:`HUBS` of keys, at least one;
    - ``entropy``: of the norms of the loss's gradients with respect to the keys of a head, as shares of their
      sum, over the logarithm of their number: 1 where all are alike, 0 where one key has it all; NaN where
      there is none.

    Raises as :func:`~kmip_data.models.analysis.recording.record_run` does.
    """
    opened = open_run(run, home=home, device=device)
    training = opened.config.training
    with opened.working() as module, torch.compiler.set_stance("force_eager"):
        layers = kmip_layers(module.model)
        seen: list[tuple[Tensor, Tensor]] = []  # the input of each layer and its keys, in order
        for layer in layers:
            layer.key.register_forward_hook(lambda _, args, out: seen.append((args[0], out)))
        for label, epoch, path, weights in _weights(opened):
            put_weights(module.model, weights, path)
            for layer in layers:
                layer.legacy_padding = False
                if training.k_schedule:
                    layer.k = KSchedule.parse(training.k_schedule).at(epoch, training.epochs)
            found = _measure(first_batches(opened, part, graphs), module.eval(), layers, part, seen)
            about = {"run": str(opened.folder), "weights": label, "epoch": epoch}
            for number, (layer, figures) in enumerate(zip(layers, found, strict=True)):
                means = dict(zip(FIGURES, figures.nanmean(0).tolist(), strict=True))
                yield {**about, "layer": number, "k": layer.k, "graphs": len(figures), **means}


def _weights(opened: OpenedRun) -> Iterator[tuple[str, int, Path, dict[str, Tensor]]]:
    """The weights that a run has kept by epoch, with a word for them: best, other good ones, last."""
    best, last = opened.result.best_epoch, opened.result.epochs - 1
    kept = {epoch: opened.folder / KEPT.format(epoch) for epoch in range(last + 1)}
    paths = {epoch: path for epoch, path in kept.items() if path.is_file()} | {best: opened.folder / WEIGHTS}
    for epoch, path in sorted(paths.items()):
        yield "best" if epoch == best else "kept", epoch, path, read_weights(path)
    path = opened.folder / LAST
    if last not in paths and path.is_file():
        state = read_checkpoint(path)
        yield "last", last, path, state["average"] or state["model"]


def _measure(
    batches: Iterable[tuple[Any, int]],
    module: TrainingModule,
    layers: Sequence[KMIPAttention],
    part: str,
    seen: list[tuple[Tensor, Tensor]],
) -> list[Tensor]:
    """(graphs, 4) :data:`FIGURES` of each layer."""
    found: list[list[Tensor]] = [[] for _ in layers]
    for batch, count in batches:
        seen.clear()
        logits, target = of_part(batch, part, *module(batch))
        inputs, keys = zip(*seen, strict=True)  # what is projected below is seen, too
        gradients = torch.autograd.grad(module.loss(logits, target), keys, allow_unused=True)
        ptr = read_batch(batch).ptr
        for number, (layer, x, gradient) in enumerate(zip(layers, inputs, gradients, strict=True)):
            with torch.no_grad():
                queries, own, _ = layer.project(x)
                _, indices = topk_inner_product(queries, own, layer.k, query_ptr=ptr, backend=layer.backend)
                rows = torch.zeros_like(keys[number]) if gradient is None else gradient
                norms = rows.view(len(rows), layer.heads, -1).norm(dim=-1).T
                found[number].append(key_use(indices, norms, ptr[: count + 1].tolist()))
    return [torch.cat(each) for each in found]


def key_use(indices: Tensor, norms: Tensor, ptr: Sequence[int]) -> Tensor:
    """Return (G, 4) :data:`FIGURES` of choices (H, N, k), −1 for none, and gradients' norms (H, N)."""
    counts = torch.stack([torch.bincount(head[head >= 0], minlength=norms.shape[1]) for head in indices])
    rows = []
    for start, stop in pairwise(ptr):
        if start == stop:
            continue
        own, norm = counts[:, start:stop].double(), norms[:, start:stop].double()
        most = own.topk(math.ceil(HUBS * (stop - start)), dim=1).values.sum(1) / own.sum(1)
        share = norm / norm.sum(1, keepdim=True)
        # A graph of one node, and one without a loss, have none: NaN, left out of the means.
        entropy = torch.special.entr(share).sum(1) / math.log(stop - start)
        chosen, unused = own > 0, own.sum(0) == 0
        each = chosen.double().mean(), unused.double().mean(), most.mean(), entropy.nanmean()
        rows.append(torch.stack(each))
    return torch.stack(rows).cpu()
