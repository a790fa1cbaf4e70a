"""docs/api.md marks the public names, and docs/errors.md has the exit codes of the code."""

import inspect
import re
from importlib import import_module

from support.shared import ROOT

import kmip_data
import kmip_data.graphs
import kmip_data.models
from kmip_data import errors


def marked_names():
    """Return the module and name of every entry of docs/api.md."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| \w+ \| (.+) \|$", page, re.MULTILINE)
    return [(module, name) for module, cell in rows for name in re.findall(r"`(\w+)`", cell)]


def test_every_public_name_has_a_mark():
    marked = marked_names()
    assert len(set(marked)) == len(marked), "a name is twice in docs/api.md"
    for module, name in marked:
        assert hasattr(import_module(module), name), f"docs/api.md: {module} has no {name}"

    packages = (kmip_data, kmip_data.graphs, kmip_data.models)
    for package in packages:
        public = {
            name
            for name in package.__all__
            if name != "__version__" and not inspect.ismodule(getattr(package, name))
        }
        names = {name for module, name in marked if module == package.__name__}
        lacking, gone = sorted(public - names), sorted(names - public)
        assert not lacking, f"add {lacking} to a row of {package.__name__} in docs/api.md"
        assert not gone, f"{package.__name__} does not export {gone}: remove them from docs/api.md"


def test_pages_and_notebooks_import_marked_names_alone():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.ipynb")]
    imported = {
        (module, name)
        for page in pages
        for module, names in re.findall(
            r"from (kmip_data[\w.]*) import ((?:\w+, )*\w+)", page.read_text("utf-8")
        )
        for name in names.split(", ")
    }
    assert len(imported) > 40
    assert imported - set(marked_names()) == set()


def test_documented_exit_codes_equal_the_code():
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+)[\d, ]* \| `(\w+)`", page, re.MULTILINE)
    assert len(rows) == 11
    for code, name in rows:
        value = getattr(errors, name)
        assert int(code) == (value.exit_code if isinstance(value, type) else value), name
