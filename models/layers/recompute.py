"""A layer that keeps only its input for the backward pass, and runs again there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kmip_data.models.context import Found
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.edges import formed


def recomputed(layer: nn.Module, x: Tensor, e: Tensor | None, batch: GraphBatch, *carried: Any) -> Any:
    """``layer(x, e, batch, *carried)`` by activation checkpointing; same result and gradients, bit for bit.

    The second pass draws the same dropout masks, leaves running statistics alone and reuses the results of
    the first pass's searches, 8 bytes per chosen pair: the search takes most of the time. Edges are formed
    here, as the tensors that they are formed from are not kept.
    """
    record: list[Found] | None = None

    def run(x: Tensor, e: Tensor | None, *given: Any) -> Any:
        nonlocal record
        if record is None:
            record = []
            context = replace(batch.context, record=record)
        else:
            context = replace(batch.context, replay=iter(record))
        x, e, *carried = layer(x, e, replace(batch, context=context), *given)
        return x, formed(e), *carried

    return checkpoint(run, x, e, *carried, use_reentrant=False)
