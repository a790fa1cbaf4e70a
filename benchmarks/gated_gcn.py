"""GatedGCN layer on a neighbour table, against the same layer with PyTorch Geometric's scatter."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import scatter

from benchmarks.table import Row
from benchmarks.turns import compare, peak_bytes
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.layers.gated_gcn import GatedGCN

DIM, K = 56, 32
AGAINST = "PyTorch Geometric's MessagePassing with scatter, edge features updated"

Step = Callable[[], object]


def rows(*, quick: bool = False) -> list[Row]:
    """Measure the forward and backward pass of one layer in training, and its peak memory."""
    graphs, points, repeats = (2, 512, 3) if quick else (8, 4_096, 7)
    training_step("ours", 2, 64)()  # loads and compiles
    ours, theirs = training_step("ours", graphs, points), training_step("theirs", graphs, points)
    # Before timing, because freed memory is reused later.
    memory = [peak_bytes(side) / 2**20 for side in (ours, theirs)]
    times = compare(ours, theirs, repeats=repeats)
    what = f"GatedGCN layer, forward and backward, {graphs} × {points:,} × {K} edges, d = {DIM}"
    return [
        Row.from_times(what, AGAINST, times, target=2),
        Row.from_figures(
            f"{what}: peak memory beyond the input", AGAINST, *memory, "MiB", target=2
        ),
    ]


def training_step(side: str, graphs: int, points: int) -> Step:
    """Return a training step of one layer, ``ours`` or ``theirs``, with equal weights and input."""
    torch.manual_seed(0)
    nodes = graphs * points
    first = torch.arange(graphs).repeat_interleave(points)[:, None] * points
    neighbor = (torch.randint(0, points, (nodes, K)) + first).to(torch.int32)
    layer = GatedGCN(DIM, dropout=0.1, residual=False)
    x, e = (
        torch.randn(nodes, DIM, requires_grad=True),
        torch.randn(nodes, K, DIM, requires_grad=True),
    )
    batch = read_batch(Data(x=x, neighbor=neighbor))
    index = torch.stack([neighbor.flatten().long(), torch.arange(nodes).repeat_interleave(K)])
    scattering = ScatterGatedGCN(layer)
    inputs = (x, e, *(getattr(layer, name).weight for name in "ABCDE"))
    grads = torch.randn_like(x), torch.randn_like(e)

    def run() -> None:
        if side == "ours":
            torch.autograd.grad(layer(x, e, batch), inputs, grads)
        else:
            x_out, e_out = scattering(x, e.view(-1, DIM), index)
            torch.autograd.grad((x_out, e_out.view_as(e)), inputs, grads)

    return run


class ScatterGatedGCN(MessagePassing):  # type: ignore[misc]
    """Published layer as PyTorch Geometric's ``MessagePassing``, with the weights of ``layer``.

    Like upstream it gathers by ``edge_index`` and sums by ``scatter``; batch norm, ReLU and dropout
    are torch's.
    """

    def __init__(self, layer: GatedGCN) -> None:
        super().__init__(aggr="add")
        for name in "ABCDE":
            setattr(self, name, getattr(layer, name))
        self.norm_x, self.norm_e = nn.BatchNorm1d(DIM), nn.BatchNorm1d(DIM)
        self.dropout = nn.Dropout(layer.dropout)

    def forward(self, x: Tensor, e: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Map nodes (N, d) and edges (E, d) to new ones."""
        sums, pre = self.propagate(
            edge_index, Bx=self.B(x), Dx=self.D(x), Ex=self.E(x), Ce=self.C(e)
        )
        x_new = self.dropout(torch.relu(self.norm_x(self.A(x) + sums)))
        return x_new, e + self.dropout(torch.relu(self.norm_e(pre)))

    def message(self, Dx_i: Tensor, Ex_j: Tensor, Ce: Tensor) -> Tensor:
        """Return the gates of the edges, storing their pre-activation for the new edges."""
        self.pre = Dx_i + Ex_j + Ce
        return torch.sigmoid(self.pre)

    def aggregate(self, inputs: Tensor, index: Tensor, Bx_j: Tensor, Bx: Tensor) -> Tensor:
        """Return the gate-weighted mean of the messages of each node."""
        numerator = scatter(inputs * Bx_j, index, 0, Bx.shape[0], reduce="sum")
        denominator = scatter(inputs, index, 0, Bx.shape[0], reduce="sum")
        mean: Tensor = numerator / (denominator + 1e-6)
        return mean

    def update(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean, and the new edges before their norm."""
        pre: Tensor = self.pre
        del self.pre
        return inputs, pre
