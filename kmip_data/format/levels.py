"""Levels of the attributes of PyTorch Geometric's ``Data``: rows of nodes, edges or the graph.

An attribute has the same level in all graphs, and one that fits several has the likeliest. What
numbers nodes along its last axis, such as ``face`` and ``edge_label_index``, belongs to the graph.
"""

from __future__ import annotations

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
    if axes > 1 and concatenated_axis(name) == -1:
        order = ("graph", "node", "edge")
    return next(level for level in order if level in fitting)


def form_of(level: str, shape: tuple[int, ...]) -> tuple[ItemForm, tuple[int, ...]]:
    """Return form and shape of the rows of a tensor of this shape in the first graph."""
    if level != "graph" or shape[:1] == (1,):
        return "axis", shape[1:]
    return "row", shape
