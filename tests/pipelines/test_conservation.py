"""Random graphs, written by the library that owns a format: the build is what that library reads back.

A graph has ids of several kinds, numbers, texts, missing values, booleans, nested lists, loops,
repeated edges and isolated nodes. Where the build asks, its printed answer is given; what is still
refused is counted by reason. Nothing may disappear: an attribute is a feature, the target, or on the
list of ignored ones.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from support.cases import steps_of
from support.own_graphs import FolderContent, parse_remedy, read_files
from torch_geometric.data import Data

from kmip_data.errors import KmipDataError

TOWNS = ("Ulm", "Bonn", "Köln", "a b", "x;y")
MOST_ANSWERS = 4  #: questions that a build asks one after another
Row = dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """A graph as a user has it: rows of attributes by node, and by edge."""

    directed: bool
    nodes: dict[Any, Row]
    edges: list[tuple[Any, Any, Row]]

    def networkx(self) -> Any:
        """The graph for networkx; repeated edges make it a multigraph."""
        pairs = [(a, b) if self.directed else frozenset((a, b)) for a, b, _ in self.edges]
        repeated = len(set(pairs)) < len(pairs)
        kinds = {
            (True, True): nx.MultiDiGraph,
            (True, False): nx.DiGraph,
            (False, True): nx.MultiGraph,
            (False, False): nx.Graph,
        }
        graph = kinds[self.directed, repeated]()
        for node, row in self.nodes.items():
            graph.add_node(node, **row)
        for source, target, row in self.edges:
            graph.add_edge(source, target, **row)
        return graph


# --- random graphs -------------------------------------------------------------------------------

#: Values of an attribute by what it is.
VALUES = {
    "whole": st.integers(-(2**20), 2**20),
    # A smallest number such as -999999 is asked about, as it may mean a missing value.
    "real": st.floats(-1e6, 1e6, width=32).filter(
        lambda value: (
            (value == 0 or abs(value) > 1e-6) and not re.fullmatch("-99+", f"{value:.15g}")
        )
    ),
    "flag": st.booleans(),
    "town": st.sampled_from(TOWNS),
    "lists": st.lists(st.integers(-9, 9), min_size=2, max_size=2),
}
IDS: dict[str, Callable[[int], Any]] = {
    "counted": lambda number: number,
    "scattered": lambda number: 7 * number + 1_000,
    "letters": lambda number: f"n{number}",
    "zeros": lambda number: f"{number:03d}",
    "text": lambda number: f"Straße {number}",
}


@st.composite
def rows(draw: Any, count: int, kinds: Sequence[str], prefix: str) -> list[Row]:
    """Draw rows of attributes; some attributes lack values."""
    made: list[Row] = [{} for _ in range(count)]
    for kind in draw(st.lists(st.sampled_from(kinds), unique=True, max_size=3)):
        gaps = draw(st.booleans())
        for row in made:
            if not gaps or draw(st.integers(0, 3)):
                row[f"{prefix}{kind}"] = draw(VALUES[kind])
    return made


@st.composite
def graphs(draw: Any, kinds: Sequence[str], ids: Sequence[str]) -> Graph:
    """Draw a graph of one to 12 nodes; about a third have classes."""
    count = draw(st.integers(1, 12))
    name = IDS[draw(st.sampled_from(ids))]
    node_rows = draw(rows(count, kinds, ""))
    if count >= 4 and not draw(st.integers(0, 2)):
        for row in node_rows:
            row["label"] = draw(st.sampled_from(["left", "right"]))
        node_rows[0]["label"], node_rows[1]["label"] = "left", "right"
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    pairs = draw(st.lists(ends, min_size=1, max_size=20))
    edge_rows = draw(rows(len(pairs), kinds, "e_"))
    edges = [(name(a), name(b), row) for (a, b), row in zip(pairs, edge_rows, strict=True)]
    nodes = {name(number): row for number, row in enumerate(node_rows)}
    return Graph(draw(st.booleans()), nodes, edges)


# --- formats -------------------------------------------------------------------------------------


def _back(graph: Any) -> Graph:
    """Return a graph of networkx as rows, with its defaults."""
    of_nodes = graph.graph.get("node_default", {})
    of_edges = graph.graph.get("edge_default", {})
    nodes = {str(node): {**of_nodes, **row} for node, row in graph.nodes(data=True)}
    edges = [(str(a), str(b), {**of_edges, **row}) for a, b, row in graph.edges(data=True)]
    return Graph(graph.is_directed(), nodes, edges)


def graphml(graph: Graph, folder: Path) -> Graph:
    nx.write_graphml(graph.networkx(), folder / "a.graphml")
    return _back(nx.read_graphml(folder / "a.graphml"))


def gexf(graph: Graph, folder: Path) -> Graph:
    nx.write_gexf(graph.networkx(), folder / "a.gexf")
    back = nx.read_gexf(folder / "a.gexf")
    for _, row in back.nodes(data=True):
        row.pop("label_", None)
    return _back(back)


def gml(graph: Graph, folder: Path) -> Graph:
    written = graph.networkx()
    for row in [row for _, row in written.nodes(data=True)]:
        if "label" in row:  # the format's own word for the name
            row["group"] = row.pop("label")
    nx.write_gml(written, folder / "a.gml", stringizer=str)
    back = _back(nx.read_gml(folder / "a.gml", label="id"))
    if len(back.nodes) == 1:  # its name may be its class
        for row in back.nodes.values():
            del row["label"]
    return back


def node_link(graph: Graph, folder: Path) -> Graph:
    value = nx.node_link_data(graph.networkx(), edges="links")
    (folder / "a.json").write_text(json.dumps(value), "utf-8")
    return _back(nx.node_link_graph(json.loads((folder / "a.json").read_text()), edges="links"))


def edge_list(graph: Graph, folder: Path) -> Graph:
    """``write_edgelist``: isolated nodes and attributes of nodes are not in the file."""
    written = nx.DiGraph() if graph.directed else nx.Graph()
    written.add_edges_from((a, b, row) for a, b, row in graph.networkx().edges(data=True))
    nx.write_edgelist(written, folder / "a.edgelist")
    back = nx.read_edgelist(folder / "a.edgelist", create_using=nx.DiGraph)
    nodes: dict[Any, Row] = {node: {} for node in sorted(back, key=_as_id)}
    # Nothing in the file tells whether an edge goes both ways.
    return Graph(True, nodes, list(back.edges(data=True)))


def _as_id(name: str) -> Any:
    return int(name) if name.isdigit() and str(int(name)) == name else name


def tables(graph: Graph, folder: Path) -> Graph:
    """``edges.csv`` and ``nodes.csv`` of pandas."""
    ends = [{"source": a, "target": b, **row} for a, b, row in graph.edges]
    nodes = [{"id": node, **row} for node, row in graph.nodes.items()]
    for name, written in {"edges.csv": ends, "nodes.csv": nodes}.items():
        pd.DataFrame(written).to_csv(folder / name, index=False)
    texts = {"id": str, "source": str, "target": str}
    options: Any = {"dtype": texts, "keep_default_na": False, "na_values": [""]}
    nodes_back = pd.read_csv(folder / "nodes.csv", **options).to_dict("records")
    edges_back = pd.read_csv(folder / "edges.csv", **options).to_dict("records")
    return Graph(
        True,
        {row.pop("id"): _present(row) for row in nodes_back},
        [(row.pop("source"), row.pop("target"), _present(row)) for row in edges_back],
    )


def _present(row: Row) -> Row:
    return {str(name): value for name, value in row.items() if not pd.isna(value)}


def sparse_matrix(
    write: Callable[[Path, Any], None], read: Callable[[Path], Any], name: str
) -> Any:
    """Return a format of adjacency matrices: each stored entry but 0 is an edge with its value."""

    def matrix(graph: Graph, folder: Path) -> Graph:
        position = {node: number for number, node in enumerate(graph.nodes)}
        ends = {(position[a], position[b]) for a, b, _ in both_ways(graph)}
        sources, targets = zip(*sorted(ends), strict=True)
        values = np.arange(1, len(ends) + 1) / 2
        shape = (len(position), len(position))
        write(folder / name, scipy.sparse.coo_array((values, (sources, targets)), shape))
        back = scipy.sparse.coo_array(read(folder / name))
        entries = zip(*back.coords, back.data, strict=True)
        edges = [(int(a), int(b), {"0": float(value)}) for a, b, value in entries]
        return Graph(True, {number: {} for number in range(back.shape[0])}, edges)

    return matrix


def tensors(graph: Graph, folder: Path) -> Graph:
    """``torch.save`` of a ``Data`` with features, classes and weights."""
    position = {node: number for number, node in enumerate(graph.nodes)}
    ends = [(position[a], position[b]) for a, b, _ in graph.edges]
    data = Data(
        x=torch.tensor([[float(number) / 3, -1.0] for number in range(len(position))]),
        edge_index=torch.tensor(ends).T.contiguous(),
        edge_attr=torch.arange(len(ends))[:, None] / 7,
    )
    torch.save(data, folder / "a.pt")
    back = torch.load(folder / "a.pt", weights_only=False)
    nodes = {number: _numbered(row) for number, row in enumerate(back.x.tolist())}
    rows = zip(*back.edge_index.tolist(), back.edge_attr.tolist(), strict=True)
    return Graph(True, nodes, [(a, b, _numbered(row)) for a, b, row in rows])


def _numbered(row: Sequence[float]) -> Row:
    return {str(number): value for number, value in enumerate(row)}


NETWORK = ("whole", "real", "flag", "town")
WITHOUT_BLANKS = ("counted", "scattered", "letters", "zeros")
#: How a format is written and read back, the attributes and the ids that it can hold.
FORMATS: dict[str, tuple[Callable[[Graph, Path], Graph], Sequence[str], Sequence[str]]] = {
    "GraphML": (graphml, NETWORK, tuple(IDS)),
    "GEXF": (gexf, NETWORK, tuple(IDS)),
    "GML": (gml, ("whole", "real", "town"), tuple(IDS)),
    "node-link JSON": (node_link, (*NETWORK, "lists"), tuple(IDS)),
    "edge list": (edge_list, ("whole", "real"), WITHOUT_BLANKS),
    "CSV": (tables, NETWORK, tuple(IDS)),
    "Matrix Market": (
        sparse_matrix(scipy.io.mmwrite, scipy.io.mmread, "a.mtx"),
        ["real"],
        ["counted"],
    ),
    "npz": (
        sparse_matrix(scipy.sparse.save_npz, scipy.sparse.load_npz, "a.npz"),
        ["real"],
        ["counted"],
    ),
    "pt": (tensors, ["real"], ["counted"]),
}


# --- the build -----------------------------------------------------------------------------------

REFUSED: Counter[tuple[str, str]] = Counter()  #: by format and reason
ANSWERED: Counter[tuple[str, str]] = Counter()  #: questions that were answered, by format
TRIED: Counter[str] = Counter()  #: graphs by format


def build(form: str, folder: Path) -> FolderContent | None:
    """Build a folder; answer what is asked as it is printed. ``None`` where it is refused."""
    parameters: dict[str, Any] = {}
    for _ in range(MOST_ANSWERS):
        try:
            return read_files(folder, **parameters)
        except KmipDataError as error:
            try:
                parameters |= parse_remedy(error)
            except AssertionError:
                REFUSED[form, error.message[:100]] += 1
                return None
            ANSWERED[form, steps_of(error)[:60]] += 1
    REFUSED[form, "it asks again and again"] += 1
    return None


def expected_columns(values: Sequence[Any]) -> dict[str, list[float]] | None:
    """Return the feature columns of one attribute by suffix; ``None`` if it has lists of other lengths."""
    present = [value for value in values if value is not None]
    if all(isinstance(value, str) for value in present):
        return {
            f"={text}": [float(value == text) for value in values] for text in sorted({*present})
        }
    if any(isinstance(value, list) for value in present):
        if len(present) < len(values):
            return None
        return {f"_{axis}": [value[axis] for value in values] for axis in range(2)}
    columns = {"": [float(value or 0) for value in values]}
    if len(present) < len(values):
        columns[" missing"] = [float(value is None) for value in values]
    return columns


def check_rows(
    table: Sequence[Row], stored: Mapping[str, Sequence[float]], ignored: Sequence[str]
) -> None:
    """Each attribute is a feature with the value of each row, or is ignored with a reason."""
    expected: dict[str, Sequence[float]] = {}
    for name in dict.fromkeys(name for row in table for name in row):
        columns = expected_columns([row.get(name) for row in table])
        if any(line.startswith(f"{name}: ") for line in ignored):
            continue
        assert columns is not None, f"{name} is neither a feature nor ignored"
        expected |= {f"{name}{suffix}": values for suffix, values in columns.items()}
    assert stored.keys() == expected.keys(), (stored.keys(), expected.keys())
    for name, values in expected.items():
        np.testing.assert_array_equal(
            np.asarray(stored[name], np.float32), np.asarray(values, np.float32), name
        )


def features(got: FolderContent, key: str, attribute: str) -> dict[str, list[float]]:
    """Return stored features by name, by number where they have none."""
    if attribute not in {column.attribute for column in got.schema.columns}:
        return {}
    stored = got.first.columns[key]
    stored = stored.reshape(len(stored), -1)
    names = got.schema.column(key).fields or map(str, range(stored.shape[1]))
    return dict(zip(names, stored.T.tolist(), strict=True))


def both_ways(graph: Graph) -> list[tuple[Any, Any, Row]]:
    """Return the edges of a graph; an undirected one has each twice, but a loop once."""
    if graph.directed:
        return graph.edges
    edges = []
    for source, target, row in graph.edges:
        edges.append((source, target, row))
        if source != target:
            edges.append((target, source, row))
    return edges


def compare(got: FolderContent, back: Graph) -> None:
    """Nodes in their order, edges as a multiset with their attributes, classes in alphabetical order."""
    record = got.first
    ignored = [str(line) for line in got.files["ignored"]]
    names = list(back.nodes)
    assert record.num_nodes == len(names)

    # 1. Nodes and their classes.
    table = [dict(row) for row in back.nodes.values()]
    labels = [row.pop("label", None) for row in table]
    if any(labels) and not any(line.startswith("label: ") for line in ignored):
        classes = sorted({label for label in labels if label is not None})
        codes = [-1 if label is None else classes.index(label) for label in labels]
        assert record.columns["node/y"].tolist() == codes
    check_rows(table, features(got, "node/x", "x"), ignored)

    # 2. Edges: sorted by their ends and attributes, which a multigraph may have in any order.
    edges = both_ways(back)
    position = {name: number for number, name in enumerate(names)}
    stored = features(got, "edge/edge_attr", "edge_attr")
    ends = record.edge_index.T.tolist()
    assert Counter(map(tuple, ends)) == Counter((position[a], position[b]) for a, b, _ in edges)
    by_ends: dict[tuple[int, int], list[Row]] = {}
    for source, target, row in edges:
        by_ends.setdefault((position[source], position[target]), []).append(row)
    in_order = [by_ends[tuple(pair)].pop(0) for pair in ends]
    check_rows(in_order, stored, ignored)


def take_graphs(form: str, count: int, first_seed: int = 0) -> None:
    """Build ``count`` random graphs of a format."""
    write, kinds, ids = FORMATS[form]

    @seed(first_seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs(kinds, ids))
    def conserve(graph: Graph) -> None:
        with tempfile.TemporaryDirectory() as name:
            back = write(graph, Path(name))
            TRIED[form] += 1
            got = build(form, Path(name))
            if got is not None:
                compare(got, back)

    conserve()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_builds_equal_the_reference_reader(form: str) -> None:
    take_graphs(form, 12)
    check_refusals(form)


@pytest.mark.torture
@pytest.mark.parametrize("form", FORMATS)
def test_200_graphs_of_each_format_are_conserved(
    form: str, torture_count: Callable[..., None]
) -> None:
    take_graphs(form, 200, first_seed=1)
    torture_count(f"graphs of {form}", TRIED[form])
    for (name, reason), count in REFUSED.items():
        if name == form:
            torture_count(f"refused, {form}: {reason}", count)
    check_refusals(form)


def check_refusals(form: str) -> None:
    """At most 5 % of the graphs are refused."""
    refused = {reason: count for (name, reason), count in REFUSED.items() if name == form}
    assert sum(refused.values()) <= TRIED[form] / 20, refused
