"""Messages of all errors, in a file that a person reviews: ``pytest --update-messages`` writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from support.shared import ROOT

from tools.advice import advice_texts
from tools.structure import OWN_ERROR, modules

FILE = ROOT / "tests" / "messages.txt"


def messages_in(tree: ast.AST) -> Iterator[str]:
    """Yield the template of each message below ``tree``, with ``{}`` for each expression.

    A variable stands for all texts that its function assigns to it.
    """
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.Module):
            continue
        assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                assigned.setdefault(ast.unparse(targets[0]), []).append(node.value)
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node.args:
                message = node.args[0]
                if re.search(rf"{OWN_ERROR}|error_with_correction", ast.unparse(node.func)):
                    for text in assigned.get(ast.unparse(message), [message]):
                        yield from advice_texts(text)


def test_messages_are_those_that_were_reviewed(request: pytest.FixtureRequest) -> None:
    lines: list[str] = []
    for name, path in modules(ROOT).items():
        texts = messages_in(ast.parse(path.read_text("utf-8")))
        lines += dict.fromkeys(f"{name}: {text}" for text in texts if any(map(str.isalpha, text)))
    if request.config.getoption("--update-messages"):
        FILE.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == FILE.read_text("utf-8").splitlines(), "pytest --update-messages writes them"
