"""The stub of the dataset classes, ``kmip_data/datasets/shipped.pyi``, from the classes themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from inspect import Parameter
from pathlib import Path

from kmip_data.datasets import shipped

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "kmip_data/datasets/shipped.pyi"
PUBLIC = ROOT / "kmip_data/__init__.pyi"
HEAD = '''"""Classes of the shipped datasets: written by tests/kmip_data/datasets/test_shipped.py."""

from collections.abc import Sequence
from typing import Any, Literal, Optional, Unpack

from kmip_data.datasets.base import (
    Arguments,
    BuiltDataset,
    Folder,
    PartArguments,
    RuleArguments,
)
from kmip_data.datasets.city import GraphLandArguments
from kmip_data.graphs.city_columns import Coordinates
from kmip_data.graphs.encodings.degree_profile import DegreeProfile

def class_names() -> list[str]: ...

'''
LINE = re.compile(r"^from \.datasets\.shipped import .*\n", re.MULTILINE)


def class_stub(title: str) -> str:
    """One class with its docstring, and its arguments where it has any of its own."""
    made = getattr(shipped, title)
    lines = [f"class {title}(BuiltDataset):", f'    """{made.__doc__}\n"""'.replace("\n", "\n    ")]
    own = list(made.own_arguments.parameters.values())
    if [argument.name for argument in own] != ["self", "root"]:
        arguments = []
        has_star = False
        for argument in own:
            if argument.kind is Parameter.KEYWORD_ONLY and not has_star:
                arguments.append("*")
            has_star |= argument.kind in {Parameter.VAR_POSITIONAL, Parameter.KEYWORD_ONLY}
            arguments.append(argument_text(argument))
        arguments.append(f"**arguments: Unpack[{made._arguments.__name__}]")
        lines.append(f"    def __init__({', '.join(arguments)}) -> None: ...")
    return "\n".join(lines) + "\n\n"


def argument_text(argument: Parameter) -> str:
    star = "*" if argument.kind is Parameter.VAR_POSITIONAL else ""
    text = f"{star}{argument.name}"
    if argument.annotation is not Parameter.empty:
        text += f": {argument.annotation}"
    if argument.default is not Parameter.empty:
        text += f" = {argument.default!r}"
    return text


def stub() -> str:
    """The whole stub, as ruff formats it."""
    text = HEAD + "".join(map(class_stub, shipped.class_names()))
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return ruff(text, STUB, "format")


def public_stub() -> str:
    """The stub of the public names with one line for each class."""
    text = PUBLIC.read_text("utf-8")
    names = shipped.class_names()
    lines = [f"from .datasets.shipped import {name} as {name}\n" for name in names]
    first = LINE.search(text)
    start = first.start() if first else text.index("from .reading")
    rest = LINE.sub("", text[start:])
    return ruff(text[:start] + "".join(lines) + rest, PUBLIC, "check", "--fix", "--select", "I")


def ruff(text: str, file: Path, *command: str) -> str:
    """What ruff makes of a text in place of ``file``."""
    full = [sys.executable, "-m", "ruff", *command, "-q", "--stdin-filename", file, "-"]
    return subprocess.run(full, input=text, capture_output=True, text=True, check=True).stdout


def write() -> None:
    """Write both stubs."""
    STUB.write_text(stub(), "utf-8")
    PUBLIC.write_text(public_stub(), "utf-8")
