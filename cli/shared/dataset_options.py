"""Parameters of datasets on the command line."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.output import Json
from kmip_data.errors import Command, conflicting_values_error, unknown_name_error
from kmip_data.text import PARAMETER_OPTIONS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pydantic import BaseModel

    from kmip_data.builds.home import Build, Home
    from kmip_data.manifest import Manifest

ParameterGroup = Literal["records", "split", "source"]  #: a field of :class:`DatasetParameters`
#: Name of the option ``--name`` in click: commands have an argument ``name`` already.
_NAME_OPTION = "recipe_name"
#: Parameters that have an option, by group: name -> type and help. Each dataset checks for itself
#: which of them it takes.
DATASET_OPTIONS: dict[ParameterGroup, dict[str, tuple[type, str]]] = {
    "records": {
        "k": (
            int,
            "Point clouds: neighbours in the k-NN graph. For the k of k-MIP, use --set model.attention.k.",
        ),
        "limit": (
            int,
            "Use only N graphs, evenly spaced. For the sample of a city: its number of nodes.",
        ),
    },
    "split": {
        "split_rule": (
            str,
            "Split rule, such as random or stratified; `kmip-data info NAME` lists them.",
        ),
        "split_seed": (int, "Seed of the split rule.  [default: 0]"),
        "test_area": (int, "S3DIS: area used as test set, 1 to 6.  [default: 6]"),
    },
    "source": {
        _NAME_OPTION: (str, "Name of the dataset built from your files."),
        "place": (str, "city: place name in OpenStreetMap, such as 'Oslo, Norway'."),
        "images": (str, "superpixels: folder of images."),
        "masks": (str, "superpixels: folder of masks."),
        "like": (
            str,
            "Your own data: take columns and classes from an earlier build, a run, or a --describe file.",
        ),
    },
}
_METAVARS = {
    "split_rule": "RULE", "images": "DIR", "masks": "DIR", "like": "DATASET", _NAME_OPTION: "NAME",
}  # fmt: skip


@dataclass
class DatasetParameters:
    """Parameters of a dataset given on the command line, as options or by ``build --set``.

    Values are strings or numbers as typed; the dataset checks them when it is built or opened.
    """

    records: Json = field(default_factory=dict)  #: determine the records of a build
    split: Json = field(default_factory=dict)  #: determine a split of these records
    #: Name of the user's own dataset, and where its files are.
    source: Json = field(default_factory=dict)

    def with_settings(self, dataset: str, settings: Sequence[str]) -> DatasetParameters:
        """Return these parameters with each KEY=VALUE added to its group; tuples may be repeated.

        Raises ``UsageError`` for an unknown key.
        """
        from kmip_data.manifest import load_manifest

        # 1. Find the group and the type of each parameter of the dataset.
        known: dict[str, tuple[ParameterGroup, object]] = {}
        for group, model in parameter_models(load_manifest(dataset)).items():
            known |= {name: (group, field.annotation) for name, field in model.model_fields.items()}

        # 2. Add the values. A parameter given as an option must not have a second value.
        combined = copy.deepcopy(self)
        for item in settings:
            key, _, value = item.partition("=")
            name = key.replace("-", "_")
            if name not in known:
                raise unknown_name_error(
                    f"parameter of {dataset}",
                    key,
                    sorted(known),
                    command=Command("kmip-data info", dataset),
                )
            group, value_type = known[name]
            from_options = getattr(self, group)
            if name in from_options and str(from_options[name]) != value:
                option = PARAMETER_OPTIONS.get(name, f"--{name}")
                raise conflicting_values_error(option, from_options[name], item)

            values = getattr(combined, group)
            is_tuple = any(
                get_origin(member) is tuple for member in (value_type, *get_args(value_type))
            )
            if is_tuple:
                values.setdefault(name, []).append(value)
            else:
                values[name] = value
        return combined


class DatasetCommand(ClickCommand):
    """A command with options for parameters of datasets, such as ``--k``.

    The function of the command takes them as one argument, ``parameters``. ``parameter_groups``
    are the groups whose options it has.
    """

    def __init__(
        self,
        *args: Any,
        parameter_groups: Sequence[ParameterGroup] = ("records",),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.parameter_groups = parameter_groups
        for group in parameter_groups:
            self.params += [_parameter_option(group, name) for name in DATASET_OPTIONS[group]]

    def invoke(self, ctx: click.Context) -> object:
        """Run the command with the parsed options collected in :class:`DatasetParameters`."""
        parameters = DatasetParameters()
        group_of = {
            name: group for group in self.parameter_groups for name in DATASET_OPTIONS[group]
        }
        for name in list(ctx.params):  # in the order in which they were typed
            if name not in group_of:
                continue
            value = ctx.params.pop(name)
            if value is not None:
                values = getattr(parameters, group_of[name])
                values["name" if name == _NAME_OPTION else name] = value
        ctx.params["parameters"] = parameters
        return super().invoke(ctx)


def _parameter_option(group: ParameterGroup, name: str) -> click.Option:
    value_type, text = DATASET_OPTIONS[group][name]
    flag = "--name" if name == _NAME_OPTION else PARAMETER_OPTIONS.get(name, f"--{name}")
    metavar = "N" if value_type is int else _METAVARS.get(name, name.upper())
    return click.Option([flag, name], type=value_type, metavar=metavar, help=text)


def parameter_models(manifest: Manifest) -> dict[ParameterGroup, type[BaseModel]]:
    """Return the models that check each group of parameters; only recipes have a source."""
    from kmip_data.pipelines.base import load_pipeline

    pipeline: Any = load_pipeline(manifest)
    models: dict[ParameterGroup, type[BaseModel]] = {}
    if manifest.recipe:
        models["source"] = pipeline.Source
    models["records"] = pipeline.Params
    models["split"] = pipeline.SplitParams
    return models


def source_pictures(
    build: Build, home: Home, keys: Sequence[str]
) -> Mapping[str, NDArray[np.uint8]]:
    """Return the source pictures of superpixel records, and report those that no longer exist."""
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
        click.echo(f"The pictures of {names} are missing and not drawn.", err=True)
    return pictures
