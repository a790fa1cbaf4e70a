"""Tasks of networks: level and kind of the targets; loads no torch.

Scores and targets of links are padded to (G, W, W), W nodes of the largest graph of a batch: entry
[g, i, j] is of the pair of nodes i and j of graph g. A target is :data:`LINK`, :data:`APART` (also
a node with itself) or :data:`NO_PAIR` where the graph has no such nodes.

Source: ``graphgps/head/inductive_edge.py`` and ``graphgps/loader/dataset/pcqm4mv2_contact.py`` of
LRGB and its re-evaluation (Tönshoff et al., "Where Did the Gap Go?", 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kmip_data.errors import DamagedInput
from kmip_data.format.schema import LINKS

if TYPE_CHECKING:
    from torch import Tensor

LINK = 1
APART = 0
NO_PAIR = -1

Level = Literal["node", "graph", "link"]
Kind = Literal["single-label", "multilabel", "regression", "links"]  #: of targets


def link_targets(batch: Any) -> Tensor:
    """Return which pairs of a batch are links, int8 (G, W, W), from the bits of each node's column."""
    import torch

    from kmip_data.models.layers.batch import by_graph, pointers_of, read_graphs

    bits = batch[LINKS]
    ptr, graph = read_graphs(batch, bits)
    width = max(ptr.diff().tolist())
    if width > 8 * bits.shape[1]:
        raise DamagedInput(
            f"A graph has {width:,} nodes, its rows of links {8 * bits.shape[1]:,} bits."
        )

    column = torch.arange(width, device=bits.device)
    shift = (column % 8).to(torch.uint8)
    linked = (bits[:, column // 8] >> shift) & 1

    nodes = pointers_of(graph, len(ptr) - 1).diff()
    exists = column < nodes[graph, None]
    return by_graph(torch.where(exists, linked.to(torch.int8), NO_PAIR), graph, ptr, NO_PAIR)


@dataclass(frozen=True)
class Task:
    """Targets of a network.

    ``single-label``: one of ``outputs`` classes, targets int64 (rows,); ``multilabel``: each of
    ``outputs`` labels or not, ``regression``: ``outputs`` numbers, targets float (rows, outputs),
    NaN where unknown; ``links``: one score for each pair of nodes, see above.
    """

    level: Level  #: unit that a prediction belongs to
    kind: Kind
    outputs: int  #: columns of the network's output
    log10: bool = False  #: True if targets are decimal logarithms, whose metrics are of the numbers themselves

    def targets(self, batch: Any) -> Tensor:
        """Return the targets of a batch, in the form of the network's output."""
        targets: Tensor = link_targets(batch) if self.kind == "links" else batch.y
        return targets
