"""Parameters of your own graphs: those given, and those inferred from the files."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, InstanceOf, model_validator

from kmip_data.columns.attribute_levels import AttributeRules
from kmip_data.columns.column_roles import ColumnRoles
from kmip_data.columns.labels import InferredTarget, TaskName
from kmip_data.format.schema import Schema
from kmip_data.pipelines.own_pipeline import OwnTextParams
from kmip_data.strict_model import StrictModel

NODE_ID_DOC = "id of the node in the files"
OTHER_FORMATS_REMEDY = (
    "another format: read it with networkx, and write it with networkx.write_graphml"
)


class InferredGraphs(StrictModel):
    """Columns, classes and shard size inferred from all graphs of the raw files."""

    record_schema: Schema
    attributes: AttributeRules
    target: InferredTarget | None
    class_names: tuple[str, ...]
    counts: tuple[int, int, int]  #: numbers of graphs, nodes and edges
    are_molecules: bool  #: True if SMILES become graphs when shards are built
    summary: dict[str, Any]  #: summary of the files for the card
    description: ColumnRoles


class GraphParams(OwnTextParams):
    """Parameters that determine the records."""

    label: tuple[str, ...] = Field(
        default=(),
        description="target column; repeat for several (default: label, y or class); none: no target",
    )
    task: TaskName | None = Field(
        default=None, description="meaning of the labels (default: as their values suggest)"
    )
    feature: tuple[str, ...] = Field(
        default=(),
        description="feature column; repeat for several; none: no features (default: all others)",
    )
    header: Literal["yes", "no"] | None = Field(
        default=None,
        description="first line of a table: names or data (default: as it looks)",
    )
    categories: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="maximum number of different texts in a column of categories; each becomes a feature",
    )
    missing: tuple[str, ...] = Field(
        default=(),
        description="text that means a missing value, such as NA, or COLUMN:NA in one column; repeat; "
        "none: no such text",
    )
    rounded: tuple[str, ...] = Field(
        default=(), description="feature column whose integers float32 may round; repeat"
    )
    source: str = Field(
        default="", description="column of edge sources (default: source, from, src, u, …)"
    )
    target: str = Field(
        default="", description="column of edge targets (default: target, to, dst, v, …)"
    )
    graph: str = Field(
        default="", description="column of graph ids (default: graph, graph_id or mol_id)"
    )
    group: str = Field(
        default="",
        description="column whose equal values stay in one part of a random split, such as a patient "
        "or a site; it is no feature",
    )
    node: str = Field(
        default="",
        description="column of node ids (default: the column with the ids of all edges); "
        "none: row numbers from 0; rows-from-1: row numbers from 1",
    )
    smiles: str = Field(default="smiles", description="column of SMILES")
    undirected: bool = Field(default=False, description="add the missing reverse of each edge")

    def missing_words(self, column: str) -> tuple[set[str], bool]:
        """Return the words that the user calls missing in a column, and True if no others are.

        ``missing=NA`` holds for all columns, ``missing=land:NA`` for ``land`` alone; with ``none`` in
        place of ``NA``, no text is missing.
        """
        beginning = f"{column}:"
        words = {
            word.removeprefix(beginning) for word in self.missing if word.startswith(beginning)
        }
        are_all = bool(words) or "none" in self.missing
        if "none" not in words:
            words |= {*self.missing}
        return words - {"none"}, are_all

    @model_validator(mode="after")
    def _check_group_has_no_other_use(self) -> Self:
        for key in ("label", "feature", "ignore"):
            if self.group and self.group in getattr(self, key):
                raise ValueError(
                    f"{self.group!r} is the column of group, and cannot be one of {key}"
                )
        return self


class InferredGraphParams(GraphParams):
    """Parameters, with what was inferred from the files."""

    inferred: InstanceOf[InferredGraphs] = Field(exclude=True)
    #: part of each node of a single graph, (N,) or (N, folds)
    masks: InstanceOf[np.ndarray] | None = Field(default=None, exclude=True)
