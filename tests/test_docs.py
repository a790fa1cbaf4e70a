"""Pages in docs/ name commands, options, functions and variables that exist."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import textwrap
from pathlib import Path

import click
import pytest
from support.cases import check_each

from kmip_data import plugins
from kmip_data.cli.main import root
from kmip_data.cli.shared.commands import Name
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.wording import OPTIONS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "adr" not in path.parts),
]
CODE = ("kmip_data", "pipelines", "models", "cli")
VARIABLE = re.compile(r"\bKMIP_DATA_[A-Z_]+\b")
OF_TESTS = {"KMIP_DATA_TEST_FILES", "KMIP_DATA_WRITE_DOCS"}


def command_lines(text: str) -> list[str]:
    """Commands that stand in a block, or in a line with an option or a second word."""
    blocks = re.findall(r"^(?: {4}(?:\w+\$ +)?)?(kmip-data \w.*)$", text, re.MULTILINE)
    inline = [line for line in re.findall(r"`(kmip-data \w[^`]*)`", text) if len(line.split()) > 2]
    lines = [re.split(r" +# | > | \\?\|", line)[0].strip() for line in (*blocks, *inline)]
    return [line for line in lines if "…" not in line and "[" not in line and line != "kmip-data list"]


def python_blocks(text: str) -> list[str]:
    fenced = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE)
    return [*fenced, *(textwrap.dedent(b) for b in indented if re.match(r" {4}(?:from|import) ", b))]


def test_commands_parse(monkeypatch):
    """Options and their values; names of builds and runs stand for the reader's own."""

    def check(page):
        monkeypatch.setattr(Name, "convert", lambda self, value, param, ctx: value)
        monkeypatch.setattr(plugins, "load", lambda source: None)
        parent = click.Context(root, info_name="kmip-data", **root.context_settings)
        for line in command_lines(page.read_text("utf-8")):
            _, name, *args = shlex.split(line)
            command = root.get_command(parent, name)
            assert command is not None, line
            try:
                command.make_context(name, args, parent=parent).close()
            except click.exceptions.Exit:  # of a --help that it ends in
                pass
            except Exception as error:
                pytest.fail(f"{line}: {error}")

    check_each(check, PAGES)


def test_there_are_commands_to_parse():
    assert sum(len(command_lines(page.read_text("utf-8"))) for page in PAGES) > 150


def test_python_compiles_and_its_names_exist():
    def check(page):
        for block in python_blocks(page.read_text("utf-8")):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kmip_data"):
                    module = importlib.import_module(str(node.module))
                    for name in node.names:
                        assert hasattr(module, name.name), f"{node.module} has no {name.name}"

    check_each(check, PAGES)


def test_names_in_the_text_exist():
    """``kmip_data.runtime.memory.release()`` and the like."""

    def check(page):
        prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for name in re.findall(r"`(kmip_data(?:\.\w+)+)", prose):
            found: object = importlib.import_module("kmip_data")
            path = "kmip_data"
            for part in name.split(".")[1:]:
                path = f"{path}.{part}"
                if not hasattr(found, part):
                    importlib.import_module(path)
                found = getattr(found, part)

    check_each(check, PAGES)


def test_every_parameter_of_a_dataset_is_on_a_page():
    def check(dataset):
        pipeline = load_pipeline(load_manifest(dataset))
        text = "".join(page.read_text("utf-8") for page in PAGES if page.name != "fidelity.md")
        for name in (*pipeline.Params.model_fields, *pipeline.SplitParams.model_fields):
            assert OPTIONS.get(name, name) in text, f"{name} of {dataset} is on no page"

    check_each(check, dataset_names())


def test_variables_of_the_environment():
    named = set().union(*(VARIABLE.findall(page.read_text("utf-8")) for page in PAGES))
    folders = (*CODE, "tests/benchmarks")
    code = (path.read_text("utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py"))
    read = set().union(*(VARIABLE.findall(text) for text in code))
    assert read
    assert named - OF_TESTS <= read, "named, but read nowhere"
    assert read - named <= {"KMIP_DATA_COMPLETE"}, "read, but on no page"
