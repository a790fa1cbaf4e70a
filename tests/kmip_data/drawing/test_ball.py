"""Balls and farthest paths, as the page finds them, against networkx and against the labels of the build."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files

import networkx as nx
import numpy as np
import pytest

SCRIPT = files("kmip_data.drawing") / "assets" / "ball.js"
#: Questions come on stdin; the answers go to stdout.
ASK = """
const { count, pairs, lengths, nodes, hops } = JSON.parse(require("fs").readFileSync(0));
const graph = neighbourhoods(count, pairs, lengths);
console.log(JSON.stringify(nodes.map((node) => {
  const ball = ballOf(graph, node, hops);
  const { to, length, path } = farthestPath(graph, ball, node);
  return { ball: [...ball], to, length, path };
})));
"""


def ball_of_each_node(count, pairs, lengths, nodes, hops):
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    asked = {"count": count, "nodes": nodes, "hops": hops}
    asked |= {
        "pairs": np.asarray(pairs).T.ravel().tolist(),
        "lengths": [float(each) for each in lengths],
    }
    script = SCRIPT.read_text("utf-8") + ASK
    done = subprocess.run(
        ["node", "-e", script], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def graph_of(pairs, lengths, count):
    graph = nx.Graph()
    graph.add_nodes_from(range(count))
    graph.add_weighted_edges_from(
        (*pair, float(each)) for pair, each in zip(pairs.T.tolist(), lengths, strict=True)
    )
    return graph


@pytest.mark.parametrize("hops", [1, 16])
@pytest.mark.parametrize("whole", [True, False], ids=["ties", "reals"])
def test_balls_and_paths_equal_networkx(hops, whole):
    rng = np.random.default_rng(hops)
    graph = nx.gnm_random_graph(150, 190, seed=hops)
    pairs = np.array(graph.edges).T
    lengths = (
        rng.integers(0, 4, pairs.shape[1])
        if whole
        else rng.random(pairs.shape[1], dtype=np.float32)
    )
    graph, nodes = graph_of(pairs, lengths, 150), list(range(0, 150, 7))
    for node, answer in zip(
        nodes, ball_of_each_node(150, pairs, lengths, nodes, hops), strict=True
    ):
        reached = nx.single_source_shortest_path_length(graph, node, cutoff=hops)
        assert dict(answer["ball"]) == reached
        ball = graph.subgraph(reached)
        far = nx.single_source_dijkstra_path_length(ball, node)
        assert answer["length"] == max(far.values())
        assert answer["to"] == min(
            each for each, length in far.items() if length == answer["length"]
        )
        assert (answer["path"][0], answer["path"][-1]) == (node, answer["to"])
        assert set(answer["path"]) <= set(reached)
        walked = 0.0
        for step in zip(answer["path"], answer["path"][1:], strict=False):
            walked += ball.edges[step]["weight"]
        assert walked == answer["length"]


def test_path_length_equals_the_eccentricity_of_the_label(city):
    nodes = [0, 1, 700, 1234, 2525]
    answers = ball_of_each_node(len(city.position), city.streets, city.lengths, nodes, city.hops)
    assert [np.float32(each["length"]) for each in answers] == city.eccentricity[nodes].tolist()
    (answers,) = ball_of_each_node(3, np.array([[0], [1]]), [2.0], [2], 16)
    assert answers == {"ball": [[2, 0]], "to": 2, "length": 0, "path": [2]}
