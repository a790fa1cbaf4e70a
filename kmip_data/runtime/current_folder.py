"""Keep Python and libraries from reading the current folder, which may be a stranger's.

Python imports nothing from it if ``PYTHONSAFEPATH`` is set, as it is for commands and child processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

#: Library -> file that it reads in the current folder when it is imported.
_SETTINGS = {"matplotlib": Path("matplotlibrc"), "numba": Path(".numba_config.yaml")}


@contextlib.contextmanager
def safe_children() -> Iterator[None]:
    """Set ``PYTHONSAFEPATH`` for the processes that the block or decorated function starts."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]
        if before:
            os.environ["PYTHONSAFEPATH"] = before


class _SettingsFinder(PathFinder):
    """Finder of the libraries in :data:`_SETTINGS`, which imports them in a folder without settings."""

    @classmethod
    def find_spec(cls, fullname: str, *_: object) -> Any:
        spec: Any = super().find_spec(fullname) if fullname in _SETTINGS else None
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def execute_elsewhere(module: ModuleType) -> None:
            with (
                contextlib.chdir(sys.prefix)
                if _SETTINGS[fullname].exists()
                else contextlib.nullcontext()
            ):
                execute(module)
            if fullname == "numba":  # reads its file again at every compilation
                sys.modules["numba.core.config"].__dict__["_config_fname"] = ""

        spec.loader.exec_module = execute_elsewhere
        return spec


def ignore_current_folder() -> None:
    """Read neither modules nor settings there from now on, here and in child processes."""
    os.environ["PYTHONSAFEPATH"] = "1"
    sys.meta_path.insert(0, _SettingsFinder)
