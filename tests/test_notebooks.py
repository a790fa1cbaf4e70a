"""Notebooks of the docs: committed without outputs, each opens in Colab, and their names exist."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
from pathlib import Path

import click
import pytest

from kmip_data.cli.main import root
from kmip_data.cli.shared.commands import Name

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
PROJECT = re.findall(r'^PROJECT = "https://(.+)"$', (ROOT / "setup.py").read_text("utf-8"), re.MULTILINE)[0]
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def test_each_is_in_the_navigation_and_the_list_of_pages():
    assert len(NOTEBOOKS) == 5
    navigation, pages = ((ROOT / name).read_text("utf-8") for name in ("mkdocs.yml", "docs/README.md"))
    for name in NOTEBOOKS:
        assert f"notebooks/{name.replace('.ipynb', '.md')}\n" in navigation
        assert f"(notebooks/{name})" in pages


def cells_of(name: str) -> list[tuple[str, str]]:
    """Kind and text of each cell."""
    cells = json.loads((FOLDER / name).read_text("utf-8"))["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_its_format_is_valid(name):
    nbformat = pytest.importorskip("nbformat", reason="the extra docs is not installed")
    nbformat.validate(nbformat.read(FOLDER / name, as_version=nbformat.NO_CONVERT))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_committed_clean_and_opens_in_colab(name):
    for cell in json.loads((FOLDER / name).read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"], cell["metadata"]) == ([], None, {})
    (_, first), (_, second), *_ = cells_of(name)
    at = f"{PROJECT.replace('github.com/', 'github/')}/blob/main/docs/notebooks/{name}"
    assert f"](https://colab.research.google.com/{at})" in first
    assert f"@ git+https://{PROJECT}" in second


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_its_names_commands_and_links_exist(name, monkeypatch):
    """Only ``make docs`` runs them, which takes minutes."""
    monkeypatch.setattr(Name, "convert", lambda self, value, param, ctx: value)
    parent = click.Context(root, info_name="kmip-data", **root.context_settings)
    for kind, text in cells_of(name):
        if kind == "markdown":
            for link in re.findall(r"\]\((?!https:)([^)#]+)", text):
                assert (FOLDER / link).is_file(), link
            continue
        for line in re.findall(r"^!kmip-data (.+)$", text, re.MULTILINE):
            command, *args = shlex.split(
                line.replace("{EXTRACT}", str(__file__)).replace("{AREA}", "1,2,3,4")
            )
            root.get_command(parent, command).make_context(command, args, parent=parent).close()
        python = re.sub(r"^( *)[!%].*$", r"\1pass", text, flags=re.MULTILINE)
        for node in ast.walk(ast.parse(python)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("kmip_data"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), node.module
