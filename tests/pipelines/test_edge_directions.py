"""Your own graphs whose edges go one way or both: warnings, reasons and reverse edges."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from support.cli import kmip
from support.graph_files import build_files, npz_bytes, write_files
from support.own_graphs import number_folders, read_files

from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs import edge_directions
from kmip_data.pipelines.own.names import in_direction, tells_direction


def test_edges_that_go_one_way_are_a_warning(tmp_path):
    """A file with each edge once, as the node benchmarks have it, is reported with a warning and its remedy."""
    edges = np.array([[0, 1], [1, 2], [2, 2]])
    arrays = {"edges": edges, "node_features": np.eye(5, 2), "node_labels": [0, 1, 0, 1, 1]}
    masks = {}
    for row, part in enumerate(("train", "val", "test")):
        masks[f"{part}_masks"] = np.roll(np.eye(5, dtype=bool)[:3], row, axis=1)
    file = npz_bytes(**arrays, **masks, notes=np.array(["a"]))
    done = build_files(tmp_path / "a", a_npz=file)
    assert {key: value for key, value in done.json["files"].items() if key != "columns"} == {
        "directed": "yes: no edge has its reverse",
        "self_loops": 1,
        "isolated_nodes": 2,
        "repeated_edges": 0,
        "given_splits": ["masks, folds 0 to 2"],
        "ignored": ["notes: no array of this format"],
        "missing": [],
        "warnings": [done.json["files"]["warnings"][0]],
    }
    assert "undirected=True" in done.json["files"]["warnings"][0]
    assert done.err.count("warning: no edge has its reverse") == 1
    line = ["build", "graphs", "--name=own", f"--archive={tmp_path / 'a.files'}", "--quiet"]
    text = kmip(*line, f"--home={tmp_path / 'a'}").out
    target = r"target +classification of each node \(node_labels\)"
    for words in (
        target,
        r"self loops +1",
        r"isolated nodes +2",
        r"classes +2 \(0: 2, 1: 3\)",
        r"ignored +notes",
    ):
        assert re.search(words, text), text

    bare = write_files(tmp_path / "bare", edges_csv="source,target\n0,1\n")
    text = kmip(*line[:3], f"--archive={bare}", "--quiet", f"--home={tmp_path / 'c'}").out
    assert "target          none: a trained run can predict it\n" in text

    both = build_files(tmp_path / "b", "--set=undirected=true", a_npz=file)
    assert both.json["files"]["directed"] == "no: undirected=true added the reverse of each edge"
    assert both.json["files"]["warnings"] == []
    assert "warning" not in both.err


def test_edge_directions_are_reported_with_their_reason(tmp_path):
    both = "source,target\n1,2\n2,1\n"
    done = build_files(tmp_path / "a", edges_csv=both)
    assert done.json["files"]["directed"] == "no: each edge has its reverse"
    assert "warning" not in done.err
    some = build_files(tmp_path / "b", edges_csv=both + "2,3\n3,4\n")
    expected = "yes: 50.0% of the edges have their reverse"
    assert some.json["files"]["directed"] == expected
    all_both = build_files(tmp_path / "c", "--set=undirected=true", edges_csv=both)
    assert all_both.json["files"]["directed"] == "no: each edge has its reverse"
    rest = build_files(tmp_path / "d", "--set=undirected=true", edges_csv=both + "2,3\n3,4\n")
    expected = "no: undirected=true added the reverse of each edge that lacked it"
    assert rest.json["files"]["directed"] == expected
    assert "warning" not in rest.err
    weights = both.replace("2,1", "2,1,7").replace("1,2\n", "1,2,5\n").replace("get", "get,w")
    other = build_files(tmp_path / "e", "--set=undirected=true", edges_csv=weights)
    assert "2 edges have other attributes than their reverse: each keeps its own" in other.err


def test_reverse_edges_that_a_reader_adds_are_not_called_edges_of_the_files(tmp_path):
    """Undirected GML lists each edge once; the reader of networkx's formats adds the reverse."""
    gml = "graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 ] ]"
    done = build_files(tmp_path / "a", a_gml=gml)
    assert done.json["files"]["directed"] == "no: each edge has its reverse"
    assert "of the files" not in done.err + done.out
    directed = build_files(tmp_path / "b", a_gml=gml.replace("graph [", "graph [ directed 1"))
    assert directed.json["files"]["directed"] == "yes: no edge has its reverse"


def missing_reverses(edges: list[tuple[int, int]]) -> list[int]:
    """Positions of edges without a reverse, looked for one by one."""
    waiting = Counter()
    partners = Counter(edges)
    lacking = []
    for position, (source, target) in enumerate(edges):
        waiting[source, target] += 1
        if source != target and waiting[source, target] > partners[target, source]:
            lacking.append(position)
    return lacking


def test_each_edge_that_lacks_its_reverse_gets_it(tmp_path):
    """Reverse edges are as frequent as their edges; without repeats, they equal PyTorch Geometric's."""
    import torch
    from torch_geometric.utils import to_undirected

    rng = np.random.default_rng(0)
    for number in range(60):
        nodes = int(rng.integers(1, 9))
        index = rng.integers(0, nodes, (2, int(rng.integers(0, 30))))
        if number % 2:
            index = np.unique(index, axis=1)
            rng.shuffle(index, axis=1)
        weights = rng.integers(0, 3, (index.shape[1], 2)) / 2
        graph = GraphRecord(
            key="a", num_nodes=nodes, columns={"edge/w": weights, "node/x": np.eye(nodes)},
            edge_index=index,
        )  # fmt: skip
        whole, unequal = edge_directions.add_missing_reverse_edges(graph)
        edges = [(int(a), int(b)) for a, b in index.T]
        expected = []
        lacking = missing_reverses(edges)
        for position, (edge, weight) in enumerate(zip(edges, weights.tolist(), strict=True)):
            expected.append((edge, weight))
            if position in lacking:
                expected.append((edge[::-1], weight))
        ends = map(tuple, whole.edge_index.T.tolist())
        assert list(zip(ends, whole.columns["edge/w"].tolist(), strict=True)) == expected
        assert whole.columns["node/x"] is graph.columns["node/x"]
        again, still = edge_directions.add_missing_reverse_edges(whole)
        assert np.array_equal(again.edge_index, whole.edge_index)
        if number % 2:
            undirected = to_undirected(torch.from_numpy(index), num_nodes=nodes)
            found = np.unique(whole.edge_index, axis=1)
            assert np.array_equal(found, undirected.numpy())
            assert found.shape == whole.edge_index.shape
            table = dict(zip(edges, weights.tolist(), strict=True))
            pairs = [table[edge] != table.get(edge[::-1], table[edge]) for edge in edges]
            assert unequal == still == sum(pairs)


def test_directions_of_a_large_graph_are_estimated_from_a_sample(monkeypatch):
    monkeypatch.setattr(edge_directions, "_MAX_CHECKED_EDGES", 1_000)
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 10_000, (50_000, 2)), axis=0).T
    edges = edges[:, edges[0] < edges[1]]
    for share in (0, 0.5, 1):
        counts = edge_directions.EdgeCounts(adds_reverse_edges=False)
        again = edges[::-1, : int(share * edges.shape[1])]
        index = np.concatenate([edges, again], axis=1)
        counts.add(GraphRecord(key="a", num_nodes=10_000, edge_index=index))
        assert 500 < counts.checked_edges < 4_000
        expected = 2 * share / (1 + share)
        assert abs(counts.with_reverse / counts.checked_edges - expected) < (
            0.05 if share == 0.5 else 1e-9
        )


#: Source and target of edges, as people call them.
_NAMED_ENDS = """
    From,To  From plant,To plant  from_id,to_id  source,target  Source node,Target node
    Sender,Receiver  sender_account,receiver_account  citing,cited  citing paper,cited paper
    origin airport,destination airport  start_station,end_station  src_ip,dst_ip  caller,callee
    follower,followee  follower_id,followed_id  Seller,Buyer  dep,arr  payerAccount,payeeAccount
    pre_root_id,post_root_id  ego,alter
"""
#: Names without a direction, or with the same one.
_OTHER_ENDS = """
    a,b  child,parent  stop_a,stop_b  Paid,Torque  fromage,tomato  to_a,to_b  sender,source
    department,arrangement  bank,account  von,nach
"""


@pytest.mark.parametrize("spelling", [str, str.upper, str.title, str.lower])
def test_words_of_names_say_where_an_edge_begins(spelling):
    pairs = [tuple(pair.split(",")) for pair in re.split(r"\s{2,}", _NAMED_ENDS.strip())]
    for pair in pairs:
        glued = spelling is not str and "payerAccount" in pair
        ends = tuple(map(str if glued else spelling, pair))
        assert in_direction(*ends) == in_direction(*ends[::-1]) == ends
        assert tells_direction(*ends)


def test_other_names_keep_their_order():
    pairs = [tuple(pair.split(",")) for pair in re.split(r"\s{2,}", _OTHER_ENDS.strip())]
    for pair in [*pairs, *(pair[::-1] for pair in pairs)]:
        assert in_direction(*pair) == pair
        assert not tells_direction(*pair)


def test_the_summary_has_the_direction_and_the_options_that_swap_it(tmp_path):
    """The order of columns matters only where nothing else decides and edges go one way."""
    rows = "P1,P0,0.5\nP2,P0,1.5\nP3,P1,2.5\n"
    nodes = "plant,power\nP0,0.5\nP1,1.5\nP2,2.5\nP3,0.1\n"
    by_position = ", by position; to swap: source='B', target='A'"
    cases = [
        ("To plant,From plant", {}, "from 'From plant' to 'To plant'"),
        ("to,from", {}, "from 'from' to 'to'"),
        ("A,B", {}, f"from 'A' to 'B'{by_position}"),
        ("A,B", {"undirected": True}, "from 'A' to 'B'"),
        ("A,B", {"source": "B", "target": "A"}, "from 'B' to 'A'"),
        ("A,B", {"source": "B"}, "from 'B' to 'A'"),
        ("To plant,From plant", {"target": "From plant"}, "from 'To plant' to 'From plant'"),
    ]
    folders = number_folders(tmp_path)
    for header, options, expected in cases:
        # Without a table of nodes, one given end does not say which column is the other.
        files = {"nodes_csv": nodes} if {*options} & {"source", "target"} else {}
        folder = write_files(next(folders), edges_csv=f"{header},flow\n{rows}", **files)
        assert read_files(folder, **options).files["direction"] == expected
    folder = write_files(next(folders), x_csv=f"To plant,From plant,flow\n{rows}", y_csv=nodes)
    assert read_files(folder).files["direction"] == cases[0][2]
