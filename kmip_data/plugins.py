"""Plugins: datasets, and components of networks and training, from outside the package.

A plugin is a Python file with a table ``PLUGIN``, or an installed package with entry points in
groups such as ``kmip_data.datasets`` and ``kmip_data.attention``, one for each key of
:data:`_REQUIRED_ATTRIBUTES`. A plugin is code, so it is imported only if the user names it: with
``--plugin``, in ``KMIP_DATA_PLUGINS``, in the file of ``--config``, or by typing the name of a
dataset or component of an installed plugin. Cards and runs never import one
(:func:`resolve_plugins`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kmip_data.errors import (
    CheckFailed,
    DamagedInput,
    KmipDataError,
    Setting,
    UsageError,
    unknown_name_error,
)
from kmip_data.files.path_errors import absent_file_error, absolute_path, unreadable_error
from kmip_data.files.small_files import first_problem, json_digest, read_small_file, sha256_file
from kmip_data.manifest import Manifest, dataset_names
from kmip_data.registry import PLUGIN_OBJECTS, Plugin, PluginObject
from kmip_data.runtime.signals import Ended
from kmip_data.strict_model import shipped_datasets, shipped_names

PLUGINS_VARIABLE = "KMIP_DATA_PLUGINS"
_GROUP_PREFIX = "kmip_data."  #: prefix of the groups of entry points
_COMPONENT_ATTRIBUTES = ("model_fields", "build")
#: Group -> attributes that its objects must have.
_REQUIRED_ATTRIBUTES = {
    "datasets": ("manifest_fields", "version", "schema", "units", "records"),
    "attention": _COMPONENT_ATTRIBUTES,
    "message_passing": _COMPONENT_ATTRIBUTES,
    "encodings": ("prefix", "help", "definition_template", "columns", "compute"),
    "norms": ("__call__",),
    "heads": ("build", "level"),
    "node_encoders": ("build", "encoding"),
    "edge_encoders": ("build", "encoding"),
    "models": ("__call__",),
    "metrics": ("compute", "title", "target_type", "higher_is_better"),
    "losses": ("compute", "target_type", "sum_weights", "losses_across_processes"),
    "schedules": ("build", "options", "why_not_per_step"),
    "optimizers": ("build", "options", "fused"),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MAX_RAW_BYTES = 2**40  #: limit of the raw files of a plugin's dataset

Entry = tuple[str, str, object]  #: group, name and object
_loaded: dict[str, Plugin] = {}  #: loaded plugins by file or package


def load(source: str | os.PathLike[str]) -> Plugin:
    """Import a plugin and register its objects.

    ``source`` is the path of a Python file ending in ``.py``, or the name of an installed package.
    Child processes, such as the runs of a sweep, inherit the plugin through ``KMIP_DATA_PLUGINS``.
    Raises ``UsageError`` if the plugin cannot be found or imported, if one of its names exists
    already, or if one of its objects lacks attributes.
    """
    text = os.fspath(source)
    is_file = text.endswith(".py") or os.sep in text
    key = str(absolute_path(text, "plugin")) if is_file else text
    plugin = _loaded.get(key) or _import_and_register(key, is_file=is_file)

    # Pass it on to child processes.
    inherited = [*sources_in_environment(), key]
    os.environ[PLUGINS_VARIABLE] = os.pathsep.join(dict.fromkeys(inherited))
    return plugin


def _import_and_register(key: str, *, is_file: bool) -> Plugin:
    """Import the plugin ``key``, a file or a package; check all objects before registering any."""
    plugin, entries = _import_file(Path(key)) if is_file else _import_package(key)
    checked = []
    try:
        for group, name, value in entries:
            checked.append((group, name, _check_object(plugin, group, name, value)))
    except KmipDataError:
        if is_file:  # allow another import after the file is corrected
            sys.modules.pop(Path(key).stem, None)
        raise
    for group, name, value in checked:
        PLUGIN_OBJECTS[group][name] = PluginObject(value, plugin)
    _loaded[key] = plugin
    return plugin


def load_plugins_in_environment() -> None:
    """Import the files and packages in ``KMIP_DATA_PLUGINS``, separated as in ``PATH``."""
    for source in sources_in_environment():
        load(source)


def sources_in_environment() -> list[str]:
    """Return the files and packages of the plugins that this process and its children import."""
    return list(filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)))


def fault_of_plugin(error: BaseException, *sources: str) -> UsageError | None:
    """Return the error for an exception raised in, or called from, a plugin; ``None`` for any other.

    Without ``sources``, it may be any plugin in the environment, which workers inherit.
    """
    modules = set()
    for source in sources or sources_in_environment():
        points = _points_of_package(source)
        modules |= {point.module.partition(".")[0] for point in points} or {Path(source).stem}
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        if frame.f_globals.get("__name__", "").partition(".")[0] in modules:
            file = Path(frame.f_code.co_filename).name
            return UsageError(
                f"The plugin failed at {file}, line {line}: {type(error).__name__}: {error}",
                steps="correct the plugin, or what it read",
            )
    return None


def import_installed_plugin(group: str, name: str) -> None:
    """Import the installed plugin that adds ``name`` to a group, if there is one.

    Call it only for names typed by the user, never for names read from a file.
    """
    load_plugins_in_environment()
    if name in PLUGIN_OBJECTS[group]:
        return
    for point in _entry_points(group):
        if point.name == name or (group == "encodings" and name.startswith(point.name)):
            load(point.dist.name)


def import_installed_plugins(dataset: str | None = None, model: str | None = None) -> None:
    """Import the installed plugins that add a dataset or model typed by the user, if not built in."""
    for group, name, shipped in (
        ("datasets", dataset, dataset_names()),
        ("models", model, shipped_names("models")),
    ):
        if name is not None and name not in shipped and os.sep not in name:
            import_installed_plugin(group, name)


def installed_plugin_names(group: str) -> dict[str, str]:
    """Return the names that installed plugins add to a group, with their packages, unimported."""
    return {point.name: point.dist.name for point in _entry_points(group)}


def resolve_plugins(listed: object, config: str, folder: Path | None = None) -> list[Plugin]:
    """Return the plugins listed by the configuration ``config``, which must be loaded already.

    ``listed`` has tables of ``source`` and ``sha256``, as written in runs, or strings. Strings are
    imported if ``folder``, the folder of the user's own configuration, is given. Raises
    ``UsageError`` if a plugin is not loaded, with the option that loads it; ``CheckFailed`` if the
    loaded plugin has another digest; ``DamagedInput`` if ``listed`` is malformed.
    """
    load_plugins_in_environment()
    try:
        entries = TypeAdapter(list[Plugin | str]).validate_python(listed)
    except ValidationError as error:
        raise DamagedInput(
            f"{config} has a list of `plugins` that is not valid.",
            found=first_problem(error),
        ) from error
    return [_resolve_plugin(entry, config, folder) for entry in entries]


def _resolve_plugin(entry: Plugin | str, config: str, folder: Path | None) -> Plugin:
    if isinstance(entry, str):
        if folder is None:
            source = _listed_source(entry, Path(config))
            if source in _loaded:
                return _loaded[source]
            raise _not_loaded_error(config, entry, source, "not recorded")
        return load(folder / Path(entry).expanduser() if entry.endswith(".py") else entry)
    if any(plugin.sha256 == entry.sha256 for plugin in _loaded.values()):
        return entry
    for plugin in _loaded.values():
        if plugin.name == entry.name:
            raise CheckFailed(
                f"The plugin {entry.name} has changed since {config} was written.",
                expected=f"SHA-256 {entry.sha256}",
                found=f"SHA-256 {plugin.sha256} ({plugin.source})",
                steps="load the earlier file or package, or start a new run",
            )
    raise _not_loaded_error(config, entry.source, entry.source, entry.sha256)


def _listed_source(entry: str, config: Path) -> str:
    """Return the key of a loaded plugin: a package, or the path of a file next to ``config``."""
    if not entry.endswith(".py"):
        return entry
    file = Path(entry).expanduser()
    candidates = [config.parent / file, config.resolve().parent / file]
    existing = [candidate for candidate in candidates if candidate.is_file()]
    return str(absolute_path(str([*existing, file][0]), "plugin"))


def _not_loaded_error(config: str, name: str, source: str, digest: str) -> UsageError:
    return UsageError(
        f"{config} names the plugin {name}, and a run never imports code by itself.",
        found=f"SHA-256 {digest}",
        steps=[
            f"if you trust it, load it (or set {PLUGINS_VARIABLE})",
            Setting(plugin=source),
        ],
    )


def _entry_points(group: str) -> list[Any]:
    points = metadata.entry_points(group=_GROUP_PREFIX + group)
    return sorted(points, key=lambda point: (point.name, point.dist.name))


def _points_of_package(name: str) -> list[metadata.EntryPoint]:
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        points = metadata.distribution(name).entry_points
        return [point for point in points if point.group.startswith(_GROUP_PREFIX)]
    return []


def _import_package(name: str) -> tuple[Plugin, list[Entry]]:
    points = _points_of_package(name)
    if not points:
        raise UsageError(
            f"There is no plugin {name!r}: no installed package of that name has entry points for kmip-data.",
            steps="install the package; the name of a file ends in .py",
        )
    with _convert_import_errors(name):
        entries = [
            (point.group.removeprefix(_GROUP_PREFIX), point.name, point.load()) for point in points
        ]

    # The digest covers all Python files of the top-level modules.
    digests = {}
    for top in {point.module.partition(".")[0] for point in points}:
        module = sys.modules[top]
        if not hasattr(module, "__path__"):
            digests[top], _ = sha256_file(Path(str(module.__file__)))
            continue
        for folder in map(Path, module.__path__):
            for path in folder.rglob("*.py"):
                digests[f"{top}/{path.relative_to(folder).as_posix()}"], _ = sha256_file(path)
    return Plugin(source=name, sha256=json_digest(digests)), entries


def _import_file(path: Path) -> tuple[Plugin, list[Entry]]:
    name = path.stem
    if (
        not name.isidentifier()
        or name in sys.modules
        or _file_of_module(name) not in {None, str(path)}
    ):
        raise UsageError(
            f"{path.name} cannot be a plugin: {name!r} is not a valid module name, or is taken.",
            steps="use another name for the file",
        )
    try:
        code = read_small_file(path)
    except FileNotFoundError as error:
        raise absent_file_error(path, "check the path of the plugin") from error
    except OSError as error:
        raise unreadable_error(path, error) from error
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _convert_import_errors(path.stem):
            # Run the same bytes that were hashed. Workers of a build import the file by its name.
            exec(compile(code, str(path), "exec"), module.__dict__)  # noqa: S102
        table = getattr(module, "PLUGIN", None)
        if not isinstance(table, Mapping) or not all(
            isinstance(group, Mapping) for group in table.values()
        ):
            groups = ", ".join(_REQUIRED_ATTRIBUTES)
            raise UsageError(
                f"The plugin {path.name} has no table PLUGIN.",
                expected=f'PLUGIN = {{"datasets": {{"NAME": CLASS}}, …}}, with any of {groups}',
            )
    except KmipDataError:
        del sys.modules[name]
        raise
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    plugin = Plugin(source=str(path), sha256=hashlib.sha256(code).hexdigest())
    entries = []
    for group, values in table.items():
        entries += [(group, key, value) for key, value in values.items()]
    return plugin, entries


def _file_of_module(module: str) -> str | None:
    spec = importlib.util.find_spec(module)
    if spec is None:
        return None
    return spec.origin or module


@contextlib.contextmanager
def _convert_import_errors(source: str) -> Iterator[None]:
    """Turn any exception of a plugin's import into ``UsageError`` with its file and line."""
    try:
        yield
    except Ended:
        raise  # a signal to this process, not the plugin's sys.exit()
    except (Exception, SystemExit) as error:
        raise fault_of_plugin(error, source) or UsageError(
            f"The plugin {source} cannot be imported.", found=f"{type(error).__name__}: {error}"
        ) from error


def _check_object(plugin: Plugin, group: str, name: str, value: Any) -> object:
    """Return the object to register: the pipeline of a dataset, else ``value`` itself.

    Raises ``UsageError`` if its group, name or attributes are not valid.
    """
    if group not in _REQUIRED_ATTRIBUTES:
        raise unknown_name_error(
            "group of plugins", group, list(_REQUIRED_ATTRIBUTES), command="docs/bring-your-own.md"
        )
    label = f"{name!r} in {group} of the plugin {plugin.name}"
    if _NAME.fullmatch(str(name)) is None:
        raise UsageError(
            f"{label} is not a valid name.", expected="letters, digits, '-', '_' and '.'"
        )
    shipped = {"datasets": shipped_datasets(), "models": shipped_names("models")}
    if name in shipped.get(group, ()):
        raise UsageError(f"{label} is built into kmip-data.", steps="use another name")
    if name in PLUGIN_OBJECTS[group]:
        other_plugin = PLUGIN_OBJECTS[group][name].plugin.name
        raise UsageError(f"{label} is already added by the plugin {other_plugin}.")

    missing = [
        attribute for attribute in _REQUIRED_ATTRIBUTES[group] if not hasattr(value, attribute)
    ]
    missing += sorted(getattr(value, "__abstractmethods__", ()))
    if group == "models" and isinstance(value, Mapping):
        # A mapping configures a network of GPS layers; any other model is a network itself.
        missing = [
            key
            for key in ("attention", "local")
            if not isinstance(value.get(key), Mapping) or "kind" not in value[key]
        ]
    if missing:
        raise UsageError(
            f"{label} lacks {', '.join(dict.fromkeys(missing))}.",
            found=repr(value)[:100],
            steps=f"{group} in docs/bring-your-own.md",
        )

    name_of_object = name
    if group == "encodings":
        name_of_object = value.prefix
    elif _REQUIRED_ATTRIBUTES[group] is _COMPONENT_ATTRIBUTES:
        name_of_object = getattr(value.model_fields.get("kind"), "default", "")
    if name_of_object != name:
        raise UsageError(f"{label} calls itself {name_of_object!r}.", steps="use one name for both")
    if group != "datasets":
        return value
    manifest = _plugin_manifest(plugin, name, value)
    with _convert_import_errors(plugin.source):
        pipeline: object = value(manifest)
    return pipeline


def _plugin_manifest(plugin: Plugin, name: str, pipeline: Any) -> Manifest:
    """Return the manifest of a plugin's dataset: its ``manifest_fields``, filled up with defaults."""
    if not isinstance(pipeline.manifest_fields, Mapping):
        raise UsageError(
            f"`manifest_fields` of {name!r} of the plugin {plugin.name} is not a mapping."
        )
    fields = dict(pipeline.manifest_fields)
    defaults = {
        "title": name,
        "summary": fields.get("title", name),
        "task": "not stated",
        "homepage": "",
        "citation": "",
        "license": {"name": "not stated", "url": "", "notice": "not stated"},
        "max_nodes": 65_536,
    }
    files = fields.pop("files", None)
    if files:
        member = {"pattern": files, "max_bytes": _MAX_RAW_BYTES, "max_count": 1_000_000}
        defaults["content"] = {
            "anchor": files,
            "members": [member],
            "max_total_bytes": _MAX_RAW_BYTES,
        }
    defaults["generated"] = not (files or fields.keys() & {"sources", "content"})

    identity = {"name": name, "registered_name": name, "pipeline": pipeline.__module__}
    try:
        return Manifest.model_validate({**defaults, **fields, **identity})
    except ValidationError as error:
        raise UsageError(
            f"The manifest fields of {name!r} of the plugin {plugin.name} are not valid.",
            found=first_problem(error),
        ) from error
