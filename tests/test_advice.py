"""Advice in error messages never removes a file."""

import ast
import re

import pytest
from support.shared import ROOT

#: Folders of the package.
FOLDERS = ("kmip_data", "pipelines", "models", "cli")
#: Arguments and variables that hold advice.
ADVICE = {"next", "remedy", "step", "hint"}
#: Commands and requests that remove or replace a file. Lines of a table are the user's to change, and
#: ``kmip-data remove`` asks before it removes.
REMOVERS = re.compile(
    r"\brm\b|\bunlink\b|\bgunzip (?!-k )|--force(?!-reinstall)|\A(?!.*\.damaged).*\bmv\b"
    r"|(?<!kmip-data )(?<!\{PROGRAM\} )\b(?:remove|delete|erase)\b"
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
    tree = ast.parse(f'raise UsageError("No.", next="{advice}")')
    assert REMOVERS.search(" ".join(text for _, text in advice_expressions(tree)))
