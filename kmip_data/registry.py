"""Registry of objects added by plugins, and discovery of modules."""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from kmip_data.errors import UsageError
from kmip_data.strict_model import Digest, StrictModel

T = TypeVar("T")


def import_modules_in(package: ModuleType) -> list[ModuleType]:
    """Import all modules directly in ``package``, sorted by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


class Plugin(StrictModel):
    """Source and digest of a plugin (:mod:`kmip_data.plugins`)."""

    source: str  #: path of a Python file, or name of an installed package
    sha256: Digest  #: digest of the file, or of the names and digests of a package's files

    @property
    def name(self) -> str:
        """Name of the file or package, without its folder."""
        return self.source.replace("\\", "/").rpartition("/")[2]


class PluginObject(NamedTuple):
    """Object added by a plugin."""

    value: Any
    plugin: Plugin


#: Objects added by loaded plugins: group of entry points -> name -> object.
PLUGIN_OBJECTS: defaultdict[str, dict[str, PluginObject]] = defaultdict(dict)


def with_plugin_entries(group: str, built_in: Mapping[str, T]) -> Mapping[str, T]:
    """Return ``built_in`` and the objects that loaded plugins added to the group.

    Raises ``UsageError`` if a plugin uses the name of a built-in object.
    """
    added = PLUGIN_OBJECTS[group]
    for name, entry in added.items():
        if name in built_in:
            raise UsageError(
                f"The plugin {entry.plugin.name} adds {name!r}, which is built into kmip-data."
            )
    return {**built_in, **{name: entry.value for name, entry in added.items()}}
