"""Levels of attributes of PyTorch Geometric's ``Data``: one row per node, per edge or per graph.

An attribute has the same level in all graphs; if several levels fit, the likeliest one is used.
Attributes that index nodes along their last axis, such as ``face``, belong to the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from kmip_data.arrays import Bools
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.columns.part_masks import PART_ARRAYS
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.schema import ItemForm
from kmip_data.strict_model import StrictModel


def check_attribute_name(name: str) -> None:
    """Refuse an attribute with a slash, which separates the level of a column from its name."""
    if "/" in name:
        raise DamagedInput(f"{name!r} is not a valid column name.", steps="rename it")


#: Use of boolean masks: split of a single graph, boolean columns, or attributes as given.
MaskUse = Literal["split", "flags", "attributes"]


def concatenated_axis(name: str) -> int:
    """Return the axis along which a batch joins an attribute: ``Data.__cat_dim__``."""
    return -1 if "index" in name or name == "face" else 0


def _fitting_graphs(block: GraphBlock, name: str, first_shape: tuple[int, ...]) -> dict[str, Bools]:
    """Return for each level the graphs, (G,), in which it fits an attribute.

    The attribute has ``first_shape`` in the first of all graphs.
    """
    is_scalar = name in block.scalars
    rows = block.row_counts[name]
    has_row_shape = not is_scalar and block.columns[name].shape[1:] == first_shape[1:]
    has_edges = block.edge_index is not None
    if is_scalar:
        is_equal = np.full(len(block), not first_shape)
    else:
        is_equal = has_row_shape & (rows == first_shape[0]) if first_shape else rows < 0
    return {
        "node": has_row_shape & (rows == block.node_counts),
        "edge": has_row_shape & has_edges & (rows == block.edge_counts),
        "graph": is_equal,
    }


def likeliest_level(name: str, axes: int, fitting: set[str]) -> str:
    """Choose one of the fitting levels by the name of an attribute."""
    order = ("edge", "node", "graph") if "edge" in name else ("node", "edge", "graph")
    if name == "y":  # targets of edges are the rarest
        order = ("node", "graph", "edge")
    if axes > 1 and concatenated_axis(name) == -1:
        order = ("graph", "node", "edge")
    return next(level for level in order if level in fitting)


def row_form_and_shape(level: str, shape: tuple[int, ...]) -> tuple[ItemForm, tuple[int, ...]]:
    """Return form and row shape of a column, from its tensor's shape in the first graph."""
    if level != "graph" or shape[:1] == (1,):
        return "axis", shape[1:]
    return "row", shape


class AttributeRules(StrictModel):
    """Rules by which attributes become columns, known after the last graph."""

    levels: dict[str, str]  #: attribute -> ``node``, ``edge`` or ``graph``
    mask_use: MaskUse
    #: key of a graph column -> its form, unless it is a row with a leading axis of one
    forms: dict[str, ItemForm]


@dataclass
class AttributeLevels:
    """Levels that fit each attribute in all graphs added so far."""

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  #: shape in the first graph
    _fitting: dict[str, set[str]] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)  #: attribute without a level -> message

    def add(self, block: GraphBlock, forms: Mapping[str, ItemForm]) -> None:
        """Narrow down the levels of attributes, whose names have no level, by more graphs.

        Attributes in ``forms``, which were strings or Python numbers, belong to the graph.
        """
        for name in block.columns:
            if "/" in name:
                continue
            first_shape = self.shapes.setdefault(name, block.item_shape(name))
            possible = self._fitting.setdefault(name, {"node", "edge", "graph"})
            if f"graph/{name}" in forms:
                possible &= {"graph"}
                continue
            fitting = _fitting_graphs(block, name, first_shape)
            # Targets and parts with neither a row per node nor per edge belong to the graph.
            if name == "y" or name in PART_ARRAYS:
                fitting["graph"] |= ~np.logical_or.reduce(list(fitting.values()))
            still_fitting = np.zeros(len(block), bool)
            for level in possible:
                still_fitting |= np.logical_and.accumulate(fitting[level])
            possible &= {level for level, fits in fitting.items() if fits.all()}
            if not possible:
                number = int(still_fitting.argmin())
                shape = block.arrays(name)[number].shape
                shapes = f"{list(shape)}, in the first graph {list(first_shape)}"
                self._problems.setdefault(name, f"Graph {block.keys[number]}: {name} is {shapes}.")

    def levels_by_attribute(self) -> dict[str, str]:
        """Return the level of each attribute; raise ``DamagedInput`` if no level fits one."""
        levels = {}
        for name, possible in self._fitting.items():
            # Labels of the pairs in edge_label_index belong to the graph, like the pairs themselves.
            if f"{name}_index" in self._fitting and name not in self._problems:
                possible &= {"graph"}
                if not possible:
                    self._problems[name] = f"{name} has a different shape in each graph."
            if name not in self._problems:
                levels[name] = likeliest_level(name, len(self.shapes[name]), possible)
        if self._problems:
            message, *others = self._problems.values()
            raise DamagedInput(
                message,
                expected="one row for each node or each edge, or the same shape in every graph",
                found=" ".join(others) or None,
                steps=[
                    "pad before torch.save",
                    Setting(ignore=[*self._problems]),
                ],
            )
        return levels
