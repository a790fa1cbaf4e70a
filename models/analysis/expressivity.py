"""Checks of the paper's theorems: graphs that networks separate (1), and functions they fit (2)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.data import Data

from kmip_data.arrays import F64
from kmip_data.models.analysis.refinement import Pair, as_graphs, encoded, seg_wl
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.config import ATTENTION, ModelConfig
from kmip_data.models.kinds import POSITIONAL
from kmip_data.models.network import build_model

EQUAL = 1e-9  #: largest difference of two outputs that count as equal
ENCODINGS = ("none", "rwse", "lappe")
NODES, DIM = 8, 4  #: functions on U = [-1, 1]^(NODES × DIM)
TARGET = (4, 4, 16)  #: heads h, their size m and the hidden size r of the two blocks of the target
FITTED = (2, 1, 4)  #: those of Theorem 2
SHARP = 4.0  #: scales queries and keys of the target: as they are drawn, attention is nearly a mean


class Check(NamedTuple):
    """Networks of one attention and one encoding, with random weights, on pairs of graphs."""

    attention: str
    positional: str
    gap: float  #: the largest difference of outputs of two graphs that S-SEG-WL does not separate
    relabelled: float  #: the largest difference of a graph from itself, its nodes in another order
    #: the difference of each pair that the test separates by the encoding alone
    by_encoding: dict[str, float]

    @property
    def verdict(self) -> str:
        """``bounded``; ``order of nodes``: a premise is not met; ``not bounded``: against the theorem."""
        met = "order of nodes" if self.relabelled > EQUAL else "not bounded"
        return "bounded" if self.gap <= EQUAL else met


def check_networks(pairs: Mapping[str, Pair], *, draws: int = 4, seed: int = 0) -> Iterator[Check]:
    """Compare outputs of GPS networks in float64, of every attention there is, on each pair.

    The networks have three layers, GatedGCN next to the attention, and a head for graphs that pools the mean
    or the sum, in turn; k-MIP has one k a layer: 1, 3, 10. The largest difference of ``draws`` draws counts,
    of a graph and the other with its nodes in another order.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    orders = [[rng.permutation(len(matrix)) for matrix in pair] for pair in pairs.values()]
    fours = [
        [*pair, *(m[order][:, order] for m, order in zip(pair, both, strict=True))]
        for pair, both in zip(pairs.values(), orders, strict=True)
    ]
    graphs = as_graphs([matrix for four in fours for matrix in four])
    edges, ptr = torch.from_numpy(graphs.joined()), torch.from_numpy(graphs.node_ptr)
    batch = Data(x=torch.ones(int(ptr[-1]), 1, dtype=torch.float64), edge_index=edges, ptr=ptr)
    # Pair by pair: of many graphs, different values of an encoding are near enough to be taken for one.
    columns = functools.cache(lambda encoding: [encoded(as_graphs(four), encoding) for four in fours])
    plain = [name for name, pair in pairs.items() if seg_wl(pair).separated is None]
    for positional in ENCODINGS:
        encoding = POSITIONAL[positional].encoding
        alike = [name for name in plain if seg_wl(pairs[name], encoding).separated is None]
        for kind in ATTENTION:
            attention = {"kind": kind, **({"k": (1, 3, 10)} if kind == "k-mip" else {})}
            parts = {"attention": attention, "positional": positional, "head": "graph"}
            config = ModelConfig.model_validate({"layers": 3, "hidden_dim": 48, **parts})
            for found in map(columns, config.encodings):
                for key in found[0]:
                    column = torch.from_numpy(np.concatenate([of_pair[key] for of_pair in found]))
                    batch[key.partition("/")[2]] = column.double() if column.is_floating_point() else column
            outputs = _outputs(config, batch, range(seed, seed + draws)).reshape(draws, len(fours), 4, 3)
            apart = np.abs(outputs[:, :, 0] - outputs[:, :, 3]).max((0, 2)).tolist()
            gaps = dict(zip(pairs, apart, strict=True))
            relabelled = float(np.abs(outputs[:, :, :2] - outputs[:, :, 2:]).max())
            by_encoding = {name: gaps[name] for name in plain if name not in alike}
            gap = max((gaps[name] for name in alike), default=0.0)
            yield Check(kind, positional, gap, relabelled, by_encoding)


def _outputs(config: ModelConfig, batch: Data, seeds: range) -> F64:
    """(draws, G, 3) outputs, in turn of the mean and of the sum of the nodes."""
    found = []
    for seed in seeds:
        pooled = config.model_copy(update={"pooling": ("mean", "sum")[seed % 2]})
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            network = build_model(pooled, in_channels=1, num_classes=3).double().eval()
            for weights in network.parameters():  # as they are begun with, differences would be small
                weights.normal_(std=weights.shape[-1] ** -0.5 if weights.ndim > 1 else 1.0)
            found.append(network(batch).numpy())
    return np.stack(found)


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
