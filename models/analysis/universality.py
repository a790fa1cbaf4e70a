"""Theorem 2 of the paper, tried: small k-MIP transformers, ever deeper, fitted to a full-attention one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from kmip_data.models.attention.kmip import KMIPAttention

NODES, DIM = 8, 4  #: functions on U = [-1, 1]^(NODES × DIM)
TARGET = (4, 4, 16)  #: heads h, their size m and the hidden size r of the two blocks of the target
FITTED = (2, 1, 4)  #: those of Theorem 2
SHARP = 4.0  #: scales queries and keys of the target: as they are drawn, attention is nearly a mean


class TransformerBlock(nn.Module):
    """x + attention(x), then x + MLP(x), as the paper defines a transformer block; k None: full attention.

    Queries and keys are drawn and multiplied by ``sharp``; ``still``: at first the block changes nothing.
    """

    def __init__(
        self, shape: tuple[int, int, int], k: int | None, *, sharp: float = 1.0, still: bool = False
    ) -> None:
        super().__init__()
        heads, size, hidden = shape
        sizes: dict[str, Any] = {"key_dim": size, "value_dim": size, "output_projection": True}
        self.attention, self.full = KMIPAttention(DIM, heads=heads, k=k or 1, **sizes), k is None
        for linear in self.attention.children():
            linear.register_parameter("bias", None)  # Algorithm 1 has matrices alone
        for linear in (self.attention.query, self.attention.key):
            linear.weight.data *= sharp
        self.mlp = nn.Sequential(nn.Linear(DIM, hidden), nn.ReLU(), nn.Linear(hidden, DIM))
        for parameter in (*self.attention.output.parameters(), *self.mlp[-1].parameters()) if still else ():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, d) to the same."""
        rows = x.flatten(0, 1)
        if self.full:
            q, k, v = (
                part.view(len(part), *x.shape[:2], -1).transpose(0, 1)
                for part in self.attention.project(rows)
            )
            attended = self.attention.output(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        else:
            attended = self.attention(rows, range(0, len(rows) + 1, x.shape[1])).view_as(x)
        x = x + attended
        return x + self.mlp(x)  # type: ignore[no-any-return]


def transformer(
    shape: tuple[int, int, int], k: int | None, depth: int, seed: int, **options: Any
) -> nn.Sequential:
    """Draw ``depth`` blocks; options are those of :class:`TransformerBlock`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(*(TransformerBlock(shape, k, **options) for _ in range(depth)))


def target_network(seed: int, k: int | None = None) -> nn.Sequential:
    """What is fitted; with a ``k``, its weights under k-MIP attention."""
    return transformer(TARGET, k, 2, seed, sharp=SHARP).requires_grad_(False)


def copied(k: int, seed: int = 0) -> tuple[float, float]:
    """L2 error, and largest, of k-MIP attention with the weights of the target, as :func:`fit` has them."""
    points = _points(2000, seed + 1)
    full, sparse = (target_network(seed, each)(points) for each in (None, k))
    return float((sparse - full).norm() / (full - points).norm()), float((sparse - full).abs().max())


def fit(k: int, depths: Sequence[int], *, steps: int, seed: int = 0) -> Iterator[float]:
    """Fit transformers of the class of Theorem 2 by Adam, from few blocks to many; give the error of each.

    The error is the L2 distance over U, in units of that of the identity, which has no blocks. The next depth
    begins with the blocks that are there and new ones that change nothing, so a larger class begins where the
    smaller one ended; it is trained for ``steps`` batches of points drawn from U.
    """
    target, unseen = target_network(seed), _points(2000, seed + 1)
    network, wanted = nn.Sequential(), target(unseen)
    for depth in depths:
        network.extend(transformer(FITTED, k, depth - len(network), seed + depth, still=True))
        optimiser = torch.optim.Adam(network.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.01, total_steps=steps)
        for step in range(steps):
            points = _points(128, seed + 2 + step)
            loss = (network(points) - target(points)).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        with torch.no_grad():
            error = (network(unseen) - wanted).norm() / (wanted - unseen).norm()
        yield float(error)


def _points(count: int, seed: int) -> Tensor:
    return torch.rand(count, NODES, DIM, generator=torch.Generator().manual_seed(seed)) * 2 - 1
