"""GatedGCN: a layer on a neighbour table against the same layer in PyTorch Geometric's scatter form."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import scatter

from benchmarks.table import Row
from benchmarks.turns import compare
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.layers.gated_gcn import GatedGCN
from kmip_data.models.profiling.measuring import PeakMemory

DIM, K = 56, 32
AGAINST = "PyTorch Geometric's MessagePassing with scatter, edge features updated"

Step = Callable[[], object]


def rows(*, quick: bool = False) -> list[Row]:
    """Measure forward and backward of one layer in training, and the peak memory of each."""
    graphs, points, repeats = (2, 512, 3) if quick else (8, 4_096, 7)
    step("ours", 2, 64)()  # loads and compiles
    ours, theirs = step("ours", graphs, points), step("theirs", graphs, points)
    memory = [
        peak(side) / 2**20 for side in (ours, theirs)
    ]  # first: later what was freed is used again
    times = compare(ours, theirs, repeats=repeats)
    what = f"GatedGCN layer, forward and backward, {graphs} × {points:,} × {K} edges, d = {DIM}"
    return [
        Row.compared(what, AGAINST, times, target=2),
        Row.of(f"{what}: peak memory beyond the input", AGAINST, *memory, "MiB", target=2),
    ]


def step(side: str, graphs: int, points: int) -> Step:
    """A training step of one layer: ``ours`` or ``theirs``, with the same weights and input."""
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
    """The published layer as a ``MessagePassing`` of PyTorch Geometric, with the weights of ``layer``.

    What it computes is upstream's: gathers by ``edge_index``, sums by ``scatter``; batch norm, ReLU
    and dropout are torch's.
    """

    def __init__(self, layer: GatedGCN) -> None:
        super().__init__(aggr="add")
        for name in "ABCDE":
            setattr(self, name, getattr(layer, name))
        self.norm_x, self.norm_e = nn.BatchNorm1d(DIM), nn.BatchNorm1d(DIM)
        self.dropout = nn.Dropout(layer.dropout)

    def forward(self, x: Tensor, e: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and edges, (N, d) and (E, d), to the same."""
        sums, pre = self.propagate(
            edge_index, Bx=self.B(x), Dx=self.D(x), Ex=self.E(x), Ce=self.C(e)
        )
        x_new = self.dropout(torch.relu(self.norm_x(self.A(x) + sums)))
        return x_new, e + self.dropout(torch.relu(self.norm_e(pre)))

    def message(self, Dx_i: Tensor, Ex_j: Tensor, Ce: Tensor) -> Tensor:
        """Gates of the edges; what they are the sigmoid of is kept for the new edges."""
        self.pre = Dx_i + Ex_j + Ce
        return torch.sigmoid(self.pre)

    def aggregate(self, inputs: Tensor, index: Tensor, Bx_j: Tensor, Bx: Tensor) -> Tensor:
        """Weighted mean of the messages of each node."""
        above = scatter(inputs * Bx_j, index, 0, Bx.shape[0], reduce="sum")
        below = scatter(inputs, index, 0, Bx.shape[0], reduce="sum")
        out: Tensor = above / (below + 1e-6)
        return out

    def update(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The mean, and the new edges before their norm."""
        pre: Tensor = self.pre
        del self.pre
        return inputs, pre


def peak(run: Step) -> int:
    """Bytes that the resident set grows by in three steps."""
    watch = PeakMemory(torch.device("cpu"))
    watch.start(())
    for _ in range(3):
        run()
    watch.stop()
    return watch.bytes or 0
