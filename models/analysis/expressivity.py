"""Compare networks of the package with the test of the paper's Theorem 1 on pairs of graphs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data

from kmip_data.arrays import F64
from kmip_data.models.analysis.graph_pairs import Pair
from kmip_data.models.analysis.refinement import as_graphs, encoded, seg_wl
from kmip_data.models.config import ATTENTION, ModelConfig
from kmip_data.models.kinds import POSITIONAL
from kmip_data.models.network import build_model

EQUAL = 1e-9  #: largest difference of two outputs that count as equal
AT_ONCE = 40  #: pairs in one batch
ENCODINGS = ("none", "rwse", "lappe")


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

    The networks have three layers, GatedGCN beside the attention, and a head for graphs that pools the mean
    or the sum, in turn; k-MIP has one k a layer: 1, 3, 10. The largest difference of ``draws`` draws counts,
    of a graph and the other with its nodes in another order.
    """
    names = list(pairs)
    parts = [{name: pairs[name] for name in names[i : i + AT_ONCE]} for i in range(0, len(names), AT_ONCE)]
    for found in zip(*(_check(part, draws, seed) for part in parts), strict=True):
        by_encoding = {name: gap for one in found for name, gap in one.by_encoding.items()}
        gap, relabelled = max(one.gap for one in found), max(one.relabelled for one in found)
        yield Check(found[0].attention, found[0].positional, gap, relabelled, by_encoding)


def _check(pairs: Mapping[str, Pair], draws: int, seed: int) -> Iterator[Check]:
    """:func:`check_networks` of pairs that fit into a batch."""
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
