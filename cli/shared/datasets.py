"""Commands about one dataset: frequent parameters are options, ``build --set`` takes all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click

from kmip_data.cli.shared.command_classes import Command
from kmip_data.cli.shared.output import Json
from kmip_data.errors import UsageError, conflicting_values_error
from kmip_data.text import PARAMETER_OPTIONS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pydantic import BaseModel

    from kmip_data.builds.home import Build, Home
    from kmip_data.manifest import Manifest

# Keys in ``ctx.meta`` of values given on the line: parameters of records and of the split, and the
# sources of a recipe.
RECORDS = "kmip_data.records"
SPLITS = "kmip_data.splits"
SOURCES = "kmip_data.sources"
#: Parameters that are options: name -> type and help. Of which datasets they are, the dataset
#: itself checks.
TYPED: dict[str, dict[str, tuple[type, str]]] = {
    RECORDS: {
        "k": (
            int,
            "Point clouds: neighbours in the k-NN graph. The k of k-MIP is --set model.attention.k.",
        ),
        "limit": (
            int,
            "Only N of the graphs, evenly spaced. For the sample of a city: its size.",
        ),
    },
    SPLITS: {
        "split_rule": (
            str,
            "Split rule, such as random or stratified; `kmip-data info NAME` lists them.",
        ),
        "split_seed": (int, "Seed of the split rule.  [default: 0]"),
        "test_area": (int, "S3DIS: area used as test set, 1 to 6.  [default: 6]"),
    },
    SOURCES: {
        # Commands have an argument ``name`` already: this one is stored as ``name``.
        "recipe_name": (str, "Name of the dataset built from your files."),
        "place": (str, "city: place name in OpenStreetMap, such as 'Oslo, Norway'."),
        "images": (str, "superpixels: folder of images."),
        "masks": (str, "superpixels: folder of masks."),
        "like": (
            str,
            "graphs: take columns and classes from an earlier build, a run, or a file of --describe.",
        ),
    },
}


class DatasetCommand(Command):
    """A command with the parameters of datasets that are options, such as ``--k``.

    ``stores`` says which: of records, also of the split, and of the sources of a recipe.
    """

    def __init__(self, *args: Any, stores: Sequence[str] = (RECORDS,), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for store in stores:
            self.params += [_stored_option(store, name) for name in TYPED[store]]


def _stored_option(store: str, name: str) -> click.Option:
    """Make an option that stores its value in ``ctx.meta[store][parameter]``."""
    value_type, text = TYPED[store][name]
    parameter = "name" if name == "recipe_name" else name

    def keep(ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value is not None:
            ctx.meta.setdefault(store, {})[parameter] = value

    metavars = {"split_rule": "RULE", "images": "DIR", "masks": "DIR", "like": "DATASET"}
    metavar = "N" if value_type is int else metavars.get(parameter, parameter.upper())
    return click.Option(
        [PARAMETER_OPTIONS.get(name, f"--{parameter}"), name],
        type=value_type,
        metavar=metavar,
        expose_value=False,
        callback=keep,
        help=text,
    )


def requested_values(store: str) -> Json:
    """Return the values given for one of the stores, such as :data:`RECORDS`."""
    return dict(click.get_current_context().meta.get(store, {}))


def parameter_models(manifest: Manifest) -> dict[str, type[BaseModel]]:
    """Return the parameters of a dataset by store: its source's first, where it has one."""
    from kmip_data.pipelines.base import load_pipeline

    pipeline: Any = load_pipeline(manifest)
    models = {RECORDS: pipeline.Params, SPLITS: pipeline.SplitParams}
    if manifest.recipe:
        models = {SOURCES: pipeline.Source, **models}
    return models


def store_settings(dataset: str, settings: Sequence[str]) -> None:
    """Put each KEY=VALUE into the store of this parameter; tuples may be repeated.

    Raises ``UsageError`` for an unknown key; values are checked with all others, when they are
    used.
    """
    from kmip_data.errors import unknown_name_error
    from kmip_data.manifest import load_manifest

    # 1. Parameters of this dataset by name: their stores and types.
    known: dict[str, tuple[str, object]] = {}
    for store, model in parameter_models(load_manifest(dataset)).items():
        known |= {name: (store, field.annotation) for name, field in model.model_fields.items()}

    # 2. Sort each value into its store.
    meta = click.get_current_context().meta
    by_option = {store: {*meta.get(store, {})} for store in TYPED}
    for item in settings:
        key, equals, value = item.partition("=")
        name = key.replace("-", "_")
        if not equals:
            raise click.BadParameter(f"{item!r} is not KEY=VALUE", param_hint="--set")
        if name not in known:
            raise unknown_name_error(
                f"parameter of {dataset}", key, sorted(known), command=f"kmip-data info {dataset}"
            )
        store, value_type = known[name]
        values = meta.setdefault(store, {})
        if name in by_option[store] and str(values[name]) != value:
            option = PARAMETER_OPTIONS.get(name, f"--{name}")
            raise conflicting_values_error(option, values[name], item)
        # An option of a tuple, also of one that may be none, takes each of its values.
        if any(get_origin(member) is tuple for member in (value_type, *get_args(value_type))):
            values.setdefault(name, []).append(value)
        else:
            values[name] = value


def find_selected_build(name: str, home: Home, *, sample: bool) -> Build:
    """Find the finished build that a name and the options select."""
    from kmip_data.pipelines.find import find

    return find(name, requested_values(RECORDS), home=home, sample=sample)


def find_build_or_run(name: str, home: Home, *, sample: bool) -> Build | Path:
    """Return the build that a name selects, else the folder of the run."""
    from kmip_data.models.training.run.run_folder import find_run

    try:
        return find_selected_build(name, home, sample=sample)
    except UsageError:
        with contextlib.suppress(UsageError):
            return find_run(name, home)
        raise


def source_pictures(
    build: Build, home: Home, keys: Sequence[str]
) -> Mapping[str, NDArray[np.uint8]]:
    """Return the source pictures of the records, as far as they still exist."""
    from kmip_data.pipelines.base import pipeline_of_card
    from kmip_data.pipelines.datasets.superpixels import OwnSuperpixelPipeline

    card = build.card
    pipeline = pipeline_of_card(card)
    if not isinstance(pipeline, OwnSuperpixelPipeline):
        return {}
    recorded = pipeline.pictures(card, home.raw / card.dataset, keys)
    pictures = {key: picture for key, picture in recorded.items() if picture is not None}
    if missing := recorded.keys() - pictures:
        names = ", ".join(sorted(missing))
        click.echo(f"The pictures of {names} are not here: drawn without them.", err=True)
    return pictures
