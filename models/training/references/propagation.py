"""Label propagation as a reference answer: classes of train nodes spread along the edges."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from kmip_data.arrays import F64, I64
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.references.choice import EVALUATED_PARTS, choose_on_val
from kmip_data.models.training.references.features import open_records
from kmip_data.models.training.references.reference import Reference

#: Shares of a node's scores that come from its neighbours, from which val chooses.
SHARES = (0.5, 0.8, 0.9, 0.99)
STEPS = 50


def propagation_answer(data: RunData, metric: str) -> Reference | None:
    """Return the metric of label propagation; ``None`` unless the task is classes of nodes of one graph."""
    task = data.task
    if data.part_members != "nodes" or task.target_type != "classification":
        return None
    graph = open_records(data, "train", data.inputs.attributes)[0]
    targets = task.targets(graph)
    labels = targets.where(graph.train_mask, -1).numpy()

    masks = {part: graph[f"{part}_mask"] for part in EVALUATED_PARTS if part in data.parts}

    def candidates() -> Iterator[tuple[str, dict[str, Tensor]]]:
        for share in SHARES:
            scores = torch.from_numpy(
                propagate(labels, graph.edge_index.numpy(), task.outputs, share)
            )
            outputs = {part: scores[mask] for part, mask in masks.items()}
            yield f"share of neighbours {share:g}", outputs

    known = {part: targets[mask] for part, mask in masks.items()}
    return choose_on_val(task, metric, known, candidates())


def propagate(labels: I64, edges: I64, classes: int, share: float, *, steps: int = STEPS) -> F64:
    """Spread ``labels`` (N,), -1 if unknown, along ``edges`` (2, E) in both directions.

    The scores F (N, C) begin as the one-hot labels Y, and each step replaces them by share · S F +
    (1 - share) · Y, where S is the adjacency matrix divided by the roots of both degrees (Zhou et
    al., "Learning with Local and Global Consistency", 2004). A node that no label reaches has the
    shares of the classes in train.
    """
    nodes = len(labels)
    known = labels >= 0
    one_hot = np.zeros((nodes, classes))
    one_hot[known, labels[known]] = 1

    rows, columns = np.hstack([edges, edges[::-1]])
    adjacency = csr_array((np.ones(len(rows)), (rows, columns)), shape=(nodes, nodes))
    adjacency.data[:] = 1  # edges in both directions are one
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(axis=1), 1))[:, None]

    scores = one_hot
    for _ in range(steps):
        scores = share * scale * (adjacency @ (scale * scores)) + (1 - share) * one_hot
    return np.where(scores.any(axis=1, keepdims=True), scores, one_hot.mean(axis=0))
