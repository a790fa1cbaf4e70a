"""What is found by being there: the modules of a package, imported."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def modules_in(package: ModuleType) -> list[ModuleType]:
    """Import every module that lies directly in ``package``, by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]
