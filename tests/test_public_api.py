"""Every public name has a mark in docs/api.md, and the exit codes of docs/errors.md are those of the code."""

import inspect
import re

from support.shared import ROOT

import kmip_data
import kmip_data.graphs
import kmip_data.models
from kmip_data import errors


def test_every_public_name_has_a_mark():
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| \w+ \| (.+) \|$", page, re.MULTILINE)
    marked = [(module, name) for module, cell in rows for name in re.findall(r"`(\w+)`", cell)]
    public = [
        (package.__name__, name)
        for package in (kmip_data, kmip_data.graphs, kmip_data.models)
        for name in package.__all__
        if name != "__version__" and not inspect.ismodule(getattr(package, name))
    ]
    assert sorted(marked) == sorted(public)


def test_exit_codes_of_the_page_are_those_of_the_code():
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+)[\d, ]* \| `(\w+)`", page, re.MULTILINE)
    assert len(rows) == 11
    for code, name in rows:
        value = getattr(errors, name)
        assert int(code) == (value.exit_code if isinstance(value, type) else value), name
