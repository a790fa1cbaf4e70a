"""Names that loaded plugins add to tables, and modules that are discovered."""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from kmip_data.errors import UsageError
from kmip_data.strict_model import Digest, Strict

T = TypeVar("T")


def import_modules_in(package: ModuleType) -> list[ModuleType]:
    """Import every module that lies directly in ``package``, by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


class Plugin(Strict):
    """A plugin: code from outside the package (:mod:`kmip_data.plugins`)."""

    source: str  #: path of a Python file, or name of an installed package
    sha256: (
        Digest  #: digest of the file; for a package, digest of the names and digests of its files
    )

    @property
    def name(self) -> str:
        """Name of the file or package, without its folder."""
        return self.source.replace("\\", "/").rpartition("/")[2]


class Added(NamedTuple):
    """An object that a plugin has added under a name."""

    value: Any
    plugin: Plugin


#: Objects that loaded plugins have added: group of entry points -> name -> object.
ADDED: defaultdict[str, dict[str, Added]] = defaultdict(dict)


def with_plugin_entries(group: str, ours: Mapping[str, T]) -> Mapping[str, T]:
    """Return ``ours`` and the names that loaded plugins have added to the group.

    Raises ``UsageError`` where a plugin has taken one of our names.
    """
    if not (added := ADDED[group]):
        return ours
    for name, entry in added.items():
        if name in ours:
            raise UsageError(
                f"The plugin {entry.plugin.name} names {name!r}, which kmip-data has itself."
            )
    return {**ours, **{name: entry.value for name, entry in added.items()}}
