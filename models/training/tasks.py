"""Tasks of networks: level and type of the targets; torch is imported on use.

Scores and targets of links are padded to (G, W, W), where W is the number of nodes of the largest
graph in a batch. Entry [g, i, j] belongs to nodes i and j of graph g. A target is :data:`LINK`,
:data:`NO_LINK` (including i = j), or :data:`NO_PAIR` if the graph has no such nodes.

Source: ``graphgps/head/inductive_edge.py`` and ``graphgps/loader/dataset/pcqm4mv2_contact.py`` of
LRGB and its re-evaluation (Tönshoff et al., "Where Did the Gap Go?", 2023).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kmip_data.errors import DamagedInput
from kmip_data.format.schema import LINK_ATTRIBUTE
from kmip_data.format.targets import TargetType

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

LINK = 1
NO_LINK = 0
NO_PAIR = -1
NO_CLASS = -1  #: target of a row without a class

Level = Literal["node", "graph", "link"]


def link_targets(batch: Data) -> Tensor:
    """Unpack the link bits of a batch's nodes to targets, int8 (G, W, W).

    If the batch stores no link bits, no pair is a link.
    """
    import torch

    from kmip_data.models.layers.batch import pad_by_graph, pointers_on_device, read_graphs

    bits = getattr(batch, LINK_ATTRIBUTE, None)
    ptr, graph_index = read_graphs(batch, batch.x if bits is None else bits)
    width = max(ptr.diff().tolist())
    if bits is None:
        bits = torch.zeros(
            len(graph_index), -(-width // 8), dtype=torch.uint8, device=graph_index.device
        )
    if width > 8 * bits.shape[1]:
        raise DamagedInput(
            f"A graph has {width:,} nodes, but its rows of links have {8 * bits.shape[1]:,} bits."
        )

    column = torch.arange(width, device=bits.device)
    shift = (column % 8).to(torch.uint8)
    linked = (bits[:, column // 8] >> shift) & 1

    nodes = pointers_on_device(graph_index, len(ptr) - 1).diff()
    exists = column < nodes[graph_index, None]
    return pad_by_graph(
        torch.where(exists, linked.to(torch.int8), NO_PAIR), graph_index, ptr, NO_PAIR
    )


@dataclass(frozen=True)
class Task:
    """Level, type and number of the outputs of a network.

    ``classification`` has int64 targets (rows,) among ``outputs`` classes, -1 if unknown.
    ``multilabel`` and ``regression`` have float targets (rows, outputs), NaN if unknown: labels 0 or
    1, and numbers. ``links`` has a score for each pair of nodes, as described above.
    """

    level: Level  #: what a prediction is made for
    target_type: TargetType
    outputs: int  #: columns of the network's output
    #: True if targets are decimal logarithms; metrics compare the original numbers
    log10: bool = False
    #: type of the stored targets, if it differs from ``target_type``
    stored_type: TargetType | None = None
    metric: str | None = None  #: metric in the dataset's manifest; ``None``: the default

    def targets(self, batch: Data) -> Tensor:
        """Return the targets of a batch in the form of the network's output; unknown without ``y``."""
        if self.target_type == "links":
            return link_targets(batch)
        y: Tensor | None = getattr(batch, "y", None)
        if y is None:
            return self._unknown_targets(batch)
        if self.stored_type is None:
            return y
        return _as_target_type(y, self)

    def _unknown_targets(self, batch: Data) -> Tensor:
        import torch

        device = batch.x.device
        rows = batch.num_nodes if self.level == "node" else batch.num_graphs
        if self.target_type == "classification":
            return torch.full((rows,), NO_CLASS, device=device)
        return torch.full((rows, self.outputs), torch.nan, device=device)


def is_known(target: Tensor) -> Tensor:
    """Return a mask of the known targets, of the same shape, (N,) or (N, T)."""
    return ~target.isnan() if target.is_floating_point() else target != NO_CLASS


def _as_target_type(y: Tensor, task: Task) -> Tensor:
    """Convert stored targets to ``task.target_type``, one allowed by :func:`target_types_of_values`."""
    import torch

    if task.target_type == "classification":
        one_hot = y.dim() > 1 and y.shape[1] > 1
        return y.argmax(dim=1) if one_hot else y.reshape(-1).long()
    if task.target_type == "multilabel" and task.stored_type == "classification":
        first = 1 if task.outputs == 1 else 0  # for two classes, the label is class 1
        classes = torch.arange(first, first + task.outputs, device=y.device)
        labels = (y[:, None] == classes).float()
        return labels.masked_fill((y == NO_CLASS)[:, None], torch.nan)
    values = y.reshape(-1, task.outputs).float()
    if task.stored_type == "classification":
        values = values.masked_fill(values == NO_CLASS, torch.nan)
    return values


def target_types_of_classes(num_classes: int) -> dict[TargetType, int]:
    """Return the possible target types of stored classes, each with its number of outputs."""
    labels = 1 if num_classes == 2 else num_classes
    return {"classification": num_classes, "multilabel": labels, "regression": 1}


def target_types_of_values(pieces: Iterable[Tensor]) -> dict[TargetType, int]:
    """Return the possible target types of stored numbers, each with its number of outputs.

    ``pieces`` are (n,) or (n, C). All values allow regression. Values 0, 1 and NaN allow labels.
    Classes need one-hot rows, or a single column of integers from 0 below the number of rows.
    """
    rows = columns = 0
    largest = 0.0
    is_binary = is_one_hot = is_integer = True
    for piece in pieces:
        values = piece.reshape(len(piece), -1)
        rows += len(values)
        columns = values.shape[1]
        binary = (values == 0) | (values == 1)
        is_binary &= bool((binary | values.isnan()).all())
        is_one_hot &= bool((binary.all(dim=1) & (values.sum(dim=1) == 1)).all())
        is_integer &= bool(((values >= 0) & (values == values.floor())).all())
        if is_integer and values.numel():
            largest = max(largest, float(values.max()))

    output_counts: dict[TargetType, int] = {"regression": columns}
    if is_binary:
        output_counts["multilabel"] = columns
    if columns > 1 and is_one_hot:
        output_counts["classification"] = columns
    if columns == 1 and is_integer and largest < rows:
        output_counts["classification"] = int(largest) + 1
    return output_counts
