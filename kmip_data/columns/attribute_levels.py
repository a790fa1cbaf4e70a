"""Levels of attributes of PyTorch Geometric's ``Data``: one row per node, per edge or per graph.

An attribute has the same level in all graphs; if several levels fit, the likeliest one is used.
Attributes that index nodes along their last axis, such as ``face``, belong to the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kmip_data.arrays import Array
from kmip_data.columns.part_masks import PART_ARRAYS
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import ItemForm


def concatenated_axis(name: str) -> int:
    """Return the axis along which a batch joins an attribute: ``Data.__cat_dim__``."""
    return -1 if "index" in name or name == "face" else 0


def fitting_levels(
    shape: tuple[int, ...],
    first_shape: tuple[int, ...],
    nodes: int,
    edges: int | None,
) -> set[str]:
    """Return the levels that fit an array, given its shape here and in the first graph."""
    fitting = set()
    if shape == (nodes, *first_shape[1:]):
        fitting.add("node")
    if shape == (edges, *first_shape[1:]):
        fitting.add("edge")
    if shape == first_shape:
        fitting.add("graph")
    return fitting


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


@dataclass
class AttributeLevels:
    """Levels that fit each attribute in all graphs added so far."""

    graphs: int = 0
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  #: shape in the first graph
    _fitting: dict[str, set[str]] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)  #: attribute without a level -> message

    def add(
        self,
        arrays: Mapping[str, Array],
        nodes: int,
        edges: int | None,
        where: str,
        forms: Mapping[str, ItemForm],
    ) -> None:
        """Narrow down the levels by one graph's arrays, of any shape; messages call it ``where``.

        Attributes in ``forms``, which were strings or Python numbers, belong to the graph.
        """
        self.graphs += 1
        for name, array in arrays.items():
            first_shape = self.shapes.setdefault(name, array.shape)
            possible = self._fitting.setdefault(name, {"node", "edge", "graph"})
            if f"graph/{name}" in forms:
                possible &= {"graph"}
            else:
                fitting = fitting_levels(array.shape, first_shape, nodes, edges)
                # Targets and parts with neither a row per node nor per edge belong to the graph.
                if not fitting and (name == "y" or name in PART_ARRAYS):
                    fitting = {"graph"}
                possible &= fitting
            if not possible:
                shapes = f"{list(array.shape)}, in the first graph {list(first_shape)}"
                self._problems.setdefault(name, f"{where}: {name} is {shapes}.")

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
                next=" ".join(f"--set ignore={name}" for name in self._problems)
                + "; or pad before torch.save",
            )
        return levels
