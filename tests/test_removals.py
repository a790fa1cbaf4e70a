"""Files are removed and renamed in one module, which knows what is ours and follows no link."""

from __future__ import annotations

import ast

from support.shared import ROOT

ALLOWED = "kmip_data/files/atomic_writes.py"
FUNCTIONS = {
    "remove",
    "unlink",
    "rename",
    "renames",
    "replace",
    "rmdir",
    "removedirs",
    "rmtree",
    "move",
}
METHODS = {"unlink", "rename", "rmdir"}


def _removals(source: str) -> list[int]:
    """Lines of a module that remove or rename by themselves."""
    tree = ast.parse(source)
    modules = {"os", "shutil"}
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {name.asname for name in node.names if name.name in modules and name.asname}
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            lines += [node.lineno for name in node.names if name.name in FUNCTIONS]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            lines += [node.lineno] * (node.value.id in modules and node.attr in FUNCTIONS)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            one = len(node.args) == 1 and not node.keywords
            lines += [node.lineno] * (
                node.func.attr in METHODS or (node.func.attr == "replace" and one)
            )
    return lines


def test_one_module_removes_and_replaces() -> None:
    places = []
    for folder in ("kmip_data", "pipelines", "models", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            places += [
                f"{name}:{line}" for line in _removals(path.read_text("utf-8")) if name != ALLOWED
            ]
    assert places == []
    assert _removals((ROOT / ALLOWED).read_text("utf-8"))
