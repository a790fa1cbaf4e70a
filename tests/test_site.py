"""The site of ``docs/``: it builds strictly, as a forge shows the pages, with nothing from another host."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import tomllib
from collections import Counter
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from support import browser
from support.cli import python
from support.shared import ROOT

from kmip_data.drawing.style import STYLES, TEXT_CONTRAST, contrast_ratio

SHAPES = {"li", "ol", "ul", "pre", "table", "tr", "blockquote", "h2", "h3", "h4"}
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "srcset"}


class Tags(HTMLParser):
    """Tags of a page inside its article, and every address that a browser loads by itself."""

    def __init__(self, text: str, inside: str = "") -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.inside, self.counting = inside, not inside
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.counting |= tag == self.inside
        self.counts[tag] += self.counting
        self.ids.add(attributes.get("id", ""))
        if tag in LOADED and attributes.get("rel") != "canonical":
            self.loaded.append(attributes.get(LOADED[tag]) or "")

    def handle_endtag(self, tag):
        self.counting &= tag != self.inside or not self.inside


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for name in ("material", "mkdocstrings"):
        pytest.importorskip(name, reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    python("-m", "mkdocs", "build", "--site-dir", folder)
    return folder


@pytest.mark.slow
def test_the_site_shows_pages_as_a_forge_does(site):
    """Lists, tables and blocks: the two dialects of Markdown read some of them differently."""
    forge = MarkdownIt("commonmark").enable("table")
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "README.md"]
    assert len(pages) > 40
    for path in [*pages, ROOT / "CONTRIBUTING.md"]:
        name = path.relative_to(ROOT / "docs" if path in pages else ROOT).with_suffix(".html")
        wanted = Tags(forge.render(path.read_text("utf-8"))).counts
        counts = Tags((site / name).read_text("utf-8"), inside="article").counts
        assert {tag: counts[tag] for tag in SHAPES} == {tag: wanted[tag] for tag in SHAPES}, name


@pytest.mark.slow
def test_llms_txt_links_to_every_page(site):
    """Title, summary, sections of links: the shape that llmstxt.org proposes."""
    text = (site / "llms.txt").read_text("utf-8")
    assert re.match(r"# kmip-data\n\n> .+\n\n- \[", text)
    links = set(re.findall(r"\[[^\]]+\]\(([^)]+)\)", text))
    assert all((site / link).is_file() for link in links)
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= links


@pytest.mark.slow
def test_the_search_finds_pages_of_a_folder(site):
    """Without a server and without another host, which the browser of tests cannot reach."""
    found = browser.act(
        site / "quickstart.html",
        """
        const wait = (ms) => new Promise((done) => setTimeout(done, ms));
        const field = document.querySelector("[data-md-component=search-query]");
        field.focus();
        field.value = "eccentricity";
        for (let tries = 0; tries < 100 && !document.querySelector(".md-search-result__item"); tries++) {
          field.dispatchEvent(new Event("keyup"));
          await wait(100);
        }
        document.body.dataset.state = "ready";
        return [...document.querySelectorAll(".md-search-result__item")].map((item) => item.textContent);
        """,
        site,
    )
    assert any("Eccentricity and labels" in item for item in found), found


def test_pictures_are_few_and_each_is_shown():
    pictures = {path.name: path.stat().st_size for path in (ROOT / "docs" / "pictures").iterdir()}
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert set(pictures) == set(re.findall(r"""[("]pictures/([^)"]+)[)"]""", pages))
    assert sum(pictures.values()) <= 690_000, "a third of them for dark pages"


def test_figures_are_drawn_by_their_code(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    figures = importlib.import_module("figures")
    folder = tmp_path / "pictures"
    folder.mkdir()
    pictures = ROOT / "docs" / "pictures"
    if os.environ.get("KMIP_DATA_WRITE_DOCS"):
        figures.draw(pictures)
    for drawn in figures.draw(folder):
        same = drawn.read_bytes() == (pictures / drawn.name).read_bytes()
        assert same, f"{drawn.name}: make docs-tables draws it anew"
    table = (ROOT / "docs" / "site" / "growth.txt").read_text("utf-8")
    sizes, costs = figures.growth_table(table)
    assert sizes == [10_694, 100_838, 1_001_506, 9_994_570, 1_000_000_000]
    assert costs["build"] == [(2.35, 0.22), (3.66, 0.3), (26.0, 0.84), (338.0, 3.87)]
    assert costs["verify"][-1] == (360.0, 427)
    assert costs["write"][0] == (0.124, 0.22)
    assert (folder / "growth.svg").read_text().count("<circle") == 2 * 4 * len(figures.COUNTRY)
    runs = tomllib.loads((ROOT / "docs" / "site" / "lrim.toml").read_text("utf-8"))
    dots = 2 * sum(len(run["error"]) for run in runs.values())
    assert (folder / "lrim.svg").read_text().count("<circle") == dots


def test_bars_are_rows_of_the_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    figures = importlib.import_module("figures")
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    rows = figures.comparisons(page)
    assert len(rows) == 10
    for name, (topic, what) in figures.COMPARED.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| {topic} | {what} | "))
        row = rows[name]
        assert row.missed == ("missed" in line)
        assert f"**{row.ratio:.2f}×**" in line or f"{1 / row.ratio:.2f} of its time" in line
        assert f"| {row.ours}" in line
        assert f": {row.theirs}" in line
    table = """
| a | first | 1 s, 2 GiB | `x`, fast: 2.5 s (y 3 s) | **2.50×** (2.1 to 2.6), missed ≥ 1,000× | 1 E |
| a | no peer | 1 s | – | **9.00×** | 1 E |
| a | second | 4 ms | the same: 3 ms | 1.25 of its time, at most 2 | 1 E |
"""
    monkeypatch.setattr(figures, "COMPARED", {"one": ("a", "first"), "two": ("a", "second")})
    assert figures.comparisons(table) == {
        "one": ("1 s", "x", "2.5 s", 2.5, 1000.0, True),
        "two": ("4 ms", "x", "3 ms", 0.8, 0.5, False),
    }


def test_the_first_page_keeps_its_picture_without_webgl_2(tmp_path, monkeypatch):
    page = tmp_path / "index.html"
    explorer = (ROOT / "docs" / "site" / "explorer.html").read_text("utf-8")
    first = f'<p><a class="still" href="exploring.html">a picture</a></p>{explorer}'
    page.write_text(f'<html><head></head><body data-state="ready">{first}</body></html>', "utf-8")
    shown = "return ['.still', '.explorer'].map((each) => document.querySelector(each).checkVisibility());"
    assert browser.act(page, shown, tmp_path) == [False, True]
    monkeypatch.setattr(browser, "OPTIONS", (*browser.OPTIONS, "--disable-3d-apis"))
    assert browser.act(page, shown, tmp_path) == [True, False]


@pytest.mark.slow
def test_nothing_comes_from_another_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        for address in Tags(page.read_text("utf-8")).loaded:
            inside = address.startswith("data:")  # what a notebook drew
            assert inside or "//" not in address, f"{page.relative_to(site)} loads {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:", sheet.read_text("utf-8")), sheet


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    import kmip_data
    import kmip_data.models

    pages = {page: page.read_text("utf-8") for page in (site / "reference").glob("*.html")}
    ids = set().union(*(Tags(text).ids for text in pages.values()))
    for package in (kmip_data, kmip_data.models):
        for name in package.__all__:
            if name != "__version__" and not inspect.ismodule(getattr(package, name)):
                assert f"{package.__name__}.{name}" in ids, name
    for page, text in pages.items():
        assert not re.search(r":(?:class|func|meth|data):<code>", text), (
            f"a role is left in {page.name}"
        )


def test_coloured_letters_are_readable_on_both_grounds(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    figures = importlib.import_module("figures")
    light, dark = STYLES["light"], STYLES["dark"]
    for path in (ROOT / "docs" / "pictures").glob("*.svg"):
        text = path.read_text("utf-8")
        rules = dict(re.findall(r'\[fill="(#\w+)"\]\{fill:(#\w+)\}', text))  # the last one counts
        fills = set(re.findall(r'<text[^>]*fill="(#\w+)"', text))
        letters = {fill: rules[fill] for fill in fills}
        # Letters in the colour of the ground stand on blocks, which have a border.
        if letters.pop(light.background_color, None):
            blocks = set(re.findall(r'<rect[^>]*fill="(#\w+)" stroke=', text))
            letters |= {fill: rules[fill] for fill in blocks if fill != figures.PANEL}
        for color, at_night in letters.items():
            assert contrast_ratio(color, light.background_color) >= TEXT_CONTRAST, path.name
            assert contrast_ratio(at_night, dark.background_color) >= TEXT_CONTRAST, path.name
