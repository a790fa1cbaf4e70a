"""Additions of the site to the pages of ``docs/``: notebooks, the API reference, files of the project, links.

Pages are written for a forge, where a link may lead to any file of the project. Those outside ``docs/`` that
a page links to become pages of the site, and the public names of the package get pages with their docstrings.
Nothing is written into the tree.
"""

from __future__ import annotations

import ast
import functools
import os
import posixpath
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.append(str(Path(__file__).parent))
from notebooks import EXECUTED, SOURCES, as_markdown, executed

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
STUBS = {
    "kmip_data": ROOT / "kmip_data" / "__init__.pyi",
    "kmip_data.models": ROOT / "models" / "__init__.pyi",
}
#: Modules that pages import from, besides the public names.
MODULES = {
    "builds": (
        "kmip_data.pipelines.find_builds",
        "kmip_data.builds.home",
        "kmip_data.builds.execution_options",
    ),
    "errors": ("kmip_data.errors",),
    "graphs": (
        "kmip_data.graphs.knn_and_radius_graphs",
        "kmip_data.graphs.eccentricity",
        "kmip_data.graphs.encodings.lappe",
        "kmip_data.graphs.encodings.rwse",
        "kmip_data.graphs.encodings.expander",
    ),
}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s:]+)((?:#[^)]*)?\))")
#: On the landing page a forge shows a picture; the site, where it can, the page that a notebook made.
PICTURE = re.compile(r"^\[!\[[^\]]*\]\(pictures/influence\.svg\)\]\(exploring\.md\)$", re.MULTILINE)
EXPLORER = Path(__file__).with_name("explorer.html")
ROLE = re.compile(r":[a-z]+:<code>[~.]?([\w.]+)</code>")  # :class:`~a.b.C`, after Markdown saw it


@event_priority(100)  # before mkdocstrings reads its options
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages where the navigation names a folder."""
    config.nav = _expanded(config.nav or [])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the API reference, and what pages link to outside ``docs/``."""
    for address, text in _reference().items():
        files.append(File.generated(config, address, content=text))
    for source in SOURCES.glob("*.ipynb"):
        # Without outputs where `make docs` did not run it, as in the tests of the site.
        content = as_markdown(executed(source.name) or source)
        files.append(File.generated(config, f"notebooks/{source.stem}.md", content=content))
    outside = {ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"}
    for page in DOCS.rglob("*.md"):
        for _, target, _ in LINK.findall(page.read_text("utf-8")):
            path = Path(os.path.normpath(page.parent / target))
            if path.is_file() and not path.is_relative_to(DOCS):
                outside.add(path)
    for path in sorted(outside):
        text, name = path.read_text("utf-8"), path.relative_to(ROOT).as_posix()
        shown = text if path.suffix == ".md" else f"# {name}\n\n````{path.suffix[1:]}\n{text}````\n"
        files.append(File.generated(config, _address(path), content=shown))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Turn links to files of the project into links to their pages; show the explorer on the first one."""
    if page.file.src_uri == "README.md" and (EXECUTED / "explore.html").exists():
        markdown = PICTURE.sub(r"\g<0>{.still}\n\n" + EXPLORER.read_text("utf-8"), markdown)
    here = posixpath.dirname(page.file.src_uri)
    inside = not page.file.generated_by or here == "notebooks"
    origin = (DOCS if inside else ROOT) / here

    def turned(link: re.Match[str]) -> str:
        before, target, after = link.groups()
        path = Path(os.path.normpath(origin / target))
        address = posixpath.relpath(_address(path), here or ".") if path.is_file() else target
        return f"{before}{address}{after}"

    return LINK.sub(turned, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Add the executed notebooks with what they wrote, and every page as Markdown, with its index llms.txt."""
    site = Path(config.site_dir)
    for path in (
        *EXECUTED.glob("*.html"),
        *filter(None, (executed(p.name) for p in SOURCES.glob("*.ipynb"))),
    ):
        shutil.copyfile(path, site / "notebooks" / path.name)
    for path in DOCS.rglob("*.md"):
        target = site / path.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    (site / "llms.txt").write_text(_llms_txt(config.site_description or ""), "utf-8")


def on_page_content(html: str, *, page: Page, **_: object) -> str:
    """Turn the roles of docstrings into links, where what they name has a place in the reference."""

    def turned(role: re.Match[str]) -> str:
        name = role[1].rpartition(".")[2]
        shown = f"<code>{name}</code>"
        if name not in _places():
            return shown
        address, anchor = _places()[name]
        relative = posixpath.relpath(address, posixpath.dirname(page.file.src_uri) or ".")
        return f'<a href="{relative.removesuffix("md")}html#{anchor}">{shown}</a>'

    return ROLE.sub(turned, html)


def _llms_txt(about: str) -> str:
    """The table of all pages in the form of llmstxt.org."""
    table = (DOCS / "README.md").read_text("utf-8").partition("\n## All pages\n")[2]
    _, *rows = re.findall(r"^\| (.+?) \| (.*?) ?\|$", table, re.MULTILINE)
    lines = ["# kmip-data", "", f"> {about}", ""]
    for pages, topic in rows:
        if "(../" not in pages:  # only docs/ is Markdown on the site
            lines.append(f"- {pages}: {topic}" if topic else f"\n## {pages.strip('*')}\n")
    return "\n".join(lines) + "\n"


def _expanded(items: list[Any]) -> list[Any]:
    """The navigation, each folder in it replaced by its pages, ``README.md`` first."""
    found: list[Any] = []
    for item in items:
        title, inside = next(iter(item.items())) if isinstance(item, dict) else (None, item)
        if isinstance(inside, list):
            inside = _expanded(inside)
        elif inside.endswith("/"):
            pages = _reference() if inside == "reference/" else (DOCS / inside).glob("*.md")
            names = sorted(
                (Path(page).name for page in pages), key=lambda name: (name != "README.md", name)
            )
            inside = [f"{inside}{name}" for name in names]
        found.append(inside if title is None else {title: inside})
    return found


def _address(path: Path) -> str:
    """Return the site's address of a file in the repository."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix().replace(".ipynb", ".md")
    name = path.relative_to(ROOT).as_posix()
    return (
        name
        if name in {"CONTRIBUTING.md", "CHANGELOG.md"}
        else f"files/{name.removesuffix('.md')}.md"
    )


@functools.cache
def _reference() -> dict[str, str]:
    """Address and text of each page of the reference: a page for each module that public names come from."""
    names_by_title: dict[str, list[str]] = defaultdict(list)
    for package, stub in STUBS.items():
        for node in ast.parse(stub.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                module = node.module.split(".")[0]
                title = module if package == "kmip_data" else f"models: {module}"
                names_by_title[title] += [f"{package}.{name.name}" for name in node.names]
    for title, modules in MODULES.items():
        names_by_title[title] += modules
    pages, rows = {}, []
    for title, names in names_by_title.items():
        page = f"{title.replace(': ', '-')}.md"
        pages[f"reference/{page}"] = (
            f"# {title}\n\n" + "\n\n".join(f"::: {name}" for name in names) + "\n"
        )
        rows.append(f"| [{title}]({page}) | {', '.join(f'`{name}`' for name in names)} |\n")
    index = f"# Reference\n\nFrom the docstrings.\n\n| page | names |\n|---|---|\n{''.join(rows)}"
    return {"reference/README.md": index, **pages}


@functools.cache
def _places() -> dict[str, tuple[str, str]]:
    """Page and anchor of each public name."""
    places = {}
    for address, text in _reference().items():
        for anchor in re.findall("^::: (.+)$", text, re.MULTILINE):
            places[anchor.rpartition(".")[2]] = (address, anchor)
    return places
