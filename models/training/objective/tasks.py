"""Task of a network: level, kind and number of its predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from kmip_data.format.schema import Column, Schema
from kmip_data.models.training.objective.links import link_targets

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
