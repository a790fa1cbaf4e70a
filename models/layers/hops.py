"""Rows of a sampled neighbourhood that its seeds still depend on, layer by layer.

The last of L layers of message passing is read at the seeds alone, the one before it at their
neighbours too, and so on; PyTorch Geometric's ``trim_to_layer`` does the same. Of samples with 12,
12, 12 neighbours, the second layer has a tenth of the nodes and the third a hundredth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from kmip_data.models.layers.batch import GraphBatch


def within(
    x: Tensor, e: Any, batch: GraphBatch, hops: int, *, targets_only: bool = False
) -> tuple[Tensor, Any, GraphBatch]:
    """Return rows of the nodes within ``hops`` of the seeds, and the edges into all but the last of these.

    Parameters
    ----------
    x
        Nodes of ``batch``, or the first of them that contain those within ``hops``, (N, d).
    e
        Edge features, as ``x``; one row for all edges; or None.
    batch
        All of a sampled neighbourhood. Another one, or one that ends before, is returned as it is.
    targets_only
        Let the nodes of the batch be those within one hop less: the others are sources alone, rows
        of ``x`` behind them.
    """
    sample = batch.hops
    if sample is None or hops - targets_only >= len(sample.edges):
        return x, e, batch

    # Nodes and edges are numbered hop by hop: those to keep are the first.
    sources = sum(sample.nodes[: hops + 1])
    nodes = sum(sample.nodes[:hops]) if targets_only else sources
    edges = sum(sample.edges[:hops])
    if e is not None and len(e) != 1:
        e = e[:edges]
    trimmed = replace(
        batch,
        x=batch.x[:nodes],
        edges=batch.edges.adjacency.first(nodes, edges, sources),
        edge_attr=None,  # an encoder has read it
        ptr=batch.ptr.clamp_max(nodes),
        graph=batch.graph[:nodes],
        plans={},
    )
    return x[:sources], e, trimmed
