"""Plugins of a process, forgotten after a test."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from kmip_data import plugins
from kmip_data.manifest import load_manifest
from kmip_data.registry import PLUGIN_OBJECTS


@contextmanager
def fresh():
    """A process that has loaded no plugin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.delenv(plugins.PLUGINS_VARIABLE, raising=False)
        try:
            yield
        finally:
            folder = str(Path.cwd())
            for name, module in [*sys.modules.items()]:
                if str(getattr(module, "__file__", None)).startswith(folder):
                    del sys.modules[name]
            plugins._loaded.clear()
            for group in PLUGIN_OBJECTS.values():
                group.clear()
            load_manifest.cache_clear()
            os.environ.pop(plugins.PLUGINS_VARIABLE, None)
