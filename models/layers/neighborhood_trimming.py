"""Trim a sampled neighbourhood, layer by layer, to the nodes that its seeds depend on.

The last layer is computed only for the seeds, the one before it also for their neighbours, and so
on, as in PyTorch Geometric's ``trim_to_layer``. With 12, 12, 12 neighbours, the second layer has a
tenth of the nodes and the third a hundredth.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from kmip_data.models.layers.batch import GraphBatch


def trim_to_hops(
    x: Tensor, e: Tensor | None, batch: GraphBatch, hops: int, *, extra_sources: bool = False
) -> tuple[Tensor, Tensor | None, GraphBatch]:
    """Keep the nodes within ``hops`` of the seeds, and the edges that reach ``hops`` - 1.

    Parameters
    ----------
    x
        Rows of the nodes, (N, d); rows beyond ``hops`` may be missing already.
    e
        Edge features with as many hops as ``x``; one row for all edges; or None.
    batch
        A sampled neighbourhood. Other batches, and smaller neighbourhoods, are returned unchanged.
    extra_sources
        Leave the nodes of the last hop out of the batch; their rows of ``x`` are only sources.
    """
    sample = batch.hops
    if sample is None or hops - extra_sources >= len(sample.edges):
        return x, e, batch

    # Nodes and edges are ordered by hop, so those to keep come first.
    sources = sum(sample.nodes[: hops + 1])
    nodes = sum(sample.nodes[:hops]) if extra_sources else sources
    edges = sum(sample.edges[:hops])
    if e is not None and len(e) != 1:
        e = e[:edges]
    trimmed = replace(
        batch,
        x=batch.x[:nodes],
        edges=batch.edges.edge_list.trim(nodes, edges, sources),
        edge_attr=None,  # already encoded
        ptr=batch.ptr.clamp_max(nodes),
        graph_index=batch.graph_index[:nodes],
        layer_cache={},
    )
    return x[:sources], e, trimmed
