"""Read, change and write configurations: TOML files and ``section.key=value``."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.reading import read_small
from kmip_data.manifest import ADDED, unknown_name
from kmip_data.models.config import SECTIONS, ModelConfig, kinds_of
from kmip_data.models.tables import Names
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.schedules import all_schedules
from kmip_data.wording import nearest

HELP = "kmip-data info DATASET --model MODEL lists every key"


@dataclass(frozen=True)
class Key:
    """One documented key of a configuration."""

    name: str  #: dotted, ``optimiser.lr``
    type: str
    default: Any  #: ``...`` where the key must be given
    doc: str
    kind: str = ""  #: of the section, where it has the key for one kind only
    field: FieldInfo | None = None  #: none where it is the kind of a section


def documented_keys(model: type[BaseModel] = RunConfig, prefix: str = "") -> list[Key]:
    """Every key of a configuration in order, with type, default and meaning."""
    added = [f"{group}:{name}" for group, names in ADDED.items() for name in names]
    return _documented(model, prefix, *added)


@functools.cache  # the plans of the paper set 2,500 keys
def _documented(model: type[BaseModel], prefix: str, *_added: str) -> list[Key]:
    found: list[Key] = []
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        doc = field.description or name
        default: Any = ... if field.is_required() else field.get_default(call_default_factory=True)
        if model is ModelConfig and name in SECTIONS:
            parts = kinds_of(name)
            found.append(Key(f"{path}.kind", " | ".join(parts), default.kind, doc))
            for kind, part in parts.items():
                keys = [
                    key for key in documented_keys(part, f"{path}.") if key.name != f"{path}.kind"
                ]
                found += [replace(key, kind=kind, doc=f"{kind}: {key.doc}") for key in keys]
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += documented_keys(field.annotation, f"{path}.")
        else:
            found.append(Key(path, _type_name(field), default, doc, field=field))
    return found


def apply_overrides(config: RunConfig, items: Sequence[str]) -> RunConfig:
    """Return ``config`` with ``section.key=value`` items applied in order.

    A value is read as the type of its key: ``optimiser.lr=1e-3``, ``training.shuffle=true``,
    ``training.precision=32``. Keys below ``data.parameters`` and ``data.split`` are free; their values
    are read as TOML (``data.parameters.k=16``, ``data.split.split=room``). ``model.hidden_dim`` switches
    ``model.parameter_budget`` off, unless that is given too. Raises ``UsageError`` for an item without ``=``,
    an unknown key (the nearest one is named) or a value of the wrong type.
    """
    values = config.model_dump()
    given = {item.partition("=")[0].strip() for item in items}
    if "model.hidden_dim" in given and "model.parameter_budget" not in given:
        values["model"]["parameter_budget"] = None
    for item in items:
        path, separator, text = item.partition("=")
        if not separator:
            raise _refused(
                f"{item!r} is not an override.",
                "section.key=value, such as optimiser.lr=1e-3",
                item,
            )
        _assign(values, path.strip(), text.strip())
    return config_from_mapping(values, "the overrides")


def config_from_mapping(
    values: Mapping[str, Any], origin: str, *, plugins_in: Path | None = None
) -> RunConfig:
    """Check ``values`` as a configuration; ``origin`` says in errors where they come from.

    Plugins that they list must be loaded, or are imported if they are texts and ``plugins_in`` is the folder
    of their files: :func:`kmip_data.plugins.allowed`, whose errors are raised, too.

    Raises ``UsageError``, which lists every fault: an unknown key, a missing one or a value of the wrong
    type.
    """
    if values.get("plugins"):
        from kmip_data.plugins import allowed

        values = {**values, "plugins": allowed(values["plugins"], origin, plugins_in)}
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        faults = [_fault(entry) for entry in error.errors()]
        found = "\n    " + "\n    ".join(faults) if len(faults) > 1 else faults[0]
        what = f"The configuration in {origin} is not valid."
        raise _refused(what, "the documented keys and types", found) from error


def read_config(path: Path, *, import_plugins: bool = False) -> RunConfig:
    """Read a ``config.toml``.

    With ``import_plugins`` it is the user's own, whose plugins are imported, but not in the folder of a run,
    which may be a stranger's. Raises ``DamagedInput`` where the file is not readable TOML, and as
    :func:`config_from_mapping`.
    """
    try:
        values = tomllib.loads(read_small(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedInput(
            f"{path} cannot be read as a configuration: {error}",
            next="name a run folder that kmip-data train made, or a file with the keys of docs/training.md",
        ) from error
    of_run = any(path.with_name(name).exists() for name in ("result.json", "metrics.csv"))
    plugins_in = path.parent if import_plugins and not of_run else None
    return config_from_mapping(values, str(path), plugins_in=plugins_in)


def to_toml(config: RunConfig) -> str:
    """Write ``config`` completely, so that :func:`read_config` gives an equal one.

    TOML has no null: a key that is ``None`` is left out, and means ``None`` when read back because
    that is its default.
    """
    import tomli_w

    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _assign(values: dict[str, Any], path: str, text: str) -> None:
    section, _, name = path.rpartition(".")
    place: Any = values
    for part in section.split(".") if section else ():
        place = place.get(part) if isinstance(place, dict) else None
    present = place.get("kind") if isinstance(place, dict) else None
    keys = {key.name: key for key in documented_keys() if key.kind in {"", present}}
    key = keys.get(path)
    table = keys.get(section)
    group = _group_of(key)
    if key is not None and group is not None and text not in key.type.split(" | "):
        from kmip_data.plugins import seek

        seek(group, text)
    if key is not None and key.field is not None:
        place[name] = _typed(key, key.field, text)
    elif key is not None:
        if text not in (kinds := list(kinds_of(section.rpartition(".")[2]))):
            raise unknown_name(f"kind of {section}", text, kinds, command=HELP)
        if text != present:  # its other keys mean something else, if anything
            place.clear()
            place[name] = text
    elif table is not None and table.type == "table":
        place[name] = _toml_value(text)
    elif inside := [known for known in keys if known.startswith(f"{path}.")]:
        raise _refused(f"{path!r} is a section, not a key.", ", ".join(inside), path)
    else:
        inside = [known for known in keys if section and known.startswith(f"{section}.")]
        raise _refused(_unknown(path), ", ".join(inside) or "section.key=value", path)


def _group_of(key: Key | None) -> str | None:
    """Return the group of plugins that may add values of a key."""
    if key is None:
        return None
    if key.field is None:  # the kind of a section
        group, _ = SECTIONS[key.name.split(".")[1]]
        return group
    names = _names_of(key.field)
    return None if names is None else names.group


def _names_of(field: FieldInfo) -> Names | None:
    """Return the table that a key's value is a name of; None where it is none."""
    # Of an optional key, pydantic leaves the annotation within the union.
    metadata = [*field.metadata]
    for kind in get_args(field.annotation):
        if get_origin(kind) is Annotated:
            metadata += get_args(kind)
    return next((item for item in metadata if isinstance(item, Names)), None)


def _typed(key: Key, field: FieldInfo, text: str) -> Any:
    """Read ``text`` as the key's type: as TOML (numbers, true, lists), text, a list (``10,10``) or none."""
    annotation: Any = Annotated[field.annotation, field]
    adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=ConfigDict(allow_inf_nan=False))
    limit = ""
    nothing = [None] if text.lower() == "none" else []
    for candidate in (_toml_value(text), text, _toml_value(f"[{text}]"), *nothing):
        try:
            adapter.validate_python(candidate)
        except ValidationError as error:
            fault = error.errors()[0]  # of a number, the range; the type is named anyway
            if not fault["type"].endswith(("_parsing", "_type", "_error", "_from_float")):
                limit = limit or fault["msg"].replace("Input should be", ",")
            elif fault["type"] == "value_error":
                if isinstance(
                    fault["ctx"]["error"], UsageError
                ):  # says more than the names of a table
                    raise fault["ctx"]["error"] from None
                limit = limit or f"; {fault['msg'].removeprefix('Value error, ')}"
        else:
            return candidate
    hint = ""
    if (table := _names_of(field)) is not None:
        close = nearest(text, list(table.table()))
        hint = f" Did you mean {close!r}?" if close else ""
        limit = ""
    refused = f"{key.name} cannot be {text!r}.{hint}"
    raise _refused(refused, f"{key.type}{limit} ({key.doc})", text)


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _refused(what: str, expected: str, found: str) -> UsageError:
    return UsageError(what, expected=expected, found=found, next=HELP)


def _unknown(path: str) -> str:
    """Describe an unknown key: the kinds of its section that have it, or the nearest key."""
    section, _, name = path.rpartition(".")
    keys = documented_keys()
    if kinds := [key.kind for key in keys if key.name == path and key.kind]:
        return f"{path} is a key of {section}.kind = {' or '.join(kinds)} alone."
    # Right key, wrong or missing section: the last parts are compared alone.
    known = {key.name.rpartition(".")[2]: key.name for key in reversed(keys)}
    close = (
        known.get(name)
        or nearest(path, [key.name for key in keys])
        or known.get(nearest(name, known) or "")
    )
    return f"There is no configuration key {path!r}.{f' Did you mean {close!r}?' if close else ''}"


def _fault(entry: ErrorDetails) -> str:
    path = ".".join(map(str, entry["loc"]))
    what = entry["msg"].removeprefix("Value error, ").partition(", unable to parse")[0]
    what = what.replace("Input should be", "must be")
    return _unknown(path) if entry["type"] == "extra_forbidden" else f"{path}: {what}"


def _type_name(field: FieldInfo) -> str:
    """Return the type in words, without the ``none`` that the default shows."""
    if (table := _names_of(field)) is not None:
        return " | ".join(table.table())
    kinds = [field.annotation]
    if get_origin(field.annotation) in {Union, UnionType}:
        kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    names = []
    for kind in (get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds):
        if get_origin(kind) is Literal:
            names += [str(value) for value in get_args(kind)]
        elif get_origin(kind) is not None:
            names.append("table" if get_origin(kind) is dict else "list")
        else:
            names.append(kind.__name__ if isinstance(kind, type) else str(kind))
    return " | ".join(names)


def key_value(config: RunConfig, path: str) -> Any:
    """Return the value at a dotted key; None where it is not a key of the section's kind."""
    value: Any = config
    for part in path.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part, None)
    return value


def with_epochs(config: RunConfig, epochs: int) -> RunConfig:
    """Return ``config`` for a run of ``epochs``.

    A warm-up as long as the whole run would never let it learn at the full rate, so that is shortened
    to its share of the run it was made for. An override of ``training.epochs`` leaves it alone.
    """
    schedule = config.schedule
    training = config.training
    warmup = schedule.warmup_epochs
    warms_up = "warmup_epochs" in all_schedules()[schedule.kind].options
    if warms_up and epochs <= warmup < training.epochs:
        warmup = warmup * epochs // training.epochs
    return apply_overrides(
        config, [f"training.epochs={epochs}", f"schedule.warmup_epochs={warmup}"]
    )
