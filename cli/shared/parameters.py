"""Options and ``--set`` keys made from the parameter models of a dataset; their field docs are the help."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from kmip_data.cli.shared.command import ON_LINE
from kmip_data.wording import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

KEYS = "kmip_data.keys"  #: key in ``ctx.meta``: what ``--set`` takes, by name


def options_of(model: type[BaseModel], store: str) -> list[click.Option]:
    """Make one option for each field of ``model``; values given are kept in ``ctx.meta[store]``.

    A ``Literal`` becomes a choice, a tuple may be repeated. Bounds are checked by click, so that help shows
    them; the model has the last word.
    """
    return [_option(name, field, store) for name, field in model.model_fields.items()]


def _option(name: str, field: FieldInfo, store: str) -> click.Option:
    kind, multiple = _item_type(field.annotation)
    default = f"(default: {field.default})" if field.default not in (None, ()) else None
    return click.Option(
        [OPTIONS.get(name, f"--{name.replace('_', '-')}"), name],
        type=click.BOOL if kind is bool else _click_type(kind, field),
        default=None,
        multiple=multiple,
        expose_value=False,
        callback=keep_in(store, name),
        metavar={int: "N", float: "X"}.get(kind),
        help=" ".join(filter(None, [field.description, default])),
    )


def keep_in(store: str, name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return a callback that keeps a given value in ``ctx.meta[store]``."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None and value != ():
            ctx.meta.setdefault(store, {})[name] = value

    return keep


def _settings(ctx: click.Context, param: click.Parameter, items: tuple[str, ...]) -> None:
    """Convert and keep the values of ``--set``; a key whose field is a tuple may be repeated."""
    keys: Mapping[str, click.Option] = ctx.meta.get(KEYS, {})
    given: dict[str, list[str]] = {}
    # Without keys the name of the dataset is wrong, and that is the error.
    for item in items if keys else ():
        key, equals, value = item.partition("=")
        name = key.replace("-", "_")
        if not equals:
            raise click.BadParameter(f"{item!r} is not KEY=VALUE", ctx, param)
        if name not in keys:
            from kmip_data.manifest import unknown_name

            command = " ".join([ctx.command_path, *ctx.meta.get(ON_LINE, []), "--help"])
            raise unknown_name("parameter of this dataset", key, sorted(keys), command=command)
        given.setdefault(name, []).append(value)
    for name, values in given.items():
        option = keys[name]
        try:
            option.process_value(ctx, values if option.multiple else values[-1])
        except click.BadParameter as error:
            raise click.BadParameter(error.message, ctx, param, f"--set {name}") from error


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    expose_value=False,
    callback=_settings,
    help="A parameter of the dataset, as listed below; may be repeated.",
)


def _item_type(annotation: Any) -> tuple[Any, bool]:
    """``int | None`` to ``(int, False)``, ``tuple[str, ...]`` to ``(str, True)``."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(item for item in get_args(annotation) if item is not NoneType)
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], True
    return annotation, False


def _click_type(kind: Any, field: FieldInfo) -> click.ParamType[Any]:
    if get_origin(kind) is Literal:
        return click.Choice([str(item) for item in get_args(kind)])
    low = high = None
    low_open = high_open = False
    for bound in field.metadata:
        low, low_open = getattr(bound, "ge", getattr(bound, "gt", low)), hasattr(bound, "gt") or low_open
        high, high_open = getattr(bound, "le", getattr(bound, "lt", high)), hasattr(bound, "lt") or high_open
    if kind not in {int, float}:
        return click.STRING
    if low is None and high is None:
        return click.INT if kind is int else click.FLOAT
    return (click.IntRange if kind is int else click.FloatRange)(low, high, low_open, high_open)
