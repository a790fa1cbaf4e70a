"""GPS layer: message passing and global attention side by side, then a feed-forward block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.norms import NORMS

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": nn.functional.relu, "gelu": nn.functional.gelu}


class GPSLayer(nn.Module):
    """One layer of GraphGPS, in the order of upstream graphgps/layer/gps_layer.py.

    local: ``norm(local(x))``, global: ``norm(x + dropout(attention(x)))``, their sum h, then
    ``norm(h + dropout(W₂ dropout(act(W₁ h))))``.

    Parameters
    ----------
    dim
        Channels d.
    local
        Called as ``local(x, e, edges) -> (x, e)``; does its own dropout.
    attention
        Called as ``attention(x, ptr)``.
    dropout
        Probability, after attention and twice in the feed-forward block.
    norm
        Name in :data:`~kmip_data.models.layers.norms.NORMS`.
    activation
        Of the feed-forward block.
    add_local_input
        Add x to what ``local`` gives before its norm.
    """

    def __init__(
        self,
        dim: int,
        *,
        local: nn.Module,
        attention: nn.Module,
        dropout: float,
        norm: str,
        activation: Literal["relu", "gelu"] = "relu",
        add_local_input: bool = False,
    ) -> None:
        super().__init__()
        self.local, self.attention = local, attention
        self.norm_local, self.norm_global, self.norm_out = (NORMS[norm](dim) for _ in range(3))
        self.linear_in = nn.Linear(dim, 2 * dim)
        self.linear_out = nn.Linear(2 * dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.activation = ACTIVATIONS[activation]
        self.add_local_input = add_local_input

    def forward(self, x: Tensor, e: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Nodes (N, d) and edge features to the same."""
        graphs = batch.graph, batch.num_graphs
        local, e = self.local(x, e, batch.edges)
        if self.add_local_input:
            local = local + x
        attended = x + self.dropout(self.attention(x, batch.ptr))
        h = self.norm_local(local, *graphs) + self.norm_global(attended, *graphs)
        feed = self.linear_out(self.dropout(self.activation(self.linear_in(h))))
        return self.norm_out(h + self.dropout(feed), *graphs), e
