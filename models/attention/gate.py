"""Gate of the heads of an attention, which lets a head say nothing about a node."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from kmip_data.models.layers.linear import Linear

Gate = Literal["none", "output"]
OPEN_BIAS = 0.5  #: first bias: all heads pass 62 % of their output


class HeadGate(Linear):
    """Numbers between 0 and 1, one for each node and head, that multiply the outputs of the heads.

    With the layer's input x_i and the output o_ih of head h, the attention continues with
    sigmoid(w_h · x_i + b_h) · o_ih. Softmax weights sum to 1, so without a gate, a node must attend
    to something. The first w is 0, so that a seed draws the other weights as without a gate.

    Sources: Guo et al., "SigGate-GT" (arXiv 2604.17324), gates the heads of GraphGPS; one number for
    each head is the headwise gate of Qiu et al., "Gated Attention for Large Language Models" (arXiv
    2505.06708).
    """

    def reset_parameters(self) -> None:
        """Set the weights to 0 and the biases to 0.5."""
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, OPEN_BIAS)


def build_gate(gate: Gate, dim: int, heads: int) -> HeadGate | None:
    """Build the gate of an attention with ``dim`` input channels; None for ``none``."""
    return HeadGate(dim, heads) if gate == "output" else None


def apply_gate(gate: HeadGate | None, x: Tensor, joined_heads: Tensor) -> Tensor:
    """Multiply the heads' outputs (…, H · v) of rows ``x`` (…, d): (…, H · v)."""
    if gate is None:
        return joined_heads
    factors = torch.sigmoid(gate(x))
    by_head = joined_heads.reshape(*factors.shape, -1)
    return (by_head * factors[..., None]).flatten(-2)
