"""Parameters of point clouds, and graphs made from them."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import NDArray
from pydantic import Field

from kmip_data.arrays import F32
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column, EdgeLayout, Schema, View, bytes_per
from kmip_data.format.writer import GraphRecord
from kmip_data.graphs.knn import KnnRule, knn_edges, knn_table
from kmip_data.pipelines.base import Params


class PointParams(Params):
    """Parameters of a k-NN graph."""

    k: int = Field(default=32, ge=1, le=65_535, description="neighbours per point")
    knn_rule: KnnRule = Field(
        default="exact",
        description="exact: k nearest other points; torch-cluster: the upstream rule, which differs "
        "where more than k points coincide",
    )
    short_graphs: Literal["skip", "keep"] | None = Field(
        default=None,
        description="records of fewer than k + 1 points: skip them, or keep them with fewer neighbours "
        "(default: an error)",
    )

    @property
    def edges(self) -> EdgeLayout:
        """``neighbor`` where every node is sure to have exactly k sources, else ``index``."""
        return "neighbor" if self.knn_rule == "exact" and self.short_graphs != "keep" else "index"

    @property
    def edge_name_parts(self) -> list[str]:
        """Parts of the build folder's name."""
        parts = [f"k{self.k}"]
        if self.knn_rule != "exact":
            parts.append(self.knn_rule)
        if self.short_graphs is not None:
            parts.append(f"{self.short_graphs}-short")
        return parts


def knn_schema(
    columns: tuple[Column, ...], params: PointParams, *, pos: int, max_nodes: int, key_length: int = 64
) -> Schema:
    """Return the schema of k-NN graphs; ``pos`` is the first of the three columns of ``x`` that are it."""
    return Schema(
        columns=columns,
        views=(View(attribute="pos", source="node/x", start=pos, stop=pos + 3),),
        edges=params.edges,
        k=params.k if params.edges == "neighbor" else None,
        max_nodes=max_nodes,
        key_length=key_length,
    )


def connect(
    key: str, pos: F32, columns: dict[str, NDArray[Any]], params: PointParams, index_dtype: str
) -> GraphRecord | None:
    """Return the record of one cloud with its k-NN edges, or ``None`` when it is skipped.

    ``pos`` (N, 3) is finite. Raises ``DamagedInput`` where the cloud has fewer than k + 1 points and
    ``short_graphs`` is not set.
    """
    n = len(pos)
    if n <= params.k:
        if params.short_graphs == "skip":
            return None
        if params.short_graphs is None:
            raise DamagedInput(
                f"Record {key} has {n} points, too few for k = {params.k}.",
                next="choose a smaller --k, or --set short_graphs=skip or --set short_graphs=keep",
            )
    if params.edges == "neighbor":
        table = knn_table(pos, params.k).astype(index_dtype)
        return GraphRecord(key=key, num_nodes=n, columns=columns, neighbor=table)
    edges = knn_edges(pos, params.k, rule=params.knn_rule).astype(index_dtype)
    return GraphRecord(key=key, num_nodes=n, columns=columns, edge_index=edges)


def nodes_per_shard(schema: Schema, params: PointParams) -> int:
    """Return how many nodes of k-NN graphs fit in one shard."""
    from kmip_data.format.writer import MAX_SHARD_BYTES

    _, per_node, per_edge = bytes_per(schema)
    most_edges = params.k + (params.knn_rule != "exact")
    return MAX_SHARD_BYTES // (per_node + per_edge * most_edges)
