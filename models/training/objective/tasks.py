"""Task of a network: level, kind and number of its predictions, and the pairs of nodes that are links.

Scores and targets of links are padded to (G, W, W), W nodes of the largest graph of a batch: entry [g, i, j]
is of the pair of nodes i and j of graph g. A target is :data:`LINK`, :data:`APART` (also a node with itself)
or :data:`NO_PAIR` where the graph has no such nodes.

Source: ``graphgps/head/inductive_edge.py`` and ``graphgps/loader/dataset/pcqm4mv2_contact.py`` of LRGB and
its re-evaluation (Tönshoff et al., "Where Did the Gap Go?", 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from kmip_data.errors import DamagedInput
from kmip_data.format.schema import LINKS, Column, Schema
from kmip_data.models.layers.batch import by_graph, pointers_of, read_graphs

LINK, APART, NO_PAIR = 1, 0, -1


def link_targets(batch: Any) -> Tensor:
    """Return which pairs of a batch are links, int8 (G, W, W), from the bits of each node's column."""
    bits = batch[LINKS]
    ptr, graph = read_graphs(batch, bits)
    width = max(ptr.diff().tolist())
    if width > 8 * bits.shape[1]:
        raise DamagedInput(f"A graph has {width:,} nodes, its rows of links {8 * bits.shape[1]:,} bits.")
    column = torch.arange(width, device=bits.device)
    found = (bits[:, column // 8] >> (column % 8).to(torch.uint8)) & 1
    there = column < pointers_of(graph, len(ptr) - 1).diff()[graph, None]
    return by_graph(torch.where(there, found.to(torch.int8), NO_PAIR), graph, ptr, NO_PAIR)


Level = Literal["node", "graph", "link"]
Kind = Literal["single-label", "multilabel", "regression", "links"]  #: of targets


@dataclass(frozen=True)
class Task:
    """Targets of a network.

    ``single-label``: one of ``outputs`` classes, targets int64 (rows,); ``multilabel``: each of ``outputs``
    labels or not, ``regression``: ``outputs`` numbers, targets float (rows, outputs), NaN where unknown;
    ``links``: one score for each pair of nodes, see :mod:`.links`.
    """

    level: Level  #: unit that a prediction belongs to
    kind: Kind
    outputs: int  #: columns of the network's output

    def targets(self, batch: Any) -> Tensor:
        """Return the targets of a batch, in the form of the network's output."""
        targets: Tensor = link_targets(batch) if self.kind == "links" else batch.y
        return targets


def target_column(schema: Schema) -> Column | None:
    """Return the column that is predicted: ``y``, or else links."""
    return schema.labels or schema.links


def is_class(column: Column) -> bool:
    """True if targets are classes: one whole number a row."""
    return column.shape == () and is_whole(column)


def is_whole(column: Column) -> bool:
    """True if targets are whole numbers."""
    return column.stored.startswith(("int", "uint", "bool"))
