"""Each kind of difference is reported, and no other; random graphs agree with slow, obvious loops."""

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from kmip_data import open as open_build
from kmip_data.pipelines.build import build_dataset
from kmip_data.saving.compared_blocks import EDGES, ComparedColumn
from kmip_data.saving.comparison import compare

LEVELS = {"x": "node", "edge_attr": "edge", "y": "graph"}


class ListSide:
    """Graphs in a list."""

    def __init__(self, graphs):
        self.graphs = graphs
        counts = [(1, graph.num_nodes, graph.num_edges) for graph in graphs]
        self.row_count = np.array(counts, np.int64).reshape(-1, 3).T
        self.columns = {}
        for name, level in LEVELS.items():
            if name in graphs[0]:
                array = graphs[0][name].numpy()
                shape = str(list(array.shape[1:]))
                self.columns[name] = ComparedColumn(
                    level, shape, array.dtype, int(np.prod(array.shape[1:])), is_text=False
                )
        if EDGES in graphs[0]:
            self.columns[EDGES] = ComparedColumn("edge", "", np.dtype(int), 2, is_text=False)

    def read(self, records):
        graphs = [self.graphs[record] for record in records]
        first = np.cumsum([0, *(graph.num_nodes for graph in graphs)]).tolist()
        rows = {
            name: torch.cat([graph[name] for graph in graphs]).numpy()
            for name in self.columns
            if name != EDGES
        }
        if EDGES in self.columns:
            numbered = [graph.edge_index + n for graph, n in zip(graphs, first, strict=False)]
            rows[EDGES] = torch.cat(numbered, 1).numpy()
        return rows


def differences(a, b):
    """Kind, column and numbers of each difference of two lists of graphs."""
    found = compare(ListSide(a), ListSide(b), np.empty(0, np.int64))
    return [(each.kind, each.column, dict(each.numbers)) for each in found]


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    """Molecules of a small file in the layout of ZINC."""
    home = tmp_path_factory.mktemp("home")
    build = build_dataset("zinc", sample=True, parameters={"limit": 40}, home=home, quiet=True)
    graphs = [data for data in open_build(build.path) if data.num_edges > 4]
    for graph in graphs:
        graph.y = graph.y.reshape(1)
    return graphs


def _set_edges(graph, edges, rows):
    graph.edge_index = edges
    graph.edge_attr = rows


def _without(graph, edge):
    kept = torch.arange(graph.num_edges) != edge
    _set_edges(graph, graph.edge_index[:, kept], graph.edge_attr[kept])


def _with(graph, source, target):
    edges = torch.cat([graph.edge_index, torch.tensor([[source], [target]])], 1)
    _set_edges(graph, edges, torch.cat([graph.edge_attr, graph.edge_attr[:1]]))


def _all(change):
    def changed(graphs):
        for graph in graphs:
            change(graph)

    return changed


def _one_direction(graph):
    kept = graph.edge_index[0] < graph.edge_index[1]
    _set_edges(graph, graph.edge_index[:, kept], graph.edge_attr[kept])


def _shuffle_edges(graph):
    order = torch.arange(graph.num_edges).flip(0)
    _set_edges(graph, graph.edge_index[:, order], graph.edge_attr[order])


#: Change of the fourth graph, or of all, and the only differences besides the counts.
CHANGES = {
    "values": (
        lambda graphs: graphs[3].x.__setitem__((1, 0), graphs[3].x[1, 0] + 3),
        [("values", "x", {"rows": 1, "graphs": 1, "largest difference": 3.0})],
    ),
    "target": (
        lambda graphs: graphs[3].y.add_(0.5),
        [("values", "y", {"rows": 1, "graphs": 1, "largest difference": 0.5})],
    ),
    "dtype": (
        _all(lambda graph: graph.update({"x": graph.x.double()})),
        [("dtype", "x", {"dtype": ["int64", "float64"]})],
    ),
    "shape": (
        _all(lambda graph: graph.update({"x": graph.x.reshape(-1)})),
        [("shape", "x", {"shape": ["[1]", "[]"]})],
    ),
    "column": (
        _all(lambda graph: graph.pop("y")),
        [("column", "y", {"only in": "A"})],
    ),
    "deleted": (lambda graphs: graphs.pop(3), [("graphs", "", {"only in A": 1})]),
    "repeated": (
        lambda graphs: graphs.insert(3, graphs[3]),
        [("graphs", "", {"only in B": 1})],
    ),
    "order": (
        lambda graphs: graphs.insert(0, graphs.pop(3)),
        [("order", "", {"graphs in another order": 4})],
    ),
    "missing edge": (
        lambda graphs: _without(graphs[3], 2),
        [("edges", EDGES, {"reverses of edges only in A": 1})],
    ),
    "loop": (
        lambda graphs: _with(graphs[3], 1, 1),
        [("edges", EDGES, {"loops only in B": 1})],
    ),
    "repeat": (
        lambda graphs: _with(graphs[3], *graphs[3].edge_index[:, 0].tolist()),
        [("edges", EDGES, {"repeats of edges only in B": 1})],
    ),
    "order of edges": (
        lambda graphs: _shuffle_edges(graphs[3]),
        [("edges", EDGES, {"graphs with edges in another order": 1})],
    ),
    "nothing": (lambda graphs: None, []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_reported_alone(molecules, name):
    """A change of a real file is the only difference, except in the counts."""
    change, expected = CHANGES[name]
    changed = [graph.clone() for graph in molecules]
    change(changed)
    assert [found for found in differences(molecules, changed) if found[0] != "counts"] == expected


def test_directions(molecules):
    """One direction in place of both, and the other direction."""
    forward = [graph.clone() for graph in molecules]
    _all(_one_direction)(forward)
    both = sum(graph.num_edges for graph in molecules)
    assert differences(molecules, forward) == [
        ("counts", "", {"edges": [both, both // 2]}),
        ("edges", EDGES, {"reverses of edges only in A": both // 2}),
    ]
    turned = [graph.clone() for graph in forward]
    _all(lambda graph: graph.update({"edge_index": graph.edge_index.flip(0)}))(turned)
    assert differences(forward, turned[::-1])[1:] == [
        ("edges", EDGES, {f"reversed edges only in {side}": both // 2 for side in "AB"}),
    ]


# --- The same rules as slow loops -----------------------------------------------------------------


def _parts(graph):
    """Nodes, edges with their rows, features and target of a graph, in canonical form."""
    rows = graph.edge_attr[:, 0].tolist()
    listed = [(*ends, row) for ends, row in zip(graph.edge_index.T.tolist(), rows, strict=True)]
    return {
        "nodes": graph.num_nodes,
        "x": tuple(graph.x[:, 0].nan_to_num(9).tolist()),
        "edge_attr": tuple(row for _, _, row in sorted(listed)),
        EDGES: tuple((s, t) for s, t, _ in sorted(listed)),
        "y": graph.y.item(),
        "order": sorted(range(len(listed)), key=listed.__getitem__),
    }


def _slow_pairs(a, b):
    """Pairs of positions by the rule of ``compare``."""
    left_a, left_b = [*range(len(a))], [*range(len(b))]
    pairs = []
    names = ["nodes", "x", "edge_attr", "y", EDGES]
    for left_out in [(), ("x",), ("edge_attr",), ("y",), ("edge_attr", EDGES)]:
        compared = [name for name in names if name not in left_out]
        for i in [*left_a]:
            for j in left_b:
                if all(a[i][name] == b[j][name] for name in compared):
                    pairs.append((i, j))
                    left_a.remove(i)
                    left_b.remove(j)
                    break
    same_place = [i for i in left_a if i in left_b and a[i]["nodes"] == b[i]["nodes"]]
    if 2 * len(same_place) > max(len(left_a), len(left_b)):
        pairs += [(i, i) for i in same_place]
    return sorted(pairs)


def _slow_edges(a, b):
    """Numbers of differing edges, and the differing rows of the edges that both have."""
    numbers = Counter()
    edges_a, edges_b = [*a[EDGES]], [*b[EDGES]]
    if edges_a == edges_b:
        numbers["graphs with edges in another order"] += a["order"] != b["order"]
        return numbers, sum(x != y for x, y in zip(a["edge_attr"], b["edge_attr"], strict=True))

    rows = []
    left_a, left_b = [*range(len(edges_a))], [*range(len(edges_b))]
    for edge in [*left_a]:
        partner = next((e for e in left_b if edges_b[e] == edges_a[edge]), None)
        if partner is not None:
            rows.append((a["edge_attr"][edge], b["edge_attr"][partner]))
            left_a.remove(edge)
            left_b.remove(partner)
    rest_a, rest_b = [edges_a[edge] for edge in left_a], [edges_b[edge] for edge in left_b]
    for side, rest, other_rest, other in (
        ("A", rest_a, rest_b, edges_b),
        ("B", rest_b, rest_a, edges_a),
    ):
        for source, target in rest:
            kind = "edges"
            if (source, target) in other:
                kind = "repeats of edges"
            elif source == target:
                kind = "loops"
            elif (target, source) in other_rest:
                kind = "reversed edges"
            elif (target, source) in other:
                kind = "reverses of edges"
            numbers[f"{kind} only in {side}"] += 1
    return numbers, sum(x != y for x, y in rows)


def _slow_differences(graphs_a, graphs_b):
    """Numbers of all differences but the counts, by kind and column."""
    a, b = [*map(_parts, graphs_a)], [*map(_parts, graphs_b)]
    pairs = _slow_pairs(a, b)
    found = Counter()
    found["graphs", "only in A"] = len(a) - len(pairs)
    found["graphs", "only in B"] = len(b) - len(pairs)
    in_b = [j for _, j in pairs]
    found["order", "graphs in another order"] = sum(
        j != k for j, k in zip(in_b, sorted(in_b), strict=True)
    )
    for i, j in pairs:
        found["x", "rows"] += sum(x != y for x, y in zip(a[i]["x"], b[j]["x"], strict=True))
        found["y", "rows"] += a[i]["y"] != b[j]["y"]
        numbers, rows = _slow_edges(a[i], b[j])
        found["edge_attr", "rows"] += rows
        for name, number in numbers.items():
            found["edges", name] += number
    return +found


def _random_graph(generator):
    nodes, edges = int(generator.integers(1, 4)), int(generator.integers(0, 6))
    return Data(
        x=torch.tensor(generator.choice([0.0, 1.0, np.nan], (nodes, 1))),
        edge_index=torch.tensor(generator.integers(0, nodes, (2, edges))),
        edge_attr=torch.tensor(generator.integers(0, 2, (edges, 1))),
        y=torch.tensor(generator.integers(0, 2, 1)),
    )


def _random_change(graphs, generator):
    """Change one graph in one way, or the order of all."""
    graph = graphs[generator.integers(len(graphs))]
    match generator.integers(8):
        case 0:
            graph.x = graph.x[torch.randperm(graph.num_nodes)]
        case 1:
            graph.edge_index = graph.edge_index.flip(0)
        case 2:
            _shuffle_edges(graph)
        case 3:
            _with(graph, *generator.integers(0, graph.num_nodes, 2)) if graph.num_edges else None
        case 4:
            _without(graph, generator.integers(max(graph.num_edges, 1)))
        case 5:
            graph.y = 1 - graph.y
        case 6:
            generator.shuffle(graphs)
        case 7:
            graphs.insert(0, _random_graph(generator))


def test_random_graphs_agree_with_slow_loops():
    """Numbers of all differences of random lists, most of which differ in a few ways."""
    for seed in range(250):
        generator = np.random.default_rng(seed)
        torch.manual_seed(seed)
        a = [_random_graph(generator) for _ in range(generator.integers(1, 6))]
        b = [graph.clone() for graph in a]
        for _ in range(generator.integers(0, 4)):
            _random_change(b, generator)
        found = Counter()
        for each in compare(ListSide(a), ListSide(b), np.empty(0, np.int64)):
            subject = each.column if each.kind == "values" else each.kind
            for name, number in asdict(each)["numbers"].items():
                if each.kind != "counts" and (each.kind != "values" or name == "rows"):
                    found[subject, name] += number
        assert found == _slow_differences(a, b), f"seed {seed}"
