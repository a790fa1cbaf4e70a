"""Trim a sampled neighbourhood, layer by layer, to what its seeds depend on.

Of the last of L layers only the seeds are read, of the one before it their neighbours too, and so
on, as in PyTorch Geometric's ``trim_to_layer``. With 12, 12, 12 neighbours, the second layer has a
tenth of the nodes and the third a hundredth.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from kmip_data.models.layers.batch import GraphBatch


def trim_to_hops(
    x: Tensor, e: Tensor | None, batch: GraphBatch, hops: int, *, targets_only: bool = False
) -> tuple[Tensor, Tensor | None, GraphBatch]:
    """Return rows of the nodes within ``hops`` of the seeds, and the edges into all but the last of these.

    Parameters
    ----------
    x
        Nodes of ``batch``, or the first of them that contain those within ``hops``, (N, d).
    e
        Edge features, as ``x``; one row for all edges; or None.
    batch
        A sampled neighbourhood. Other batches, and smaller neighbourhoods, are returned unchanged.
    targets_only
        Make the nodes of the batch those within one hop less; the others are sources alone, later
        rows of ``x``.
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
        edges=batch.edges.adjacency.first_edges(nodes, edges, sources),
        edge_attr=None,  # an encoder has read it
        ptr=batch.ptr.clamp_max(nodes),
        graph=batch.graph[:nodes],
        plans={},
    )
    return x[:sources], e, trimmed
