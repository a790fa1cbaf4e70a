"""GPS layer: message passing and global attention side by side, then a feed-forward block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kmip_data.errors import UsageError
from kmip_data.models.context import Found
from kmip_data.models.layers.batch import GraphBatch, formed, read_batch
from kmip_data.models.layers.gated_gcn import GatedGCN
from kmip_data.models.layers.norms import ACTIVATIONS, NORMS, normed


class GPSLayer(nn.Module):
    """One layer of GraphGPS, in the order of upstream graphgps/layer/gps_layer.py.

    local: ``norm(conv(x, e, batch))``, global: ``norm(x + dropout(attention(x, batch)))``, their sum h, then
    ``norm(h + dropout(W₂ dropout(act(W₁ h))))``. A branch without a module is left out.

    Parameters
    ----------
    conv
        Any module called as ``conv(x, e, batch) -> (x, e)`` with nodes (N, d), edge features in the form of
        ``batch.edges`` and a :class:`~kmip_data.models.layers.batch.GraphBatch`; does its own dropout.
    attention
        Any module called as ``attention(x, batch) -> x``; or, where something else goes from layer to layer,
        as ``attention(x, batch, *carried) -> (x, *carried)``.
    dim
        Channels d.
    dropout
        Probability, after attention and twice in the feed-forward block.
    norm
        Name in :data:`~kmip_data.models.layers.norms.NORMS`.
    activation
        Of the feed-forward block.
    feed_forward
        False: the layer ends with h.
    add_local_input
        Add x to what ``conv`` gives before its norm.

    Raises
    ------
    UsageError
        There is neither ``conv`` nor ``attention``.
    """

    def __init__(
        self,
        conv: nn.Module | None,
        attention: nn.Module | None,
        *,
        dim: int,
        dropout: float = 0.0,
        norm: str = "batch",
        activation: Literal["relu", "gelu"] = "relu",
        feed_forward: bool = True,
        add_local_input: bool = False,
    ) -> None:
        super().__init__()
        if conv is None and attention is None:
            raise UsageError("a GPS layer has neither conv nor attention")
        self.local, self.attention = conv, attention
        self.norm_local = None if conv is None else NORMS[norm](dim)
        self.norm_global = None if attention is None else NORMS[norm](dim)
        self.norm_out = NORMS[norm](dim) if feed_forward else None
        self.linear_in = nn.Linear(dim, 2 * dim) if feed_forward else None
        self.linear_out = nn.Linear(2 * dim, dim) if feed_forward else None
        self.dropout = nn.Dropout(dropout)
        self.activation = ACTIVATIONS[activation]
        self.add_local_input = add_local_input

    def forward(self, x: Tensor, e: Any, batch: GraphBatch | Any, *carried: Any) -> tuple[Any, ...]:
        """Nodes (N, d), edge features and what attention carries to the same.

        ``batch`` may be one of PyTorch Geometric's, too.
        """
        batch = batch if isinstance(batch, GraphBatch) else read_batch(batch)
        dropout = self.dropout.p if self.dropout.training else 0.0
        h: Tensor | None = None
        if self.local is not None and self.norm_local is not None:
            local, e = self.local(x, e if isinstance(self.local, GatedGCN) else formed(e), batch)
            h = normed(self.norm_local, local, x if self.add_local_input else None, batch)
        if self.attention is not None and self.norm_global is not None:
            attended = self.attention(x, batch, *carried)
            if carried:
                attended, *carried = attended
            h = normed(self.norm_global, x, attended, batch, before=dropout, residual=h)
        assert h is not None
        if self.norm_out is None or self.linear_in is None or self.linear_out is None:
            return h, e, *carried
        feed = self.linear_out(self.dropout(self.activation(self.linear_in(h))))
        return normed(self.norm_out, h, feed, batch, before=dropout), e, *carried


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
