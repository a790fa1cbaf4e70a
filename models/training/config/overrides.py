"""Read, modify and write configurations: TOML files and ``section.key=value`` overrides."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kmip_data.errors import (
    MAX_LISTED_NAMES,
    Command,
    DamagedInput,
    Setting,
    UsageError,
    error_with_correction,
    unknown_name_error,
)
from kmip_data.files.small_files import parse_toml, read_toml
from kmip_data.manifest import dataset_names
from kmip_data.models.config import (
    COMPONENT_SECTIONS,
    ModelConfig,
    component_kinds,
)
from kmip_data.models.registries import RegisteredName
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.schedules import all_schedules
from kmip_data.pipelines.find_builds import parameter_names
from kmip_data.registry import PLUGIN_OBJECTS
from kmip_data.text import is_likely_typo, nearest_name

#: One value of ``A,B``: brackets and quotes are part of it, with the commas in them.
_GRID_VALUE = re.compile(r"""(?:\[[^\]]*\]|"[^"]*"|'[^']*'|[^,])+""")
#: Command that lists every key.
KEY_LIST_COMMAND = Command("kmip-data info s3dis --model gps-kmip")
#: Last part of our key, by its name in other programs.
KEY_SYNONYMS = {
    "learning_rate": "lr",
    "num_layers": "layers",
    "hidden": "hidden_dim",
    "num_epochs": "epochs",
}
#: Our key and value, by the last part of another program's key.
_SETTING_SYNONYMS = {"class_weights": "training.loss=weighted_cross_entropy"}
#: Kind of a section, by its name in other programs.
_KIND_SYNONYMS = {"full": "transformer"}
#: Types of values as written in messages.
_TYPE_NAMES = {"bool": "true or false", "int": "whole number", "float": "number", "str": "text"}
#: Keys of the data by the command-line option that sets them.
_DATA_KEYS_BY_OPTION = {
    "k": "data.parameters.k",
    "limit": "data.parameters.limit",
    "split_rule": "data.split.split_rule",
    "split_seed": "data.split.split_seed",
    "test_area": "data.split.test_area",
}


@dataclass(frozen=True)
class ConfigKey:
    """Documented key of a configuration."""

    #: dotted name, such as ``optimizer.lr``
    name: str
    type: str
    #: default; ``...`` for a required key
    default: object
    doc: str
    #: kind of the section that has this key; empty: all kinds
    kind: str = ""
    #: field of the key; ``None`` if the key is the kind of a section
    field: FieldInfo | None = None
    #: possible names, which plugins may extend
    names: RegisteredName | None = None


def documented_keys() -> list[ConfigKey]:
    """Return all keys of a configuration in order, with type, default and meaning."""
    added = [f"{group}:{name}" for group, names in PLUGIN_OBJECTS.items() for name in names]
    return _keys_of_section(RunConfig, "", *added)


@functools.cache  # the paper's sweeps set 2,500 keys
def _keys_of_section(model: type[BaseModel], prefix: str, *added: str) -> list[ConfigKey]:
    keys = []
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        doc = field.description or name
        default: Any = ...
        if not field.is_required():
            default = field.get_default(call_default_factory=True)
        if model is ModelConfig and name in COMPONENT_SECTIONS:
            components = component_kinds(name)
            group = COMPONENT_SECTIONS[name].plugin_group
            kind_names = RegisteredName(group, name, functools.partial(component_kinds, name))
            keys.append(
                ConfigKey(
                    f"{path}.kind", " | ".join(components), default.kind, doc, names=kind_names
                )
            )
            for kind, component in components.items():
                keys += [
                    replace(key, kind=kind, doc=f"{kind}: {key.doc}")
                    for key in _keys_of_section(component, f"{path}.", *added)
                    if key.name != f"{path}.kind"
                ]
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys += _keys_of_section(field.annotation, f"{path}.", *added)
        else:
            names = _possible_names(field)
            type_name = _type_name(field) if names is None else str(names)
            keys.append(ConfigKey(path, type_name, default, doc, field=field, names=names))
    return keys


def apply_overrides(config: RunConfig, items: str | Sequence[str]) -> RunConfig:
    """Return ``config`` with one or more ``section.key=value`` items applied in order.

    A value is parsed as the type of its key: ``optimizer.lr=1e-3``, ``training.shuffle=true``,
    ``training.precision=32``. Keys below ``data.parameters`` and ``data.split`` are arbitrary; their
    values are parsed as TOML (``data.parameters.k=16``, ``data.split.split_rule=room``).
    ``model.hidden_dim`` resets ``model.parameter_budget``, and ``training.task`` resets loss and
    metric, unless they are set too. Raises ``UsageError`` for an item without ``=``, an unknown key
    (suggesting the nearest) or a value of the wrong type.
    """
    try:
        return _with_overrides(config, [items] if isinstance(items, str) else items)
    except UsageError as error:
        if error.steps == [KEY_LIST_COMMAND]:
            dataset, model = config.data.dataset, config.model.name
            error.steps = [Command("kmip-data info {} --model", dataset, model)]
        if error.correction == ("k", "data.parameters.k") and not _has_neighbors(config):
            # Without nearest-neighbour graphs, k means the number of keys per query.
            error.correction = ("k", "model.attention.k")
        raise


def refuse_unread_keys(config: RunConfig, keys: Iterable[str], file: Path | None = None) -> None:
    """Raise ``UsageError`` for one of ``keys``, typed or in the user's ``file``, that no part of the run reads.

    Keys of a preset may be unread, because a setting may replace the part that reads them.
    """
    for key in keys:
        section, _, name = key.partition(".")
        reader = ""
        if section == "schedule":
            kinds = [kind for kind, schedule in all_schedules().items() if name in schedule.options]
            if kinds and config.schedule.kind not in kinds:
                reader = f"the schedule {' or '.join(kinds)}"
        elif section == "model":
            reader = config.model.missing_reader(name)
        if reader:
            raise UsageError(
                f"{key} is read by {reader}, which this run does not have.",
                steps=Setting({key: None}) if file is None else f"leave {key} out of {file}",
            )


def grid_values(setting: str) -> list[str]:
    """Return ``KEY=A`` and ``KEY=B`` for ``KEY=A,B``; any other setting alone.

    Commas inside brackets or quotes separate no values, nor do those of a key that only takes lists.
    """
    key, _, text = setting.partition("=")
    values = [value.strip() for value in _GRID_VALUE.findall(text)]
    list_keys = {key.name for key in documented_keys() if key.type == "list"}
    if len(values) < 2 or key.strip() in list_keys:
        return [setting]
    return [f"{key.strip()}={value}" for value in values]


def find_grid(config: RunConfig, settings: Sequence[str]) -> list[str]:
    """Return the settings ``KEY=A,B`` if each of their values is valid alone, else an empty list."""
    values = [grid_values(setting) for setting in settings]
    for number in range(max(map(len, values), default=0)):
        try:
            _with_overrides(config, [single[min(number, len(single) - 1)] for single in values])
        except UsageError:
            return []
    return [setting for setting in settings if len(grid_values(setting)) > 1]


def _has_neighbors(config: RunConfig) -> bool:
    """True if k is a build parameter of the dataset."""
    dataset = config.data.dataset
    return "k" in (
        parameter_names(dataset)[0] if dataset in dataset_names() else config.data.parameters
    )


def _with_overrides(config: RunConfig, items: Sequence[str]) -> RunConfig:
    values = config.model_dump()
    keys_set = {item.partition("=")[0].strip() for item in items}
    if "model.hidden_dim" in keys_set and "model.parameter_budget" not in keys_set:
        values["model"]["parameter_budget"] = None
    if "training.task" in keys_set:
        values["training"] |= {"loss": None, "metric": None}
    for item in items:
        path, separator, text = item.partition("=")
        if not separator:
            example = "section.key=value, such as optimizer.lr=1e-3"
            raise _invalid_value_error(f"{item!r} is not an override.", example, item)
        _assign_key(values, path.strip(), text.strip())
    return config_from_mapping(values, "the overrides")


def config_from_mapping(
    values: Mapping[str, Any],
    origin: str,
    *,
    plugins_in: Path | None = None,
) -> RunConfig:
    """Validate ``values`` as a configuration; ``origin`` names their source in errors.

    Listed plugins must be loaded, or are imported from the folder ``plugins_in``; see
    :func:`kmip_data.plugins.resolve_plugins`, whose errors are raised, too.

    Raises ``UsageError``, which lists unknown and missing keys and values of the wrong type.
    """
    if values.get("plugins"):
        from kmip_data.plugins import resolve_plugins

        values = {**values, "plugins": resolve_plugins(values["plugins"], origin, plugins_in)}
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        # Each unknown key is compared with all known ones, and a file may have any number of them.
        entries = error.errors()[:MAX_LISTED_NAMES]
        problems = "; ".join(map(_describe_problem, entries))
        if error.error_count() > MAX_LISTED_NAMES:
            problems += f"; and {error.error_count() - MAX_LISTED_NAMES:,} more"
        refusal = UsageError(
            f"The configuration in {origin} is not valid: {problems}", steps=KEY_LIST_COMMAND
        )
        for entry in entries:
            cause = entry.get("ctx", {}).get("error")
            if isinstance(cause, UsageError):
                refusal.correction = cause.correction
        raise refusal from error


def read_config(path: Path, *, plugins_in: Path | None = None) -> RunConfig:
    """Read a ``config.toml``, as data: nothing is imported, except from the folder ``plugins_in``.

    Raises ``DamagedInput`` if the file is not readable TOML, or like :func:`config_from_mapping`.
    """
    try:
        values = read_toml(path)
    except (OSError, ValueError) as error:
        raise DamagedInput(
            f"{path} cannot be read as a configuration: {error}",
            steps="use the folder of a run, or a file with the keys in docs/keys.md",
        ) from error
    return config_from_mapping(values, str(path), plugins_in=plugins_in)


def config_to_toml(config: RunConfig) -> str:
    """Serialise all keys of ``config``, so that :func:`read_config` returns an equal configuration.

    TOML has no null, so keys that are ``None`` are omitted; ``None`` is their default.
    """
    import tomli_w

    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _assign_key(values: dict[str, Any], path: str, text: str) -> None:
    if path in {"preset", "variant"}:
        raise UsageError(
            f"{path} selects a configuration; a setting changes a single key.",
            steps=Setting({path: text}),
        )

    # 1. Find the section, and the keys of its kind.
    section, _, name = path.rpartition(".")
    section_values: Any = values
    for table_name in section.split(".") if section else ():
        section_values = (
            section_values.get(table_name) if isinstance(section_values, dict) else None
        )
    current_kind = section_values.get("kind") if isinstance(section_values, dict) else None
    keys = {key.name: key for key in documented_keys() if key.kind in {"", current_kind}}
    key = keys.get(path)
    table = keys.get(section)

    # 2. Import the plugin of an unknown name.
    if key is not None and key.names is not None and text not in key.names.registry():
        from kmip_data.plugins import import_installed_plugin

        import_installed_plugin(key.names.group, text)

    # 3. Assign a key, the kind of a section, or an arbitrary key of a table; otherwise raise.
    if key is not None and key.field is not None:
        section_values[name] = _parse_value(key, key.field, text)
    elif key is not None:
        kinds = list(component_kinds(section.rpartition(".")[2]))
        other_name = _KIND_SYNONYMS.get(text)
        if other_name in kinds:
            raise _synonym_error(
                f"kind of {section}", text, f"{path}={text}", f"{path}={other_name}"
            )
        if text not in kinds:
            raise unknown_name_error(f"kind of {section}", text, kinds, command=KEY_LIST_COMMAND)
        if text != current_kind:  # keys of another kind do not apply
            section_values.clear()
            section_values[name] = text
    elif table is not None and table.type == "table":
        section_values[name] = parse_toml_value(text)
    else:
        below = [known for known in keys if known.startswith(f"{path}.")]
        if below:
            raise _invalid_value_error(f"{path!r} is a section, not a key.", ", ".join(below), path)
        _refuse_data_parameter(values["data"]["dataset"], path, text)
        siblings = [known for known in keys if section and known.startswith(f"{section}.")]
        setting = _SETTING_SYNONYMS.get(name)
        if setting and text.lower() not in {"false", "none", "0"}:
            raise _synonym_error("configuration key", path, f"{path}={text}", setting)
        message, close = _describe_unknown_key(path)
        error = _invalid_value_error(message, ", ".join(siblings) or "section.key=value", path)
        last = path.rpartition(".")[2]
        same = {KEY_SYNONYMS.get(last, last), _DATA_KEYS_BY_OPTION.get(last)}
        if close and (is_likely_typo(path, close) or {close, close.rpartition(".")[2]} & same):
            error.correction = (path, close)
        raise error


def _refuse_data_parameter(dataset: str, name: str, text: str) -> None:
    """Raise ``UsageError`` if ``name`` is a parameter of the dataset or its split."""
    is_own = dataset not in dataset_names()
    build_parameters, split_parameters = parameter_names("graphs" if is_own else dataset)
    if name in build_parameters and is_own:
        raise UsageError(
            f"{name} is a parameter of a build, not of a run.",
            steps=Command(
                *("kmip-data", "build", "graphs", "--name", dataset, "--archive", "FILE"),
                *("--set", f"{name}={text}"),
            ),
        )
    if name in build_parameters | split_parameters and name not in _DATA_KEYS_BY_OPTION:
        table = "split" if name in split_parameters else "parameters"
        error = _invalid_value_error(
            f"{name} is a parameter of the dataset.", f"data.{table}.{name}=VALUE", name
        )
        error.correction = (name, f"data.{table}.{name}")
        raise error


def _possible_names(field: FieldInfo) -> RegisteredName | None:
    """Return the possible names of a key; ``None`` if it takes no registered name."""
    # For an optional key, pydantic leaves the annotation inside the union.
    metadata = [*field.metadata]
    for annotation in get_args(field.annotation):
        if get_origin(annotation) is Annotated:
            metadata += get_args(annotation)
    return next((item for item in metadata if isinstance(item, RegisteredName)), None)


def _parse_value(key: ConfigKey, field: FieldInfo, text: str) -> object:
    """Parse ``text`` as the key's type: TOML (numbers, true, lists), a string, a list (``10,10``) or none."""
    annotation: Any = Annotated[field.annotation, field]
    adapter: TypeAdapter[object] = TypeAdapter(annotation, config=ConfigDict(allow_inf_nan=False))
    limit = ""
    none_candidates = [None] if text.lower() == "none" else []
    for candidate in (
        parse_toml_value(text),
        text,
        parse_toml_value(f"[{text}]"),
        *none_candidates,
    ):
        try:
            adapter.validate_python(candidate)
        except ValidationError as error:
            # Only problems beyond the type are added, such as a number's range: the message always
            # states the type.
            problem = error.errors()[0]
            if not problem["type"].endswith(("_parsing", "_type", "_error", "_from_float")):
                limit = limit or problem["msg"].replace("Input should be", ",").replace(
                    "String should", ", to"
                )
            elif problem["type"] == "value_error":
                # This error is more specific than a list of names.
                if isinstance(problem["ctx"]["error"], UsageError):
                    raise problem["ctx"]["error"] from None
                limit = limit or f"; {problem['msg'].removeprefix('Value error, ')}"
        else:
            return candidate
    message = f"{key.name} cannot be {text!r}."
    close = None
    if key.names is not None:
        close = key.names.suggest(text)
        limit = ""
    else:
        choices = set(key.type.split(" | ")) - {*_TYPE_NAMES, "list", "table"}
        close = nearest_name(text, sorted(choices))
    message += _format_hint(close)
    refusal = _invalid_value_error(message, f"{_type_in_words(key.type)}{limit} ({key.doc})", text)
    if key.default not in (..., None, "", {}):
        value = key.default if isinstance(key.default, str) else json.dumps(key.default)
        refusal.steps = [Setting({key.name: value})]
    if close:
        refusal.correction = (text, close)
    raise refusal


def _type_in_words(type_name: str) -> str:
    """Return a type as written in a sentence.

    >>> _type_in_words("int | list")
    'whole number or list'
    """
    *others, last = [_TYPE_NAMES.get(name, name) for name in type_name.split(" | ")]
    return f"{', '.join(others)} or {last}" if others else last


def _format_hint(close: str | None) -> str:
    return f" Did you mean {close!r}?" if close else ""


def parse_toml_value(text: str) -> object:
    """Parse a TOML value; return the text unchanged if it is none."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _invalid_value_error(message: str, expected: str, value: str) -> UsageError:
    return UsageError(message, expected=expected, found=value, steps=KEY_LIST_COMMAND)


def _synonym_error(noun: str, name: str, typed: str, meant: str) -> UsageError:
    """Return the error for another program's name for the setting ``meant``."""
    message = f"There is no {noun} called {name!r}. Did you mean {meant!r}?"
    return error_with_correction(message, typed, meant)


def _describe_unknown_key(path: str) -> tuple[str, str | None]:
    """Return a description of an unknown key, and the nearest key if no kind of its section has it."""
    section, _, name = path.rpartition(".")
    keys = documented_keys()
    kinds = [key.kind for key in keys if key.name == path and key.kind]
    if kinds:
        return f"{path} is a key only of {section}.kind = {' or '.join(kinds)}.", None
    if section in {"", "data"} and name in _DATA_KEYS_BY_OPTION:
        key_of_option = _DATA_KEYS_BY_OPTION[name]
        hint = _format_hint(key_of_option)
        if name == "k":
            hint = (
                " Keys per query are 'model.attention.k', neighbours per point 'data.parameters.k'."
            )
        return f"There is no configuration key {path!r}.{hint}", key_of_option
    # The key may be in another section, so compare only the last parts.
    known = {key.name.rpartition(".")[2]: key.name for key in reversed(keys)}
    close = (
        known.get(KEY_SYNONYMS.get(name, name))
        or nearest_name(path, [key.name for key in keys])
        or known.get(nearest_name(name, known) or "")
    )
    return f"There is no configuration key {path!r}.{_format_hint(close)}", close


def _describe_problem(entry: ErrorDetails) -> str:
    path = ".".join(map(str, entry["loc"]))
    if entry["type"] == "extra_forbidden":
        return _describe_unknown_key(path)[0]
    message = entry["msg"].removeprefix("Value error, ").partition(", unable to parse")[0]
    message = message.replace("Input should be", "must be")
    return f"{path}: {message}" if path else message


def _type_name(field: FieldInfo) -> str:
    """Return the type of a field in words, without ``none``, which the default shows."""
    annotations = [field.annotation]
    if get_origin(field.annotation) in {Union, UnionType}:
        annotations = [
            annotation for annotation in get_args(field.annotation) if annotation is not NoneType
        ]
    names = []
    for annotation in annotations:
        if get_origin(annotation) is Annotated:
            annotation, *_ = get_args(annotation)  # noqa: PLW2901 -- without its bounds
        generic = get_origin(annotation)
        if generic is Literal:
            names += [str(value) for value in get_args(annotation)]
        elif generic is not None:
            names.append("table" if generic is dict else "list")
        else:
            names.append(annotation.__name__ if isinstance(annotation, type) else str(annotation))
    return " | ".join(names)


def value_of_key(config: RunConfig, path: str) -> Any:
    """Return the value of a dotted key; ``None`` if the section's kind does not have it."""
    value: Any = config
    for name in path.split("."):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def with_epochs(config: RunConfig, epochs: int) -> RunConfig:
    """Return ``config`` for a run of ``epochs``.

    A warm-up as long as the run is shortened in proportion, so that the run reaches the full rate.
    An override of ``training.epochs`` keeps the warm-up.
    """
    schedule = config.schedule
    training = config.training
    warmup = schedule.warmup_epochs
    has_warmup = "warmup_epochs" in all_schedules()[schedule.kind].options
    if has_warmup and epochs <= warmup < training.epochs:
        warmup = warmup * epochs // training.epochs
    changes = [f"training.epochs={epochs}", f"schedule.warmup_epochs={warmup}"]
    return apply_overrides(config, changes)
