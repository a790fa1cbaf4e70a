"""Public names keep their arguments, or are deprecated first (docs/api.md)."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sys
import warnings
from pathlib import Path

import pytest
from support.cases import check_each

ROOT = Path(__file__).resolve().parents[1]
#: The promises by name; ``make docs-tables`` writes new ones, where none is broken.
RECORD = Path(__file__).with_suffix(".json")
STUBS = {
    "kmip_data": "kmip_data",
    "kmip_data.models": "models",
    "kmip_data.graphs": "kmip_data/graphs",
}
#: Where dataset classes have their ``**arguments`` from.
SHARED = {
    "kmip_data.datasets.base": ("BuiltDataset", "Arguments", "PartArguments", "RuleArguments"),
    "kmip_data.builds.home": ("BuildArguments",),
}
WITHOUT_MARK = ("shared.", "exit.", "json.")  #: promises that the page names together: stable


def arguments(path: Path, name: str) -> list[str]:
    """``name@place=default`` of each argument of a function or class.

    Importing it would import torch.
    """
    nodes = {
        node.name: node for node in ast.parse(path.read_text("utf-8")).body if hasattr(node, "name")
    }
    node, first = nodes[name], 0
    while isinstance(node, ast.ClassDef):
        inside = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        fields = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
        if "__init__" not in inside and fields:
            return [f"{each}=" for each in fields if not each.startswith("_")]
        base = ast.unparse(node.bases[0]) if node.bases else "object"
        if "__init__" not in inside and base not in nodes:
            return [f"as {base}="]
        node, first = inside.get("__init__") or nodes[base], 1
    args = node.args
    places = [*args.posonlyargs, *args.args][first:]
    defaults = [None] * (len(places) - len(args.defaults)) + args.defaults
    found = [
        (f"{arg.arg}@{i}", value)
        for i, (arg, value) in enumerate(zip(places, defaults, strict=True))
    ]
    found += [
        (arg.arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    stars = [f"*{ast.unparse(arg)}" for arg in (args.vararg, args.kwarg) if arg]
    return [arg if value is None else f"{arg}={ast.unparse(value)}" for arg, value in found] + stars


def public(root: Path, stubs: dict[str, str]) -> dict[str, list[str]]:
    """Names of stubs with their arguments."""
    found = {}
    for package, folder in stubs.items():
        stub = (root / folder / "__init__.pyi").read_text("utf-8")
        for module, name in re.findall(r"^from (\.\S+) import (\w+) as ", stub, re.MULTILINE):
            path = source(root, f"{package}{module}")
            deprecated = ["deprecated="] * is_deprecated(path, name)
            found[f"{package}.{name}"] = arguments(path, name) + deprecated
    return found


def is_deprecated(path: Path, name: str) -> bool:
    """True if a function or class has the decorator of PEP 702."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if getattr(node, "name", None) == name:
            return any(ast.unparse(each).startswith("deprecated(") for each in node.decorator_list)
    return False


def source(root: Path, module: str) -> Path:
    """File of a module: the stub of one whose classes are made when they are used."""
    path = Path(*module.split("."))
    file = root / path.with_suffix(".py")
    if not file.is_file():
        file = root.joinpath(*path.parts[1:]).with_suffix(".py")
    stub = file.with_suffix(".pyi")
    return stub if stub.is_file() else file


def others() -> dict[str, list[str]]:
    """Shared arguments, exit codes of errors.md, and keys of ``--json`` of cli.md."""
    errors, cli = ((ROOT / "docs" / name).read_text("utf-8") for name in ("errors.md", "cli.md"))
    table = cli.partition("## JSON")[2].partition("<!--")[0]
    found = {}
    for module, names in SHARED.items():
        found |= {f"shared.{name}": arguments(source(ROOT, module), name) for name in names}
    for codes, name in re.findall(r"^\| ([\d, ]+) \| `(\w+)`", errors, re.MULTILINE):
        found[f"exit.{name}"] = [f"code={codes}"]
    for name, row in re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE):
        found[f"json.{name}"] = [f"{key}=" for key in re.findall(r"`(\w+)`", row)]
    return found


def marks_of(page: str) -> dict[str, str]:
    rows = re.findall(r"^\| `([\w.]+)` \| (\w+) \| (.+) \|$", page, re.MULTILINE)
    return {
        f"{room}.{name}": mark for room, mark, cell in rows for name in re.findall(r"`(\w+)`", cell)
    }


def faults(
    old: dict[str, list[str]], new: dict[str, list[str]], page: str, changelog: str
) -> set[str]:
    """Promises of ``old`` that ``new`` breaks, and names without a mark on the page, or without a warning."""
    marks = marks_of(page)
    named = re.findall(r"^\| `(\S+)` \| \d", page, re.MULTILINE)
    retired = {name for name in named if f"`{name}`" in changelog}
    changed = set()
    for name, before in old.items():
        mark, now = marks.get(name, "stable"), new.get(name)
        if now is None:
            changed |= {name} if mark != "experimental" else set()
        elif mark == "stable" and before is not None:  # None: of a name that was not stable
            # An argument may get a default, and a new one has to have one.
            kept = {*now, *(each.partition("=")[0] for each in now)}
            known = {each.partition("=")[0] for each in before}
            required = {each for each in now if "=" not in each and each[0] != "*"} - known
            lost = {re.split("[@=]", each)[0] for each in {*before} - kept | required}
            changed |= {f"{name}({each})" for each in lost}
    silent = {name for name in retired & new.keys() if "deprecated=" not in new[name]}
    unmarked = {name for name in new if name not in marks and not name.startswith(WITHOUT_MARK)}
    found = {
        "changed": changed - retired,
        "unmarked: name it in docs/api.md": unmarked,
        "deprecated without a warning": silent,
    }
    return {f"{name} is {what}" for what, names in found.items() for name in names}


def test_promises_are_kept():
    page, changelog = ((ROOT / name).read_text("utf-8") for name in ("docs/api.md", "CHANGELOG.md"))
    new = public(ROOT, STUBS) | others()
    assert not faults(json.loads(RECORD.read_text("utf-8")), new, page, changelog)
    marks = marks_of(page)
    kept = {
        name: new[name] if marks.get(name, "stable") == "stable" else None for name in sorted(new)
    }
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(args)}" for name, args in kept.items())
    if os.environ.get("KMIP_DATA_WRITE_DOCS"):
        RECORD.write_text(f"{{\n{text}\n}}\n", "utf-8")
    assert RECORD.read_text("utf-8") == f"{{\n{text}\n}}\n", "run make docs-tables"


CODE = """
class Base:
    def __init__(self, a, b=1, *, c=2, **more): ...
class Thing(Base): ...
def old(): ...
def work(x, y=0, *, z=0): ...
"""
STUB = """
from .code import Thing as Thing
from .code import old as old
from .code import work as work
"""
TABLE = "| `fake` | stable | `Thing`, `old`, `work` |\n"
GONE = STUB.replace("from .code import old as old\n", "")
DECORATED = '@deprecated("since 0.2, use work")\ndef old(): ...'
WARNS = "from typing_extensions import deprecated\n" + CODE.replace("def old(): ...", DECORATED)
ROW = f"{TABLE}| `fake.old` | 0.2 | 0.3 | `work` |\n"
CASES = {
    "nothing": (CODE, STUB, TABLE, "", None),
    "vanished": (CODE, GONE, TABLE, "", "fake.old is changed"),
    "vanished, provisional": (
        CODE,
        GONE,
        TABLE.replace("stable", "provisional"),
        "",
        "fake.old is changed",
    ),
    "vanished, experimental": (CODE, GONE, TABLE.replace("stable", "experimental"), "", None),
    "vanished, in the changelog alone": (CODE, GONE, TABLE, "`fake.old`", "fake.old is changed"),
    "vanished, on the page alone": (CODE, GONE, ROW, "", "fake.old is changed"),
    "vanished after a deprecation": (CODE, GONE, ROW, "`fake.old`", None),
    "deprecated": (WARNS, STUB, ROW, "`fake.old`", None),
    "silent": (CODE, STUB, ROW, "`fake.old`", "fake.old is deprecated without a warning"),
    "no mark": (
        CODE,
        STUB,
        TABLE.replace(", `work`", ""),
        "",
        "fake.work is unmarked: name it in docs/api.md",
    ),
    "an argument vanished": (
        CODE.replace(", *, z=0", ""),
        STUB,
        TABLE,
        "",
        "fake.work(z) is changed",
    ),
    "an argument moved": (
        CODE.replace("x, y=0", "y, x=0"),
        STUB,
        TABLE,
        "",
        "fake.work(x) is changed",
    ),
    "another default": (CODE.replace("c=2", "c=3"), STUB, TABLE, "", "fake.Thing(c) is changed"),
    "no default": (CODE.replace("y=0", "y"), STUB, TABLE, "", "fake.work(y) is changed"),
    "one more that is required": (
        CODE.replace("z=0", "z=0, w"),
        STUB,
        TABLE,
        "",
        "fake.work(w) is changed",
    ),
    "no more options": (
        CODE.replace(", **more", ""),
        STUB,
        TABLE,
        "",
        "fake.Thing(*more) is changed",
    ),
    "one more, a default more": (CODE.replace("x, y=0", "x=1, y=0, v=0"), STUB, TABLE, "", None),
    "provisional": (
        CODE.replace("y=0", "y=1"),
        STUB,
        TABLE.replace("stable", "provisional"),
        "",
        None,
    ),
}


def test_a_broken_promise_is_a_fault(tmp_path):
    (tmp_path / "fake").mkdir()

    def names(code, stub):
        (tmp_path / "fake/code.py").write_text(code)
        (tmp_path / "fake/__init__.pyi").write_text(stub)
        return public(tmp_path, {"fake": "fake"})

    def check(case):
        code, stub, page, changelog, fault = CASES[case]
        found = faults(names(CODE, STUB), names(code, stub), page, changelog)
        assert not found if fault is None else fault in found, found

    check_each(check, CASES)


def test_a_deprecated_name_warns(tmp_path, monkeypatch):
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake/code.py").write_text(WARNS)
    (tmp_path / "fake/__init__.pyi").write_text(STUB)
    shutil.copy(ROOT / "kmip_data/graphs/__init__.py", tmp_path / "fake/__init__.py")
    monkeypatch.syspath_prepend(tmp_path)
    import fake

    for _ in range(2):
        with pytest.warns(DeprecationWarning, match=r"since 0\.2, use work"):
            fake.old()
    with warnings.catch_warnings(action="error"):
        assert fake.work is fake.code.work
    for name in ("fake", "fake.code"):
        del sys.modules[name]
