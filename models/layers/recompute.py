"""A layer that keeps its input alone for the backward pass, and runs again there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.edges import formed
from kmip_data.models.layers.norms import unchanged_statistics
from kmip_data.models.search.kept import KeptSearches


def recomputed(layer: nn.Module, x: Tensor, e: Tensor | None, batch: GraphBatch, *carried: Any) -> Any:
    """``layer(x, e, batch, *carried)`` by activation checkpointing; same result and gradients, bit for bit.

    The second pass draws the same dropout masks, leaves running statistics alone and takes over the
    results of the first pass's searches. Edges are formed, as what they are formed from is not kept.
    """
    searches = KeptSearches()

    @contextmanager
    def again() -> Iterator[None]:
        with unchanged_statistics(), searches.replaying():
            yield

    def run(x: Tensor, e: Tensor | None, *given: Any) -> Any:
        x, e, *carried = layer(x, e, *given)
        return x, formed(e), *carried

    return checkpoint(
        run,
        x,
        e,
        batch,
        *carried,
        use_reentrant=False,
        context_fn=lambda: (searches.recording(), again()),
    )
