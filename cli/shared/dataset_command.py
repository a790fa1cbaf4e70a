"""Commands about one dataset: they take its parameters, as options and, for most of them, by ``--set``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command import ON_LINE, Command
from kmip_data.cli.shared.names import TARGET
from kmip_data.cli.shared.parameters import KEYS
from kmip_data.errors import UsageError
from kmip_data.wording import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel

    from kmip_data.builds.home import Build, Home

RECORDS = "kmip_data.parameters"  #: key in ``ctx.meta``: parameters of records that were given
SPLITS = "kmip_data.split_parameters"  #: key in ``ctx.meta``: parameters of the split that were given
SOURCES = "kmip_data.sources"  #: key in ``ctx.meta``: what a recipe builds from, as given
SHARDS = "kmip_data.shards"  #: key in ``ctx.meta``: how shards are stored, as given
_PARAMETERS = "kmip_data.dataset_parameters"
_DATASET = "kmip_data.dataset"
_CONFIGURED = {RECORDS: "data.parameters.", SPLITS: "data.split."}  #: keys of a training configuration
TYPED = {*OPTIONS, "recipe_name"}  #: parameters that are options; ``--set`` takes the others


class DatasetCommand(Command):
    """A command whose options grow by those of the dataset named on its line.

    A few parameters that are typed often, such as ``--k``, are options (:data:`kmip_data.wording.OPTIONS`).
    ``sources``: this is the command that builds, whose ``--set`` takes every parameter, and what a recipe
    (``city``) builds from. ``splits``: it takes parameters of the split, too.
    """

    def __init__(self, *args: Any, splits: bool = False, sources: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.splits, self.sources = splits, sources

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's options and those of the dataset, before ``--help``."""
        params = super().get_params(ctx)
        return [*params[:-1], *self._typed(ctx), *params[-1:]]

    def _typed(self, ctx: click.Context) -> list[click.Option]:
        """Return the parameters of the dataset that are options."""
        return [option for _, option in ctx.meta.get(_PARAMETERS, []) if option.name in TYPED]

    def _key(self, store: str, name: str) -> str | None:
        """Return what ``--set`` of this command calls a parameter; ``None`` if it takes none."""
        if self.sources:
            return name
        takes_keys = any(param.name == "overrides" for param in self.params)
        return f"{_CONFIGURED[store]}{name}" if takes_keys else None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's options, those of the dataset under its name, then the keys of ``--set``."""
        typed = self._typed(ctx)
        shared = [param for param in self.get_params(ctx) if param not in typed]
        sections = {"Options": _help_of([param for param in shared if isinstance(param, click.Option)], ctx)}
        if _DATASET in ctx.meta:
            sections[f"Options of {ctx.meta[_DATASET]}"] = _help_of(typed, ctx)
            sections[f"Keys of {ctx.meta[_DATASET]} for --set"] = [
                (f"{key}={option.make_metavar(ctx).strip('[]')}", record[1])
                for store, option in ctx.meta[_PARAMETERS]
                if option not in typed and (key := self._key(store, str(option.name)))
                for record in _help_of([option], ctx)
            ]
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look for the dataset on the line, then parse with its options."""
        target, home = self._target_on(ctx, args), self._value_on(ctx, args, "--home")
        name = _dataset_of(target, home) if target is not None else None
        if name is not None:
            ctx.meta[_DATASET] = name
            ctx.meta[ON_LINE] = [*([] if self._takes_argument() else ["--dataset"]), shlex.quote(str(target))]
            ctx.meta[_PARAMETERS] = self._parameters(name)
            if self.sources:
                ctx.meta[KEYS] = {str(option.name): option for _, option in ctx.meta[_PARAMETERS]}
        return super().parse_args(ctx, args)

    def _parameters(self, name: str) -> list[tuple[str, click.Option]]:
        """Return the parameters of a dataset that this command takes, as options, with their store."""
        from kmip_data.cli.shared.parameters import keep_in, options_of
        from kmip_data.manifest import load_manifest
        from kmip_data.pipelines.base import load_pipeline

        manifest = load_manifest(name)
        pipeline = load_pipeline(manifest)
        models: dict[str, type[BaseModel]] = {RECORDS: pipeline.Params}
        found: list[tuple[str, click.Option]] = []
        if self.sources and manifest.recipe:
            from kmip_data.pipelines.recipes import source_model

            own = click.Option(
                ["--name", "recipe_name"], metavar="NAME", expose_value=False,
                callback=keep_in(SOURCES, "name"), help="Name of the new dataset.",
            )  # fmt: skip
            found, models = [(SOURCES, own)], {SOURCES: source_model(name), **models}
        if self.splits:
            models[SPLITS] = pipeline.SplitParams
        found += [(store, option) for store, model in models.items() for option in options_of(model, store)]
        # An archive has an option that every dataset shares.
        found = [(store, option) for store, option in found if option.name != "archive"]
        if self.sources:
            stored = click.Option(
                ["--compression"], type=click.Choice(["gzip", "zstd"]), expose_value=False,
                callback=keep_in(SHARDS, "compression"), help="less disk, slower reading",
            )  # fmt: skip
            found.append((SHARDS, stored))
        return found

    def refuse(self, ctx: click.Context, args: list[str], option: str) -> None:
        """Raise the error of a misspelt dataset, or of a parameter that used to be an option."""
        target = self._target_on(ctx, args)
        # `build s3ids --k 32`: the name is what is wrong, its options only follow from that.
        if _DATASET not in ctx.meta and target and os.sep not in target and not Path(target).exists():
            from kmip_data.manifest import load_manifest

            load_manifest(target)
        name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
        for store, each in ctx.meta.get(_PARAMETERS, []):
            if each.name == name:
                key = self._key(store, name)
                instead = each.opts[0] if name in TYPED else key and f"--set {key}=VALUE"
                raise UsageError(
                    f"{option} is no option of {ctx.command_path}.",
                    next=instead or "the build folder instead of the name: kmip-data list",
                )
        super().refuse(ctx, args, option)

    def _target_on(self, ctx: click.Context, args: list[str]) -> str | None:
        """Return what stands where the dataset belongs: ``--dataset``, or the first argument."""
        return self._value_on(ctx, args, None if self._takes_argument() else "--dataset")

    def _takes_argument(self) -> bool:
        return any(isinstance(param, click.Argument) for param in self.params)

    def _value_on(self, ctx: click.Context, args: list[str], wanted: str | None) -> str | None:
        """Return the value of an option on the line; with ``None`` the first argument.

        Options of datasets are not known yet, so one that is unknown is taken to have a value.
        """
        known = {
            name: param
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            for name in (*param.opts, *param.secondary_opts)
        }
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

    cards = sorted(Home.locate(home).built.glob(f"*/{CARD_NAME}"))
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


def given(kind: str) -> dict[str, Any]:
    """Return what was given on the line of one of the stores, such as :data:`RECORDS`."""
    return dict(click.get_current_context().meta.get(kind, {}))


def resolve(target: str, home: Home, *, sample: bool) -> Build:
    """Find the finished build that TARGET and the options on the line mean."""
    from kmip_data.pipelines.find import find

    return find(target, given(RECORDS), home=home, sample=sample)


def _help_of(options: Iterable[click.Parameter], ctx: click.Context) -> list[tuple[str, str]]:
    return [record for option in options if (record := option.get_help_record(ctx)) is not None]


#: Data that a trained model is measured on.
other_data_option = click.option(
    "--dataset",
    "target",
    metavar="TARGET",
    type=TARGET,
    help="Other data with the same features and classes.  [default: the data of the run]",
)
