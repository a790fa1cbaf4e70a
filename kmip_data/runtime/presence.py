"""What is found by being there: the modules of a package, and the public names in its stub."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType


def modules_in(package: ModuleType) -> list[ModuleType]:
    """Import every module that lies directly in ``package``, by name."""
    import pkgutil  # not for the names of a stub, which every start reads

    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def names_in_stub(file: str) -> dict[str, str]:
    """Return each public name and its module, from the stub beside ``file``: the one list of them."""
    stub = Path(file).with_suffix(".pyi").read_text("utf-8")
    return {
        name: module for module, name in re.findall(r"^from (\S+) import \w+ as (\w+)", stub, re.MULTILINE)
    }
