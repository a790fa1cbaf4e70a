"""One graph on several processes: each holds its own nodes and the edges into them.

Layers exchange what they read of other processes' nodes: message passing the *halo*, sources of
local edges on other processes; k-MIP attention the keys and values of all nodes; norms and losses
sums. Every exchange sends its gradient back the same way, so that N processes compute the results
of one, up to the rounding of sums. Each process draws dropout's numbers for all rows and uses those
of its own. On a CPU the sums over nodes in a forward pass run in the order of the nodes, so that
they have the bits of one process; exceptions are batch norms, Exphormer's virtual nodes and the
reported loss, which combine sums of processes.
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

    #: Number of rows on all processes.
    total: int
    #: (n,) int64, ascending.
    rows: Tensor


@dataclass(frozen=True, eq=False)
class Partition:
    """Share of one process in a graph of N nodes, E edges and W processes."""

    #: Its nodes: local row i is node ``nodes.rows[i]``.
    nodes: Chosen
    #: The edges into them.
    edges: Chosen
    #: Nodes of each process.
    sizes: tuple[int, ...]
    #: (N,) int64, row of each node among the concatenated shares, each padded to the largest.
    padded_row: Tensor
    #: (S,) int64, local rows that other processes read: those for the first process, for the
    #: second, …
    sent: Tensor
    #: Numbers of them for each process.
    counts_sent: tuple[int, ...]
    #: Rows of the halo from each process.
    counts_read: tuple[int, ...]

    @property
    def halo(self) -> int:
        """Number of rows of the halo."""
        return sum(self.counts_read)

    def to(self, device: torch.device | str, **_: Any) -> Partition:
        """Return it on a device; a batch of PyTorch Geometric calls this."""
        return replace(
            self,
            nodes=self.nodes._replace(rows=self.nodes.rows.to(device)),
            edges=self.edges._replace(rows=self.edges.rows.to(device)),
            padded_row=self.padded_row.to(device),
            sent=self.sent.to(device),
        )

    def extended(self, x: Tensor) -> Tensor:
        """Append the halo: local rows (n, d) → (n + halo, d)."""
        return _Extended.apply(x, self)  # type: ignore[no-any-return, no-untyped-call]

    def gathered(self, x: Tensor) -> Tensor:
        """Return the rows of all nodes, by their numbers: (n, d) → (N, d)."""
        return _Gathered.apply(x, self)  # type: ignore[no-any-return, no-untyped-call]

    def total(self, x: Tensor) -> Tensor:
        """Sum over all processes, any shape."""
        return _Total.apply(x)  # type: ignore[no-any-return, no-untyped-call]

    def sum_of_nodes(self, x: Tensor) -> Tensor:
        """Sum the rows of all nodes, (n, d) → (1, d); on a CPU with the bits of one process."""
        return _SumOfNodes.apply(x, self)  # type: ignore[no-any-return, no-untyped-call]

    @functools.cached_property
    def order(self) -> Tensor:
        """(N,) int64, row of each node among the concatenated shares, without padding."""
        width = max(self.sizes)
        sizes = torch.tensor(self.sizes, device=self.padded_row.device)
        starts = sizes.cumsum(0) - sizes
        process = self.padded_row // width
        return starts[process] + self.padded_row % width

    @property
    def everyone(self) -> AllNodes:
        """Edges whose sources are any nodes, by their numbers in the whole graph."""
        return AllNodes(self)


@dataclass(frozen=True, eq=False)
class AllNodes:
    """Rows of all nodes instead of a halo, for edges between arbitrary nodes."""

    partition: Partition

    @property
    def halo(self) -> int:
        """Number of rows of other processes."""
        nodes = self.partition.nodes
        return nodes.total - len(nodes.rows)

    def extended(self, x: Tensor) -> Tensor:
        """(n, d) → (N, d)."""
        return self.partition.gathered(x)


def divided(
    edge_index: Tensor, num_nodes: int, rank: int, processes: int
) -> tuple[Partition, Tensor]:
    """Return the share of process ``rank``, and its edges (2, e) by local rows, the halo after its nodes.

    Every process computes this from the whole graph (2, E), without communication. Nodes are dealt
    in contiguous ranges of an order in which neighbours are near each other (:func:`owners`).
    Raises ``UsageError`` where a process would have none.
    """
    # 1. Nodes of every process, and the edges into those of this one.
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

    # 2. The same pairs, seen from both sides: for an edge from a node of process a to one of
    #    process b, a sends the node to b. Every node once, by process and then by number, so that
    #    both agree on the order.
    far = owner[source] != owner[target]
    incoming = far & (owner[target] == rank)
    outgoing = far & (owner[source] == rank)
    halo = torch.unique(owner[source[incoming]] * num_nodes + source[incoming])
    sent = torch.unique(owner[target[outgoing]] * num_nodes + source[outgoing])

    # 3. The row of every node here, and among the padded shares of all.
    local_row = torch.full((num_nodes,), -1)
    local_row[nodes] = torch.arange(len(nodes))
    local_row[halo % num_nodes] = len(nodes) + torch.arange(len(halo))
    width = max(sizes)
    shares = []
    for process, size in enumerate(sizes):
        shares.append(width * process + torch.arange(size))
    padded_row = torch.empty_like(owner)
    padded_row[owner.sort(stable=True).indices] = torch.cat(shares)

    partition = Partition(
        nodes=Chosen(num_nodes, nodes),
        edges=Chosen(edge_index.shape[1], edges),
        sizes=sizes,
        padded_row=padded_row,
        sent=local_row[sent % num_nodes],
        counts_sent=tuple(torch.bincount(sent // num_nodes, minlength=processes).tolist()),
        counts_read=tuple(torch.bincount(halo // num_nodes, minlength=processes).tolist()),
    )
    return partition, local_row[edge_index[:, edges]]


def share_of(graph: Data, rank: int, processes: int) -> Data:
    """Return a process's nodes, the edges into them and all their columns, with the ``partition``."""
    partition, edge_index = divided(graph.edge_index, int(graph.num_nodes), rank, processes)
    share = Data(edge_index=edge_index, partition=partition)
    if "expander" in graph:
        # Sources of both directions by their global numbers, as nearly every node is read.
        links = graph.expander.long()
        nodes = torch.arange(len(links))[:, None].expand_as(links)
        reverse = torch.full_like(links, -1).scatter_(0, links, nodes)
        graph = copy.copy(graph)
        graph.expander = torch.cat([links, reverse], 1)

    for name, value in graph.items():
        if name == "edge_index" or not isinstance(value, Tensor):
            continue
        chosen = partition.edges if graph.is_edge_attr(name) else partition.nodes
        by_row = value.ndim > 0 and len(value) == chosen.total
        share[name] = value[chosen.rows] if by_row else value
    return share


def owners(edge_index: Tensor, num_nodes: int, processes: int) -> Tensor:
    """Return the process of each node, (N,) int64: ranges of the order of Cuthill and McKee, reversed.

    That order follows breadth-first levels, so that a range touches only its two neighbours: of the
    streets of Helsinki each of two processes reads 2 % of the nodes from the other, in the stored
    order 26 %. One of eight, on a city of 570,000 nodes, reads 2 % in addition to its own: too
    little for METIS to be worth a dependency.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ends = edge_index.numpy()
    both = np.concatenate([ends, ends[::-1]], axis=1)
    ones = np.ones(both.shape[1], np.int8)
    matrix = coo_array((ones, tuple(both)), shape=(num_nodes, num_nodes)).tocsr()
    ordered = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    order = torch.from_numpy(ordered.astype(np.int64))
    bounds = [num_nodes * i // processes for i in range(processes + 1)]
    owner = torch.empty(num_nodes, dtype=torch.int64)
    for process, (first, end) in enumerate(itertools.pairwise(bounds)):
        owner[order[first:end]] = process
    return owner


class _Extended(torch.autograd.Function):
    """Halo exchange.

    Backwards each halo row's gradient returns to its owner, added rank by rank.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: Partition) -> Tensor:
        ctx.part = part
        halo = x.new_empty(part.halo, *x.shape[1:])
        distributed.all_to_all_single(
            halo,
            x.index_select(0, part.sent),
            list(part.counts_read),
            list(part.counts_sent),
        )
        return torch.cat([x, halo])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        part = ctx.part
        count = len(part.nodes.rows)
        local = grad[:count].clone()
        halo = grad[count:].contiguous()
        received = grad.new_empty(len(part.sent), *grad.shape[1:])
        distributed.all_to_all_single(
            received,
            halo,
            list(part.counts_sent),
            list(part.counts_read),
        )
        return local.index_add_(0, part.sent, received), None


class _Gathered(torch.autograd.Function):
    """All-gather in the order of the nodes; backwards a reduce-scatter.

    Shares are padded to the largest.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: Partition) -> Tensor:
        ctx.part = part
        width = max(part.sizes)
        mine = x.new_zeros(width, *x.shape[1:])
        mine[: len(x)] = x
        shares = x.new_empty(len(part.sizes) * width, *x.shape[1:])
        _all_gather(shares, mine)
        return shares.index_select(0, part.padded_row)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        part = ctx.part
        width = max(part.sizes)
        sent = grad.new_zeros(len(part.sizes) * width, *grad.shape[1:])
        sent.index_copy_(0, part.padded_row, grad)
        mine = grad.new_empty(width, *grad.shape[1:])
        _reduce_scatter(mine, sent)
        return mine[: len(part.nodes.rows)], None


class _SumOfNodes(torch.autograd.Function):
    """Sum over the nodes in their order: a float32 sum depends on it, and near ties of keys on the sum.

    Each process sums a range of the channels over all nodes. It sends and receives about as much as
    its own rows, where a gather of all rows would grow with the number of processes.
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
        local_sum = x.new_zeros(1, width)
        first = torch.zeros(len(rows), dtype=torch.int64)
        local_sum[:, :mine] = x.new_zeros(1, mine).index_add(0, first, rows)

        # 3. Every process gets all channels.
        sums = x.new_empty(processes, width)
        _all_gather(sums, local_sum)
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
