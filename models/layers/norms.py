"""The normalisations a layer can use, by name, all called as ``norm(x, graph, num_graphs)``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.nn.norm import GraphNorm, LayerNorm

from kmip_data.runtime.threads import set_within

_local = threading.local()


def unchanged_statistics() -> AbstractContextManager[None]:
    """Within it batch norms leave their running statistics alone.

    For the second forward pass of a checkpointed layer, which would else count its batch twice.
    """
    return set_within(_local, "unchanged", True)


def repeats() -> bool:
    """Whether a checkpointed layer runs for the second time."""
    return bool(getattr(_local, "unchanged", False))


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over all rows (N, d) of a batch.

    Unlike ``torch.nn.BatchNorm1d`` it takes no rows (returned as they are) and, in training, a
    single row (normalised by the running statistics, as its own variance is zero).
    """

    def forward(self, x: Tensor, graph: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """Normalise (N, d); graphs make no difference."""
        if x.shape[0] == 0:
            return x
        by_batch = self.uses_batch(x.shape[0])
        if not self.training or (by_batch and not repeats()):
            return super().forward(x)
        return nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, by_batch, 0.0, self.eps
        )

    def uses_batch(self, rows: int) -> bool:
        """Whether this many rows are normalised by their own statistics, not by the running ones."""
        return self.training and rows > 1

    @torch.no_grad()
    def note(self, mean: Tensor, variance: Tensor, rows: int) -> None:
        """Take up the mean and variance (d,) of a batch of ``rows`` rows that was normalised elsewhere.

        The variance is that of the batch itself, divided by ``rows``.
        """
        if repeats():
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        unbiased = variance * (rows / (rows - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


class NoNorm(nn.Module):
    """Leaves rows as they are."""

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, graph: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """(N, dim) to the same."""
        return x


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": BatchNorm,  # point clouds
    # LRGB and cities: one mean and variance per graph, all channels
    "graph-layer": partial(LayerNorm, mode="graph"),
    "layer": partial(LayerNorm, mode="node"),  # one mean and variance per node: what the paper's word means
    "graph": GraphNorm,  # one mean and variance per graph and channel: the thesis and Exphormer
    "none": NoNorm,  # stacks of message passing
}
