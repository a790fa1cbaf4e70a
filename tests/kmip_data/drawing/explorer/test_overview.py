"""The page without a target: what it lists, and that names stay text."""

from __future__ import annotations

from support.browser import act

from kmip_data.drawing.explorer.overview import PAGE, Section, draw_overview, entry

HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_a_browser_shows_builds_runs_and_curves(tmp_path):
    there, missing = tmp_path / "a folder", tmp_path / "none"
    there.mkdir()
    (there / PAGE).write_text("")
    curves = [
        {"name": name, "columns": {"train_loss": [[1, 2.0], [2, 1.0]], "val_f1": [[1, 0.1], [2, 0.2]]}}
        for name in ("one", HOSTILE)
    ]
    sections = [
        Section(
            title=HOSTILE,
            builds=[entry(("built", "12"), there, "kmip-data explore built")],
            runs=[entry((HOSTILE, "done", "2 of 2", "f1 0.1000"), missing, f"explore {HOSTILE}")],
            curves=curves,
        ),
        Section(title="empty", builds=[], runs=[], curves=[]),
    ]
    page = tmp_path / "page.html"
    draw_overview(tmp_path, sections, page)
    assert "<img" not in page.read_text("utf-8")
    found = act(
        page,
        """
        const texts = (wanted) => [...document.querySelectorAll(wanted)].map((one) => one.textContent);
        const select = document.querySelector("select");
        const columns = [...select.options].map((one) => one.value);
        const first = select.value;
        select.value = "train_loss";
        select.dispatchEvent(new Event("change"));
        return { columns, first, titles: texts("h2"), links: [...document.links].map((one) => one.href),
                 codes: texts("code"), cells: texts("td"), curves: texts("path.curve title"),
                 chart: document.querySelector("svg").getAttribute("aria-label"),
                 fits: document.documentElement.scrollWidth <= innerWidth,
                 images: document.images.length };""",
        tmp_path,
        size=(500, 800),
    )
    assert found["titles"] == [HOSTILE, "empty"]
    assert found["links"] == [(there / PAGE).as_uri()]
    assert found["codes"] == ["kmip-data explore built", f"explore {HOSTILE}"]
    assert found["cells"][1] == "12"
    assert found["cells"][3:] == ["done", "2 of 2", "f1 0.1000"]
    assert (found["columns"], found["first"]) == (["train_loss", "val_f1"], "val_f1")
    assert found["chart"] == "train_loss over epochs"
    assert found["curves"] == ["one", HOSTILE]
    assert (found["images"], found["fits"]) == (0, True)


def test_an_empty_home_says_what_to_do(tmp_path):
    page = tmp_path / "page.html"
    draw_overview(tmp_path, [], page)
    found = act(page, 'return document.getElementById("about").textContent;', tmp_path)
    assert found.endswith("yet: kmip-data build helsinki")
