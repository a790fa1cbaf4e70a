"""Advice in error messages never removes a file; the commands that no test types never increase."""

import ast
import re

import pytest
from support.shared import ROOT

from tools import advice

#: Folders of the package.
FOLDERS = ("kmip_data", "pipelines", "models", "cli")
#: Arguments and variables that hold advice.
ADVICE = {"steps", "remedy", "step", "hint"}
#: Commands and requests that remove or replace a file. Lines of a table are the user's to change, and
#: ``kmip-data remove`` asks before it removes.
REMOVERS = re.compile(
    r"\brm\b|\bunlink\b|\bgunzip (?!-k )|--force(?!-reinstall)|\A(?!.*\.damaged).*\bmv\b"
    r"|(?<!kmip-data )\b(?:remove|delete|erase)\b"
    r"(?! (?:the lines?|one of the lines|outliers|the \{rows\}|raw/NAME))"
)


def advice_expressions(tree):
    """Yield the line and text of each expression that is given as advice."""
    for node in ast.walk(tree):
        values = []
        if isinstance(node, ast.keyword) and node.arg in ADVICE:
            values = [node.value]
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {getattr(target, "id", getattr(target, "attr", "")) for target in targets}
            if names & ADVICE:
                values = [node.value]
        for value in values:
            yield value.lineno, ast.unparse(value)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_advice_removes_a_file(folder):
    removing = []
    count = 0
    for path in sorted((ROOT / folder).rglob("*.py")):
        for line, text in advice_expressions(ast.parse(path.read_text())):
            count += 1
            if match := REMOVERS.search(text):
                removing.append(f"{path.relative_to(ROOT)}:{line}: {match[0]}: {text.strip()[:90]}")
    assert count > 20
    assert removing == []


@pytest.mark.parametrize(
    "advice",
    ["rm a", "gunzip a.gz", "mv a b", "add --force", "remove {path}", "delete that folder"],
)
def test_advice_that_removes_is_recognised(advice):
    tree = ast.parse(f'raise UsageError("No.", steps="{advice}")')
    assert REMOVERS.search(" ".join(text for _, text in advice_expressions(tree)))


MODULE = '''\
"""Module that mentions kmip-data list."""

def refuse(name):
    """Refuse a name; see kmip-data info."""
    raise UsageError("No.", steps=["all", Command("kmip-data info {} --json", name, *words)])

click.echo(f"Next: kmip-data info {name}; or kmip-data list, which lists all")

option = click.option("--name", help="such as kmip-data list")
click.echo(f"kmip-data predict {run}")
'''


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A package of one module with advice, a list of typed commands and notes of tests."""
    (tmp_path / "kmip_data").mkdir()
    (tmp_path / "kmip_data" / "refusal.py").write_text(MODULE)
    commands = advice.advised_commands(tmp_path)
    monkeypatch.setattr(advice, "advised_commands", lambda: commands)
    monkeypatch.setattr(advice, "LIST", tmp_path / "typed.txt")
    monkeypatch.setattr(advice, "NOTES", tmp_path / "notes")
    advice.NOTES.mkdir()
    return tmp_path


def test_commands_are_those_of_advice_alone(code):
    assert [template for _, template in advice.advised_commands()] == [
        "kmip-data info {} --json {*}",
        "kmip-data info {}",
        "kmip-data list",
        "kmip-data predict {}",
    ]


def test_lint_fails_if_a_command_is_untyped(code, capsys):
    (module, _), *_ = advice.advised_commands()
    note = advice.NOTES / "1.txt"
    note.write_text(f"{module}: kmip-data list\n{module}: kmip-data gone\n")
    assert advice.main(["--record"]) == 1
    assert advice.LIST.read_text() == f"{module}: kmip-data list\n"
    assert "4 commands in the code, 1 typed by tests" in capsys.readouterr().out
    note.write_text("".join(f"{module}: {name}\n" for _, name in advice.advised_commands()))
    assert advice.main(["--record"]) == 0
    # A command whose text changed is to be typed again.
    advice.LIST.write_text(advice.LIST.read_text().replace("list", "list --old"))
    assert advice.main([]) == 1


@pytest.mark.parametrize(
    ("template", "printed", "matches"),
    [
        ("kmip-data info {}", "kmip-data info assay", True),
        ("kmip-data info {}", "kmip-data info --home 'a b' assay", True),
        ("kmip-data info {}", "kmip-data info assay --model gcn", True),
        ("kmip-data info {}", "kmip-data info", False),
        ("kmip-data build {} --name {} {}", "kmip-data build graphs --name a --set label=y", True),
        ("kmip-data build {} --name NAME", "kmip-data build graphs --name NAME --limit 5", True),
        ("kmip-data build {} --name NAME", "kmip-data build graphs --name", False),
        ("kmip-data list", "kmip-data list --all", True),
        ("kmip-data list --all", "kmip-data list", False),
        ("kmip-data verify {} --repair", "kmip-data verify a", False),
        ("kmip-data remove {*} --yes", "kmip-data remove a 'b c' --yes", True),
        ("kmip-data build {} --name {} {*}", "kmip-data build g --name a", True),
    ],
)
def test_printed_commands_match_their_template(template, printed, matches):
    assert bool(advice.pattern(template).fullmatch(printed)) == matches


#: A command with a path that is not quoted, which breaks if a folder has a blank in its name.
UNQUOTED_PATH = re.compile(r"kmip-data [a-z][^\"']*\{(?!quoted)[a-z_.]*\b(?:path|folder)\}")


@pytest.mark.parametrize("folder", FOLDERS)
def test_paths_in_commands_are_quoted(folder):
    sources = {path: path.read_text() for path in sorted((ROOT / folder).rglob("*.py"))}
    unquoted = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path, source in sources.items()
        for match in UNQUOTED_PATH.finditer(source)
    ]
    assert len(sources) > 20
    assert unquoted == []


def test_an_unquoted_path_is_recognised():
    assert UNQUOTED_PATH.search('f"kmip-data info {self.build.path}"')
    assert not UNQUOTED_PATH.search('f"kmip-data info {shlex.quote(str(self.build.path))}"')
