"""Checks of the paper's theorems: graphs that colour refinement and networks separate (1), and fits (2)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.data import Data

from kmip_data.arrays import F64, I64
from kmip_data.graphs.encoding import Encoding, Graphs, parse_encoding
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.config import ATTENTION, POSITIONAL, ModelConfig
from kmip_data.models.network import build_model

SAME = (
    1e-5  #: values of an encoding that are no further apart count as one: they are float32 on disk
)
REFINED_WITH = ("rwse20", "rwse3", "lappe10")  #: encodings that S-SEG-WL is run with
Pair = tuple[I64, I64]  #: two adjacency matrices (N, N)


def known_pairs() -> dict[str, Pair]:
    """Return pairs that are not isomorphic, by name: of the paper's argument, and of families of BREC."""
    import networkx as nx

    def rings(n: int) -> tuple[Any, Any]:
        return nx.cycle_graph(2 * n), nx.disjoint_union(nx.cycle_graph(n), nx.cycle_graph(n))

    torus = [(a, b) for a in range(4) for b in range(4)]
    cayley = [
        ((a, b), ((a + i) % 4, (b + j) % 4)) for a, b in torus for i, j in ((0, 1), (1, 0), (1, 1))
    ]
    rook = nx.line_graph(nx.complete_bipartite_graph(4, 4))
    shrikhande = nx.Graph(cayley)
    five = rings(5)
    eight = rings(8)
    for graph in (*five, *eight):
        graph.add_edge(
            0, len(graph) // 2
        )  # two rings of n + 1 share it, or two of n are joined by it
    leaves = (nx.Graph([*graph.edges, (next(iter(graph)), "leaf")]) for graph in (rook, shrikhande))
    pairs = {
        "P4, K1,3": (nx.path_graph(4), nx.star_graph(3)),
        "2 C3, C6": rings(3)[::-1],
        "decalin, bicyclopentyl": five,
        "two rings of 9, of 8": eight,
        "CSL(41, 2), CSL(41, 3)": (nx.circulant_graph(41, [1, 2]), nx.circulant_graph(41, [1, 3])),
        "dodecahedron, Desargues": (nx.dodecahedral_graph(), nx.desargues_graph()),
        "4x4 rook, Shrikhande": (rook, shrikhande),
        "these, a leaf at a node": tuple(leaves),
    }
    matrix = nx.to_numpy_array
    return {
        name: (matrix(a, dtype=np.int64), matrix(b, dtype=np.int64))
        for name, (a, b) in pairs.items()
    }


class Refinement(NamedTuple):
    """Colours of the nodes of each graph by iteration, until their classes stay as they are."""

    colours: list[list[I64]]

    @property
    def separated(self) -> int | None:
        """The iteration in which the first two graphs have different multisets of colours; None: never."""
        differ = (
            not np.array_equal(np.sort(one), np.sort(other)) for one, other, *_ in self.colours
        )
        return next((iteration for iteration, differs in enumerate(differ) if differs), None)


def refine(start: I64, relations: Sequence[I64]) -> Refinement:
    """Refine colours: a node's next one encodes the multiset {{(colour of r, relation to r)}} over all r.

    ``start`` (ΣN,) are those of all nodes, graph after graph; ``relations`` (N, N) each graph's f_R of the
    row's node to the column's, from 0.
    """
    ptr = np.cumsum([0, *map(len, relations)])
    kinds = 1 + max(int(relation.max(initial=0)) for relation in relations)
    colour = _numbered(start[:, None])
    found = []
    for _ in range(ptr[-1] + 1):
        found.append([colour[a:b] for a, b in pairwise(ptr)])
        seen = np.full((ptr[-1], int(np.diff(ptr).max())), -1)
        for (a, b), relation in zip(pairwise(ptr), relations, strict=True):
            seen[a:b, : b - a] = np.sort(colour[a:b] * kinds + relation, axis=1)
        new = _numbered(seen)
        if (
            _numbered(np.stack([colour, new], 1)).max() == colour.max() == new.max()
        ):  # other names, no more
            break
        colour = new
    return Refinement(found)


def all_tests(matrices: Sequence[I64]) -> dict[str, Refinement]:
    """1-WL, S-SEG-WL, and this with each of :data:`REFINED_WITH`, by name; graphs are adjacency matrices."""
    enhanced = {f"+ {name}": seg_wl(matrices, parse_encoding(name)) for name in REFINED_WITH}
    alike = np.zeros(sum(map(len, matrices)), np.int64)
    return {"1-WL": refine(alike, matrices), "S-SEG-WL": seg_wl(matrices), **enhanced}


def seg_wl(matrices: Sequence[I64], encoding: Encoding | None = None) -> Refinement:
    """S-SEG-WL with the S of Theorem 1, for nodes without other features than an encoding.

    f_R separates neighbours, the node itself and the rest. Of LapPE only the eigenvalues are used:
    the entries of eigenvectors change with the order of the nodes, and would separate a graph from itself.
    """
    graphs = as_graphs(matrices)
    columns = {} if encoding is None else encoded(graphs, encoding)
    columns.pop("node/lappe_vectors", None)
    sizes = np.diff(graphs.node_ptr)
    rows = [np.zeros((graphs.node_ptr[-1], 1))]
    rows += [
        np.repeat(v, sizes, 0) if key.startswith("graph/") else v for key, v in columns.items()
    ]
    start = _numbered(np.nan_to_num(np.concatenate(rows, axis=1), nan=-1))
    return refine(start, [2 * matrix + np.eye(len(matrix), dtype=np.int64) for matrix in matrices])


def as_graphs(matrices: Sequence[I64]) -> Graphs:
    """Adjacency matrices as the edges that encodings are computed from."""
    edges = [np.stack(np.nonzero(matrix)) for matrix in matrices]
    edge_ptr = np.cumsum([0, *(each.shape[1] for each in edges)])
    return Graphs(np.cumsum([0, *map(len, matrices)]), edge_ptr, np.concatenate(edges, axis=1))


def encoded(graphs: Graphs, encoding: Encoding) -> dict[str, NDArray[Any]]:
    """Columns of an encoding, without the differences of rounding that equal values may have."""
    found = encoding.compute(graphs, lambda: None)
    for key, values in found.items():
        levels, place = np.unique(values, return_inverse=True)
        first = np.flatnonzero(
            np.append(True, ~(np.diff(levels) <= SAME))
        )  # NaN is a level of its own
        found[key] = levels[first][np.searchsorted(first, place, "right") - 1].reshape(values.shape)
    return found


def _numbered(rows: NDArray[Any]) -> I64:
    """Number rows from 0, equal ones alike."""
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


EQUAL = 1e-9  #: largest difference of two outputs that count as equal
ENCODINGS = ("none", "rwse", "lappe")  #: of the networks
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
    edges = torch.from_numpy(graphs.joined())
    ptr = torch.from_numpy(graphs.node_ptr)
    batch = Data(x=torch.ones(int(ptr[-1]), 1, dtype=torch.float64), edge_index=edges, ptr=ptr)
    # Pair by pair: of many graphs, different values of an encoding are near enough to be taken for one.
    columns = functools.cache(
        lambda encoding: [encoded(as_graphs(four), encoding) for four in fours]
    )
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
                    batch[key.partition("/")[2]] = (
                        column.double() if column.is_floating_point() else column
                    )
            outputs = _outputs(config, batch, range(seed, seed + draws)).reshape(
                draws, len(fours), 4, 3
            )
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
            for (
                weights
            ) in network.parameters():  # as they are begun with, differences would be small
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
            parts = self.attention.project(rows)
            q, k, v = (part.view(len(part), *x.shape[:2], -1).transpose(0, 1) for part in parts)
            attended = self.attention.output(
                scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            )
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
    return float((sparse - full).norm() / (full - points).norm()), float(
        (sparse - full).abs().max()
    )


def fit(k: int, depths: Sequence[int], *, steps: int, seed: int = 0) -> Iterator[float]:
    """Fit transformers of the class of Theorem 2 by Adam, from few blocks to many; give the error of each.

    The error is the L2 distance over U, in units of that of the identity, which has no blocks. The next depth
    begins with the blocks that are there and new ones that change nothing, so a larger class begins where the
    smaller one ended; it is trained for ``steps`` batches of points drawn from U.
    """
    target = transformer(TARGET, None, 2, seed).requires_grad_(False)
    unseen = _points(2000, seed + 1)
    network = nn.Sequential()
    wanted = target(unseen)
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
