"""The explorer's page: what is embedded, what a browser shows of it, and that names stay text."""

from __future__ import annotations

import re
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from support.browser import act
from support.drawn_pages import read_page

from kmip_data.drawing.explorer_page import (
    ChosenKeys,
    GraphPredictions,
    Influence,
    write_explorer_page,
)
from kmip_data.drawing.page_graph import city_graph

HOSTILE = "</script><img src=x onerror=alert(1)>"
NODE = 1234


@pytest.fixture(scope="module")
def answer(city) -> GraphPredictions:
    """Predictions that are right for a third of the nodes, with two layers of two heads and three keys."""
    rng = np.random.default_rng(3)
    count = len(city.classes)
    guess = np.where(rng.random(count) < 0.3, city.classes, rng.integers(0, 10, count))
    layers = []
    for _ in range(2):
        weights = rng.dirichlet(np.ones(3), (2, count)).astype(np.float32)
        layers.append(ChosenKeys(rng.integers(0, count, (2, count, 3)), weights))
    layers[1].indices[:, NODE, 2] = -1
    layers[0].indices[:, NODE, :2] = NODE, 77  # of both heads
    return GraphPredictions(
        "helsinki/gps-kmip/mine", "random-seed0", guess, "", np.arange(count), tuple(layers)
    )


def write(build, answer, path, curves=()):
    runs = [(answer.run, answer.classes)] if answer else []
    graph = city_graph(build, runs, answer and answer.split)
    write_explorer_page([(graph, answer)], curves, path)
    return path


def test_the_page_embeds_the_build_and_the_predictions(build, city, answer, tmp_path):
    header, array = read_page(write(build, answer, tmp_path / "page.html"))
    explore, count = header["explore"], len(city.classes)
    np.testing.assert_array_equal(array(header["streets"]).reshape(2, -1), city.streets)
    np.testing.assert_array_equal(array(explore["lengths"]), city.lengths)
    assert explore["hops"] == 16
    np.testing.assert_array_equal(array(explore["keys"]["nodes"]), np.arange(count))
    for stored, layer in zip(explore["keys"]["layers"], answer.attention_layers, strict=True):
        indices = array(stored["indices"]).astype(np.int64).reshape(count, 2, 3).transpose(1, 0, 2)
        weights = array(stored["weights"]).reshape(count, 2, 3).transpose(1, 0, 2) / 65_535
        np.testing.assert_array_equal(np.where(indices == count, -1, indices), layer.indices)
        np.testing.assert_allclose(weights, layer.weights, rtol=2e-3, atol=1 / 65_535)


def test_random_keys_are_labelled_random(build, answer, tmp_path):
    some = np.arange(0, len(answer.nodes), 5)
    layers = tuple(
        ChosenKeys(one.indices[:, some], one.weights[:, some]) for one in answer.attention_layers
    )
    drawn = replace(answer, nodes=some, attention_layers=layers)
    page = write(build, drawn, tmp_path / "page.html")
    header, array = read_page(page)
    assert header["explore"]["keys"]["all"] is False
    np.testing.assert_array_equal(array(header["explore"]["keys"]["nodes"]), some)
    asked = """
    const text = () => document.getElementById("kept").textContent;
    document.getElementById("head").value = "all"; // at first, one
    explorer.show(5);
    const there = [text(), explorer.state.links.length];
    explorer.show(6);
    const missing = [text(), explorer.state.links.length];
    return [there, missing];"""
    (there, links), (missing, none) = act(page, asked, tmp_path)
    assert there == "Keys of 506 intersections, drawn at random, are in the page."
    assert "none of those" in missing
    assert (links, none) == (6, 0)


def test_a_browser_shows_ball_path_and_keys(build, city, answer, tmp_path):
    curves = [
        {
            "name": name,
            "group": name[:5],
            "best": 1 if "gat" in name else 2,
            "answers": [
                ["accuracy [%]", ""],
                [name, f"{100 * end:.2f}"],
                ["linear model", "25.00"],
            ],
            "columns": {"epoch": [[1, 0]], "val_accuracy": [[1, 0.1], [2, end]]},
            "references": {"val_accuracy": {"linear model": 0.25, "constant answer": 0.9}},
            "errors": {"val_accuracy": 0.01},
            "percent": ["val_accuracy"],
        }
        for name, end in (("x/gcn/one", 0.2), ("x/gcn/two", 0.3), ("x/gat/one", 0.7))
    ]
    page = act(
        write(build, answer, tmp_path / "page.html", curves),
        f"""
        document.getElementById("head").value = "all"; // at first, one
        explorer.search("{city.columns["osm_id"][NODE]}");
        cityMap.drawNow();
        const {{ state }} = explorer, text = (id) => document.getElementById(id).textContent;
        const arcs = [], loops = [];
        const marks = CanvasRenderingContext2D.prototype, {{ quadraticCurveTo, arc }} = marks;
        marks.quadraticCurveTo = function (...at) {{
          arcs.push(at.map(Math.round));
          quadraticCurveTo.apply(this, at);
        }};
        marks.arc = function (...at) {{
          if (at[2] === 14) loops.push(at.map(Math.round));
          arc.apply(this, at);
        }};
        cityMap.drawNow();
        const target = cityMap.view.toScreen(x[77], y[77]).map(Math.round).join();
        const toTarget = arcs.filter((at) => at.slice(2).join() === target);
        const bends = new Set(toTarget.map((at) => at.slice(0, 2).join()));
        const turns = new Set(loops.map((at) => at.slice(0, 2).join()));
        document.getElementById("layer").value = "1";
        document.getElementById("layer").dispatchEvent(new Event("change"));
        const rows = [...document.querySelectorAll("#chosen-keys tbody tr")].map((row) =>
          [...row.cells].map((cell) => cell.textContent));
        const pen = document.getElementById("overlay").getContext("2d");
        const {{ width, height }} = pen.canvas;
        const ink = pen.getImageData(0, 0, width, height).data.some((byte) => byte > 0);
        return {{ bends: bends.size, loops: turns.size,
                 node: state.node, ball: state.ball.size, path: state.path, rows, ink, story: text("story"),
                 matrix: [...document.querySelectorAll("#confusion td")].map((each) => each.textContent),
                 curves: document.querySelectorAll("#curves path.curve").length, legend: text("curves"),
                 references: document.querySelectorAll("#curves .reference").length,
                 spreads: document.querySelectorAll("#curves .spread").length,
                 bands: document.querySelectorAll("#curves path.band").length,
                 answers: [...document.querySelectorAll("#answers tr")].map((each) => each.textContent),
                 errors: [...document.querySelectorAll("#errors rect title")].map((each) => each.textContent),
                 link: document.querySelector("#story a").href }};""",
        tmp_path,
    )
    assert page["answers"] == [
        "accuracy [%]", "x/gcn/one20.00", "x/gcn/two30.00", "x/gat/one70.00", "linear model25.00",
    ]  # fmt: skip
    assert (page["bends"], page["loops"]) == (2, 2), "arcs and loops of two heads lie apart"
    assert page["node"] == NODE
    assert np.float32(page["path"]["length"]) == city.eccentricity[NODE]
    assert f"{page['ball']:,} intersections within 16 hops" in page["story"]
    assert f"True class {city.classes[NODE]} (" in page["story"]
    assert f"; predicted {answer.classes[NODE]}, " in page["story"]
    assert "That is the eccentricity" in page["story"]
    layer = answer.attention_layers[1]
    wanted = {
        (int(layer.indices[h, NODE, j]), h): layer.weights[h, NODE, j]
        for h in (0, 1)
        for j in (0, 1)
    }
    shown = {(int(key), int(head)): float(weight) for key, head, weight, _ in page["rows"]}
    assert shown == pytest.approx(wanted, rel=7e-3, abs=1e-4)
    assert page["ink"]
    test = city.splits["random-seed0"] == 2
    pairs = list(zip(city.classes[test], answer.classes[test], strict=True))
    counts = [f"{pairs.count((i, j)):,}" for i in range(10) for j in range(10)]
    assert page["matrix"] == counts
    assert (page["curves"], page["bands"]) == (2, 1)
    page["legend"] = page["legend"].replace("\xa0", " ")  # a unit stays with its number
    assert "gcn (2 seeds): 25 % at the ring of best epoch 2" in page["legend"]
    assert "gat: 10 % at the ring of best epoch 1" in page["legend"], "not the last value, 70 %"
    assert "Dashed, on val, from above: constant answer 90 %, linear model 25 %." in page["legend"]
    assert (page["references"], page["spreads"]) == (2, 3)
    graph = nx.Graph(city.streets.T.tolist())
    parts = city.splits["random-seed0"]
    hops = nx.multi_source_dijkstra_path_length(
        graph, set(np.flatnonzero(parts == 0).tolist()), weight=None
    )
    test = [node for node, hop in hops.items() if hop == 1 and parts[node] == 2]
    off = np.abs(answer.classes[test] - city.classes[test]).mean()
    hop, mean, count = re.fullmatch(
        r"(\d+) hop: (\S+) classes off, (\S+) nodes", page["errors"][0]
    ).groups()
    assert (hop, float(mean), count) == ("1", float(f"{off:.3g}"), f"{len(test):,}")
    assert page["link"] == f"https://www.openstreetmap.org/node/{city.columns['osm_id'][NODE]}"


def test_a_key_selects_the_centre_and_a_failed_search_is_handled(build, city, tmp_path):
    page = write(build, None, tmp_path / "page.html")
    header, _ = read_page(page)  # without a run there are labels, balls and paths alone
    assert not {"runs", "keys"} & header["explore"].keys()
    assert "right or wrong" not in [layer["name"] for layer in header["layers"]]
    shown = act(
        page,
        """
        const canvas = document.getElementById("canvas");
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
        const picked = explorer.state.node, story = document.getElementById("story").textContent;
        explorer.search("nowhere");
        return [picked, document.getElementById("query").validationMessage,
                document.documentElement.scrollWidth <= innerWidth, story];""",
        tmp_path,
        size=(500, 800),
    )
    assert shown[1:3] == ["There is no such intersection.", True]
    assert shown[3].startswith(f"True class {city.classes[shown[0]]} (")


def test_names_from_outside_are_text(build, answer, tmp_path):
    curves = [{"name": HOSTILE, "columns": {HOSTILE: [[1, 0.5]]}}]
    graph = city_graph(build, [(HOSTILE, answer.classes)], answer.split)
    graph = replace(graph, title=HOSTILE)
    graph.header["explore"] |= {"label": "yes", "is_class": True}
    for layer in graph.header["layers"]:
        layer["labels"] = [f"{name} {HOSTILE * 2}" for name in layer.get("labels", ())] or None
    page = tmp_path / "page.html"
    write_explorer_page(
        [(graph, replace(answer, run=HOSTILE, prediction_text=HOSTILE))], curves, page
    )
    text = page.read_text("utf-8")
    assert "<img" not in text
    assert text.count("</script>") == 3
    assert "default-src 'none'" in text
    shown = act(
        page,
        """explorer.show(3);
        document.getElementById("confusion").open = true;
        const cells = [...document.querySelectorAll("#confusion td")], [cell] = cells;
        const widths = cells.map((each) => each.getBoundingClientRect().width);
        if (Math.max(...widths) > Math.min(...widths) + 1) throw new Error("columns are not equally wide");
        const { right } = document.querySelector("aside").getBoundingClientRect();
        if (cell.getBoundingClientRect().right > right - 150) throw new Error("long names hide the counts");
        const texts = ["#label", "#words", "h1"].map((name) => document.querySelector(name).textContent);
        return [document.images.length, document.getElementById("column").value, ...texts];""",
        tmp_path,
    )
    texts = [f"Class yes\nPredicted {HOSTILE}, wrong", f"Run {HOSTILE}", HOSTILE]
    assert shown == [0, HOSTILE, *texts]


def test_the_address_and_a_picture_share_what_is_shown(build, answer, tmp_path):
    page = act(
        write(build, answer, tmp_path / "page.html"),
        f"""
        const id = (name) => document.getElementById(name), {{ state }} = explorer, {{ view }} = cityMap;
        const seen = () => [state.layer.name, state.node, id("layer").value, id("head").value,
          Number(view.zoomed().toPrecision(5)), ...view.center.map(Math.round),
          ...state.only, id("lines").checked].join();
        const press = new KeyboardEvent("keydown", {{ key: "Escape", bubbles: true }});
        const escape = () => document.body.dispatchEvent(press);
        const choose = (name, text) => {{
          const option = [...id(name).options].find((each) => each.textContent === text);
          id(name).value = option.value;
          id(name).dispatchEvent(new Event("change"));
        }};
        if (!location.hash) {{
          choose("by", "attention");
          explorer.show({NODE});
          choose("layer", "1");
          choose("head", "0");
          view.zoom(3);
          view.pan(40, 20);
          document.querySelectorAll(".histogram button")[5].click();
          id("lines").click();
          cityMap.drawNow();
          sessionStorage.seen = seen();
          await new Promise((done) => setTimeout(done, 600));
          location.reload();
          await new Promise(() => {{}});
        }}
        const again = seen();
        escape();
        let blob;
        URL.createObjectURL = (made) => (blob = made, "about:blank");
        HTMLAnchorElement.prototype.click = function () {{ blob.file = this.download; }};
        id("save").click();
        while (!blob || !blob.file) await new Promise((done) => setTimeout(done, 5));
        const picture = await createImageBitmap(blob);
        const copy = Object.assign(document.createElement("canvas"), {{ width: 600, height: 600 }});
        const pen = copy.getContext("2d");
        pen.drawImage(picture, 0, 0);
        const colors = new Set(new Uint32Array(pen.getImageData(0, 0, 600, 600).data.buffer));
        pen.drawImage(picture, -id("canvas").width, 0);
        const key = new Set(new Uint32Array(pen.getImageData(0, 0, 240, 200).data.buffer));

        const bars = document.querySelectorAll(".histogram button");
        const whole = id("range").textContent;
        for (const bar of [bars[10], bars[11]]) bar.click();
        const brushed = [id("range").textContent, bars.length];
        escape();
        const cleared = [state.only.size, state.node];
        escape();
        return {{ before: sessionStorage.seen, again, file: blob.file, size: [picture.width, picture.height],
                 wanted: [id("canvas").width + 240, id("canvas").height], colors: colors.size, key: key.size,
                 whole, brushed, cleared, node: state.node }};""",
        tmp_path,
    )
    assert page["again"] == page["before"]
    assert page["before"].startswith(f"attention,{NODE},1,0,3,")
    assert page["size"] == page["wanted"]
    assert page["before"].endswith(",5,false"), "a bar alone, without edges"
    assert page["colors"] > 50, "streets, arcs and texts"
    assert page["key"] > 50, "bars and a ramp"
    assert page["file"].endswith("-attention.png")
    assert page["whole"] == "logarithmic scale", "the ends of the ramp say which values"
    low, high, count = re.match(
        r"(\S+) × even to (\S+) × even: (\S+) of", page["brushed"][0]
    ).groups()
    assert 0 < float(low) < float(high)
    assert 0 < int(count.replace(",", "")) < len(answer.nodes)
    assert (page["cleared"], page["node"]) == ([0, NODE], -1), "first the brush, then the node"


def test_influence_levels_are_logarithmic_and_zero_has_no_level():
    values = np.array([[8.0, 1.0, 0.1, 1e-9, 0.0], [0.0, 5.0, 0.0, 0.0, 0.0]])
    levels = Influence(np.array([0, 1]), values, []).log_levels()
    assert levels.tolist() == [[255, 255, round(255 * 0.75), 1, 0], [0, 255, 0, 0, 0]]


def test_influence_of_two_runs_is_drawn_side_by_side(build, city, tmp_path):
    """The held node's rows are the values of the page.

    A click holds the nearest node that has them.
    """
    rng, count = np.random.default_rng(1), len(city.classes)
    nodes = np.array([7, NODE, 2000])
    near = np.zeros((3, count))
    near[np.arange(3), nodes] = 1
    for row, node in zip(near, nodes, strict=True):
        row[city.streets[1, city.streets[0] == node]] = 0.5
    by_distance = {"mae by distance": [[1, 0.5], [5, 1.25]]}
    curves = [
        {
            "name": f"helsinki/{model}/a",
            "columns": by_distance,
            "influence": Influence(nodes, values, []),
        }
        for model, values in (("gcn", near), ("gps-kmip", rng.random((3, count)) + 0.01))
    ]
    page = tmp_path / "page.html"
    write_explorer_page([(city_graph(build), None)], curves, page)
    phone = """
        const { view, x, y } = cityMap;
        const places = [...x.keys()].map((i) => view.toScreen(x[i], y[i]));
        const sides = [0, 1].map((side) => extent(places.map((at) => at[side])));
        return sides.map(([low, high]) => high - low);"""
    width, height = act(page, phone, tmp_path, size=(390, 844))
    assert min(width, height) > 140, "two maps fit a phone"
    view = act(
        page,
        f"""
        explorer.show({NODE});
        const boxes = [...document.querySelectorAll("#panes p")];
        const titles = boxes.map((each) => each.innerText);
        const [left, right] = boxes.map((each) => each.getBoundingClientRect());
        const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
        cityMap.drawNow();
        const gl = canvas.getContext("webgl2"), half = canvas.width / 2;
        const light = [0, half].map((from) => {{
          const bytes = new Uint8Array(4 * half * canvas.height);
          gl.readPixels(from, 0, half, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
          let colored = 0;
          for (let i = 0; i < bytes.length; i += 4) colored += Math.abs(bytes[i] - bytes[i + 1]) > 12;
          return colored;
        }});
        const proto = CanvasRenderingContext2D.prototype, {{ fillText }} = proto, texts = [];
        proto.fillText = (text) => texts.push(text);
        drawNow();
        proto.fillText = fillText;
        const spread = (color) => Math.max(...rgba(color).slice(0, 3)) - Math.min(...rgba(color).slice(0, 3));
        const weakest = [spread(STRENGTHS[0][0]), spread(untouched())];
        const legend = document.getElementById("legend").textContent;
        const strengths = STRENGTHS.map((colors) => colors.map(luminance));
        const buttons = document.getElementById("buttons").getBoundingClientRect().top - box.top;
        const at = cityMap.view.toScreen(cityMap.x[2000], cityMap.y[2000]);
        const clientX = box.left + box.width / 2 + at[0] + 5;
        const where = {{ clientX, clientY: box.top + at[1], pointerId: 1, bubbles: true }};
        for (const kind of ["pointerdown", "pointerup"]) canvas.dispatchEvent(new PointerEvent(kind, where));
        const held = explorer.state.node;
        document.body.style.gridTemplateColumns = "1fr 600px"; // the titles follow their maps
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)));
        const second = document.querySelectorAll("#panes p")[1].getBoundingClientRect();
        const title = [second.left - box.left, second.top - box.top];
        const map = paneBoxes()[1];
        const follows = Math.abs(title[0] - map.left) < 1 && Math.abs(title[1] - map.top) < 1;
        document.getElementById("by").value = "1";
        document.getElementById("by").dispatchEvent(new Event("change"));
        const errors = [...document.querySelectorAll("#errors rect title")].map((each) => each.textContent);
        const apart = left.right <= right.left;
        influence[1].name = "helsinki/gcn/b";
        const same = influence.map((run) => shortName(run.name));
        return {{ errors, titles, weakest, legend, light, texts, strengths, buttons, held, apart, same, follows,
                  panes: explorer.state.panes }};""",
        tmp_path,
    )
    reached = int((near[1] > 0).sum()) - 1  # without the held one
    assert view["titles"][0].split("\n") == [
        "gcn", f"influenced by {reached} of {count - 1:,} others, up to 1 hop away",
    ]  # fmt: skip
    assert view["same"] == ["gcn/a", "gcn/b"]
    assert view["titles"][1] == f"gps-kmip\ninfluenced by all {count - 1:,} others"
    assert view["errors"] == 2 * ["1 edge: 0.5", "5 edges: 1.25"], "of data with distances"
    assert view["follows"]
    assert view["light"][1] > 1.3 * view["light"][0] > 0, "more of the city has a colour"
    assert view["texts"].count(f"intersection {NODE}") == 2, "the held one is named on both maps"
    assert view["texts"].count("Kaartinkaupunki") == 2, "a district"
    weakest, untouched = view["weakest"]
    assert weakest > 100 > 10 > untouched, "the weakest influence is told from none, which is grey"
    on_light, on_dark = view["strengths"]
    assert on_light == sorted(on_light, reverse=True), "the stronger, the darker"
    assert on_dark == sorted(on_dark), "the stronger, the lighter"
    assert view["buttons"] > 300, "buttons are not next to titles"
    assert (view["held"], view["apart"], view["panes"]) == (2000, True, 1)


def test_the_heading_is_the_dataset_and_the_scores_of_both_runs(build, city, answer, tmp_path):
    answers = {"gcn/first": "9.35 ± 0.65", "gps-kmip/mine": "9.99"}
    curves = [
        {
            "name": f"helsinki/{run}",
            "group": run,
            "columns": {},
            "answers": [["accuracy [%]", ""], [f"helsinki/{run}", value], ["constant answer", "9"]],
        }
        for run, value in answers.items()
    ]
    page = write(build, answer, tmp_path / "page.html", curves)
    shown = act(
        page,
        """return ["h1", "#score"].map((name) => document.querySelector(name).textContent);""",
        tmp_path,
    )
    size = f"{(city.splits[answer.split] == 2).sum():,} test intersections"
    score = f"gcn 9.3 %, gps-kmip 10.0 % accuracy on the {size}"
    constant = "guessing one class for all: 9.0\u00a0%"
    assert shown == [build.card.caption_title, f"{score} ({constant})"]
    header, _ = read_page(page)
    assert "Helsinki" in header["about"]
    (error,) = (layer for layer in header["layers"] if layer["name"] == "error")
    assert error["labels"][:3] == ["none", "1 class", "2 classes"]


def test_two_runs_are_compared_node_by_node(build, city, answer, tmp_path):
    rng = np.random.default_rng(8)
    count = len(city.classes)
    guess = np.where(rng.random(count) < 0.6, city.classes, rng.integers(0, 10, count))
    other = replace(answer, run="helsinki/gcn/b", classes=guess, attention_layers=())
    graph = city_graph(build, [(run.run, run.classes) for run in (other, answer)], other.split)
    page = tmp_path / "page.html"
    write_explorer_page([(graph, other, answer)], (), page)
    right = [classes == city.classes for classes in (guess, answer.classes)]
    both = [right[0] & right[1], right[0] & ~right[1], ~right[0] & right[1], ~right[0] & ~right[1]]
    shown = act(
        page,
        f"""
        explorer.show({NODE});
        document.getElementById("find").value = "both";
        document.getElementById("find").dispatchEvent(new Event("input"));
        const options = [...document.getElementById("by").options].map((each) => each.textContent);
        document.getElementById("find").dispatchEvent(new KeyboardEvent("keydown", {{ key: "Enter" }}));
        const text = (query) => [...document.querySelectorAll(query)].map((each) => each.textContent);
        return {{ options, layer: explorer.state.layer.name, legend: text("#legend button"), note: text("#note"),
                 names: text("#confusion h2"), errors: text("#errors h2"), keys: text("#keys h2"),
                 cells: document.querySelectorAll("#confusion td").length, story: text("#story"),
                 groups: [...document.querySelectorAll("optgroup")].map((each) => each.label) }};""",
        tmp_path,
    )
    assert (shown["options"], shown["layer"], shown["groups"]) == (
        ["both runs"],
        "both runs",
        ["Runs"],
    )
    labels = ("both right", "only gcn right", "only gps-kmip right", "both wrong")
    test = city.splits[answer.split] == 2
    assert shown["legend"] == [
        *(f"{label}{(nodes & test).sum():,}" for label, nodes in zip(labels, both, strict=True)),
        f"not in test{(~test).sum():,}",
    ]
    assert shown["note"] == [f"of {test.sum():,} test intersections"]
    assert shown["names"] == shown["errors"] == ["gcn", "gps-kmip"]
    assert shown["keys"] == ["Keys that k-MIP heads chose, gps-kmip"], "the first run has none"
    assert shown["cells"] == 200
    assert f"gcn predicts {guess[NODE]}, " in shown["story"][0]
    assert f"gps-kmip predicts {answer.classes[NODE]}, " in shown["story"][0]
