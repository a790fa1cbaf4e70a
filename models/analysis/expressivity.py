"""Numerical checks of the paper's theorems: which graphs refinement and networks separate (1), and fits (2)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.data import Data

from kmip_data.arrays import F64, I64, Array
from kmip_data.graphs.encoding import Encoding, Graphs, parse_encoding
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.config import ATTENTION, ModelConfig
from kmip_data.models.network import build_model
from kmip_data.models.positions import POSITIONAL

#: Tolerance within which values of an encoding, float32 on disk, count as equal.
SAME = 1e-5
REFINED_WITH = ("rwse20", "rwse3", "lappe10")  #: encodings used with S-SEG-WL
Pair = tuple[I64, I64]  #: two adjacency matrices (N, N)


def known_pairs() -> dict[str, Pair]:
    """Return named pairs of non-isomorphic graphs: those of the paper's argument, and families of BREC."""
    import networkx as nx

    def rings(n: int) -> tuple[Any, Any]:
        ring = nx.cycle_graph(n)
        return nx.cycle_graph(2 * n), nx.disjoint_union(ring, ring)

    def with_leaf(graph: Any) -> Any:
        node = next(iter(graph))
        return nx.Graph([*graph.edges, (node, "leaf")])

    # Two strongly regular graphs of the same parameters (16, 6, 2, 2).
    rook = nx.line_graph(nx.complete_bipartite_graph(4, 4))
    shrikhande = nx.Graph()
    for a, b in itertools.product(range(4), repeat=2):
        for i, j in ((0, 1), (1, 0), (1, 1)):
            shrikhande.add_edge((a, b), ((a + i) % 4, (b + j) % 4))

    five = rings(5)
    eight = rings(8)
    for graph in (*five, *eight):
        # Two rings of n + 1 share this edge, or it joins two rings of n.
        graph.add_edge(0, len(graph) // 2)

    pairs = {
        "P4, K1,3": (nx.path_graph(4), nx.star_graph(3)),
        "2 C3, C6": rings(3)[::-1],
        "decalin, bicyclopentyl": five,
        "two rings of 9, of 8": eight,
        "CSL(41, 2), CSL(41, 3)": (nx.circulant_graph(41, [1, 2]), nx.circulant_graph(41, [1, 3])),
        "dodecahedron, Desargues": (nx.dodecahedral_graph(), nx.desargues_graph()),
        "4x4 rook, Shrikhande": (rook, shrikhande),
        "these, a leaf at a node": (with_leaf(rook), with_leaf(shrikhande)),
    }

    matrices = {}
    for name, (first, second) in pairs.items():
        matrices[name] = (
            nx.to_numpy_array(first, dtype=np.int64),
            nx.to_numpy_array(second, dtype=np.int64),
        )
    return matrices


def refine(start: I64, relations: I64) -> int | None:
    """Return the first iteration in which the colour multisets of two graphs differ, or None.

    A node's next colour encodes the multiset {{(colour of r, relation to r)}} over all nodes r.
    ``start`` (2, N) are the initial colours, ``relations`` (2, N, N) is f_R of the row's node to the
    column's, from 0.
    """
    kinds = 1 + int(relations.max())
    colour = start
    iteration = 0
    while np.array_equal(*np.sort(colour, axis=1)):
        # A node's multiset as a sorted row, with one number for each pair of a colour and a relation.
        multisets = np.sort(colour[:, None] * kinds + relations, axis=2)
        new = _numbered(multisets)

        # Stable: as many classes as before, and as many pairs (old, new). Each iteration before
        # splits a class.
        both = _numbered(np.stack([colour, new], axis=2))
        if both.max() == colour.max() == new.max():
            return None
        colour = new
        iteration += 1
    return iteration


def all_tests(pair: Pair) -> dict[str, int | None]:
    """1-WL, S-SEG-WL, and S-SEG-WL with each encoding of :data:`REFINED_WITH`, as :func:`refine`."""
    matrices = np.stack(pair)
    tests = {
        "1-WL": refine(np.zeros(matrices.shape[:2], np.int64), matrices),
        "S-SEG-WL": seg_wl(pair),
    }
    for name in REFINED_WITH:
        tests[f"+ {name}"] = seg_wl(pair, parse_encoding(name))
    return tests


def seg_wl(pair: Pair, encoding: Encoding | None = None) -> int | None:
    """S-SEG-WL with the S of Theorem 1, for nodes without other features than an encoding.

    f_R separates neighbours, the node itself and the rest. LapPE contributes its eigenvalues alone:
    entries of eigenvectors depend on the order of the nodes, and would separate a graph from
    itself.
    """
    matrices = np.stack(pair)
    count = matrices.shape[1]
    columns = {} if encoding is None else encoded(as_graphs(pair), encoding)
    columns.pop("node/lappe_vectors", None)
    features: list[Array] = [np.zeros((2 * count, 1))]
    for key, values in columns.items():
        if key.startswith("graph/"):
            values = np.repeat(values, count, 0)  # noqa: PLW2901 -- a graph's value at each node
        features.append(values)

    # Missing eigenvalues of a small graph are NaN, which equals nothing: −1 is not an eigenvalue.
    rows = np.nan_to_num(np.concatenate(features, axis=1), nan=-1)
    return refine(
        _numbered(rows.reshape(2, count, -1)), 2 * matrices + np.eye(count, dtype=np.int64)
    )


def as_graphs(matrices: Sequence[I64]) -> Graphs:
    """Convert adjacency matrices to edges, from which encodings are computed."""
    edges = [np.stack(np.nonzero(matrix)) for matrix in matrices]
    edge_counts = [pairs.shape[1] for pairs in edges]
    node_ptr = np.cumsum([0, *map(len, matrices)])
    edge_ptr = np.cumsum([0, *edge_counts])
    return Graphs(node_ptr, edge_ptr, np.concatenate(edges, axis=1))


def encoded(graphs: Graphs, encoding: Encoding) -> dict[str, Array]:
    """Return the columns of an encoding with values that differ by rounding alone made equal."""
    columns = encoding.compute(graphs, lambda: None)
    for key, values in columns.items():
        levels, level = np.unique(values, return_inverse=True)
        # A level begins where the gap to the previous value exceeds SAME; a NaN always begins one.
        begins = np.append(True, ~(np.diff(levels) <= SAME))
        first = np.flatnonzero(begins)
        merged = np.searchsorted(first, level, "right") - 1
        columns[key] = levels[first][merged].reshape(values.shape)
    return columns


def _numbered(rows: Array) -> I64:
    """Number the distinct rows (…, width) from 0: (…)."""
    _, numbers = np.unique(rows.reshape(-1, rows.shape[-1]), axis=0, return_inverse=True)
    return numbers.reshape(rows.shape[:-1])


EQUAL = 1e-9  #: largest difference of two outputs that count as equal
ENCODINGS = ("none", "rwse", "lappe")  #: encodings of the networks
NODES = 8  #: rows of a point of U = [-1, 1]^(NODES × DIM)
DIM = 4  #: columns of a point of U
TARGET = (4, 4, 16)  #: heads h, their size m and the hidden size r of the two blocks of the target
FITTED = (2, 1, 4)  #: the same for a block of Theorem 2
SHARP = 4.0  #: factor of the target's queries and keys: without it, attention is nearly a mean


class Check(NamedTuple):
    """Networks of one attention and one encoding, with random weights, on pairs of graphs."""

    attention: str
    positional: str
    gap: float  #: largest output difference between two graphs that S-SEG-WL does not separate
    relabelled: float  #: largest output difference between a graph and the same graph relabelled
    #: output difference of each pair that the test separates by the encoding alone
    by_encoding: dict[str, float]

    @property
    def verdict(self) -> str:
        """``bounded``, ``order of nodes`` (a premise fails), ``not bounded`` (a contradiction)."""
        if self.gap <= EQUAL:
            return "bounded"
        return "order of nodes" if self.relabelled > EQUAL else "not bounded"


def check_networks(pairs: Mapping[str, Pair], *, draws: int = 4) -> Iterator[Check]:
    """Compare outputs of GPS networks in float64, with each attention, on each pair.

    The networks have three layers, GatedGCN next to the attention, and a head for graphs that pools
    the mean or the sum, in turn; k-MIP has one k a layer: 1, 3, 10. The largest difference over
    ``draws`` random networks counts; the second graph of a pair is also relabelled.
    """
    # 1. Each pair, and both graphs relabelled, in one batch.
    rng = np.random.Generator(np.random.PCG64(0))
    fours = [_with_relabelled(pair, rng) for pair in pairs.values()]
    graphs = as_graphs(list(itertools.chain(*fours)))
    edges = torch.from_numpy(graphs.joined())
    ptr = torch.from_numpy(graphs.node_ptr)
    ones = torch.ones(int(ptr[-1]), 1, dtype=torch.float64)
    batch = Data(x=ones, edge_index=edges, ptr=ptr)

    @functools.cache
    def columns(encoding: Encoding) -> dict[str, Tensor]:
        # Pair by pair: among many graphs, different values of an encoding may lie close enough to
        # be taken for equal.
        by_pair = [encoded(as_graphs(four), encoding) for four in fours]
        joined = {}
        for key in by_pair[0]:
            values = np.concatenate([of_pair[key] for of_pair in by_pair])
            column = torch.from_numpy(values)
            joined[key] = column.double() if column.is_floating_point() else column
        return joined

    plain = [name for name, pair in pairs.items() if seg_wl(pair) is None]
    for positional in ENCODINGS:
        # 2. Pairs that the test does not separate with this encoding: no network may separate them.
        encoding = POSITIONAL[positional].encoding
        equal = [name for name in plain if seg_wl(pairs[name], encoding) is None]
        for kind in ATTENTION:
            attention: dict[str, object] = {"kind": kind}
            if kind == "k-mip":
                attention["k"] = (1, 3, 10)
            config = ModelConfig.model_validate(
                {
                    "layers": 3,
                    "hidden_dim": 48,
                    "attention": attention,
                    "positional": positional,
                    "head": "graph",
                }
            )
            for needed in config.encodings:
                for key, column in columns(needed).items():
                    batch[key.partition("/")[2]] = column

            # 3. A graph against the other one relabelled, and against itself relabelled.
            outputs = _outputs(config, batch, draws).reshape(draws, len(fours), 4, 3)
            first_to_second = np.abs(outputs[:, :, 0] - outputs[:, :, 3])
            to_itself = np.abs(outputs[:, :, :2] - outputs[:, :, 2:])
            largest = first_to_second.max((0, 2)).tolist()
            gaps = dict(zip(pairs, largest, strict=True))
            yield Check(
                kind,
                positional,
                gap=max((gaps[name] for name in equal), default=0.0),
                relabelled=float(to_itself.max()),
                by_encoding={name: gaps[name] for name in plain if name not in equal},
            )


def _with_relabelled(pair: Pair, rng: np.random.Generator) -> list[I64]:
    """Return both graphs, then both relabelled."""
    relabelled = []
    for matrix in pair:
        order = rng.permutation(len(matrix))
        relabelled.append(matrix[order][:, order])
    return [*pair, *relabelled]


def _outputs(config: ModelConfig, batch: Data, draws: int) -> F64:
    """Return outputs (draws, G, 3); the networks pool the mean and the sum of the nodes, in turn."""
    outputs = []
    for seed in range(draws):
        pooling = "mean" if seed % 2 == 0 else "sum"
        pooled = config.model_copy(update={"pooling": pooling})
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            network = build_model(pooled, in_channels=1, num_classes=3).double().eval()
            # With the usual initial weights the differences would be small.
            for weights in network.parameters():
                std = weights.shape[-1] ** -0.5 if weights.ndim > 1 else 1.0
                weights.normal_(std=std)
            outputs.append(network(batch).numpy())
    return np.stack(outputs)


class TransformerBlock(nn.Module):
    """x + attention(x), then x + MLP(x), as the paper defines a transformer block.

    ``k`` None: full attention. ``sharp`` scales the initial queries and keys; 0: no scaling, and
    the block begins as the identity.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        k: int | None,
        sharp: float = 0.0,
    ) -> None:
        super().__init__()
        heads, size, hidden = shape
        self.attention = KMIPAttention(
            DIM,
            heads=heads,
            key_dim=size,
            value_dim=size,
            k=k or 1,
            output_projection=True,
        )
        self.mlp = nn.Sequential(
            nn.Linear(DIM, hidden),
            nn.ReLU(),
            nn.Linear(hidden, DIM),
        )
        self.full = k is None
        for linear in self.attention.children():
            linear.register_parameter("bias", None)  # Algorithm 1 has no biases

        if sharp:
            for linear in (self.attention.query, self.attention.key):
                linear.weight.data *= sharp
        else:
            # Both branches return 0: the block begins as the identity.
            for linear in (self.attention.output, self.mlp[-1]):
                for parameter in linear.parameters():
                    nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Map nodes (B, N, d) to the same shape."""
        rows = x.flatten(0, 1)
        if self.full:
            by_graph = []
            for part in self.attention.project(rows):
                heads = part.view(len(part), *x.shape[:2], -1)
                by_graph.append(heads.transpose(0, 1))
            queries, keys, values = by_graph
            mixed = scaled_dot_product_attention(queries, keys, values)
            joined_heads = mixed.transpose(1, 2).flatten(2)
            attended = self.attention.output(joined_heads)
        else:
            ptr = range(0, len(rows) + 1, x.shape[1])
            attended = self.attention(rows, ptr).view_as(x)
        x = x + attended
        return x + self.mlp(x)  # type: ignore[no-any-return]


def transformer(
    shape: tuple[int, int, int],
    k: int | None,
    depth: int,
    seed: int,
) -> nn.Sequential:
    """Make ``depth`` random blocks: sharp ones in the target's shape, others that begin as the identity."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sharp = SHARP if shape == TARGET else 0.0
        blocks = [TransformerBlock(shape, k, sharp) for _ in range(depth)]
        return nn.Sequential(*blocks)


def copied(k: int) -> tuple[float, float]:
    """Return the L2 and the maximum error of k-MIP attention with the weights of the target of :func:`fit`."""
    points = _points(2000, 1)
    full = transformer(TARGET, None, 2, 0)(points).detach()
    sparse = transformer(TARGET, k, 2, 0)(points).detach()
    error = sparse - full
    relative = error.norm() / (full - points).norm()
    return float(relative), float(error.abs().max())


def fit(k: int, depths: Sequence[int], *, steps: int) -> Iterator[float]:
    """Fit transformers of Theorem 2's class with Adam, from few blocks to many; yield their errors.

    The error is the L2 distance over U, relative to that of the identity, which has no blocks. Each
    depth starts from the trained blocks plus identity blocks, so a larger class begins where the
    smaller one ended; it trains for ``steps`` batches of random points from U.
    """
    target = transformer(TARGET, None, 2, 0).requires_grad_(False)
    unseen = _points(2000, 1)
    network = nn.Sequential()
    wanted = target(unseen)
    for depth in depths:
        new_blocks = transformer(FITTED, k, depth - len(network), depth)
        network.extend(new_blocks)
        # A fresh optimizer and schedule: every depth trains for the same number of steps.
        optimizer = torch.optim.Adam(network.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
        for step in range(steps):
            points = _points(128, 2 + step)
            loss = (network(points) - target(points)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            error = (network(unseen) - wanted).norm()
            identity = (wanted - unseen).norm()
        yield float(error / identity)


def _points(count: int, seed: int) -> Tensor:
    """Draw points (count, NODES, DIM) uniformly from U."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, NODES, DIM, generator=generator) * 2 - 1
