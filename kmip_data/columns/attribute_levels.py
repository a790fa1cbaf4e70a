"""Levels of the attributes of PyTorch Geometric's ``Data``: rows of nodes, edges or the graph.

An attribute has the same level in all graphs, and one that fits several has the likeliest. What
numbers nodes along its last axis, such as ``face`` and ``edge_label_index``, belongs to the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kmip_data.arrays import Array
from kmip_data.columns.part_masks import MASKS
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import ItemForm


def concatenated_axis(name: str) -> int:
    """Return the axis along which a batch joins an attribute: ``Data.__cat_dim__``."""
    return -1 if "index" in name or name == "face" else 0


def fitting_levels(
    shape: tuple[int, ...],
    first: tuple[int, ...],
    nodes: int,
    edges: int | None,
) -> set[str]:
    """Return the levels that an array of a graph fits; ``first`` is its shape in the first graph."""
    fitting = set()
    if shape == (nodes, *first[1:]):
        fitting.add("node")
    if shape == (edges, *first[1:]):
        fitting.add("edge")
    if shape == first:
        fitting.add("graph")
    return fitting


def likeliest_level(name: str, axes: int, fitting: set[str]) -> str:
    """Return one of the levels that fit an attribute, by its name."""
    order = ("edge", "node", "graph") if "edge" in name else ("node", "edge", "graph")
    if name == "y":  # a level of edges is the last choice for targets
        order = ("node", "graph", "edge")
    if axes > 1 and concatenated_axis(name) == -1:
        order = ("graph", "node", "edge")
    return next(level for level in order if level in fitting)


def row_form_and_shape(level: str, shape: tuple[int, ...]) -> tuple[ItemForm, tuple[int, ...]]:
    """Return form and shape of the rows of a tensor of this shape in the first graph."""
    if level != "graph" or shape[:1] == (1,):
        return "axis", shape[1:]
    return "row", shape


@dataclass
class AttributeLevels:
    """Levels of attributes, by the rows that they have in all graphs so far."""

    graphs: int = 0
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  #: shape in the first graph
    _fitting: dict[str, set[str]] = field(default_factory=dict)
    _ragged: dict[str, str] = field(default_factory=dict)  #: attribute of no level -> problem

    def add(
        self,
        arrays: Mapping[str, Array],
        nodes: int,
        edges: int | None,
        where: str,
        forms: Mapping[str, ItemForm],
    ) -> None:
        """Look at the arrays of any shape of a graph, which ``where`` names.

        Attributes with one of the ``forms``, texts and Python numbers, are of the graph.
        """
        self.graphs += 1
        for name, array in arrays.items():
            first = self.shapes.setdefault(name, array.shape)
            possible = self._fitting.setdefault(name, {"node", "edge", "graph"})
            if f"graph/{name}" in forms:
                possible &= {"graph"}
            elif name == "y" or name in MASKS:
                # Rows decide between nodes and edges; any other shape belongs to the graph.
                fits = fitting_levels(array.shape, first, nodes, edges)
                possible &= fits or {"graph"}
            else:
                possible &= fitting_levels(array.shape, first, nodes, edges)
            if not possible:
                shapes = f"{list(array.shape)}, in the first graph {list(first)}"
                self._ragged.setdefault(name, f"{where}: {name} is {shapes}.")

    def levels_by_attribute(self) -> dict[str, str]:
        """Return the level of each attribute; raise ``DamagedInput`` for attributes without a level."""
        levels = {}
        for name, possible in self._fitting.items():
            # The labels of the pairs in edge_label_index are of the graph, as the pairs are.
            if f"{name}_index" in self._fitting and name not in self._ragged:
                possible &= {"graph"}
                if not possible:
                    self._ragged[name] = f"{name} has another shape in each graph."
            if name not in self._ragged:
                levels[name] = likeliest_level(name, len(self.shapes[name]), possible)
        if self._ragged:
            message, *others = self._ragged.values()
            raise DamagedInput(
                message,
                expected="one row for each node or each edge, or the same shape in every graph",
                found=" ".join(others) or None,
                next=" ".join(f"--set ignore={name}" for name in self._ragged)
                + "; or pad before torch.save",
            )
        return levels
