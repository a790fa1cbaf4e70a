"""Theorem 2 of the paper, tried: small k-MIP transformers, ever deeper, fitted to a full-attention one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

    ``sharp`` scales queries and keys as they are drawn; 0: not, and at first the block changes nothing.
    """

    def __init__(self, shape: tuple[int, int, int], k: int | None, sharp: float = 0.0) -> None:
        super().__init__()
        heads, size, hidden = shape
        self.attention = KMIPAttention(
            DIM, heads=heads, key_dim=size, value_dim=size, k=k or 1, output_projection=True
        )
        self.mlp = nn.Sequential(nn.Linear(DIM, hidden), nn.ReLU(), nn.Linear(hidden, DIM))
        self.full = k is None
        for linear in self.attention.children():
            linear.register_parameter("bias", None)  # Algorithm 1 has matrices alone
        if sharp:
            for linear in (self.attention.query, self.attention.key):
                linear.weight.data *= sharp
        else:
            for parameter in (*self.attention.output.parameters(), *self.mlp[-1].parameters()):
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


def transformer(shape: tuple[int, int, int], k: int | None, depth: int, seed: int) -> nn.Sequential:
    """Draw ``depth`` blocks: sharp ones of the shape of the target, else such that change nothing."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sharp = SHARP if shape == TARGET else 0.0
        return nn.Sequential(*(TransformerBlock(shape, k, sharp) for _ in range(depth)))


def copied(k: int, seed: int = 0) -> tuple[float, float]:
    """L2 error, and largest, of k-MIP attention with the weights of the target, as :func:`fit` has them."""
    points = _points(2000, seed + 1)
    full, sparse = (transformer(TARGET, each, 2, seed)(points).detach() for each in (None, k))
    return float((sparse - full).norm() / (full - points).norm()), float((sparse - full).abs().max())


def fit(k: int, depths: Sequence[int], *, steps: int, seed: int = 0) -> Iterator[float]:
    """Fit transformers of the class of Theorem 2 by Adam, from few blocks to many; give the error of each.

    The error is the L2 distance over U, in units of that of the identity, which has no blocks. The next depth
    begins with the blocks that are there and new ones that change nothing, so a larger class begins where the
    smaller one ended; it is trained for ``steps`` batches of points drawn from U.
    """
    target, unseen = transformer(TARGET, None, 2, seed).requires_grad_(False), _points(2000, seed + 1)
    network, wanted = nn.Sequential(), target(unseen)
    for depth in depths:
        network.extend(transformer(FITTED, k, depth - len(network), seed + depth))
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
