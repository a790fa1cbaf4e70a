"""Heads: the network's last node states to predictions, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class NodeHead(nn.Module):
    """A perceptron on each node (GraphGym's ``inductive_node``).

    Parameters
    ----------
    dim
        Channels in and inside.
    classes
        Channels out.
    layers
        Linear layers in all; the first ``layers - 1`` are followed by ReLU.
    l2norm
        Scale each row to length 1 after a ReLU. GraphGym does so unasked, and with it went all
        published numbers; the paper does not mention it.
    """

    def __init__(self, dim: int, classes: int, *, layers: int, l2norm: bool) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers - 1))
        self.out = nn.Linear(dim, classes)
        self.l2norm = l2norm

    def forward(self, x: Tensor) -> Tensor:
        """(N, dim) → (N, classes)."""
        for linear in self.hidden:
            x = linear(x).relu()
            if self.l2norm:
                x = nn.functional.normalize(x, dim=1)
        return self.out(x)  # type: ignore[no-any-return]


HEADS: dict[str, Callable[..., nn.Module]] = {"node": NodeHead}
