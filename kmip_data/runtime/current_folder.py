"""Keep Python and libraries from reading the current folder, which may be a stranger's.

Python imports nothing from it if ``PYTHONSAFEPATH`` is set, as it is for commands and child processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

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
    """Finder of the libraries in :data:`_SETTINGS`, which runs them in their own folder."""

    @classmethod
    def find_spec(cls, fullname: str, *_: object) -> ModuleSpec | None:
        settings = _SETTINGS.get(fullname)
        spec = settings and super().find_spec(fullname)
        if not (settings and spec and spec.loader and spec.origin):
            return None
        folder = Path(spec.origin).parent
        execute = spec.loader.exec_module

        def execute_there(module: ModuleType) -> None:
            with contextlib.chdir(folder) if settings.exists() else contextlib.nullcontext():
                execute(module)
            if fullname == "numba":  # reads its file again at every compilation
                sys.modules["numba.core.config"].__dict__["_config_fname"] = ""

        spec.loader.exec_module = execute_there  # type: ignore[method-assign]
        return spec


def ignore_settings() -> None:
    """Import libraries without the settings in the current folder from now on."""
    sys.meta_path.insert(0, _SettingsFinder)
