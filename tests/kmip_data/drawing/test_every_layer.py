"""Every layer of every kind of page is seen: a browser counts the pixels that differ from the ground."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.browser import act
from support.builds.written import s3dis_records, s3dis_schema, write_build

from kmip_data.builds.home import Home
from kmip_data.drawing.explorer_page import GraphPredictions, Influence, write_explorer_page
from kmip_data.drawing.page_graph import city_graph, graph_of_record
from kmip_data.pipelines.build import build_dataset
from kmip_data.reading.dataset import ShardedDataset

LEAST = 0.01  #: smallest fraction of the canvas with paint
MOST_NODES = 0.9  #: smallest fraction of nodes with paint at their position
#: Shares of the canvas and of the nodes that each way to colour paints visibly; first, the page as it opens.
SHARES = """
const canvas = document.getElementById("canvas"), gl = canvas.getContext("webgl2");
const select = document.getElementById("by"), ground = rgba(ink("ground"));
const read = () => {
  cityMap.drawNow();
  const bytes = new Uint8Array(4 * canvas.width * canvas.height);
  gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
  return bytes;
};
document.getElementById("picture").checked = false;
const painted = () => {
  const bytes = read();
  const seen = (i) => [0, 1, 2].some((k) => Math.abs(bytes[i + k] - ground[k]) > 40);
  let count = 0, nodes = 0;
  for (let i = 0; i < bytes.length; i += 4) count += seen(i);
  for (let node = 0; node < x.length; node++) {
    const [across, down] = cityMap.view.toScreen(x[node], y[node]).map(Math.floor);
    nodes += seen(4 * ((canvas.height - 1 - down) * canvas.width + across));
  }
  return [count / (canvas.width * canvas.height), nodes / x.length];
};
const shares = { opened: painted(), [`opens on ${state.layer.name}`]: [1, 1] };
for (const option of [...select.options]) {
  select.value = option.value;
  select.dispatchEvent(new Event("change"));
  shares[option.textContent] = painted();
}
if (header.picture) { // faint edges, with a contrast of 1.1 near their middle; nodes in cells of their colour
  document.getElementById("picture").checked = true;
  const hex = (bytes, i) => `#${[0, 1, 2].map((k) => bytes[i + k].toString(16).padStart(2, "0")).join("")}`;
  $("lines").checked = false;
  const without = read();
  $("lines").checked = true;
  const lined = read();
  let lines = 0;
  for (let i = 0; i < streets.length; i += 2) {
    const ends = [streets[i], streets[i + 1]].map((node) => cityMap.view.toScreen(x[node], y[node]));
    const [across, down] = [0, 1].map((k) => Math.floor((ends[0][k] + ends[1][k]) / 2));
    const isSeen = [-1, 0, 1].some((right) => [-1, 0, 1].some((below) => {
      const at = 4 * ((canvas.height - 1 - down - below) * canvas.width + across + right);
      const [low, high] = [without, lined].map((bytes) => luminance(hex(bytes, at))).sort((a, b) => a - b);
      return (high + 0.05) / (low + 0.05) >= 1.1;
    }));
    lines += isSeen;
  }
  shares.lines = [1, lines / (streets.length / 2)];
  const { left, top, right, bottom, cells } = header.picture, pen = cells.getContext("2d");
  const own = named("colour"), colors = onGround(own.colors).map(rgba);
  const isRight = (_, node) => {
    const across = ((x[node] - left) / (right - left)) * cells.width;
    const down = ((top - y[node]) / (top - bottom)) * cells.height;
    const pixel = pen.getImageData(Math.floor(across), Math.floor(down), 1, 1).data;
    return pixel.every((byte, i) => byte === colors[own.codes[node]][i]);
  };
  shares.cells = [1, x.filter(isRight).length / x.length];
}
if (turning) { // of four sides it opens at the one that most nodes are far from
  const [angle, tilt] = turning.angles();
  const far = [0, 1, 2, 3].map((turns) => {
    turning.turnTo(angle + (turns * Math.PI) / 2, tilt);
    return turning.depth.reduce((sum, depth) => sum + depth, 0);
  });
  shares["side at first"] = [1, Number(far[0] === Math.max(...far))];
}
return shares;
"""


def influence(count: int) -> Influence:
    """Return the influence of one node in fifty on each of three nodes."""
    rng = np.random.default_rng(5)
    values = np.where(rng.random((3, count)) < 0.02, rng.random((3, count)), 0.0)
    nodes = rng.choice(count, 3, replace=False)
    values[np.arange(3), nodes] = 1.0
    return Influence(nodes, values, [])


def page_of(graphs, path, runs=()):
    count = graphs[0][0].header["x"]["count"]
    curves = [{"name": run, "columns": {}, "influence": influence(count)} for run in runs]
    write_explorer_page(graphs, curves, path)
    return path


def check(page, folder, *expected):
    shares = act(page, SHARES, folder)
    assert shares.keys() >= {"opened", *expected}
    faint = {
        name: share for name, share in shares.items() if share[0] <= LEAST or share[1] < MOST_NODES
    }
    assert not faint, "share of the canvas and of the nodes that are painted"


def test_a_page_draws_the_predictions_of_a_cloud(tmp_path):
    records = s3dis_records(1, nodes=(600, 600), k=8)
    build = write_build(tmp_path / "build", records, s3dis_schema(8))
    dataset = ShardedDataset(build)
    guess = np.zeros(600, np.int64)
    answer = GraphPredictions("s3dis/gps-kmip/a", None, guess, "", np.arange(0), ())
    graph = graph_of_record(dataset, 0, [(answer.run, guess)])
    page = page_of([(graph, answer)], tmp_path / "page.html", [answer.run])
    check(
        page,
        tmp_path,
        "opens on right or wrong",
        "influence",
        "class",
        "right or wrong",
        "predicted class",
    )


def test_the_many_edges_of_a_cloud_are_off_at_first(tmp_path):
    for k, is_on in ((8, True), (32, False)):
        build = write_build(
            tmp_path / str(k), s3dis_records(1, nodes=(600, 600), k=k), s3dis_schema(k)
        )
        page = page_of([(graph_of_record(ShardedDataset(build), 0), None)], tmp_path / "page.html")
        shown = act(
            page,
            'return [$("lines").checked, $("lines").parentElement.textContent];',
            tmp_path,
        )
        assert shown[0] == is_on
        assert ("off at first" in shown[1]) is not is_on


def test_a_page_draws_two_runs_on_a_city(build, city, tmp_path):
    guess = np.zeros(len(city.classes), np.int64)
    graph = city_graph(build, [("helsinki/gcn/a", guess)], "random-seed0")
    answer = GraphPredictions("helsinki/gcn/a", "random-seed0", guess, "", np.arange(0), ())
    runs = ["helsinki/gcn/a", "helsinki/gps-kmip/a"]
    page = page_of([(graph, answer)], tmp_path / "page.html", runs)
    check(
        page,
        tmp_path,
        "opens on influence",
        "influence",
        "error",
        "eccentricity",
        "split random-seed0",
    )


@pytest.mark.parametrize("dataset", ["pascalvoc-sp", "zinc", "peptides-func", "malnet-tiny"])
def test_a_page_draws_a_record_of_every_dataset(dataset, tmp_path):
    home = Home(tmp_path / "home")
    few = {"limit": 1}
    build = build_dataset(dataset, parameters=few, home=home, sample=True, jobs=1, quiet=True)
    graph = graph_of_record(ShardedDataset(build), 0)
    edges = {"malnet-tiny": "outgoing edges", "pascalvoc-sp": "number of edges"}
    expected = [edges.get(dataset, "number of bonds")]
    if dataset == "pascalvoc-sp":
        expected += ["lines", "cells"]
    check(page_of([(graph, None)], tmp_path / "page.html"), tmp_path, *expected)


def test_a_picture_of_a_digit_is_square_and_has_arrows_at_a_held_node_alone(tmp_path):
    home = Home(tmp_path / "home")
    few = {"limit": 10}
    build = build_dataset("mnist", parameters=few, home=home, sample=True, jobs=1, quiet=True)
    graph = graph_of_record(ShardedDataset(build), 3)
    shown = act(
        page_of([(graph, None)], tmp_path / "page.html"),
        """
        const gl = document.getElementById("canvas").getContext("webgl2");
        const drawArrays = gl.drawArrays;
        const kinds = [];
        gl.drawArrays = (...call) => {
          kinds.push(call[0]);
          drawArrays.apply(gl, call);
        };
        cityMap.drawNow();
        let arrows = 0;
        CanvasRenderingContext2D.prototype.fill = () => (arrows += 1);
        explorer.show(20);
        cityMap.drawNow();
        const { left, top, right, bottom } = header.picture;
        const [note, hints] = ["note", "ways"].map((id) => document.getElementById(id).textContent);
        return { kinds, arrows, left, top, note, hints,
                 sides: [right - left, top - bottom], places: [x, y].map(extent),
                 ends: [...document.querySelectorAll("#legend .ends span")].map((each) => each.textContent) };""",
        tmp_path,
    )
    width, height = shown["sides"]
    assert width == pytest.approx(height)
    row, column = graph_fields(build, 3)
    [[west, _], [_, north]] = shown["places"]
    assert west - shown["left"] == pytest.approx(column.min() * width, abs=0.01 * width)
    assert shown["top"] - north == pytest.approx(row.min() * height, abs=0.01 * width)
    triangles, strip = 4, 5  # of WebGL: edges, and the picture
    assert shown["kinds"].count(triangles) == shown["kinds"].count(strip), "edges, but no arrows"
    assert shown["arrows"] > 0
    assert "greys" in shown["note"]
    assert "faint until a node is held" in shown["hints"]
    assert [shown["ends"][0], shown["ends"][-1]] == ["0, black", "1, white"]


def graph_fields(build, position):
    """Row and column of the nodes of a digit, as fractions of its sides."""
    _, row, column = ShardedDataset(build)[position].x.numpy().T
    return row, column


def test_a_cell_of_a_minefield_shows_its_number_of_mines_if_it_is_known(tmp_path):
    home = Home(tmp_path / "home")
    many = {"limit": 2500}
    build = build_dataset(
        "minesweeper", parameters=many, home=home, sample=True, jobs=1, quiet=True
    )
    dataset = ShardedDataset(build)
    page = page_of([(graph_of_record(dataset, 0), None)], tmp_path / "page.html")
    shown = act(
        page,
        """
        const isFilled = () => {
          drawNow();
          const copy = element("canvas", { width: canvas.width, height: canvas.height });
          const pen = copy.getContext("2d", { willReadFrequently: true }), aside = 0.35 * inLattice * view.metre;
          pen.drawImage(canvas, 0, 0);
          const ratio = canvas.width / canvas.clientWidth, colors = onGround(named("class").colors).map(rgba);
          return x.every((_, node) => {
            const [across, down] = placeOf(node).map((at) => Math.round((at + aside) * ratio));
            const { width, height } = paneBoxes()[0];
            if ([across, down].some((at, i) => at < 0 || at >= [width, height][i] * ratio)) return true;
            const color = colors[named("class").codes[node]];
            return pen.getImageData(across, down, 1, 1).data.every((byte, i) => Math.abs(byte - color[i]) < 3);
          });
        };
        const opened = inLattice * view.metre, hints = $("ways").textContent;
        const parts = [$("buttons"), $("credit")].map((part) => part.getBoundingClientRect());
        const pane = paneBoxes()[0];
        const free = parts[0].left >= pane.width && parts[1].top >= pane.height;
        const cutOff = () => view.toMap(0, 0).map((at, i) => Math.abs(((at - fieldBox()[i][0]) / inLattice) % 1));
        const rims = [cutOff()];
        const box = $("overview").firstElementChild.getBoundingClientRect();
        const where = { clientX: box.left + 1, clientY: box.top + 1, pointerId: 1, bubbles: true };
        $("overview").firstElementChild.dispatchEvent(new PointerEvent("pointerdown", where));
        drawNow();
        rims.push(cutOff());
        const corner = view.toScreen(fieldBox()[0][0], fieldBox()[1][1]);
        const frame = [$("overview").lastElementChild.style.left, $("overview").lastElementChild.style.top];
        const swatches = [...document.querySelectorAll("#legend button i")].map((each) => each.style.background);
        const states = [12, 30].map((apart) => {
          view.lookAt([0, 0], (view.zoomed() * apart) / (inLattice * view.metre));
          return isFilled();
        });
        hold(0);
        const held = state.edges.length;
        return { symbolText, free, rims, corner, frame, states, opened, hints, swatches, held,
                 note: $("note").textContent,
                 offered: !$("lines").parentElement.hidden,
                 texts: symbols.map(({ text }) => text) };""",
        tmp_path,
    )
    assert shown["states"] == [True, True], "cells are filled, small or large"
    assert shown["opened"] == pytest.approx(32), "large enough to be read"
    assert "opens on a part of the grid" in shown["hints"]
    assert "?: number hidden" in shown["hints"]
    assert shown["free"], "buttons and credit cover no cell"
    for share in np.ravel(shown["rims"]):
        assert min(share, 1 - share) < 0.01, "cells at the rim are whole"
    assert np.abs(shown["corner"]).max() < 1, "a click into the corner of the overview moves there"
    assert shown["frame"] == ["0%", "0%"]
    assert not shown["note"], "edges are not named"
    assert not shown["offered"], "nor a choice"
    assert not shown["held"], "nor drawn at a held node"
    swatches = [[int(byte) for byte in re.findall(r"\d+", text)] for text in shown["swatches"]]
    empty, mine = (max(color) - min(color) for color in swatches)
    assert empty < 10 < 100 < mine, "most cells are grey, the others have their colour"
    assert shown["symbolText"] == "number of mines beside; ?: number hidden"
    texts = np.array(["?", "0", "1", "2", "3", "4", "5+"])
    assert shown["texts"] == texts[dataset[0].x.numpy().argmax(axis=1)].tolist()


def test_a_node_shows_the_sign_of_its_only_feature(tmp_path):
    few = {"limit": 3}
    home = Home(tmp_path / "home")
    build = build_dataset(
        "lrim-16-hard", parameters=few, home=home, sample=True, jobs=1, quiet=True
    )
    dataset = ShardedDataset(build)
    page = page_of([(graph_of_record(dataset, 0), None)], tmp_path / "page.html")
    shown = act(
        page,
        """
        const proto = CanvasRenderingContext2D.prototype, colors = new Set();
        proto.fillText = function () { colors.add(this.fillStyle); };
        drawNow();
        const ends = [...document.querySelectorAll("#legend .ends span")].map((each) => each.textContent);
        return { symbolText, ends, texts: symbols.map(({ text }) => text), colors: [...colors] };""",
        tmp_path,
        size=(1280, 900),
    )
    assert len(shown["colors"]) == 1, "a second colour would look like a value"
    assert shown["symbolText"] == "▲ spin +1, ▼ spin −1"
    low, *_, high = shown["ends"]
    assert low.replace("≤ −", "") == high.replace("≥ ", ""), "both ends are written alike"
    spins = dataset[0].x.numpy().reshape(-1)
    assert shown["texts"] == ["▲" if spin > 0 else "▼" for spin in spins]
