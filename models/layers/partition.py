"""One graph on several processes: each holds its own nodes and the edges into them.

What a layer reads of other processes' nodes it exchanges: message passing the *halo*, sources of own edges
that are other processes' nodes; k-MIP attention the keys and values of all nodes; norms and losses sums.
Every exchange sends its gradient the way back, so that N processes compute what one does, to the rounding of
sums. Dropout draws the numbers of all rows on each process and keeps those of its own. On a CPU the sums over
nodes that a forward pass needs run in the order of the nodes, so that they have the bits of one process; not
those of batch norms, of Exphormer's virtual nodes and of the reported loss, which combine sums of processes.
"""

from __future__ import annotations

import copy
import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable
from torch_geometric.data import Data

from kmip_data.errors import UsageError

# Renamed in torch 2.13.
_all_gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
_reduce_scatter = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)


class Chosen(NamedTuple):
    """Rows of this process among those of all."""

    total: int  #: number of rows on all processes
    rows: Tensor  #: (n,) int64, ascending


@dataclass(frozen=True, eq=False)
class Partition:
    """Share of one process in a graph of N nodes, E edges and W processes."""

    nodes: Chosen  #: its nodes: row i here is node ``nodes.rows[i]``
    edges: Chosen  #: the edges into them
    sizes: tuple[int, ...]  #: nodes of each process
    place: Tensor  #: (N,) int64, row of each node where shares follow each other, padded to the largest
    sent: Tensor  #: (S,) int64, own rows that others read: those for the first process, for the second, …
    counts_sent: tuple[int, ...]  #: of them for each process
    counts_read: tuple[int, ...]  #: rows of the halo that each process owns

    @property
    def halo(self) -> int:
        """Number of rows of the halo."""
        return sum(self.counts_read)

    def to(self, device: torch.device | str, **_: Any) -> Partition:
        """Return it on a device; a batch of PyTorch Geometric calls this."""
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in ("place", "sent")}
        for name in ("nodes", "edges"):
            chosen = getattr(self, name)
            moved[name] = chosen._replace(rows=chosen.rows.to(device))
        return replace(self, **moved)

    def extended(self, x: Tensor) -> Tensor:
        """Append the halo: own rows (n, d) → (n + halo, d)."""
        return _Extended.apply(x, self)  # type: ignore[no-any-return, no-untyped-call]

    def gathered(self, x: Tensor) -> Tensor:
        """Return the rows of all nodes, by their numbers: (n, d) → (N, d)."""
        return _Gathered.apply(x, self)  # type: ignore[no-any-return, no-untyped-call]

    def total(self, x: Tensor) -> Tensor:
        """Sum over all processes, any shape."""
        return _Total.apply(x)  # type: ignore[no-any-return, no-untyped-call]

    def sum_of_nodes(self, x: Tensor) -> Tensor:
        """Sum the rows of all nodes, (n, d) → (1, d); on a CPU with the bits that one process gets."""
        return _SumOfNodes.apply(x, self)  # type: ignore[no-any-return, no-untyped-call]

    @functools.cached_property
    def order(self) -> Tensor:
        """(N,) int64, row of each node where shares follow each other without padding."""
        width = max(self.sizes)
        sizes = torch.tensor(self.sizes, device=self.place.device)
        starts = sizes.cumsum(0) - sizes
        return starts[self.place // width] + self.place % width

    @property
    def everyone(self) -> AllNodes:
        """Edges whose sources are any nodes, by their numbers in the whole graph."""
        return AllNodes(self)


@dataclass(frozen=True, eq=False)
class AllNodes:
    """Rows of all nodes in place of a halo, for edges that reach everywhere."""

    partition: Partition

    @property
    def halo(self) -> int:
        """Rows besides own ones."""
        return self.partition.nodes.total - len(self.partition.nodes.rows)

    def extended(self, x: Tensor) -> Tensor:
        """(n, d) → (N, d)."""
        return self.partition.gathered(x)


def divided(
    edge_index: Tensor, num_nodes: int, rank: int, processes: int
) -> tuple[Partition, Tensor]:
    """Return the share of process ``rank``, and its edges (2, e) by rows here, the halo behind own nodes.

    Every process computes this from the whole graph (2, E), without asking another. Nodes are dealt in
    contiguous ranges of an order in which neighbours are near each other (:func:`owners`). Raises
    ``UsageError`` where a process would have none.
    """
    owner = owners(edge_index, num_nodes, processes)
    sizes = tuple(torch.bincount(owner, minlength=processes).tolist())
    if min(sizes) < 2:
        raise UsageError(
            f"A graph of {num_nodes:,} nodes cannot be divided among {processes} processes.",
            next="fewer --devices",
        )
    source, target = edge_index
    nodes = (owner == rank).nonzero()[:, 0]
    edges = (owner[target] == rank).nonzero()[:, 0]
    # The same pairs, seen from both sides: an edge from a node of process a into one of process b has a send
    # the node to b. Each node once, by process and then by number, so that both sides agree on the order.
    far = owner[source] != owner[target]
    read = far & (owner[target] == rank)
    halo = torch.unique(owner[source[read]] * num_nodes + source[read])
    given = far & (owner[source] == rank)
    sent = torch.unique(owner[target[given]] * num_nodes + source[given])
    here = torch.full((num_nodes,), -1)
    here[nodes] = torch.arange(len(nodes))
    shares = [max(sizes) * i + torch.arange(size) for i, size in enumerate(sizes)]
    partition = Partition(
        Chosen(num_nodes, nodes),
        Chosen(edge_index.shape[1], edges),
        sizes,
        torch.empty_like(owner).scatter_(0, owner.sort(stable=True).indices, torch.cat(shares)),
        here[sent % num_nodes],
        tuple(torch.bincount(sent // num_nodes, minlength=processes).tolist()),
        tuple(torch.bincount(halo // num_nodes, minlength=processes).tolist()),
    )
    here[halo % num_nodes] = len(nodes) + torch.arange(len(halo))
    return partition, here[edge_index[:, edges]]


def share_of(graph: Data, rank: int, processes: int) -> Data:
    """Return own nodes of a graph, its edges into them and all their columns, with the ``partition``."""
    partition, edge_index = divided(graph.edge_index, int(graph.num_nodes), rank, processes)
    own = Data(edge_index=edge_index, partition=partition)
    if (
        "expander" in graph
    ):  # sources of both directions, by their numbers: nearly every node is read
        links = graph.expander.long()
        nodes = torch.arange(len(links))[:, None].expand_as(links)
        graph = copy.copy(graph)
        graph.expander = torch.cat([links, torch.full_like(links, -1).scatter_(0, links, nodes)], 1)
    for name, value in graph.items():
        if name != "edge_index" and isinstance(value, Tensor):
            chosen = partition.edges if graph.is_edge_attr(name) else partition.nodes
            own[name] = value[chosen.rows] if value.ndim and len(value) == chosen.total else value
    return own


def owners(edge_index: Tensor, num_nodes: int, processes: int) -> Tensor:
    """Return the process of each node, (N,) int64: ranges of the order of Cuthill and McKee, reversed.

    That order follows breadth-first levels, so that a range touches only the two next to it: of the streets
    of Helsinki each of two processes reads 2 % of the nodes from the other, in the given order 26 %. One of
    eight reads 2 % more than its own of a city of 570,000: too little for METIS to be worth a dependency.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ends = edge_index.numpy()
    both = np.concatenate([ends, ends[::-1]], axis=1)
    matrix = coo_array(
        (np.ones(both.shape[1], np.int8), tuple(both)), shape=(num_nodes, num_nodes)
    ).tocsr()
    order = torch.from_numpy(reverse_cuthill_mckee(matrix, symmetric_mode=True).astype(np.int64))
    bounds = [num_nodes * i // processes for i in range(processes + 1)]
    owner = torch.empty(num_nodes, dtype=torch.int64)
    for process, (first, end) in enumerate(itertools.pairwise(bounds)):
        owner[order[first:end]] = process
    return owner


class _Extended(torch.autograd.Function):
    """Halo exchange; backwards each halo row's gradient returns to its owner, added rank by rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: Partition) -> Tensor:
        ctx.part = part
        halo = x.new_empty(part.halo, *x.shape[1:])
        distributed.all_to_all_single(
            halo, x.index_select(0, part.sent), list(part.counts_read), list(part.counts_sent)
        )
        return torch.cat([x, halo])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        part = ctx.part
        own = grad[: len(part.nodes.rows)].clone()
        halo = grad[len(part.nodes.rows) :].contiguous()
        back = grad.new_empty(len(part.sent), *grad.shape[1:])
        distributed.all_to_all_single(back, halo, list(part.counts_sent), list(part.counts_read))
        return own.index_add_(0, part.sent, back), None


class _Gathered(torch.autograd.Function):
    """All-gather in the order of the nodes; backwards a reduce-scatter. Shares are padded to the largest."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: Partition) -> Tensor:
        ctx.part = part
        width = max(part.sizes)
        mine = x.new_zeros(width, *x.shape[1:])
        mine[: len(x)] = x
        found = x.new_empty(len(part.sizes) * width, *x.shape[1:])
        _all_gather(found, mine)
        return found.index_select(0, part.place)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        part = ctx.part
        width = max(ctx.part.sizes)
        sent = grad.new_zeros(len(part.sizes) * width, *grad.shape[1:]).index_copy_(
            0, part.place, grad
        )
        mine = grad.new_empty(width, *grad.shape[1:])
        _reduce_scatter(mine, sent)
        return mine[: len(part.nodes.rows)], None


class _SumOfNodes(torch.autograd.Function):
    """Sum over the nodes in their order: a float32 sum depends on it, and near ties of keys on the sum.

    Each process sums a range of the channels over all nodes. It sends and receives about as much as its own
    rows, where a gather of all rows would grow with the number of processes.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: Partition) -> Tensor:
        ctx.rows = len(x)
        if x.device.type != "cpu":
            # A GPU's reduction depends on the shape: no order of rows would give equal bits.
            total = x.sum(0, keepdim=True)
            distributed.all_reduce(total)
            return total

        # 1. Deal the channels: this process takes one range of them of every node.
        processes = len(part.sizes)
        width = -(-x.shape[1] // processes)
        ranges = torch.split(x, width, dim=1)
        sent = [channels.shape[1] * len(x) for channels in ranges]
        sent += [0] * (processes - len(ranges))
        rank = distributed.get_rank()
        mine = sent[rank] // len(x)
        received = [mine * size for size in part.sizes]
        rows = x.new_empty(len(part.order), mine)
        buffer = torch.cat([channels.reshape(-1) for channels in ranges])
        distributed.all_to_all_single(rows.view(-1), buffer, received, sent)

        # 2. Add node after node, as ``EdgeList.sum`` does where one process has them all.
        rows = rows.index_select(0, part.order)
        own = x.new_zeros(1, width)
        first = torch.zeros(len(rows), dtype=torch.int64)
        own[:, :mine] = x.new_zeros(1, mine).index_add(0, first, rows)

        # 3. Every process gets all channels.
        sums = x.new_empty(processes, width)
        _all_gather(sums, own)
        return sums.view(1, -1)[:, : x.shape[1]].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.contiguous().clone()
        distributed.all_reduce(total)
        return total.expand(ctx.rows, -1), None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        total = x.contiguous().clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(_: Any, grad: Tensor) -> Tensor:
        total = grad.contiguous().clone()
        distributed.all_reduce(total)
        return total
