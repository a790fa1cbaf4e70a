"""Edges that are no straight lines, and ids at nodes, in a real browser."""

from __future__ import annotations

import networkx as nx
import numpy as np
import torch
from support.browser import act
from torch_geometric.data import Data

import kmip_data
from kmip_data.drawing.explorer_page import write_explorer_page
from kmip_data.drawing.page_graph import graph_of_record
from kmip_data.reading.dataset import ShardedDataset


def page_of(graph: nx.Graph, folder, **attributes):
    edges = torch.tensor(list(graph.edges), dtype=torch.int64).T
    data = Data(edge_index=edges, num_nodes=len(graph), **attributes)
    build = kmip_data.save([data], folder / "build", name="own")
    page = folder / "page.html"
    write_explorer_page([(graph_of_record(ShardedDataset(build), 0), None)], (), page)
    return page


def test_edges_keep_clear_of_nodes_of_other_layers(tmp_path):
    """Paths of eight nodes lie next to each other; edges that skip layers would cross nodes of others."""
    rng = np.random.default_rng(4)
    paths = np.arange(48).reshape(6, 8)
    graph = nx.DiGraph()
    for path in paths:
        nx.add_path(graph, path)
    for _ in range(12):
        first, last = np.sort(rng.choice(8, 2, replace=False))
        graph.add_edge(*paths[rng.integers(6, size=2), [first, last]].tolist())
    graph = nx.convert_node_labels_to_integers(graph, ordering="sorted")
    nearest, ends, bent = act(
        page_of(graph, tmp_path),
        """
        let nearest = Infinity, ends = 0;
        const pairs = streets.length / 2;
        for (let edge = 0; edge < pairs; edge++) {
          const [from, to] = [streets[2 * edge], streets[2 * edge + 1]];
          const [line] = routes.get(edge) || [[from, to]];
          ends += line[0] === from && line.at(-1) === to;
          for (let i = 1; i < line.length; i++) {
            const [a, b] = [line[i - 1], line[i]];
            for (let node = 0; node < x.length; node++) {
              if (node === from || node === to || !(y[node] <= pointY(a) && y[node] >= pointY(b))) continue;
              const share = (pointY(a) - y[node]) / (pointY(a) - pointY(b));
              nearest = Math.min(nearest, Math.abs(pointX(a) + share * (pointX(b) - pointX(a)) - x[node]));
            }
          }
        }
        return [nearest / inRow, ends / pairs, routes.size];""",
        tmp_path,
    )
    assert ends == 1
    assert bent > 0
    assert nearest > 0.39, "of the least distance of neighbours in a layer"


def test_edges_bend_around_third_nodes_and_keep_the_colour_of_their_class(tmp_path):
    """In a community of each class some straight edges pass behind a third node."""
    graph = nx.planted_partition_graph(4, 11, 0.25, 0.02, seed=5)
    classes = torch.arange(len(graph)) // 11
    straight, curved, colors = act(
        page_of(graph, tmp_path, y=classes),
        """
        const clear = 14; // of a page 1,000 wide
        const isNear = (node, a, b) => {
          const [across, up] = [pointX(b) - pointX(a), pointY(b) - pointY(a)];
          const [right, above] = [x[node] - pointX(a), y[node] - pointY(a)];
          const share = Math.min(Math.max((right * across + above * up) / (across ** 2 + up ** 2), 0), 1);
          return Math.hypot(right - share * across, above - share * up) < clear;
        };
        const passesNode = (line) => [...x.keys()].some((node) =>
          node !== line[0] && node !== line.at(-1) && line.slice(1).some((b, i) => isNear(node, line[i], b)));
        const ends = (edge) => [streets[2 * edge], streets[2 * edge + 1]];
        const lines = Array.from({ length: streets.length / 2 }, (_, edge) => ends(edge));
        const drawn = lines.map((line, edge) => (routes.get(edge) || [line])[0]);
        let looks;
        drawing.look = (pane, values) => (looks = values);
        colorBy(named("class"));
        const bent = drawn.filter((line) => line.length > 2);
        const colors = bent.map((line) => [line[0], line.at(-1), line[3]].map((point) => looks[4 * point]));
        return [lines.filter(passesNode).length, drawn.filter(passesNode).length, colors];""",
        tmp_path,
    )
    assert straight >= 5
    assert curved <= straight / 5
    assert any(source == target for source, target, _ in colors)
    for source, target, between in colors:
        assert between == (source if source == target else -1)


def test_an_edge_that_bends_around_a_layer_ends_in_an_arrow(tmp_path):
    """Next to the line there is paint where its head is, and none in front of it; also if it is held."""
    paths = [(node, node + 1) for node in range(24) if node % 4 < 3]  # six, next to each other
    painted = act(
        page_of(nx.DiGraph([*paths, (0, 3)]), tmp_path),
        """
        const pixelsOf = (source) => {
          cityMap.drawNow();
          const copy = element("canvas", { width: canvas.width, height: canvas.height });
          const pen = copy.getContext("2d");
          pen.drawImage(source, 0, 0);
          return (across, down) => [...pen.getImageData(Math.round(across), Math.round(down), 1, 1).data].join();
        };
        const [[line]] = [...routes.values()];
        const [[ax, ay], [bx, by]] = [placeOf(line.at(-2)), placeOf(line.at(-1))];
        const angle = Math.atan2(by - ay, bx - ax);
        const beside = (source, rim, far) => {
          const at = pixelsOf(source);
          return [-2.5, 2.5].map((side) => at(
            bx - (rim + far) * Math.cos(angle) - side * Math.sin(angle),
            by - (rim + far) * Math.sin(angle) + side * Math.cos(angle),
          ) !== at(3, 3));
        };
        const found = [8, 16].map((far) => beside(canvas, (sizeOf(3) * state.diameter) / 2, far));
        explorer.show(3);
        return [...found, ...[8, 16].map((far) => beside($("overlay"), ringRadius(3), far))];""",
        tmp_path,
    )
    head, line, held_head, _ = painted
    assert head == [True, True]
    assert line == [False, False]
    assert held_head == [True, True]


def test_zero_has_a_row_of_its_own_on_a_logarithmic_scale(tmp_path):
    """One node has 40 outgoing edges, nine have one, and 31 have none."""
    edges = [(0, node) for node in range(1, 41)] + [(node, node + 1) for node in range(1, 10)]
    legend, missing, text = act(
        page_of(nx.DiGraph(edges), tmp_path),
        """
        colorBy(named("outgoing edges"));
        const buttons = [...$("legend").querySelectorAll("button")];
        const labels = buttons.map((each) => each.ariaLabel || each.textContent);
        return [labels, x.filter((_, node) => state.at[node] === NONE).length, $("range").textContent];""",
        tmp_path,
    )
    assert legend[0] == "031"
    assert legend[1].startswith("1 to ")
    assert legend[1].endswith(": 9")
    assert missing == 31
    assert text == "logarithmic scale"


def test_edges_between_borders_of_a_lattice_are_stubs(tmp_path):
    torus = nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 6, periodic=True))
    longest, stubs = act(
        page_of(torus.to_directed(), tmp_path),
        """
        const lines = [...routes.values()].flat();
        const length = ([a, b]) => Math.hypot(pointX(a) - pointX(b), pointY(a) - pointY(b));
        return [Math.max(...lines.map(length)) / Math.abs(x[1] - x[0]), lines.length];""",
        tmp_path,
    )
    assert longest < 0.5
    assert stubs == 2 * (5 + 6)


def test_labels_are_nearest_to_their_own_node_and_sizes_follow_the_colours(tmp_path):
    rng = np.random.default_rng(2)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(24))
    for node in range(6, 24):  # rows of six nodes, each below the one before
        above = rng.choice(6, 2, replace=False) + 6 * (node // 6 - 1)
        graph.add_edges_from((int(source), node) for source in above)
    names = torch.tensor([list(f"node {node:02d}".encode()) for node in graph], dtype=torch.uint8)
    shown, hubs, sizes, mean = act(
        page_of(graph, tmp_path, node_id=names),
        """
        const pen = CanvasRenderingContext2D.prototype, { fillText } = pen, shown = [];
        pen.fillText = function (text, left, middle) {
          const [node, right] = [header.ids.indexOf(text), left + this.measureText(text).width];
          const away = Array.from(x, (_, other) => {
            const [across, down] = placeOf(other);
            const beside = Math.max(left - across, across - right, 0);
            const above = Math.max(Math.abs(down - middle) - 5, 0);
            return Math.hypot(beside, above) - (sizeOf(other) * state.diameter) / 2;
          });
          shown.push([node, away]);
          fillText.call(this, text, left, middle);
        };
        cityMap.drawNow();
        const degree = named("incoming edges");
        colorBy(degree);
        explorer.search("NODE 03");
        const jumps = document.querySelectorAll("#story button");
        if (jumps.length !== explorer.state.ball.size - 1) throw new Error("a held node lists its neighbours");
        jumps[0].click();
        if (header.ids[explorer.state.node] !== jumps[0].textContent) throw new Error("a neighbour is a jump");
        explorer.show(explorer.state.node);
        return [shown, ranked.slice(0, HUBS), Array.from(x, (_, node) => sizeOf(node)), state.mean];""",
        tmp_path,
    )
    incoming = np.array([graph.in_degree(node) for node in graph])
    np.testing.assert_allclose(sizes, np.sqrt(incoming / mean).clip(1, 2), rtol=1e-6)
    assert mean == incoming.mean()
    assert len(shown) >= 20
    assert {node for node, _ in shown} >= {*hubs}, "whatever lies around them"
    for node, away in shown:
        others = np.delete(away, node)
        assert away[node] < min(17, others.min() - (0 if node in hubs else 11)), node


def test_texts_hold_for_ties_and_name_grey_edges(tmp_path):
    """In a ring, all nodes have two neighbours; two of its edges join both classes."""
    names = torch.tensor([list(f"{node}".encode()) for node in range(6)], dtype=torch.uint8)
    classes = torch.tensor([0, 0, 0, 1, 1, 1])
    page = page_of(nx.cycle_graph(6), tmp_path, node_id=names, y=classes)
    ways = """
        colorBy(named("class"));
        const grey = $("note").textContent;
        colorBy(named("edges of a node"));
        return [$("chosen").textContent, grey, $("note").textContent];"""
    chosen, grey, none = act(page, ways, tmp_path)
    assert chosen == "Node 0 (no node has more neighbours)"
    assert "grey edges: ends differ in class" in grey
    assert "grey" not in none


def test_the_largest_nodes_of_a_layer_do_not_touch(tmp_path):
    """Two nodes have the same 15 targets, so that they stand next to each other."""
    edges = [(0, 1), (0, 2)]
    edges += [(hub, target) for hub in (1, 2) for target in range(3, 18)]
    gap, size = act(
        page_of(nx.DiGraph(edges), tmp_path),
        """
        view.zoom(0.4);
        drawNow();
        const colored = (node) => (0.7 * sizeOf(node) * state.diameter) / 2;
        return [distanceOf(1, 2) - colored(1) - colored(2), sizeOf(1)];""",
        tmp_path,
    )
    assert size == 2
    assert gap > 0


def test_a_page_says_what_an_arrow_means(tmp_path):
    hints = []
    for name, more in [("one way", []), ("some both ways", [(1, 0)])]:
        folder = tmp_path / name
        folder.mkdir()
        page = page_of(nx.DiGraph([(0, 1), (1, 2), (2, 3), *more]), folder)
        hints.append(act(page, 'return $("ways").textContent;', folder))
    assert hints == [
        "arrow: from source to target",
        "arrow: from source to target; two heads: both ways",
    ]


def test_wrong_nodes_stand_out_and_communities_have_the_names_of_their_classes(tmp_path):
    """Two communities, joined by one edge, and a run that is wrong for one test node: a page opens on both."""
    graph = nx.disjoint_union(nx.complete_graph(12), nx.complete_graph(12))
    graph.add_edge(0, 12)
    truth = np.repeat([0, 1], 12)
    data = Data(
        edge_index=torch.tensor(list(graph.edges), dtype=torch.int64).T,
        num_nodes=len(graph),
        y=torch.tensor(truth),
    )
    names = ("green", "two words")
    build = kmip_data.save([data], tmp_path / "build", name="own", class_names=names)
    dataset = ShardedDataset(build)
    wrong = int(np.flatnonzero(dataset[0].test_mask.numpy())[0])
    runs = [("own/gcn/a", np.where(np.arange(24) == wrong, 1 - truth, truth))]
    page = tmp_path / "page.html"
    write_explorer_page([(graph_of_record(dataset, 0, runs), None)], (), page)
    shown = act(
        page,
        """
        const pen = CanvasRenderingContext2D.prototype, { fillText } = pen, texts = [];
        pen.fillText = function (...call) {
          texts.push([...call, this.fillStyle]);
          fillText.apply(this, call);
        };
        drawNow();
        const opened = { layer: state.layer.name, note: $("note").textContent };
        const codes = named("class").codes;
        const mean = (at, code) => at.reduce((sum, value, node) => sum + (codes[node] === code) * value, 0) / 12;
        const middles = [0, 1].map((code) => view.toScreen(mean(x, code), mean(y, code)));
        const onGroundOf = (color) => contrastOf(color, ink("ground"));
        const seen = texts.splice(0).map(([text, left, top, color]) => [text, left, top, onGroundOf(color)]);
        colorBy(named("right or wrong"));
        const sizes = Array.from(x, (_, node) => sizeOf(node));
        return { opened, texts: seen, middles, sizes, colored: coloursEdges(state.layer),
                 note: $("note").textContent };""",
        tmp_path,
    )
    assert shown["opened"]["layer"] == "predicted class"
    assert "ringed: wrong (test)" in shown["opened"]["note"]
    expected = np.where(np.arange(24) == wrong, 1.7, 1)
    np.testing.assert_allclose(shown["sizes"], expected)
    assert not shown["colored"], "edges say nothing of what is right"
    assert "larger: wrong (test)" in shown["note"]
    assert {text for text, *_ in shown["texts"]} == set(names)
    for text, *place, contrast in shown["texts"]:
        assert contrast >= 4.5
        away = [np.hypot(*np.subtract(place, middle)) for middle in shown["middles"]]
        assert np.argmin(away) == names.index(text)


def test_a_directed_graph_opens_on_what_is_source_target_or_both(tmp_path):
    graph = nx.DiGraph([(0, 1), (1, 2), (1, 3)])
    graph.add_node(4)
    layer, codes, labels, colored = act(
        page_of(graph, tmp_path),
        """
        const { name, codes, labels } = state.layer;
        return [name, [...codes], labels, coloursEdges(state.layer)];""",
        tmp_path,
    )
    expected = ["source only", "source and target", "target only", "target only", "no edges"]
    assert layer == "direction of edges"
    assert [labels[code] for code in codes] == expected
    assert not colored


def test_an_edge_of_both_ways_has_two_heads_and_the_edges_of_a_held_node_are_lit(tmp_path):
    """In the middle of a star, all edges but one are one way."""
    graph = nx.DiGraph([(0, 1), (1, 0), (0, 2), (0, 3), (4, 0), (5, 4)])
    names = torch.tensor([list(f"{node}".encode()) for node in range(6)], dtype=torch.uint8)
    lanes, edges, described, lit = act(
        page_of(graph, tmp_path, node_id=names),
        """
        const pieces = piecesOf(new Map(), array(header.one_way), null, new Uint8Array(streets.length / 2));
        const lanes = [...pieces].filter((_, i) => i % 2).map((end) => end >>> 28);
        const edges = lanes.map((_, edge) => [streets[2 * edge], streets[2 * edge + 1]]);
        const proto = CanvasRenderingContext2D.prototype, { fill } = proto;
        const headsOf = () => {
          let heads = 0;
          proto.fill = () => (heads += 1);
          drawMarks();
          proto.fill = fill;
          return heads;
        };
        const described = headsOf();
        hold(0);
        return [lanes, edges, described, headsOf()];""",
        tmp_path,
    )
    one_way, both_ways = 7, 9
    expected = [both_ways if set(edge) == {0, 1} else one_way for edge in edges]
    assert lanes == expected
    assert lit == 2 * 5, "a casing and a head at each end, two of them for the edge of both ways"
    assert described == 0, "a ring alone"
