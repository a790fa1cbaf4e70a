"""Read, change and write configurations: TOML files and ``section.key=value``."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small import read_small
from kmip_data.manifest import unknown_name
from kmip_data.models.config import OLD_NAMES
from kmip_data.models.registry import ATTENTION, MESSAGE_PASSING
from kmip_data.models.training.config.keys import RunConfig

HELP = "docs/training.md lists every key"


@dataclass(frozen=True)
class Key:
    """One documented key of a configuration."""

    name: str  #: dotted, ``optimiser.lr``
    type: str
    default: str  #: as TOML; empty where the key must be given
    doc: str
    kind: str = ""  #: of the section, where it has the key for one kind only


def documented_keys(model: type[BaseModel] = RunConfig, prefix: str = "") -> list[Key]:
    """Every key of a configuration in order, with type, default and meaning."""
    found: list[Key] = []
    for name, field, path in _fields(model, prefix):
        section, kinds = _section(field), _kinds(field)
        if section is not None:
            found += documented_keys(section, f"{path}.")
            continue
        default: Any = None if field.is_required() else field.get_default(call_default_factory=True)
        if kinds:
            found.append(
                Key(f"{path}.kind", " | ".join(kinds), _shown(default.kind), field.description or name)
            )
            for kind, part in kinds.items():
                keys = [key for key in documented_keys(part, f"{path}.") if key.name != f"{path}.kind"]
                found += [replace(key, kind=kind, doc=f"{kind}: {key.doc}") for key in keys]
            continue
        shown = "" if field.is_required() else _shown(default)
        found.append(Key(path, _type_name(field), shown, field.description or name))
    return found


def apply_overrides(config: RunConfig, items: Sequence[str]) -> RunConfig:
    """Return ``config`` with ``section.key=value`` items applied in order.

    A value is read as the type of its key: ``optimiser.lr=1e-3``, ``training.shuffle=true``,
    ``training.precision=32``. Keys below ``data.parameters`` and ``data.split`` are free; their values
    are read as TOML (``data.parameters.k=16``, ``data.split.split=room``). ``model.hidden_dim`` switches
    ``model.parameter_budget`` off, unless that is given too.

    Raises
    ------
    UsageError
        An item without ``=``, an unknown key (the nearest one is named) or a value of the wrong type.
    """
    values = config.model_dump()
    given = {item.partition("=")[0].strip() for item in items}
    if "model.hidden_dim" in given and "model.parameter_budget" not in given:
        values["model"]["parameter_budget"] = None
    for item in items:
        path, separator, text = item.partition("=")
        if not separator:
            raise UsageError(
                f"{item!r} is not an override.",
                expected="section.key=value, such as optimiser.lr=1e-3",
                found=item,
                left="nothing was changed",
                next=HELP,
            )
        _assign(values, present_path(path.strip()), text.strip())
    return config_from_mapping(values, "the overrides")


def config_from_mapping(values: Mapping[str, Any], origin: str) -> RunConfig:
    """Check ``values`` as a configuration; ``origin`` says in errors where they come from.

    Raises
    ------
    UsageError
        An unknown key, a missing one or a value of the wrong type; every fault is listed.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        faults = [_fault(entry) for entry in error.errors()]
        raise UsageError(
            f"The configuration in {origin} is not valid.",
            expected="the documented keys and types",
            found="\n    " + "\n    ".join(faults) if len(faults) > 1 else faults[0],
            left="nothing was changed",
            next=HELP,
        ) from error


def read_config(path: Path) -> RunConfig:
    """Read a ``config.toml``.

    Raises
    ------
    DamagedInput
        The file is not readable TOML.
    UsageError
        It is, but not a configuration.
    """
    try:
        values = tomllib.loads(read_small(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedInput(
            f"{path} cannot be read.",
            expected="a TOML configuration",
            found=str(error),
            left="the file is as it was",
            next="name a run folder that kmip-data train made, or a file with the keys of docs/training.md",
        ) from error
    return config_from_mapping(values, str(path))


def to_toml(config: RunConfig) -> str:
    """Write ``config`` completely, so that :func:`read_config` gives an equal one.

    TOML has no null: a key that is ``None`` is left out, and means ``None`` when read back because
    that is its default.
    """
    import tomli_w

    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def present_path(path: str) -> str:
    """Return the dotted key that ``path`` is an old name of, or ``path``."""
    section, _, key = path.partition(".")
    return f"model.{OLD_NAMES[key]}" if section == "model" and key in OLD_NAMES else path


def _assign(values: dict[str, Any], path: str, text: str) -> None:
    parts = path.split(".")
    model: type[BaseModel] = RunConfig
    place = values
    for depth, part in enumerate(parts):
        field = model.model_fields.get(part)
        if field is None:
            raise _unknown(path)
        rest, kinds = parts[depth + 1 :], _kinds(field)
        if kinds and rest == ["kind"]:
            if text not in kinds:
                raise unknown_name(f"kind of {path.removesuffix('.kind')}", text, list(kinds), command=HELP)
            if text != place[part]["kind"]:  # its other keys mean something else, if anything
                place[part] = {"kind": text}
            return
        section = kinds[place[part]["kind"]] if kinds else _section(field)
        if section is None:
            if rest and isinstance(place[part], dict) and len(rest) == 1:
                place[part] = {**place[part], rest[0]: _toml_value(text)}
            elif rest:
                raise _unknown(path)
            else:
                place[part] = _typed(path, field, text)
            return
        model, place = section, place[part]
    raise UsageError(
        f"{path!r} is a section, not a key.",
        expected=", ".join(key.name for key in documented_keys(model, f"{path}.")),
        found=path,
        left="nothing was changed",
        next=HELP,
    )


def _typed(path: str, field: FieldInfo, text: str) -> Any:
    """Read ``text`` as the key's type: as TOML (numbers, true, lists), as it stands, or as none."""
    adapter: TypeAdapter[Any] = TypeAdapter(_annotated(field), config=ConfigDict(allow_inf_nan=False))
    message = ""
    for candidate in (_toml_value(text), text, *([None] if text.lower() == "none" else [])):
        try:
            adapter.validate_python(candidate)
        except ValidationError as error:
            message = message or _in_words(error.errors()[0])
        else:
            return candidate
    raise UsageError(
        f"{path} cannot be {text!r}.",
        expected=f"{_type_name(field)} ({field.description})",
        found=f"{text!r}: {message}",
        left="nothing was changed",
        next=HELP,
    )


def _annotated(field: FieldInfo) -> Any:
    from typing import Annotated

    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def _unknown(path: str) -> UsageError:
    names = [key.name for key in documented_keys()]
    wrong = _wrong_kind(path)
    close = None if wrong else _nearest(path, names)
    return UsageError(
        wrong or f"There is no configuration key {path!r}.{f' Did you mean {close!r}?' if close else ''}",
        expected=close or ", ".join(names),
        found=path,
        left="nothing was changed",
        next=HELP,
    )


def _wrong_kind(path: str) -> str:
    """Say which kinds have a key that the one asked for has not; empty where none has it."""
    kinds = [key.kind for key in documented_keys() if key.name == path and key.kind]
    return f"{path} is a key of {path.rpartition('.')[0]}.kind = {' or '.join(kinds)} alone" if kinds else ""


def _nearest(path: str, names: Sequence[str]) -> str | None:
    whole = difflib.get_close_matches(path, names, n=1, cutoff=0.6)
    if whole:
        return whole[0]
    # Right key, wrong or missing section: compare the last parts alone.
    last = {name.rsplit(".", 1)[-1]: name for name in reversed(names)}
    part = difflib.get_close_matches(path.rsplit(".", 1)[-1], list(last), n=1, cutoff=0.6)
    return last[part[0]] if part else None


def _fault(entry: ErrorDetails) -> str:
    # The kind of a section stands in the place of an error, and is no part of a key.
    path = ".".join(str(part) for part in entry["loc"] if part not in {*ATTENTION, *MESSAGE_PASSING})
    if entry["type"] == "extra_forbidden":
        if wrong := _wrong_kind(path):
            return wrong
        close = _nearest(path, [key.name for key in documented_keys()])
        return f"{path}: unknown key{f', did you mean {close!r}?' if close else ''}"
    return f"{path}: {_in_words(entry)}"


#: Limits of pydantic's errors in our words.
_LIMITS = {
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
}


def _in_words(entry: ErrorDetails) -> str:
    """Say what is wrong with a value."""
    value = entry.get("input")
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a finite number"
    limit = _LIMITS.get(entry["type"])
    if limit is not None:
        return f"{value} is not {limit.format_map(entry.get('ctx', {}))}"
    return entry["msg"]


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo, str]]:
    for name, field in model.model_fields.items():
        yield name, field, f"{prefix}{name}"


def _section(field: FieldInfo) -> type[BaseModel] | None:
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _kinds(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """Sections that a key may hold by their kinds; empty where it holds one or a value."""
    if field.discriminator is None:
        return {}
    return {section.model_fields["kind"].default: section for section in get_args(field.annotation)}


def _type_name(field: FieldInfo) -> str:
    """Return the type in words, without the ``none`` that the default shows."""
    from types import NoneType, UnionType
    from typing import Annotated, Literal, Union, get_origin

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


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value).replace("'", '"')


def key_value(config: RunConfig, path: str) -> Any:
    """Return the value at a dotted key."""
    value: Any = config
    for part in present_path(path).split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def with_epochs(config: RunConfig, epochs: int) -> RunConfig:
    """Return ``config`` for a run of ``epochs``.

    A warm-up as long as the whole run would never let it learn at the full rate, so that is shortened
    to its share of the run it was made for. An override of ``training.epochs`` leaves it alone.
    """
    schedule, training = config.schedule, config.training
    warmup = schedule.warmup_epochs
    if schedule.kind == "cosine_with_warmup" and epochs <= warmup < training.epochs:
        warmup = warmup * epochs // training.epochs
    return apply_overrides(config, [f"training.epochs={epochs}", f"schedule.warmup_epochs={warmup}"])
