"""The page's map, in a real browser: it draws, it answers, and every number on it is the build's."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
import shapely
from support.browser import act

from kmip_data.drawing.explorer_page import write_explorer_page
from kmip_data.drawing.layers import Scale
from kmip_data.drawing.maps import city_layers
from kmip_data.drawing.page_graph import city_graph, triangles_of
from kmip_data.drawing.page_layers import ArrayPacker
from kmip_data.drawing.run_predictions import layers_of_runs

#: Actions of a finger or mouse, as events.
EVENTS = """
const canvas = document.getElementById("canvas"), map = window.cityMap;
const box = canvas.getBoundingClientRect();
const point = (kind, x, y, id = 1) => canvas.dispatchEvent(new PointerEvent(kind, {
  clientX: box.left + x, clientY: box.top + y, pointerId: id, bubbles: true }));
const key = (name) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
const rows = () => Object.fromEntries([...document.querySelectorAll("#details tr")].map((row) =>
  [row.cells[0].textContent, [row.cells[1].textContent, row.cells[1].title]]));
const over = (node) => {
  const at = map.view.toScreen(map.x[node], map.y[node]);
  point("pointermove", ...at);
  return at;
};
const colors = () => {
  map.drawNow();
  const gl = canvas.getContext("webgl2"), bytes = new Uint8Array(4 * canvas.width * canvas.height);
  gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
  const found = {};
  for (let i = 0; i < bytes.length; i += 4) {
    const hex = "#" + [0, 1, 2].map((k) => bytes[i + k].toString(16).padStart(2, "0")).join("");
    found[hex] = (found[hex] || 0) + 1;
  }
  return found;
};
"""


@pytest.fixture(scope="module")
def guess(city):
    """Classes of a run that is right on a third."""
    rng, count = np.random.default_rng(3), len(city.classes)
    return np.where(rng.random(count) < 0.3, city.classes, rng.integers(0, 10, count))


@pytest.fixture(scope="module")
def layers(city, guess):
    layers = city_layers(city)
    parts = layers[2]
    return [*layers_of_runs(layers[0], [("mine", guess)], parts), *layers]


@pytest.fixture(scope="module")
def page(build, guess, tmp_path_factory) -> Path:
    """Helsinki as a page; the same graph gives the same bytes."""
    path, again = (tmp_path_factory.mktemp("page") / name for name in ("map.html", "again.html"))
    for each in (path, again):
        write_explorer_page(
            [(city_graph(build, [("mine", guess)], "random-seed0"), None)], (), each
        )
    assert path.read_bytes() == again.read_bytes()
    text = path.read_text("utf-8")
    assert "© OpenStreetMap contributors, ODbL 1.0" in text
    assert not re.search(r"""src\s*=|href="|@import|url\(""", text)
    return path


def test_pointing_at_an_intersection_shows_all_its_columns(city, layers, page, tmp_path):
    nodes = [0, 700, 1234, 2525]
    texts = act(
        page,
        EVENTS
        + f"""
        return {nodes}.map((node) => {{
          key("0");
          map.view.zoom(1e6, ...map.view.toScreen(map.x[node], map.y[node]));
          const at = over(node);
          const text = (id) => document.getElementById(id).textContent;
          const pen = document.getElementById("overlay").getContext("2d");
          const ring = pen.getImageData(at[0] + 9, at[1], 1, 1);
          const found = map.find(...at), title = text("chosen");
          const said = {{ found, rows: rows(), tip: text("tip"), title, ring: [...ring.data] }};
          point("pointerleave", ...at);
          return {{ ...said, left: rows() }};
        }});""",
        tmp_path,
    )
    for node, shown in zip(nodes, texts, strict=True):
        assert (
            shown["found"] == node or (city.position[shown["found"]] == city.position[node]).all()
        )
        node = shown["found"]  # noqa: PLW2901 -- one of two at the same place
        assert shown["title"] == f"Intersection {node}"
        assert not shown["left"], "rows belong to no node once the pointer has left"
        assert shown["ring"][3] > 0, "it is marked"
        rows = shown["rows"]
        assert f"class: {city.classes[node]}: " in shown["tip"]
        for layer in layers:
            if hasattr(layer, "codes"):
                assert rows[layer.name][0] == layer.labels[layer.codes[node]]
        short, exact = rows["eccentricity"]
        length = city.eccentricity[node]  # all digits before the point
        assert short == f"{length:,.0f} m" if length >= 1000 else f"{length:.3g} m"
        assert float(exact) == city.eccentricity[node]
        for name, values in city.columns.items():
            if name not in rows:
                assert values[node] == 0, "of many columns, those with 0 are left out"
                continue
            short, exact = (float(text.replace(",", "")) for text in rows[name])
            assert exact == float(values[node]), name
            assert short == pytest.approx(exact, rel=5e-3), name


def test_every_way_to_colour_draws_its_colours(city, layers, page, tmp_path):
    names = [layer.name for layer in layers]
    drawn = act(
        page,
        EVENTS
        + f"""
        const select = document.getElementById("by"), drawn = {{}};
        map.view.zoom(4);
        for (const option of [...select.options]) {{
          select.value = option.value;
          select.dispatchEvent(new Event("change"));
          map.drawNow();
          drawn[option.textContent] = {{ legend: document.getElementById("legend").textContent }};
          if (!{json.dumps(names)}.includes(option.textContent)) continue;
          const buttons = [...document.querySelectorAll("#legend button")];
          drawn[option.textContent].seen = colors();
          buttons[0].click();
          drawn[option.textContent].alone = colors();
          buttons[0].click();
          drawn[option.textContent].again = colors();
        }}
        return drawn;""",
        tmp_path,
        size=(900, 500),
    )
    used = sum(np.ptp(values) > 0 for values in city.columns.values())
    assert len(drawn) == len(layers) + used, "layers, and columns of several values"
    assert all(entry["legend"] for entry in drawn.values())
    for layer in layers:
        seen = drawn[layer.name]["seen"]
        if not hasattr(layer, "codes"):
            assert len(seen) > 20
            assert len(drawn[layer.name]["alone"]) < len(seen) == len(drawn[layer.name]["again"])
            continue
        shown = set(layer.colors) & set(seen)
        assert len(shown) > 1, layer.name
        assert set(layer.colors) & set(drawn[layer.name]["alone"]) == {layer.colors[0]}, (
            "the others are gone"
        )
        assert set(layer.colors) & set(drawn[layer.name]["again"]) == shown


def test_mouse_fingers_and_keys_move_the_map(page, tmp_path):
    view = act(
        page,
        EVENTS
        + """
        const view = map.view, seen = {};
        const whole = view.metre, [east, north] = view.center;
        const [before] = [view.toMap(300, 200)];
        canvas.dispatchEvent(new WheelEvent("wheel", {
          deltaY: -200, clientX: box.left + 300, clientY: box.top + 200, cancelable: true }));
        seen.wheel = [view.metre / whole, before, view.toMap(300, 200)];
        point("pointerdown", 100, 100); point("pointermove", 160, 130); point("pointerup", 160, 130);
        seen.drag = [view.toMap(360, 230), before];
        key("0");
        point("pointerdown", 200, 300, 1); point("pointerdown", 300, 300, 2);
        point("pointermove", 150, 300, 1); point("pointermove", 350, 300, 2);
        point("pointerup", 150, 300, 1); point("pointerup", 350, 300, 2);
        seen.pinch = view.metre / whole;
        key("0"); key("+"); seen.plus = view.metre / whole; key("-"); seen.minus = view.metre / whole;
        const center = view.center[0]; key("ArrowRight"); seen.right = view.center[0] - center;
        document.getElementById("fit").click();
        seen.fit = [view.metre / whole, view.center[0] - east, view.center[1] - north];
        document.getElementById("in").click(); seen.in = view.metre / whole;
        key("Enter"); seen.enter = document.getElementById("chosen").textContent;
        key("Escape"); seen.escape = document.getElementById("chosen").textContent;
        middles = []; // names of places
        const kept = view.metre;
        document.body.style.gridTemplateColumns = "1fr 200px";
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)));
        seen.resized = view.metre / kept;
        let arcs = 0;
        CanvasRenderingContext2D.prototype.arc = () => (arcs += 1);
        drawMarks();
        seen.marked = arcs;
        hold(3);
        drawMarks();
        seen.held = arcs;
        return seen;""",
        tmp_path,
    )
    factor, before, after = view["wheel"]
    assert factor == pytest.approx(np.exp(0.4))
    assert np.allclose(before, after), "what is under the pointer stays there"
    assert np.allclose(*view["drag"]), "the map goes with the pointer"
    assert view["pinch"] == pytest.approx(2.0)
    assert view["plus"] == pytest.approx(1.5)
    assert view["minus"] == pytest.approx(1.0)
    assert view["right"] > 0
    assert np.allclose(view["fit"], [1, 0, 0], atol=1e-3)
    assert view["in"] == pytest.approx(1.5)
    assert re.fullmatch(r"Intersection \d+ \(held\)", view["enter"])
    assert view["escape"] == "", "no heading over nothing"
    assert view["resized"] == 1, "a window of another size leaves the view where it was moved to"
    assert (view["marked"], view["held"] > 0) == (0, True)


def test_the_farthest_path_follows_the_bends_of_its_streets(city, page, tmp_path):
    """Lines through its points are as long as its streets; between its nodes, they are shorter."""
    nodes = [3, 500, 1_000, 1_500, 2_000]
    found = act(
        page,
        f"""
        const lengthOf = (points) => points.slice(1).reduce((sum, point, i) =>
          sum + Math.hypot(pointX(point) - pointX(points[i]), pointY(point) - pointY(points[i])), 0);
        return {nodes}.map((node) => {{
          hold(node);
          const {{ length, path, points }} = state.path;
          return [length, lengthOf(points), lengthOf(path)];
        }});""",
        tmp_path,
    )
    length, along, straight = np.array(found).T
    assert (np.abs(along - length) < 0.05 * length).all()
    assert (along >= straight - 1e-3).all()
    assert (along > 1.01 * straight).any()


def test_triangles_cover_the_ground(city):
    assert city.ground.keys() == {"green", "water"}
    for shape in city.ground.values():
        triangles = shapely.polygons(triangles_of(shape).reshape(-1, 3, 2))
        assert shapely.area(triangles).sum() == pytest.approx(shape.area)
        assert shapely.union_all(triangles).symmetric_difference(shape).area < 1e-6 * shape.area


def test_few_streets_in_sight_are_bands_and_many_are_lines(city, page, tmp_path):
    """Primitives are counted, against the streets whose box touches what is seen of the map."""
    limit = 1_000
    small = tmp_path / "small.html"
    small.write_text(re.sub(r"BANDS = \d+;", f"BANDS = {limit};", page.read_text("utf-8")), "utf-8")
    entries = act(
        small,
        EVENTS
        + """
        const gl = canvas.getContext("webgl2"), drawn = [];
        const kinds = Object.fromEntries(["LINES", "TRIANGLES", "POINTS"].map((name) => [gl[name], name]));
        gl.drawArrays = (kind, first, count) => drawn.push([kinds[kind], count]);
        const seen = (change) => {
          drawn.length = 0;
          change();
          map.drawNow();
          const at = map.view.toMap, corners = [...at(0, canvas.clientHeight), ...at(canvas.clientWidth, 0)];
          return { drawn: [...drawn], corners };
        };
        const press = () => document.querySelector("#legend button").click();
        const far = () => (key("0"), map.view.zoom(0.25));
        return [() => key("0"), () => map.view.zoom(6), () => key("ArrowLeft"), far, press].map(seen);""",
        tmp_path,
    )
    paths = [city.path(street) for street in range(city.streets.shape[1])]
    ends = np.concatenate([np.stack([path[:-1], path[1:]]) for path in paths], axis=1)
    ground = [["TRIANGLES", len(triangles_of(shape))] for shape in city.ground.values()]
    nodes, kinds = len(city.position), []
    for number, entry in enumerate(entries):
        west, south, east, north = entry["corners"]
        touch = (ends.max(0) >= (west, south)).all(1) & (ends.min(0) <= (east, north)).all(1)
        kind, corners = ("LINES", 2) if touch.sum() > limit else ("TRIANGLES", 6)
        points = [] if number == 3 else [["POINTS", nodes]]
        assert entry["drawn"] == [*ground, [kind, corners * touch.sum()], *points], number
        kinds.append(kind)
    assert kinds == ["LINES", "TRIANGLES", "TRIANGLES", "LINES", "LINES"]


def test_columns_are_packed_without_loss(city):
    packer = ArrayPacker()
    columns = {
        **city.columns,
        "few": np.float32([1, 2, 2, 1]),
        "nan": np.float32([1, np.nan, 3, 4, np.nan]),
    }
    packed = {name: packer.add_layer(Scale(name, values)) for name, values in columns.items()}
    raw = gzip.decompress(base64.b64decode(packer.to_base64()))
    dtypes = {"u8": "u1", "u16": "<u2", "f32": "<f4", "f64": "<f8"}

    def read(place):
        return np.frombuffer(raw, dtypes[place["kind"]], place["count"], place["at"])

    for name, values in columns.items():
        stored = read(packed[name]["values"])
        if "codes" in packed[name]:
            stored = stored[read(packed[name]["codes"])]
        assert np.array_equal(stored, values, equal_nan=values.dtype.kind == "f"), name
    assert "codes" in packed["few"]
