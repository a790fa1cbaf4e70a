"""``explore``: pages of builds, and what is refused; runs: tests/models/analysis/test_answers.py."""

from __future__ import annotations

import json
import re
import webbrowser

import pytest
from support.browser import act
from support.cases import check_each
from support.cli import done, refused

TARGET = ("s3dis", "--sample", "--limit", "12", "--k", "4", "--home")


def header_of(path):
    return json.loads(
        re.search(r'id="header">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)[1]
    )


@pytest.fixture
def opened(monkeypatch):
    """Addresses that a browser was asked to open."""
    found = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


def test_a_record_of_a_build(home_of_sample, sample, opened, tmp_path):
    done("explore", *TARGET, home_of_sample, "--split", "test", "--record", "1")
    page = sample / "explore.html"
    assert opened == [page.as_uri()]
    header = header_of(page)
    assert "z" in header, "a cloud can be turned"
    assert [layer["name"] for layer in header["layers"]] == ["colour", "class", "edges of a node"]
    assert header["explore"]["hops"] == 1
    assert "red [0-1]" in [column["name"] for column in header["columns"]]
    assert header["facts"].startswith("Area_6")
    done("verify", sample)  # the page next to the card is known
    found = done(
        "explore", *TARGET, home_of_sample, "--output", tmp_path / "page.html", "--json"
    ).json
    assert (found["saved"], found["run"], len(opened)) == (str(tmp_path / "page.html"), None, 1)


def test_a_city_is_shown_whole(home, opened):
    done("build", "helsinki", "--sample", "-q")
    found = done("explore", "helsinki", "--sample", "--json").json
    explore = header_of(type(home)(found["saved"]))["explore"]
    assert (explore["map"], explore["hops"], explore["curves"]) == (True, 16, [])
    assert "shown whole" in refused("explore", "helsinki", "--sample", "--record", "0")


def test_wrong_targets_of_explore_are_refused(home_of_sample, opened):
    cases = {
        ("--record", "1"): "Nothing is named to explore",
        (*TARGET, home_of_sample, "--record", "99"): "There is no record 99",
        (
            *TARGET,
            home_of_sample,
            "another",
        ): "There is no run, dataset or build folder called 'another'",
        (*TARGET, home_of_sample, TARGET[0]): "A run names its own data",
        (*TARGET, home_of_sample, "--output", "/nowhere/page.html"): "cannot be saved there",
    }

    def check(words):
        assert cases[words] in refused("explore", *words)

    check_each(check, cases)


def test_a_cloud_turns_by_dragging_and_stays_in_view(home_of_sample, tmp_path):
    page = tmp_path / "page.html"
    done("explore", *TARGET, home_of_sample, "--no-open", "--output", page)
    found = act(
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
        const [before, center, metre] = [places(), [...view.center], view.metre];
        drag(0, 1000);
        const above = places();
        drag(120, -150);
        const turned = places(), kept = [...view.center];
        drag(50, 0, true);
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
        const inside = x.every((_, i) => Math.hypot(x[i], y[i]) < 1000);
        point("pointerdown", 200, 300, 1); point("pointerdown", 300, 300, 2);
        point("pointermove", 150, 300, 1); point("pointermove", 350, 300, 2);
        const pinch = view.metre / metre;
        document.getElementById("lines").click();
        cityMap.drawNow();
        explorer.show(7);
        const at = view.toScreen(x[7], y[7]), found = cityMap.find(...at);
        const near = view.toScreen(x[found], y[found]);
        return { before, above, turned, center, kept, moved: view.center, inside, pinch,
                 off: Math.hypot(at[0] - near[0], at[1] - near[1]),
                 lines: explorer.state.lines, story: document.getElementById("story").textContent };""",
        tmp_path,
    )
    assert found["before"] != found["above"] != found["turned"] != found["before"]
    assert found["kept"] == found["center"] != found["moved"], "Shift moves it"
    assert found["inside"]
    assert found["pinch"] == pytest.approx(2.0)
    assert found["off"] < 24, "the node pointed at, or one in front of it"
    assert isinstance(found["lines"], bool)
    assert "neighbours." in found["story"]
