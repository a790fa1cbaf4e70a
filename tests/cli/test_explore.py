"""``explore``: pages of builds, and what is refused; runs: tests/models/analysis/test_answers.py."""

from __future__ import annotations

import json
import re
import webbrowser

import pytest
from support.browser import act
from support.cases import check_each
from support.cli import done, refused

from kmip_data.drawing.graphs import EXTENT

TARGET = ("s3dis", "--sample", "--limit", "12", "--k", "4", "--home")


def header_of(path):
    return json.loads(re.search(r'id="header">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)[1])


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
    assert [layer["name"] for layer in header["layers"]] == ["class", "colour", "edges of a node"]
    assert header["explore"]["hops"] == 1
    assert "red [0-1]" in [column["name"] for column in header["columns"]]
    assert header["facts"].startswith("Area_6")
    done("verify", sample)  # the page next to the card is known
    found = done("explore", *TARGET, home_of_sample, "--output", tmp_path / "page.html", "--json").json
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
        (*TARGET, home_of_sample, "another"): "There is no run, dataset or build folder called 'another'",
        (*TARGET, home_of_sample, TARGET[0]): "A run names its own data",
        (*TARGET, home_of_sample, "--output", "/nowhere/page.html"): "cannot be saved there",
    }

    def check(words):
        assert cases[words] in refused("explore", *words)

    check_each(check, cases)


def test_a_cloud_turns_and_stays_in_view(home_of_sample, tmp_path):
    page = tmp_path / "page.html"
    done("explore", *TARGET, home_of_sample, "--no-open", "--output", page)
    found = act(
        page,
        """
        const turn = (id, value) => {
          const slider = document.getElementById(id);
          slider.value = value;
          slider.dispatchEvent(new Event("input"));
        };
        const { view, x, y } = cityMap;
        const extent = (values) => Math.max(...values) - Math.min(...values);
        turn("turn", 0), turn("tilt", 0);
        const front = extent(y);
        turn("tilt", 90);
        const above = extent(y);
        turn("turn", 57), turn("tilt", 33);
        cityMap.drawNow();
        explorer.show(7);
        const at = view.toScreen(x[7], y[7]);
        const inside = x.every((_, i) => Math.hypot(x[i], y[i]) < 1000);
        return { front, above, inside, node: cityMap.find(...at),
                 story: document.getElementById("story").textContent };""",
        tmp_path,
    )
    assert found["front"] == pytest.approx(EXTENT, rel=1e-5), "a room is higher than a block is wide"
    assert found["above"] < found["front"]
    assert found["inside"]
    assert found["node"] == 7
    assert "neighbours." in found["story"]
