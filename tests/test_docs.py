"""Pages and notebooks in docs/ name commands, options, functions and variables that exist."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pydoc
import re
import shlex
import subprocess
import sys
import textwrap

import click
import pytest
from support.cases import check_each
from support.shared import ROOT

from kmip_data import plugins
from kmip_data.cli.main import root
from kmip_data.cli.shared.targets import NameType
from kmip_data.graphs.encoding import known_encodings
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.config import component_kinds
from kmip_data.pipelines.base import load_pipeline
from kmip_data.text import PARAMETER_OPTIONS
from tools import structure

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
    return [
        line for line in lines if "…" not in line and "[" not in line and line != "kmip-data list"
    ]


def python_blocks(text: str) -> list[str]:
    fenced = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE)
    return [
        *fenced,
        *(textwrap.dedent(b) for b in indented if re.match(r" {4}(?:from|import) ", b)),
    ]


@pytest.fixture
def parses(monkeypatch):
    """Parse a command line; names of builds and runs are the reader's own."""
    monkeypatch.setattr(NameType, "convert", lambda self, value, param, ctx: value)
    monkeypatch.setattr(plugins, "load", lambda source: None)
    parent = click.Context(root, info_name="kmip-data", **root.context_settings)

    def parse(line):
        name, *args = shlex.split(line)
        command = root.get_command(parent, name)
        assert command is not None, line
        try:
            command.make_context(name, args, parent=parent).close()
        except click.exceptions.Exit:  # of a --help that it ends in
            pass
        except Exception as error:
            pytest.fail(f"{line}: {error}")

    return parse


def check_names(code):
    """Names that code imports from the package exist."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kmip_data"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"


def test_commands_of_the_pages_parse(parses):
    def check(page):
        for line in command_lines(page.read_text("utf-8")):
            parses(line.removeprefix("kmip-data "))

    check_each(check, PAGES)
    assert sum(len(command_lines(page.read_text("utf-8"))) for page in PAGES) > 150


def test_python_compiles_and_its_names_exist():
    def check(page):
        for block in python_blocks(page.read_text("utf-8")):
            check_names(block)

    check_each(check, PAGES)


def test_snippets_of_a_page_define_what_they_use():
    """A reader who copies the snippets from the top of a page meets no ``NameError``."""

    def check(page):
        blocks = python_blocks(page.read_text("utf-8"))
        words = ["-m", "ruff", "check", "--isolated", "--select", "F821", "-"]
        checked = subprocess.run(
            [sys.executable, *words],
            input="\n".join(blocks),
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout

    check_each(check, [page for page in PAGES if python_blocks(page.read_text("utf-8"))])


def test_names_in_the_text_exist():
    """``kmip_data.runtime.reused_buffers.release_buffers()`` and the like."""

    def check(page):
        prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for name in re.findall(r"`(kmip_data(?:\.\w+)+)", prose):
            item: object = importlib.import_module("kmip_data")
            path = "kmip_data"
            for part in name.split(".")[1:]:
                path = f"{path}.{part}"
                if not hasattr(item, part):
                    importlib.import_module(path)
                item = getattr(item, part)

    check_each(check, PAGES)


def names_in(tree):
    """Names that a module defines or imports, at any depth, with attributes that it sets."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def test_references_in_docstrings_exist():
    """A target of ``:func:`` and the like is a name of its module, or leads to one from its package."""
    known = structure.modules(ROOT)
    texts = {name: path.read_text("utf-8") for name, path in known.items()}
    names = {name: names_in(ast.parse(text)) for name, text in texts.items()}

    def exists(target, module):
        is_package = known[module].name == "__init__.py"
        package = module if is_package else module.rpartition(".")[0]
        home = package + target if target.startswith(".") else target
        inside = set()
        while home and home not in known:
            home, _, last = home.rpartition(".")
            inside.add(last)
        is_ours = inside <= names[home or module]
        return is_ours or pydoc.locate(target) is not None  # another package, or a lazy name

    references = [
        (module, reference)
        for module, text in texts.items()
        for reference in re.findall(r":(?:func|class|mod|data|meth|attr):`~?([^`]+)`", text)
    ]
    assert len(references) > 300
    broken = [f"{module}: {target}" for module, target in references if not exists(target, module)]
    assert not broken


def test_every_parameter_of_a_dataset_is_on_a_page():
    def check(dataset):
        pipeline = load_pipeline(load_manifest(dataset))
        text = "".join(page.read_text("utf-8") for page in PAGES if page.name != "fidelity.md")
        for name in (*pipeline.Params.model_fields, *pipeline.SplitParams.model_fields):
            assert PARAMETER_OPTIONS.get(name, name) in text, f"{name} of {dataset} is on no page"

    check_each(check, dataset_names())


def test_every_environment_variable_is_documented():
    named = set().union(*(VARIABLE.findall(page.read_text("utf-8")) for page in PAGES))
    folders = (*CODE, "benchmarks")
    code = (path.read_text("utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py"))
    read = set().union(*(VARIABLE.findall(text) for text in code))
    assert read
    assert named - OF_TESTS <= read, "named, but read nowhere"
    assert read - named <= {"KMIP_DATA_COMPLETE"}, "read, but on no page"


FOLDER = ROOT / "docs" / "notebooks"
PROJECT = re.findall(
    r'^PROJECT = "https://(.+)"$', (ROOT / "setup.py").read_text("utf-8"), re.MULTILINE
)[0]
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
#: How pages and notebooks name the project's address, without its scheme.
ADDRESSES = re.compile(
    r"(git clone https://|@ git\+https://|colab\.research\.google\.com/(?!assets/))([^\s\"\\]+?)"
    r"(?=[\s\"\\]|/blob/main)"
)


def test_the_project_address_equals_setup():
    """``make docs-tables`` writes ``PROJECT`` of setup.py into every page and notebook."""

    def addressed(match):
        at_colab = match[1].startswith("colab")
        address = PROJECT.replace("github.com/", "github/") if at_colab else PROJECT
        return match[1] + address

    def check(path):
        text = path.read_text("utf-8")
        written = ADDRESSES.sub(addressed, text)
        if os.environ.get("KMIP_DATA_WRITE_DOCS"):
            path.write_text(written, "utf-8")
        else:
            assert text == written, "run make docs-tables"

    paths = [ROOT / "docs" / "install.md", *sorted(FOLDER.glob("*.ipynb"))]
    assert all(ADDRESSES.search(path.read_text("utf-8")) for path in paths)
    check_each(check, paths)


def test_no_other_file_has_the_placeholder_of_an_address():
    """Once ``PROJECT`` of setup.py is another, it is left nowhere."""
    placeholder = "example" + ".org"
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name != "setup.py"]
    for folder in (*CODE, "docs", "tests", "conda", ".github", ".ci"):
        found = (ROOT / folder).rglob("*")
        files += [path for path in found if path.is_file() and path.suffix != ".pyc"]
    holders = []
    for path in files:
        text = path.read_text("utf-8", errors="replace")
        if placeholder in ADDRESSES.sub("", text):
            holders.append(path.relative_to(ROOT))
    assert len(files) > 500
    assert not holders


def test_each_notebook_is_in_the_navigation_and_the_list_of_pages():
    assert len(NOTEBOOKS) == 7
    navigation, pages = (
        (ROOT / name).read_text("utf-8") for name in ("mkdocs.yml", "docs/README.md")
    )
    for name in NOTEBOOKS:
        assert f"notebooks/{name.replace('.ipynb', '.md')}\n" in navigation
        assert f"(notebooks/{name})" in pages


def cells_of(name: str) -> list[tuple[str, str]]:
    """Kind and text of each cell."""
    cells = json.loads((FOLDER / name).read_text("utf-8"))["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_format_of_a_notebook_is_valid(name):
    nbformat = pytest.importorskip("nbformat", reason="the extra docs is not installed")
    nbformat.validate(nbformat.read(FOLDER / name, as_version=nbformat.NO_CONVERT))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_committed_clean_and_opens_in_colab(name):
    for cell in json.loads((FOLDER / name).read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"], cell["metadata"]) == ([], None, {})
    (_, first), (_, second), *_ = cells_of(name)
    assert f"/blob/main/docs/notebooks/{name})" in first
    assert "@ git+https://" in second


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_names_commands_and_links_of_a_notebook_exist(name, parses):
    """Notebooks themselves take minutes; only ``make docs`` runs them."""
    for kind, text in cells_of(name):
        if kind == "markdown":
            for link in re.findall(r"\]\((?!https:)([^)#]+)", text):
                assert (FOLDER / link).is_file(), link
            continue
        for line in re.findall(r"^!kmip-data (.+)$", text, re.MULTILINE):
            parses(line.replace("{EXTRACT}", str(__file__)).replace("{AREA}", "1,2,3,4"))
        check_names(re.sub(r"^( *)[!%].*$", r"\1pass", text, flags=re.MULTILINE))


def test_every_kind_of_layer_and_every_encoding_has_a_row_on_its_page():
    names_of_page = {
        "encodings.md": {encoding.prefix for encoding in known_encodings()},
        "attentions.md": {*component_kinds("attention")} - {"none"},
        "models.md": {*component_kinds("local")} - {"none"},
    }
    for page, names in names_of_page.items():
        text = (ROOT / "docs" / page).read_text("utf-8")
        cells = " ".join(re.findall(r"^\|([^|]+\|[^|]+)\|", text, re.MULTILINE))  # the first two
        missing = sorted(
            name
            for name in names
            if not re.search(rf"`{name.rstrip('-')}(?:-?[\dKDT][\w.]*)?(?:-seedS)?`", cells)
        )
        assert not missing, f"docs/{page} needs a row for each of these"
