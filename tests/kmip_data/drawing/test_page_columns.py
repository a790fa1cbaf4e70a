"""Columns of the explorer page compared with the record, whatever the columns are called."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch
from support.browser import act, act_in_node
from support.drawn_pages import page_columns, read_page
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.columns.part_masks import PART_ARRAYS
from kmip_data.drawing.explorer_page import ChosenKeys, GraphPredictions, write_explorer_page
from kmip_data.drawing.page_graph import graph_of_record
from kmip_data.pipelines.build import build_dataset
from kmip_data.reading.dataset import ShardedDataset

NODES = 40
TOWNS = ("Bonn", "Rome", "Ulm")
#: Names of layers, and of what the page and its script add to them.
NAMES = (
    "x", "target", "class", "prediction", "attention", "influence", "error", "element", "split",
    "colour", "column", "eccentricity", "label", "osm_id", "name", "values",
)  # fmt: skip


def random_graph(rng: np.random.Generator, classes: bool) -> Data:
    """A ring with random columns of random names; y is a class or a number of each node."""
    ring = torch.arange(NODES)
    graph = Data(edge_index=torch.stack([ring, ring.roll(1)]), num_nodes=NODES)
    graph.y = torch.from_numpy(rng.random(NODES, dtype=np.float32))
    if classes:
        graph.y = ring.roll(3) % 3
    for name in rng.choice(NAMES, 12, replace=False):
        shape = [(NODES,), (NODES, 1), (NODES, 2)][rng.integers(3)]
        graph[str(name)] = torch.from_numpy(rng.random(shape, dtype=np.float32))
    return graph


def page_of(build, path):
    """Write the page of the first record with a run that is wrong everywhere; return its predictions."""
    dataset = ShardedDataset(build)
    nodes = int(dataset[0].num_nodes)
    guess = 1 - np.minimum(dataset[0].y.numpy(), 1)
    weights = np.ones((1, nodes, 1), np.float32)
    keys = ChosenKeys(np.zeros((1, nodes, 1), np.int64), weights)
    answer = GraphPredictions("any/gps-kmip/a", None, None, "", np.arange(nodes), (keys,))
    write_explorer_page([(graph_of_record(dataset, 0, [(answer.run, guess)]), answer)], (), path)
    return guess


def record_columns(data):
    """Values of each column of the record, by name; columns of several values are numbered."""
    for name, values in data.to_dict().items():
        # Labels and masks are layers.
        if name in {"edge_index", "num_nodes", "y", *PART_ARRAYS}:
            continue
        rows = values.numpy().reshape(NODES, -1).T
        for i, row in enumerate(rows):
            yield name if len(rows) == 1 else f"{name} {i}", row


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_each_column_of_the_page_has_the_values_of_the_record(seed, classes, tmp_path):
    graph = random_graph(np.random.default_rng(seed), classes)
    build = kmip_data.save([graph], tmp_path / "build")
    guess = page_of(build, tmp_path / "page.html")
    header, array = read_page(tmp_path / "page.html")
    layer_names = [layer["name"] for layer in header["layers"]]
    page = page_columns(tmp_path / "page.html")

    # 1. A layer keeps its name and its values.
    degrees = np.ones(NODES)
    for direction in ("outgoing", "incoming"):
        np.testing.assert_array_equal(page.pop(f"{direction} edges"), degrees)
    np.testing.assert_array_equal(page.pop("edges of a node"), 2 * degrees)
    arrows = array(header["streets"]).reshape(2, -1).T
    assert array(header["one_way"]).all()
    assert set(map(tuple, arrows.tolist())) == set(map(tuple, graph.edge_index.T.tolist()))
    assert page.pop("attention")[0] == NODES, "all nodes attend to the first"
    if not classes:
        np.testing.assert_array_equal(page.pop("target"), graph.y)
        np.testing.assert_array_equal(page.pop("prediction"), guess)
        page.pop("absolute error")

    # 2. A column has its name, behind "column" if a layer has the name.
    for name, values in record_columns(ShardedDataset(build)[0]):
        is_layer = name in {*layer_names, "influence"}
        np.testing.assert_array_equal(page.pop(f"column {name}" if is_layer else name), values)
    assert not page


#: The legend of each way to colour, and all texts, with each node pointed at and held.
TEXTS = """
const legends = {};
for (const { value, textContent } of $("by").nodes.flatMap((group) => group.nodes)) {
  $("by").value = String(value);
  $("by").listeners.change();
  legends[textContent] = $("legend").textContent;
  for (const node of x.keys()) {
    hover(...placeOf(node));
    hold(node);
    hold(-1);
  }
}
return [legends, [...texts]];
"""


def test_gaps_are_counted_and_no_text_is_an_undefined_value(tmp_path):
    numbers = torch.arange(NODES) / 3
    columns = {
        "plain": numbers - 5,
        "logarithmic": torch.exp(numbers) * (numbers > 2),  # the first seven are 0
        "two": torch.arange(NODES) % 2.0,
        "equal": torch.ones(NODES),
        "y": torch.sqrt(numbers),
    }
    for values in columns.values():
        values[-5:] = torch.nan
    ring = torch.arange(NODES)
    masks = {"train_mask": ring < 20, "val_mask": ring == 20, "test_mask": ring > 20}
    edges = torch.stack([ring, ring.roll(1)])
    graph = Data(edge_index=edges, num_nodes=NODES, **columns, **masks)
    build = kmip_data.save([graph], tmp_path / "build", task="regression", label="y")
    dataset = ShardedDataset(build)
    runs = [(f"any/{model}/a", numbers.numpy()) for model in ("gcn", "gps-kmip")]
    answers = [
        GraphPredictions(name, dataset.split_name, None, "", np.arange(0), (), values=values)
        for name, values in runs
    ]
    page = tmp_path / "page.html"
    write_explorer_page([(graph_of_record(dataset, 0, runs), *answers)], (), page)
    legends, texts = act_in_node(page, TEXTS)

    assert not [text for text in texts if re.search("nan|undefined|null", text, re.IGNORECASE)]
    assert any(
        text.startswith("True target 0.577, in training; gcn predicts 0.333: off by")
        for text in texts
    )
    for name in ("plain", "two", "equal", "target", "absolute error", "both runs"):
        assert legends[name].endswith("5 without a value")
    assert "7 with 0, 5 without a value" in legends["logarithmic"]


def test_many_columns_can_be_searched_and_zeros_are_left_out(tmp_path):
    graph = random_graph(np.random.default_rng(0), classes=True)
    graph.x = torch.zeros(NODES, 30)
    graph.x[3, [7, 21]] = 1
    build = kmip_data.save([graph], tmp_path / "build")
    page_of(build, tmp_path / "page.html")
    shown = act(
        tmp_path / "page.html",
        """
        explorer.show(3);
        const texts = (cells) => [...cells].map((each) => each.textContent);
        const rows = () => texts(document.querySelectorAll("#details td:first-child"));
        const of_x = (names) => names.filter((name) => name.startsWith("x "));
        const options = () => of_x(texts(document.getElementById("by").options));
        const search = (id) => {
          document.getElementById(id).value = "x 29";
          document.getElementById(id).dispatchEvent(new Event("input"));
        };
        const before = [of_x(rows()), options(), document.getElementById("left-out").textContent];
        search("within");
        search("find");
        return { before, rows: rows(), options: options() };""",
        tmp_path,
    )
    rows, options, left_out = shown["before"]
    assert rows == options == ["x 7", "x 21"]
    assert int(left_out.split()[0]) >= 28
    assert left_out.endswith("other columns are 0.")
    assert shown["rows"] == shown["options"] == ["x 29"]


def own_tables(path):
    """A build with named nodes and a column of each kind that tables have."""
    rng = np.random.default_rng(1)
    names = [f"p{number}" for number in range(NODES)]
    nodes = pd.DataFrame({"node": names, "age": rng.random(NODES).round(3)})
    nodes.loc[::7, "age"] = None
    nodes["paid"] = rng.random(NODES) < 0.5
    nodes["town"] = rng.choice(["Ulm", "Bonn", "Rome"], NODES)
    edges = pd.DataFrame({"source": names, "target": np.roll(names, 1), "loans": range(NODES)})
    return kmip_data.save({"nodes": nodes, "edges": edges}, path)


def own_arrays(path):
    """A build of tensors with a boolean and a number of each node."""
    graph = random_graph(np.random.default_rng(2), classes=True)
    graph.visited = torch.arange(NODES) % 3 == 0
    graph.never = torch.zeros(NODES, dtype=torch.bool)
    return kmip_data.save([graph], path)


def sample_of(dataset):
    """Return a function that builds a sample of a shipped dataset."""
    return lambda path: build_dataset(
        dataset, home=Home(path), parameters={"limit": 1}, sample=True, jobs=1, quiet=True
    )


@pytest.mark.parametrize(
    ("make_build", "expected"),
    [
        (own_tables, {"number", "missing", "boolean", "one-hot"}),
        (own_arrays, {"boolean"}),
        (sample_of("zinc"), {"category"}),
    ],
    ids=["tables", "arrays", "zinc"],
)
def test_columns_are_coloured_by_the_kinds_of_the_card(make_build, expected, tmp_path):
    build = make_build(tmp_path / "build")
    dataset = ShardedDataset(build)
    write_explorer_page([(graph_of_record(dataset, 0), None)], (), tmp_path / "page.html")
    header, array = read_page(tmp_path / "page.html")
    page = {column["name"]: column for column in header["columns"]}

    shown_kinds = set()
    for column in dataset.schema.columns:
        names = column.fields or (column.attribute,)
        kinds = build.card.field_kinds(column.key)
        if column.level != "node" or not kinds or column.attribute == "y":
            continue
        rows = dataset[0][column.attribute].numpy().reshape(-1, len(names))
        for name, kind, values in zip(names, kinds, rows.T, strict=True):
            shown_kinds.add(kind)
            packed = page[name]
            if kind in {"number", "position"}:
                assert "labels" not in packed
                continue

            # A category has a colour for each value, a mark one for each of its two.
            labels = [f"{value:g}" for value in np.unique(values)]
            if kind != "category":
                labels = ["has a value", "missing"] if kind == "missing" else [f"not {name}", name]
            assert packed["labels"] == labels
            assert all(len(set(colors)) == len(labels) for colors in packed["colors"])
            table = array(packed["values"])
            np.testing.assert_array_equal(table[array(packed["codes"])], values)
            assert packed["counts"] == [int((values == value).sum()) for value in table]
    assert shown_kinds == expected


def test_a_browser_colours_a_flag_as_two_values_and_finds_a_node_by_name(tmp_path):
    dataset = ShardedDataset(own_tables(tmp_path / "build"))
    write_explorer_page([(graph_of_record(dataset, 0), None)], (), tmp_path / "page.html")
    names, legends, *found = act(
        tmp_path / "page.html",
        """
        const options = [...document.querySelectorAll('#by optgroup[label="Columns"] option')];
        const legends = {};
        for (const option of options) {
          document.getElementById("by").value = option.value;
          document.getElementById("by").dispatchEvent(new Event("change"));
          const rows = [...document.querySelectorAll("#legend > button[data-bin]")];
          legends[option.textContent] = rows.map((row) => row.children[1].textContent);
        }
        const towns = named("town=…");
        colorBy(towns);
        drawNow();
        const { width, height } = canvas;
        const pen = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
        pen.drawImage(canvas, 0, 0);
        const edges = Array.from(widths(), (wide, edge) => {
          const ends = [streets[2 * edge], streets[2 * edge + 1]];
          const middle = [0, 1].map((axis) => ends.reduce((sum, node) => sum + placeOf(node)[axis] / 2, 0));
          const { data } = pen.getImageData(...middle.map((at) => Math.round(at) - 1), 3, 3);
          const pixels = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((i) => data.slice(4 * i, 4 * i + 3));
          const tints = pixels.map((rgb) => Math.max(...rgb) - Math.min(...rgb));
          const isInside = towns.codes[ends[0]] === towns.codes[ends[1]];
          return [ends[0], measured.of(edge), wide, isInside, Math.max(...tints)];
        });
        const written = [];
        document.getElementById("overlay").getContext("2d").fillText = (text) => written.push(text);
        drawMarks();
        explorer.search(" p17");
        drawMarks();
        const town = (_, node) => towns.labels[towns.codes[node]];
        const found = ["#chosen", "#story .key"].map((each) => document.querySelector(each).textContent);
        return [{ written, towns: Array.from(x, town), edges }, legends, explorer.state.node, ...found];""",
        tmp_path,
    )
    numbers = {"17", "18"}  # loans of the edges from the held node and to it
    texts = {f"p{node}" for node in range(len(names["towns"]))}
    assert numbers <= set(names["written"]) <= texts | numbers
    sources, loans, edge_widths, are_inside, tints = zip(*sorted(names["edges"]), strict=True)
    for is_inside, tint in zip(are_inside, tints, strict=True):
        assert (tint > 30) == is_inside, "an edge between two towns is grey"
    assert loans == sources == tuple(range(NODES)), "each edge has its own number"
    assert (edge_widths[0], edge_widths[-1]) == (0, 15)
    assert list(edge_widths) == sorted(edge_widths)
    assert names["written"].count("p17") >= 1, "the id of the held node, at least"
    columns = dataset.schema.column("node/x").fields
    one_hot = dataset[0].x.numpy()[:, [columns.index(f"town={town}") for town in TOWNS]]
    assert names["towns"] == [TOWNS[row.argmax()] for row in one_hot]
    text = "2 neighbours by 1 outgoing edge and 1 incoming edge. Numbers on edges: loans."
    assert found == [17, "Node p17 (held)", text]
    assert legends == {
        "age": [],
        "age missing": ["has a value", "missing"],
        "paid": ["not paid", "paid"],
        **{f"town={town}": [f"not town={town}", f"town={town}"] for town in TOWNS},
    }


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("is_class", [True, False])
def test_a_feature_called_like_a_target_keeps_its_name(is_class, is_file, tmp_path, monkeypatch):
    numbers = np.arange(NODES)
    names = [f"p{number}" for number in numbers]
    nodes = pd.DataFrame({"node": names, "price": numbers / 7, "target": 100.5 + numbers})
    nodes["label"] = 200.5 + numbers
    nodes["class"] = np.resize(["good", "bad", "fair"], NODES)
    if is_class:
        nodes["price"] = np.resize(["low", "high"], NODES)
    edges = pd.DataFrame({"source": names, "target": np.roll(names, 1)})
    tables = {"nodes": nodes, "edges": edges}
    build = kmip_data.save(tables, tmp_path / "build", label="price", undirected=True)
    if is_file:  # its columns have names
        monkeypatch.setattr(type(build.card), "sources", "prices.csv")
    page = tmp_path / "page.html"
    write_explorer_page([(graph_of_record(ShardedDataset(build), 0), None)], (), page)
    rows, tip = act_in_node(
        page,
        """
        hover(...placeOf(12));
        const textsOf = (row) => row.nodes.map((cell) => cell.textContent);
        return [$("details").tBodies[0].nodes.map(textsOf), $("tip").textContent.split("\\n")];""",
    )
    price = "low" if is_class else "1.71"
    layer, renamed = ("class", "column class") if is_class else ("target", "x target")
    title = "price" if is_file else layer
    features = {"class": "good", "label": "213", "target": "113"}
    features[renamed] = features.pop(layer)
    rows = [row for row in rows if not re.match("number|split", row[0])]
    assert sorted(map(tuple, rows)) == sorted([(title, price), *features.items()])
    assert tip == ["p12", f"{title}: {price}"]


def test_a_field_with_the_name_of_a_column_keeps_its_values(tmp_path):
    """ShapeNet's fields x, y and z are coordinates, and its column y is the class."""
    build = build_dataset(
        "shapenet-part",
        home=Home(tmp_path),
        parameters={"limit": 1},
        sample=True,
        jobs=1,
        quiet=True,
    )
    dataset = ShardedDataset(build)
    page_of(build, tmp_path / "page.html")
    page = page_columns(tmp_path / "page.html")
    record = dataset[0]
    for name, values in zip(("x", "y", "z"), record.x.T[3:], strict=True):
        np.testing.assert_array_equal(page[name], values)
    np.testing.assert_array_equal(page["y"], record.x[:, 4])
