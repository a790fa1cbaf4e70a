"""Messages of all errors, in a file that a person reviews: ``pytest --update-messages`` writes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from support.shared import ROOT

from tools.advice import advice_texts
from tools.structure import error_classes, modules

FILE = ROOT / "tests" / "messages.txt"


def messages_in(tree: ast.AST, constructors: set[str]) -> Iterator[str]:
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
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                message = node.args[0]
                if name in constructors:
                    for text in assigned.get(ast.unparse(message), [message]):
                        yield from advice_texts(text)


def test_messages_are_those_that_were_reviewed(request: pytest.FixtureRequest) -> None:
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in modules(ROOT).items()}
    constructors = error_classes(trees.values()) | {"error_with_correction"}
    lines: list[str] = []
    for name, tree in trees.items():
        texts = (text for text in messages_in(tree, constructors) if any(map(str.isalpha, text)))
        lines += dict.fromkeys(f"{name}: {text}" for text in texts)
    if request.config.getoption("--update-messages"):
        FILE.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == FILE.read_text("utf-8").splitlines(), "pytest --update-messages writes them"
