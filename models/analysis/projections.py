"""Queries, keys and values of the k-MIP layers of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from kmip_data.models.attention.kmip import KMIPAttention

#: Queries (H, N, d) before scaling by 1/√d, keys (H, N, d) and values (H, N, v) of all nodes.
Projections = tuple[Tensor, Tensor, Tensor]


@contextlib.contextmanager
def collect_projections(
    model: nn.Module,
) -> Iterator[Mapping[KMIPAttention, list[Projections]]]:
    """Collect the projections of every k-MIP layer of ``model`` inside the block, on the CPU.

    Each forward pass adds an entry to the list of a layer. The model runs uncompiled, because compiled
    code skips hooks.
    """
    collected: dict[KMIPAttention, list[Projections]] = {}
    for module in model.modules():
        if isinstance(module, KMIPAttention):
            collected[module] = []

    def collect(layer: KMIPAttention, args: tuple[Tensor, ...]) -> None:
        # A hook sees only the input, so project it again.
        queries, keys, values = (rows.detach().cpu() for rows in layer.project(args[0]))
        collected[layer].append((queries, keys, values))

    hooks = [layer.register_forward_pre_hook(collect) for layer in collected]
    try:
        with torch.compiler.set_stance("force_eager"):
            yield collected
    finally:
        for hook in hooks:
            hook.remove()
