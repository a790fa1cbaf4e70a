"""Convert records of a build to arrays for drawing, and collect the labels of all graphs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import F32, F64, I64, U8, Array
from kmip_data.columns.position_columns import stored_positions
from kmip_data.drawing.layers import Categories, Layer, Scale, class_layer, rgb_layer
from kmip_data.drawing.molecules import draw_molecule
from kmip_data.drawing.neighborhoods import NeighborhoodDataset
from kmip_data.drawing.style import current_style, element_colors
from kmip_data.format.card import Card
from kmip_data.format.label_texts import label_text
from kmip_data.format.schema import FieldKind, Schema, node_id_texts
from kmip_data.graphs.molecule_fields import (
    Atom,
    atoms_from_features,
    bond_types_from_features,
)
from kmip_data.reading.numpy_records import Records
from kmip_data.text import count_with_noun

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from kmip_data.reading.dataset import ShardedDataset

Values = Mapping[str, Array]  #: attributes of an item as arrays
CALLS = "caller to called"  #: ends of the edges of a call graph
BY_RDKIT = "bonds as in the data, positions by RDKit"


@dataclass(frozen=True)
class PlottableRecord:
    """One graph as arrays."""

    key: str  #: upstream key, shown as the title
    pos: Array  #: (N, 2) or (N, 3), positions of the nodes
    y: I64 | None  #: (N,), class of each node, −1 if unknown; None if nodes have no classes
    edge_index: I64  #: (2, E), row 0 sources and row 1 targets
    picture: U8 | None = None  #: (H, W, 3), image below the nodes; ``pos`` is (column, −row)
    atoms: Sequence[Atom] = ()  #: (N,) atoms of a molecule with positions by RDKit
    position_source: str = ""  #: origin of computed positions; empty for stored ones
    label: str = ""  #: formatted label of the graph, or empty
    label_name: str = ""  #: name of the column of labels in the user's files
    label_doc: str = ""  #: description of the labels
    values: F32 | None = None  #: (N,), numeric target of each node
    unit: str = ""  #: unit of ``values``
    #: (E,) bond type of each edge of a molecule, 0 single, 1 double, 2 triple, 3 aromatic
    bonds: I64 | None = None
    label_value: Array | None = None  #: label of the graph as stored
    metres: bool = False  #: True if positions are in metres
    own_colors: Layer | None = None  #: colours that the nodes have as features, or their elements
    ids: Sequence[str] = ()  #: (N,) names of the nodes in the user's files, if there are any
    #: meaning of the letters in nodes, and (N,) these: the number in the name of the one flag that each
    #: node has, or triangles for the two signs of the only feature
    symbols: tuple[str, Array] | None = None
    #: name and values (E,) of a number of the edges, which are as wide, if there is one
    edge_widths: tuple[str, Array] | None = None
    ends_of_edges: str = "source to target"  #: names of the two ends of a directed edge
    #: (N,) numbers of the nodes in a graph that is too large to be drawn
    numbers: I64 | None = None
    #: (2, N) outgoing and incoming edges of the nodes in that graph
    stored_degrees: I64 | None = None

    def truth_layer(self, class_names: Sequence[str]) -> Layer | None:
        """Return the layer of the nodes' classes or targets, if they have any."""
        if self.y is not None:
            return class_layer("class", self.y, class_names, self.label_doc)
        if self.values is not None:
            return Scale("target", self.values, self.unit, self.label_doc)
        return None

    def degree_layers(self) -> list[Layer]:
        """Return the layer of the edges of nodes; directed graphs also have one of each direction."""
        incoming, outgoing = self.degrees()
        named = {
            "edges of a node": incoming + outgoing,
            "outgoing edges": outgoing,
            "incoming edges": incoming,
        }
        if self.bonds is not None:
            named = {"bonds of an atom": outgoing}
        elif not self.is_directed:
            named = {"edges of a node": outgoing}
        return [Scale(name, degrees.astype(np.float32)) for name, degrees in named.items()]

    def direction_layer(self) -> Categories:
        """Return whether each node is a source of edges, a target, or both."""
        incoming, outgoing = self.degrees()
        codes = (2 * (incoming > 0) + (outgoing > 0)).astype(np.uint8)
        labels = ["no edges", "source only", "target only", "source and target"]
        if self.ends_of_edges == CALLS:
            labels[1:] = "calls only", "is called only", "calls and is called"

        def colors() -> Sequence[str]:  # targets, which are often most nodes, are quiet
            style = current_style()
            return style.line_color, style.palette[1], style.secondary_color, style.palette[0]

        return Categories("direction of edges", codes, tuple(labels), colors)

    def routes(self) -> dict[int, F64]:
        """Return the places (P, 2) at which edges pass layers that they skip, by position of the edge."""
        from kmip_data.drawing.ordered_layouts import LAYERS, routes_between_layers

        if not self.position_source.startswith(LAYERS):
            return {}
        return routes_between_layers(self.edge_index, len(self.pos))

    @property
    def is_formula(self) -> bool:
        """True if a molecule's formula shows everything: atoms have no labels."""
        return self.bonds is not None and self.y is None and self.values is None

    @property
    def is_picture(self) -> bool:
        """True if nodes are regions of a picture, which their own colours show if it is missing."""
        has_colored_places = self.own_colors is not None and not self.position_source
        is_flat = self.pos.shape[1] == 2
        return self.picture is not None or (has_colored_places and is_flat)

    @property
    def is_directed(self) -> bool:
        """True if an edge has no reverse."""
        incoming, outgoing = self.degrees()
        return bool((incoming != outgoing).any() or self.has_no_reverse().any())

    def has_no_reverse(self) -> Array:
        """Return True for each edge without a reverse, bool ``(E,)``."""
        nodes = len(self.pos)
        sources, targets = self.edge_index
        return ~np.isin(sources * nodes + targets, targets * nodes + sources)

    def degrees(self) -> tuple[I64, I64]:
        """Return in-degree and out-degree of each node, int64 ``(N,)``."""
        if self.stored_degrees is not None:
            return self.stored_degrees[1], self.stored_degrees[0]
        sources, targets = self.edge_index
        nodes = len(self.pos)
        return np.bincount(targets, minlength=nodes), np.bincount(sources, minlength=nodes)

    @property
    def noun(self) -> str:
        """Name of a node."""
        return "node" if self.bonds is None else "atom"

    @property
    def edge_text(self) -> str:
        """Number of edges or bonds; an undirected one counts once, although it is stored twice."""
        sources, targets = self.edge_index
        return self.count_edges(len(sources), int((sources == targets).sum()))

    def count_edges(self, count: int, loops: int) -> str:
        """Return the number of edges of a graph like this one, of which ``count`` are stored."""
        if not self.is_directed:
            count = (count + loops) // 2
        return count_with_noun(count, "edge" if self.bonds is None else "bond")

    def first_edges(self) -> I64:
        """Return the position of the first edge of each pair of nodes, (P,), without loops."""
        low, high = np.sort(self.edge_index, axis=0)
        first: I64 = np.unique(low * len(self.pos) + high, return_index=True)[1]
        return np.asarray(first[(low != high)[first]])

    def values_of_pairs(self, values: Array, kind: FieldKind) -> Array:
        """Return the values of edges (E,) for each of :meth:`first_edges`, (P,).

        Pairs of a directed graph have the largest number of their edges.
        """
        first = self.first_edges()
        if kind != "number" or not self.is_directed:
            return values[first]
        low, high = np.sort(self.edge_index, axis=0)
        pairs, pair = np.unique(low * len(self.pos) + high, return_inverse=True)
        largest = np.full(len(pairs), np.nan)
        np.fmax.at(largest, pair, values)
        return largest[pair[first]]


def read_plottable_record(dataset: ShardedDataset | Records, position: int) -> PlottableRecord:
    """Read a record as arrays; missing positions are computed by RDKit or from the edges."""
    data: Data | dict[str, Array] = dataset[position]
    schema = dataset.schema
    values: dict[str, Array] = {}
    if isinstance(data, dict):
        values = data
        nodes = int(dataset.nodes[position])
    else:
        nodes = int(data.num_nodes)
        for name, value in data.to_dict().items():
            if hasattr(value, "numpy"):
                values[name] = value.numpy()
    edge_index = values.get("edge_index", np.zeros((2, 0), dtype=np.int64))

    y = None
    label = ""
    label_value = None
    target = None
    labels = schema.y_column
    label_doc = labels.doc if labels else ""
    if labels is not None and labels.level == "node":
        label_values = values[labels.attribute]
        if labels.num_classes and not labels.shape:
            # Missing labels are negative or NaN.
            y = np.where(label_values >= 0, label_values, -1).astype(np.int64)
        elif labels.shape in {(), (1,)}:
            target = label_values.reshape(-1).astype(np.float32)
    elif labels is not None and labels.level == "graph":
        label_value = values[labels.attribute][0]
        label = label_text(labels, label_value, dataset.class_names)

    pos, source = _node_positions(schema, values, edge_index, nodes)
    bonds = None
    atoms: Sequence[Atom] = ()
    fields = schema.feature_names
    if source == BY_RDKIT:
        atoms = atoms_from_features(fields, values["x"]) or ()
        bonds = bond_types_from_features(fields, values["edge_attr"])
    own_colors = None
    symbols = None
    if fields:
        symbols = numbers_of_flags(fields, values["x"])
        features = dict(zip(fields, values["x"].T, strict=True))
        own_colors = rgb_layer(features) or element_layer(fields, values["x"])
        distinct = np.unique(values["x"])
        if len(fields) == 1 and len(distinct) == 2 and distinct[0] < 0 < distinct[1]:
            name = fields[0].partition(" [")[0]
            low, high = (f"{name} {value:+g}".replace("-", "−") for value in distinct.tolist())
            symbols = f"▲ {high}, ▼ {low}", np.where(values["x"][:, 0] > 0, "▲", "▼")
    numbers = None
    stored_degrees = None
    if isinstance(dataset, NeighborhoodDataset):
        numbers = values["n_id"]
        stored_degrees = dataset.degrees[:, numbers]
    record = PlottableRecord(
        key=dataset.keys[position],
        pos=pos.astype(np.float64),
        y=y,
        edge_index=edge_index,
        atoms=atoms,
        position_source=source,
        label=label,
        label_name=label_doc if dataset.card.sources else "",
        label_doc=label_doc,
        values=target,
        unit="" if labels is None else labels.unit,
        bonds=bonds,
        label_value=label_value,
        metres=schema.is_in_metres,
        own_colors=own_colors,
        symbols=symbols,
        ids=node_id_texts(values["node_id"]) if "node_id" in values else (),
        ends_of_edges=_ends_of_edges(dataset.card),
        numbers=numbers,
        stored_degrees=stored_degrees,
    )
    if record.is_picture or bonds is not None:
        return record
    return replace(record, edge_widths=_first_number_of_edges(dataset, values))


def _ends_of_edges(card: Card) -> str:
    """Return what edges lead from and to.

    These are the end columns of your own table, caller and called, or source and target.
    """
    direction = str((card.statistics.get("files") or {}).get("direction"))
    columns = re.match(r"from (['\"])(.+)\1 to (['\"])([^,]+)\3", direction)
    if columns:
        return f"{columns[2]} to {columns[4]}"
    return CALLS if "call graph" in card.about else "source to target"


def _first_number_of_edges(
    dataset: ShardedDataset | Records, values: Values
) -> tuple[str, Array] | None:
    """Return the name and values (E,) of the first number in which edges differ."""
    for column in dataset.schema.columns:
        if column.level != "edge" or column.attribute not in values:
            continue
        stored = values[column.attribute]
        kinds = dict(enumerate(dataset.card.field_kinds(column.key)))
        rows = stored.reshape(len(stored), -1).T
        for number, name in enumerate(column.fields or [column.attribute]):
            if kinds.get(number, "number") == "number" and np.ptp(rows[number]) > 0:
                return name, rows[number]
    return None


def numbers_of_flags(fields: Sequence[str], x: Array) -> tuple[str, Array] | None:
    """Return the number in the name of the flag of each node, and what it means; "?" without one.

    None unless each row of ``x`` (N, F) has one flag, and names begin with numbers: ``5 or more mines``.
    """
    names = [re.match(r"(\d+)( or more)? (.+)", field) for field in fields]
    numbered = list(filter(None, names))
    if not numbered or ((x != 0).sum(axis=1) != 1).any():
        return None
    texts = [match[1] + "+" * bool(match[2]) if match else "?" for match in names]
    others = [f"?: {field}" for field, match in zip(fields, names, strict=True) if not match]
    return "; ".join([f"number of {numbered[-1][3]}", *others]), np.array(texts)[x.argmax(axis=1)]


def element_layer(fields: Sequence[str], x: Array) -> Layer | None:
    """Return the layer of the elements of atoms, if the features ``x`` (N, F) describe atoms."""
    atoms = atoms_from_features(fields, x)
    if atoms is None:
        return None
    kinds = sorted({(atom.number, abs(atom.charge), atom.symbol) for atom in atoms})
    numbers, _, symbols = zip(*kinds, strict=True)
    codes = np.array([symbols.index(atom.symbol) for atom in atoms])
    return Categories(
        "element",
        codes.astype(np.uint8),
        symbols,
        lambda: element_colors(numbers),
    )


def _node_positions(
    schema: Schema,
    values: Values,
    edge_index: I64,
    nodes: int,
) -> tuple[Array, str]:
    """Return positions and the origin of computed ones."""
    from kmip_data.drawing.ordered_layouts import arrange

    stored = stored_positions(schema, values, nodes)
    if stored is not None:
        return stored

    fields = schema.feature_names
    atoms = atoms_from_features(fields, values["x"]) if "x" in values else None
    if atoms is not None and "edge_attr" in values:
        bond_types = bond_types_from_features(fields, values["edge_attr"])
        drawn = draw_molecule(atoms, edge_index, bond_types)
        if drawn is not None:
            return drawn[1] * (1, -1), BY_RDKIT
    return arrange(edge_index, nodes)


@dataclass(frozen=True)
class Labels:
    """Classes of all graphs of a build, to compare a record's label with."""

    names: tuple[str, ...]  #: names of the classes
    counts: I64  #: (C,) number of graphs of each class
    graphs: int  #: number of all graphs, of which one may have several classes
