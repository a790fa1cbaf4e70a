"""``explore``: pages of builds, and what is refused. Pages of runs are in test_explanations.py."""

from __future__ import annotations

import json
import re
import webbrowser
from collections import Counter
from pathlib import Path

import pytest
from support.browser import act
from support.cases import check_each
from support.cli import expect_refusal, expect_success

from kmip_data.builds.home import Build
from kmip_data.format.card import read_card
from kmip_data.reading.dataset import ShardedDataset

TARGET = ("s3dis", "--sample", "--limit", "12", "--k", "4", "--home")


def header_of(path):
    return json.loads(
        re.search(r'class="header">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)[1]
    )


@pytest.fixture
def opened(monkeypatch):
    """Addresses that a browser was asked to open."""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def test_missing_or_changed_part_is_refused(make_build):
    other = make_build("other", parts={"train": [0, 1], "val": []})
    none = make_build("none", parts=None)
    for build, word in ((other, "called 'test'"), (none, "no splits")):
        assert word in expect_refusal("explore", build.path, "--split", "test")
    file = other.path / other.card.splits["default"].file
    file.write_bytes(file.read_bytes() + b" ")
    assert "--repair" in expect_refusal("explore", other.path, "--split", "train", code=4)


def test_explore_opens_a_page_of_a_record(home_of_sample, sample, opened, monkeypatch, tmp_path):
    expect_success("explore", *TARGET, home_of_sample, "--split", "test", "--record", "1")
    page = sample / "explore.html"
    assert opened == [page.as_uri()]
    header = header_of(page)
    assert "z" in header, "a cloud can be turned"
    names = ["class", "colour", "direction of edges"]
    names += ["edges of a node", "outgoing edges", "incoming edges"]
    assert [layer["name"] for layer in header["layers"]] == names
    assert (header["explore"]["hops"], header["explore"]["label"]) == (1, ""), "of nodes"
    assert "red [0-1]" in [column["name"] for column in header["columns"]]
    assert header["key"].startswith("Area_6")
    pairs = header["streets"]["count"] // 2
    assert pairs < 4 * 4_096
    assert header["edges"] == "16,384 edges"
    assert "k=4" in header["options"]
    assert 'id="credit"></p>' in page.read_text("utf-8"), "a sample has no authors"
    expect_success("verify", sample)  # the page next to the card is known
    monkeypatch.setattr("kmip_data.cli.preview.typical_records", lambda positions, dataset: [3])
    result = expect_success(
        "explore", *TARGET, home_of_sample, "--output", tmp_path / "page.html", "--json"
    ).json
    assert (result["saved"], result["run"], len(opened)) == (str(tmp_path / "page.html"), None, 1)
    assert header_of(tmp_path / "page.html")["place"] == "Record 4 of 12", "one of typical size"


def test_explore_shows_an_entire_city(home, opened):
    expect_success("build", "helsinki", "--sample", "-q")
    result = expect_success("explore", "helsinki", "--sample", "--json").json
    header = header_of(type(home)(result["saved"]))
    explore = header["explore"]
    assert (header["metres"], explore["hops"], explore["curves"]) == (True, 16, [])
    assert "A city is a single graph and is shown completely." in expect_refusal(
        "explore", "helsinki", "--sample", "--record", "0"
    )


def test_wrong_targets_of_explore_are_refused(home_of_sample, opened):
    cases = {
        ("--record", "1"): "A NAME or RUN is missing",
        (*TARGET, home_of_sample, "--record", "99"): "a record from 0 to ",
        (
            *TARGET,
            home_of_sample,
            "another",
        ): "There is no run, dataset or build folder called 'another'",
        (*TARGET, home_of_sample, TARGET[0]): "A run is shown on its own data: leave out",
        (
            *TARGET,
            home_of_sample,
            "--output",
            "/nowhere/page.html",
        ): "the folder /nowhere does not exist",
    }

    def check(words):
        assert cases[words] in expect_refusal("explore", *words)

    check_each(check, cases)


def test_a_cloud_turns_by_dragging_and_stays_in_view(home_of_sample, tmp_path):
    page = tmp_path / "page.html"
    expect_success("explore", *TARGET, home_of_sample, "--no-open", "--output", page)
    view = act(
        page,
        """
        const canvas = document.getElementById("canvas"), { view, x, y } = cityMap;
        const point = (kind, x, y, id = 1, shiftKey = false) => canvas.dispatchEvent(new PointerEvent(kind, {
          clientX: x, clientY: y, pointerId: id, bubbles: true, shiftKey }));
        const drag = (dx, dy, shift) => {
          point("pointerdown", 300, 300), point("pointermove", 300 + dx, 300 + dy, 1, shift);
          point("pointerup", 300 + dx, 300 + dy);
        };
        const places = () => [...x.slice(0, 50), ...y.slice(0, 50)];
        const inView = () => x.every((_, i) => view.toScreen(x[i], y[i]).every((at, side) =>
          at >= 0 && at <= [canvas.clientWidth, canvas.clientHeight][side]));
        const seen = [inView()], lengths = [], write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
          lengths.push(text), write.call(this, text, ...at);
        };
        cityMap.drawNow();
        CanvasRenderingContext2D.prototype.fillText = write;
        const facts = document.getElementById("facts").textContent;
        const present = document.querySelector("#legend p").textContent;
        const counted = document.querySelectorAll("#legend button").length;
        const before = places();
        drag(0, 1000);
        const above = places();
        seen.push(inView());
        for (let i = 0; i < 6; i++) drag(60, -30), seen.push(inView());
        const turned = places(), kept = [...view.center];
        drag(50, 0, true);
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
        const inside = x.every((_, i) => Math.hypot(x[i], y[i]) < 1000);
        const before_pinch = view.metre;
        point("pointerdown", 200, 300, 1); point("pointerdown", 300, 300, 2);
        point("pointermove", 150, 300, 1); point("pointermove", 350, 300, 2);
        const pinch = view.metre / before_pinch;
        document.getElementById("lines").click();
        cityMap.drawNow();
        explorer.show(7);
        const at = view.toScreen(x[7], y[7]), found = cityMap.find(...at);
        const near = view.toScreen(x[found], y[found]);
        const by = document.getElementById("by");
        by.value = [...by.options].find(({ textContent }) => textContent === "outgoing edges").value;
        by.dispatchEvent(new Event("change"));
        const bars = [...document.querySelectorAll(".histogram button")].map(({ title }) => title);
        const ticks = [...document.querySelectorAll("#legend .ends span")].map((each) => each.textContent);
        return { bars, lengths, facts, present, counted,
                 ticks, seen, before, above, turned, kept, moved: view.center, inside, pinch,
                 off: Math.hypot(at[0] - near[0], at[1] - near[1]),
                 lines: document.getElementById("lines").checked,
                 story: document.getElementById("story").textContent };""",
        tmp_path,
    )
    assert view["before"] != view["above"] != view["turned"] != view["before"]
    assert all(view["seen"]), "no side is cut, however it is turned"
    assert view["moved"] != view["kept"], "Shift moves it"
    *_, sides = view["facts"].replace("\u00a0", " ").removesuffix(" m").split("; ")
    assert view["lengths"] == [f"{side} m" for side in sides.split(" × ")]
    assert view["present"] == f"{view['counted']} of the 13 classes are in this graph."
    assert view["inside"]
    assert view["pinch"] == pytest.approx(2.0)
    assert view["off"] < 24, "the node pointed at, or one in front of it"
    assert isinstance(view["lines"], bool)
    counts = [re.fullmatch(r"\d+(?: to \d+)?: ([\d,]+)", bar)[1] for bar in view["bars"]]
    assert sum(int(count.replace(",", "")) for count in counts) == 4_096
    assert all(re.fullmatch(r"([≤≥] )?\d+|", tick) for tick in view["ticks"]), "edges are whole"
    assert re.search(r"\d+ neighbours by \d+ outgoing edges and \d+ incoming edges?", view["story"])


def test_a_page_of_a_molecule_has_the_bonds_of_its_record(home, tmp_path):
    page = tmp_path / "page.html"
    expect_success("build", "peptides-func", "--sample", "--limit", "4", "-q")
    expect_success(
        "explore", "peptides-func", "--sample", "--limit", "4", "--no-open", "--output", page
    )
    shown = act(
        page,
        """
        const kinds = [...array(header.bonds)];
        const drawn = linesOf(streets, array(header.bonds), x, y);
        const at = [0, 1, 2, 3, 4, 5].map((i) => (i * Math.PI) / 3); // a ring around 0, and an atom outside
        const [across, up] = [[...at.map(Math.cos), 2], [...at.map(Math.sin), 0]];
        const ring = linesOf([0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 0, 5, 0, 6], [3, 3, 3, 3, 3, 3, 1], across, up);
        const sides = [];
        for (let i = 0; i < ring.length; i += 2) if (ring[i + 1] >>> 28 === 5) {
          const [a, b] = [ring[i], ring[i + 1] & 0xfffffff];
          sides.push(across[a] * up[b] - up[a] * across[b]);
        }
        const lanes = drawn.filter((_, i) => i % 2).map((end) => end >>> 28);
        const sizes = { covered: () => [0, 0, 0, 0], closest: () => 5 };
        const small = makeView(() => [800, 600], () => [[0, 1], [0, 1]], () => {}, sizes);
        small.fit();
        const bond = view.metre * usual;
        const pen = document.getElementById("overlay").getContext("2d");
        pen.font = "600 45px sans-serif"; // of a disc of 100 pixels, of which 70 are inside its rim
        const fit = symbols.some(({ text }) => text.length > 1) && symbols.every(({ text, size }) =>
          !text || Math.hypot(pen.measureText(text).width, 33) < 70 * size);
        const facts = document.getElementById("facts").textContent;
        const proto = CanvasRenderingContext2D.prototype, { fillText } = proto;
        const formula = [];
        proto.fillText = function (text, ...place) {
          formula.push([text, this.fillStyle, place]);
          fillText.call(this, text, ...place);
        };
        drawNow();
        proto.fillText = fillText;
        const { codes, labels, colors } = named("element");
        const letters = Array.from(codes, (code, node) =>
          [labels[code].match(/^[A-Z][a-z]?/)[0], onGround(colors)[code], placeOf(node)]);
        const ways = [isFormula()];
        colorBy(named("bonds of an atom"));
        ways.push(isFormula());
        const shifted = ["atomic number", "formal charge"].map((name) => columns.get(name)(0));
        return { formula, letters, ways, shifted, closest: small.metre, bond, sides, kinds, lanes: [...lanes],
                 fit, edges: streets.length / 2, facts };""",
        tmp_path,
    )
    build = next((home / "built").glob("peptides-func-sample*"))
    record = ShardedDataset(Build(build, read_card(build)))[0]
    assert shown["shifted"] == [int(record.x[0, 0]) + 1, int(record.x[0, 3]) - 5]
    one_way = record.edge_index[0] < record.edge_index[1]
    expected = Counter(record.edge_attr[one_way, 0].tolist())
    assert expected[1] > 0, "peptides have double bonds"
    assert Counter(shown["kinds"]) == expected
    assert shown["closest"] == 5, "a small molecule does not fill the window"
    assert 0 < shown["bond"] < 131
    expected_letters = [atom for atom in shown["letters"] if atom[0] != "C"]
    hydrogens = [text for text, *_ in shown["formula"] if re.fullmatch("H[₂₃]?", text)]
    drawn = [atom for atom in shown["formula"] if atom[0] not in hydrogens]
    assert hydrogens, "next to the letters of their atoms"
    for (text, color, place), (letter, own, atom_place) in zip(
        drawn, expected_letters, strict=True
    ):
        assert (text, color) == (letter, own), "a letter at its atom, in the element's colour"
        assert place == pytest.approx(atom_place)
    assert shown["ways"] == [True, False], "a formula shows elements; other layers have discs"
    assert shown["fit"], "symbols lie inside the rims of their discs"
    assert len(shown["sides"]) == 6
    assert min(shown["sides"]) > 0, "dashes of aromatic bonds are inside their ring"
    lanes = Counter(shown["lanes"])
    assert lanes[1] == lanes[2] == expected[1], "a double bond is two lines"
    assert lanes[5] == expected[3], "an aromatic one has a dashed line"
    assert re.search(rf"^\d+ atoms, {shown['edges']} bonds", shown["facts"])


def test_a_key_shows_the_next_record(home, tmp_path):
    page = tmp_path / "page.html"
    expect_success("build", "zinc", "--sample", "--limit", "3", "-q")
    expect_success("explore", "zinc", "--sample", "--limit", "3", "--no-open", "--output", page)
    shown = act(
        page,
        """
        if (!location.hash) {
          dispatchEvent(new KeyboardEvent("keydown", { key: "x" }));
          document.getElementById("by").value = 1;
          document.getElementById("by").dispatchEvent(new Event("change"));
          document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "n", bubbles: true }));
          await new Promise(() => {}); // the page loads again
        }
        const text = (id) => document.getElementById(id).textContent;
        const atoms = layers.find(({ name }) => name === "element");
        const isInside = (_, node) => placeOf(node).every((at, i) => {
          const [rim, side] = [(sizeOf(node) * state.diameter) / 2, [canvas.clientWidth, canvas.clientHeight][i]];
          return at - rim > 9 && at + rim < side - 9;
        });
        const fits = [x.every(isInside), view.metre * usual];
        const [west, east] = extent(Array.from(x, (_, node) => placeOf(node)[0]));
        const rooms = [west, canvas.clientWidth - east, document.getElementById("buttons").offsetWidth];
        return { fits, rooms, key: text("key"), records: text("records"), count: x.length, label: text("label"),
                 layer: explorer.state.layer === layers[1],
                 last: document.getElementById("next").disabled, symbols: atoms.labels };""",
        tmp_path,
    )
    folder = next(Path(home, "built").iterdir())
    dataset = ShardedDataset(Build(folder, read_card(folder)))
    assert shown["key"] == dataset.keys[1]
    assert shown["count"] == dataset[1].num_nodes
    assert shown["records"].endswith("Graph 2 of 3 on this pagerecord 2 of 3 in the data")
    assert shown["layer"], "what it is coloured by stays"
    assert not shown["last"]
    assert "C" in shown["symbols"], "atoms have letters"
    inside, bond = shown["fits"]
    assert inside, "discs of all atoms"
    assert bond < 130.1
    left, right, buttons = shown["rooms"]
    assert right > left - 1, "not nearer to the buttons than to the other side"
    assert right < max(left, buttons + 100), "in the middle where the buttons leave room"
    assert shown["label"] == f"Label {dataset[1].y.item():.3g}".replace("-", "−")


def test_buttons_and_credit_cover_nothing(home, tmp_path):
    page = tmp_path / "page.html"
    expect_success("build", "pascalvoc-sp", "--sample", "--limit", "1", "-q")
    expect_success(
        "explore", "pascalvoc-sp", "--sample", "--limit", "1", "--no-open", "--output", page
    )
    actions = """
        const boxes = ["buttons", "credit"].map((id) => document.getElementById(id).getBoundingClientRect());
        const inside = (px, py) => boxes.some(({ left, right, top, bottom }) =>
          px > left && px < right && py > top && py < bottom);
        return x.reduce((sum, _, i) => sum + inside(...cityMap.view.toScreen(x[i], y[i])), 0);"""
    for size in ((1280, 800), (500, 844)):
        assert act(page, actions.replace("; const", ";\n const"), tmp_path, size=size) == 0
