"""Commands about one dataset: its parameters are their options and keys of ``--set``.

The parameter models of a dataset make the options; the docs of their fields are the help.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from kmip_data.cli.shared.commands import CHOSEN, ON_LINE, Command
from kmip_data.errors import UsageError
from kmip_data.wording import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from kmip_data.builds.home import Build, Home

# Keys in ``ctx.meta``. Values given on the line: parameters of records and of the split, the sources of a
# recipe, and how shards are stored.
RECORDS, SPLITS = "kmip_data.parameters", "kmip_data.split_parameters"
SOURCES, SHARDS = "kmip_data.sources", "kmip_data.shards"
PARAMETERS = "kmip_data.dataset_parameters"  #: its options, each with the store of its values
_CONFIGURED = {RECORDS: "data.parameters.", SPLITS: "data.split."}  #: keys of a training configuration
TYPED = {*OPTIONS, "recipe_name"}  #: parameters that are options; ``--set`` takes the others


class DatasetCommand(Command):
    """A command whose options grow by those of the dataset named on its line.

    A few parameters that are typed often, such as ``--k``, are options (:data:`kmip_data.wording.OPTIONS`).
    ``sources``: this is the command that builds, whose ``--set`` takes every parameter, and the sources of a
    recipe (``city``). ``splits``: it also takes parameters of the split.
    """

    def __init__(self, *args: Any, splits: bool = False, sources: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.splits, self.sources = splits, sources

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's options and those of the dataset, before ``--help``."""
        params = super().get_params(ctx)
        return [*params[:-1], *_typed(ctx), *params[-1:]]

    def _key(self, store: str, name: str) -> str | None:
        """Return the name of a parameter in ``--set``; ``None`` if the command has no ``--set``."""
        if self.sources:
            return name
        takes_keys = any(param.name == "overrides" for param in self.params)
        return f"{_CONFIGURED[store]}{name}" if takes_keys else None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's options, those of the dataset under its name, then the keys of ``--set``."""
        typed, name = _typed(ctx), ctx.meta.get(CHOSEN)
        shared = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        keys = [
            (f"{key}={option.make_metavar(ctx).strip('[]')}", option.help or "")
            for store, option in ctx.meta.get(PARAMETERS, ())
            if option not in typed and (key := self._key(store, str(option.name)))
        ]
        for title, options in (("Options", shared), (f"Options of {name}", typed)):
            if records := [each for option in options if (each := option.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(records)
        if keys:
            with formatter.section(f"Keys of {name} for --set"):
                formatter.write_dl(keys)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look for the dataset on the line, then parse with its options."""
        target, home = self._target_on(ctx, args), self._value_on(ctx, args, "--home")
        if target is not None and (name := _dataset_of(target, home)) is not None:
            ctx.meta[CHOSEN] = name
            ctx.meta[ON_LINE] = [*([] if self._takes_argument() else ["--dataset"]), shlex.quote(target)]
            ctx.meta[PARAMETERS] = self._parameters(name)
        return super().parse_args(ctx, args)

    def _parameters(self, name: str) -> list[tuple[str, click.Option]]:
        """Return the parameters of a dataset that this command takes, as options, with their store."""
        from kmip_data.manifest import load_manifest
        from kmip_data.pipelines.base import load_pipeline

        manifest = load_manifest(name)
        pipeline = load_pipeline(manifest)
        models: list[tuple[str, type[BaseModel]]] = [(RECORDS, pipeline.Params)]
        found: list[tuple[str, click.Option]] = []
        if self.sources and manifest.recipe:
            from kmip_data.pipelines.build import source_model

            own = _kept_option(
                SOURCES, "name", ["--name", "recipe_name"], metavar="NAME", help="Name of the new dataset."
            )
            found, models = [(SOURCES, own)], [(SOURCES, source_model(name)), *models]
        if self.splits:
            models.append((SPLITS, pipeline.SplitParams))
        found += [
            (store, _option(name, field, store))
            for store, model in models
            for name, field in model.model_fields.items()
            if name != "archive"  # an option that every dataset shares
        ]
        if self.sources:
            stored = _kept_option(
                SHARDS, "compression", ["--compression"], type=click.Choice(["gzip", "zstd"]),
                help="less disk, slower reading",
            )  # fmt: skip
            found.append((SHARDS, stored))
        return found

    def refuse(self, ctx: click.Context, args: list[str], option: str) -> None:
        """Raise the error of a misspelt dataset, or of a parameter that is no option but a key."""
        target = self._target_on(ctx, args)
        # `build s3ids --k 32`: the name is what is wrong, its options only follow from that.
        if CHOSEN not in ctx.meta and target and os.sep not in target and not Path(target).exists():
            from kmip_data.manifest import load_manifest

            load_manifest(target)
        name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
        for store, each in ctx.meta.get(PARAMETERS, []):
            if each.name == name:
                key = self._key(store, name)
                instead = each.opts[0] if name in TYPED else key and f"--set {key}=VALUE"
                raise UsageError(
                    f"{option} is no option of {ctx.command_path}.",
                    next=instead or "the build folder instead of the name: kmip-data list",
                )
        super().refuse(ctx, args, option)

    def _target_on(self, ctx: click.Context, args: list[str]) -> str | None:
        """Return the name of the dataset on the command line: ``--dataset``, or the first argument."""
        return self._value_on(ctx, args, None if self._takes_argument() else "--dataset")

    def _takes_argument(self) -> bool:
        return any(isinstance(param, click.Argument) for param in self.params)

    def _value_on(self, ctx: click.Context, args: list[str], wanted: str | None) -> str | None:
        """Return the value of an option on the line; with ``None`` the first argument.

        Options of datasets are not known yet, so one that is unknown is taken to have a value.
        """
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        known = {name: param for param in options for name in (*param.opts, *param.secondary_opts)}
        words = iter(args)
        for word in words:
            if not word.startswith("-"):
                if wanted is None:
                    return word
                continue
            name, given, value = word.partition("=")
            option = known.get(name)
            if not given and (word.startswith("--") if option is None else not option.is_flag):
                value = next(words, "")
            if name == wanted:
                return value
        return None


def _typed(ctx: click.Context) -> list[click.Option]:
    """Return the parameters of the dataset that are options."""
    return [option for _, option in ctx.meta.get(PARAMETERS, []) if option.name in TYPED]


def _dataset_of(target: str, home: str | None) -> str | None:
    """Return the shipped dataset that TARGET names, or whose build it is, or the recipe of such a build."""
    from kmip_data.format.card import CARD_NAME
    from kmip_data.manifest import dataset_names

    if target in dataset_names():
        return target
    card = Path(target) / CARD_NAME
    if os.sep in target or card.is_file():
        return _manifest_on(card)
    from kmip_data.builds.home import Home

    built = Home.locate(home).built
    if target and (card := built / target / CARD_NAME).is_file():
        return _manifest_on(card)
    cards = sorted(built.glob(f"*/{CARD_NAME}"))
    return next(filter(None, (_manifest_on(card, dataset=target) for card in cards)), None)


def _manifest_on(path: Path, *, dataset: str | None = None) -> str | None:
    """Return the shipped manifest that a card names, if it is one of ``dataset``."""
    from kmip_data.files.reading import read_json
    from kmip_data.manifest import dataset_names

    try:
        card = read_json(path)
        found = card["manifest"] if dataset in (None, card["dataset"]) else None
    except (ValueError, OSError, KeyError, TypeError):
        return None  # no card, or a damaged one, which the command itself reports
    return found if found in dataset_names() else None


def given(store: str) -> dict[str, Any]:
    """Return what was given on the line of one of the stores, such as :data:`RECORDS`."""
    return dict(click.get_current_context().meta.get(store, {}))


def resolve(target: str, home: Home, *, sample: bool) -> Build:
    """Find the finished build that TARGET and the options on the line mean."""
    from kmip_data.pipelines.find import find

    return find(target, given(RECORDS), home=home, sample=sample)


def build_or_run(target: str, home: Home, *, sample: bool) -> Build | Path:
    """Return the build that TARGET means, else the folder of the run."""
    from kmip_data.models.training.run.folder import find_run

    try:
        return resolve(target, home, sample=sample)
    except UsageError:
        with contextlib.suppress(UsageError):
            if not sample:
                return find_run(target, home)
        raise


def _option(name: str, field: FieldInfo, store: str) -> click.Option:
    """Return a field of a parameter model as an option; a ``Literal`` is a choice, a tuple may be repeated.

    Bounds are checked by click, so that help shows them; the model has the last word.
    """
    kind, multiple = field.annotation, False
    if get_origin(kind) in (Union, UnionType):  # int | None
        kind = next(item for item in get_args(kind) if item is not NoneType)
    if get_origin(kind) is tuple:
        kind, multiple = get_args(kind)[0], True
    default = f"(default: {field.default})" if field.default not in (None, ()) else None
    return _kept_option(
        store,
        name,
        [OPTIONS.get(name, f"--{name.replace('_', '-')}"), name],
        type=_click_type(kind, field),
        multiple=multiple,
        metavar={int: "N", float: "X"}.get(kind) if isinstance(kind, type) else None,
        help=" ".join(filter(None, [field.description, default])),
    )


def _click_type(kind: Any, field: FieldInfo) -> click.ParamType[Any]:
    if get_origin(kind) is Literal:
        return click.Choice([str(item) for item in get_args(kind)])
    if kind not in {int, float}:
        return click.BOOL if kind is bool else click.STRING
    names = ("ge", "gt", "le", "lt")  # of pydantic
    bounds = {name: getattr(each, name) for each in field.metadata for name in names if hasattr(each, name)}
    if not bounds:
        return click.INT if kind is int else click.FLOAT
    low, high = bounds.get("gt", bounds.get("ge")), bounds.get("lt", bounds.get("le"))
    return (click.IntRange if kind is int else click.FloatRange)(low, high, "gt" in bounds, "lt" in bounds)


def _kept_option(store: str, name: str, words: list[str], **options: Any) -> click.Option:
    """Make an option whose given value is kept in ``ctx.meta[store][name]``."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None and value != ():
            ctx.meta.setdefault(store, {})[name] = value

    return click.Option(words, default=None, expose_value=False, callback=keep, **options)


def _settings(ctx: click.Context, param: click.Parameter, items: tuple[str, ...]) -> None:
    """Convert and keep the values of ``--set``; a key whose field is a tuple may be repeated."""
    keys: Mapping[str, click.Option] = {str(each.name): each for _, each in ctx.meta.get(PARAMETERS, ())}
    values: dict[str, list[str]] = {}
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
        values.setdefault(name, []).append(value)
    for name, texts in values.items():
        option = keys[name]
        try:
            option.process_value(ctx, texts if option.multiple else texts[-1])
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
