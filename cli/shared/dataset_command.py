"""Commands about one dataset: they take the dataset's own parameters as options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command import ON_LINE, Command
from kmip_data.cli.shared.names import TARGET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kmip_data.builds.home import Build, Home

RECORDS = "kmip_data.parameters"  #: key in ``ctx.meta``: parameters of records that were given
SPLITS = "kmip_data.split_parameters"  #: key in ``ctx.meta``: parameters of the split that were given
SOURCES = "kmip_data.sources"  #: key in ``ctx.meta``: what a recipe builds from, as given
_OPTIONS = "kmip_data.dataset_options"
_DATASET = "kmip_data.dataset"


class DatasetCommand(Command):
    """A command whose options grow by those of the dataset named on its line.

    ``splits`` takes the parameters of the split too; ``sources`` what a recipe (``city``) builds from, and
    the name of what is built.
    """

    def __init__(self, *args: Any, splits: bool = False, sources: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.splits = splits
        self.sources = sources

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options and those of the dataset, before ``--help``."""
        own = super().get_params(ctx)
        return [*own[:-1], *ctx.meta.get(_OPTIONS, []), *own[-1:]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then those of the dataset under its name."""
        extra = ctx.meta.get(_OPTIONS, [])
        shared = [param for param in self.get_params(ctx) if param not in extra]
        own = [param for param in shared if isinstance(param, click.Option)]
        with formatter.section("Options"):
            formatter.write_dl(_help_of(own, ctx))
        if extra:
            with formatter.section(f"Options of {ctx.meta[_DATASET]}"):
                formatter.write_dl(_help_of(extra, ctx))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look for the dataset on the line, then parse with its options."""
        target, home = self._target_on(ctx, args), self._value_on(ctx, args, "--home")
        name = _dataset_of(target, home) if target is not None else None
        if name is not None:
            from kmip_data.cli.shared.parameters import options_of
            from kmip_data.manifest import load_manifest
            from kmip_data.pipelines.base import load_pipeline

            manifest = load_manifest(name)
            pipeline = load_pipeline(manifest)
            ctx.meta[_DATASET] = name
            ctx.meta[ON_LINE] = [*([] if self._takes_argument() else ["--dataset"]), str(target)]
            ctx.meta[_OPTIONS] = [
                *(_recipe_options(name) if self.sources and manifest.recipe else []),
                *options_of(pipeline.Params, RECORDS),
            ]
            if self.splits:
                ctx.meta[_OPTIONS] += options_of(pipeline.SplitParams, SPLITS)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            # `build s3ids --k 32`: the name is what is wrong, its options only follow from that.
            if name is None and target is not None and os.sep not in target and not Path(target).exists():
                from kmip_data.manifest import load_manifest

                load_manifest(target)
            raise

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
    from kmip_data.files.small import read_json
    from kmip_data.manifest import dataset_names

    try:
        card = read_json(path)
        found = card["manifest"] if dataset in (None, card["dataset"]) else None
    except (ValueError, OSError, KeyError, TypeError):
        return None  # no card, or something wrong in it, which the command itself says
    return found if found in dataset_names() else None


def _recipe_options(recipe: str) -> list[click.Option]:
    """Return ``--name`` and what a recipe can build from; ``--archive`` all commands have."""
    from kmip_data.cli.shared.parameters import keep_in, options_of
    from kmip_data.pipelines.recipes import source_model

    name = click.Option(
        ["--name", "recipe_name"], metavar="NAME", expose_value=False, callback=keep_in(SOURCES, "name"),
        help="name of the dataset that is built: what other commands call it",
    )  # fmt: skip
    sources = options_of(source_model(recipe), SOURCES)
    return [name, *(option for option in sources if option.name != "archive")]


def given(kind: str) -> dict[str, Any]:
    """Return what was given on the line of :data:`RECORDS`, :data:`SPLITS` or :data:`SOURCES`."""
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
    help="Other data with the same features and classes.  [default: what the run learned from]",
)
