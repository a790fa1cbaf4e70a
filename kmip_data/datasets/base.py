"""Base class of the dataset classes, with the arguments that they share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Unpack

from torch_geometric.data import Data
from torch_geometric.transforms import Compose

from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.home import Build, Home, home_argument
from kmip_data.datasets.pyg_arguments import accept_root_and_split
from kmip_data.errors import Command, UsageError, unknown_name_error
from kmip_data.format.card import CARD_NAME
from kmip_data.format.schema import View
from kmip_data.format.split_files import PARTS, TRAIN_AND_VAL, part_name
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.find_builds import ensure_split, find_or_build, parameter_names
from kmip_data.plugins import import_installed_plugin
from kmip_data.reading.dataset import ShardedDataset, unknown_part_error

Folder = str | os.PathLike[str]
Transform = Callable[[Data], Data]


class DatasetArguments(BuildArguments, total=False):
    """Keyword arguments of every dataset class; documented at :class:`BuiltDataset`."""

    transform: Transform | None
    pre_transform: Transform | None
    pre_filter: Callable[[Data], bool] | None
    force_reload: bool
    columns: Sequence[str] | None
    build: bool
    sample: bool
    limit: int | None
    home: Folder | Home | None


class PartArguments(DatasetArguments, total=False):
    """Arguments of a dataset of many graphs, which is opened one part at a time."""

    split: str | None


class RuleArguments(PartArguments, total=False):
    """Arguments of a dataset of many graphs with the split rules ``"upstream"`` and ``"stratified"``.

    Classes with other rules declare ``split_rule`` and ``split_seed`` themselves.
    """

    split_rule: str | None
    split_seed: int | None


_VALID_PARTS = {*PARTS, TRAIN_AND_VAL}
_DEFAULTS: dict[str, object] = {
    **dict.fromkeys(RuleArguments.__annotations__),
    **{field.name: field.default for field in fields(ExecutionOptions)},
    "split": "train",
    "force_reload": False,
    "build": True,
    "sample": False,
}


class BuiltDataset(ShardedDataset):
    """A published dataset, opened from the home folder or built there.

    A subclass only has to set ``dataset_name``; it accepts the parameters of its pipeline as
    keywords. To document them with their defaults, it defines ``__init__`` and passes them to
    :meth:`_open`.

    Parameters
    ----------
    root, home
        Home folder, which holds raw files and builds, or the folder of one build, whose parameters
        and default split then need not be repeated. Default: ``$KMIP_DATA_HOME``, else the user's
        data folder. ``root`` is PyTorch Geometric's name for our ``home``: pass only one of them. The
        code below the public API says ``home``.
    split
        ``"train"``, ``"val"`` (also ``"valid"``), ``"test"`` or ``"trainval"``; ``None`` for all
        graphs in source order.
    split_rule, split_seed
        ``"upstream"``: the published split; ``"stratified"``: a split of the same sizes with nearly
        equal class fractions, drawn by LRGB's rule with the seed.
    transform
        Applied to each item when it is read.
    pre_transform
        Applied before ``transform``, also on each read. To store the results, use ``kmip-data encode``
        or ``kmip_data.save``.
    pre_filter
        Keeps graphs for which it returns True. Called with each graph when the dataset is opened.
    force_reload
        Must be False; ``kmip-data verify BUILD --repair`` rebuilds damaged files.
    columns
        Attributes to read, including columns added by ``kmip-data encode`` (``["rwse20"]``): see
        :class:`~kmip_data.reading.dataset.ShardedDataset`.
    build
        Download and build missing data. If False, raise an error that names the command.
    sample
        Use generated raw files in the upstream layout; never a silent substitute.
    limit
        Use only N graphs, spread evenly over the dataset.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's class; without such a
        class: split, transform, pre_transform, pre_filter, force_reload.
    **arguments
        Options of the build: ``archives``, ``offline``, ``accept_license``, ``jobs``, ``output``,
        ``engine``, ``scheduler``, ``quiet``: see
        :class:`~kmip_data.builds.execution_options.ExecutionOptions`.
    """

    #: Name of the dataset. If the class covers several, the name of one that has every parameter.
    dataset_name: ClassVar[str]
    #: Our names of the arguments in a call of the class; the others have their defaults.
    typed_arguments: frozenset[str]
    #: False for a single graph, which has masks instead of parts and no argument ``split``.
    has_parts: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """List the keys of ``**arguments`` individually in the signature, for help and completion."""
        super().__init_subclass__()
        signature = inspect.signature(cls.__init__)
        _, *parameters = signature.parameters.values()
        if parameters and str(parameters[-1].annotation).startswith("Unpack["):
            parameters.pop()
            excluded = {parameter.name for parameter in parameters}
            if not cls.has_parts:
                excluded.add("split")
            for key, annotation in RuleArguments.__annotations__.items():
                if key not in excluded:
                    parameters.append(
                        inspect.Parameter(
                            key,
                            inspect.Parameter.KEYWORD_ONLY,
                            default=_DEFAULTS[key],
                            annotation=annotation.__forward_arg__,
                        )
                    )
        cls.__signature__ = signature.replace(parameters=parameters)

    @accept_root_and_split
    def __init__(
        self, root: Folder | None = None, *pyg: object, **arguments: Unpack[RuleArguments]
    ) -> None:
        self._open(root, arguments)

    def _open(
        self,
        root: Folder | None,
        arguments: Mapping[str, Any],
        *,
        name: str | None = None,
        class_transform: Callable[[Build], Transform | None] = lambda _: None,
        required_columns: Sequence[str] = (),
        views: Sequence[View] = (),
        edge_lengths: bool = False,
        **parameters: object,
    ) -> None:
        """Find or build the dataset that the arguments select, and open a part of its split.

        ``parameters`` are the build and split parameters that the subclass declares; any others are
        taken from ``arguments``. The transform that ``class_transform`` returns for the build runs
        before the user's. ``required_columns`` are read in addition to the user's columns.
        """
        import_installed_plugin("datasets", self.dataset_name)
        build_keys, split_keys = parameter_names(self.dataset_name)
        undeclared_keys = (build_keys | split_keys) - parameters.keys()
        self._check_keywords(arguments, undeclared_keys)
        options = {**_DEFAULTS, **arguments}
        home = home_from_arguments(root, arguments)
        part = _check_options(options, home)  # before a download and a build

        parameters |= {key: options[key] for key in undeclared_keys & options.keys()}
        split_parameters = {}
        for key in split_keys & parameters.keys():
            value = parameters.pop(key)
            if value is not None:
                split_parameters[key] = value

        name = name or self.dataset_name
        target: Folder = name
        card = None if home is None else Path(home).expanduser() / CARD_NAME
        if card is not None and os.path.isfile(card):  # noqa: PTH113 -- names of any length
            target = card.parent
            # A folder is one build: it must only agree with the arguments that were typed.
            declared = inspect.signature(type(self)).parameters.keys() - self.typed_arguments
            parameters = {key: parameters[key] for key in parameters.keys() - declared}
            split_parameters = {
                key: split_parameters[key] for key in split_parameters.keys() - declared
            }
        build = find_or_build(
            target,
            parameters,
            split_parameters,
            home=home,
            sample=options["sample"],
            build=options["build"],
            dataset=name,
            **{key: options[key] for key in BuildArguments.__annotations__},
        )

        # The class's own transform goes first, so that the user's receive items as documented.
        first_transform = class_transform(build)
        transforms = [first_transform, options["pre_transform"], options["transform"]]
        super().__init__(
            build,
            part if self.has_parts else None,
            _compose_transforms(transforms),
            split_name=ensure_split(build, split_parameters),
            columns=[*required_columns, *(options["columns"] or ())] or None,
            views=views,
            edge_lengths=edge_lengths,
        )
        if options["pre_filter"] is not None:
            self._select_graphs(first_transform, options["pre_filter"])

    def _check_keywords(
        self, arguments: Mapping[str, Any], pipeline_keys: AbstractSet[str]
    ) -> None:
        """Refuse keywords that neither all dataset classes nor this dataset's pipeline accept."""
        class_name = type(self).__name__
        if "split" in arguments and not self.has_parts:
            raise UsageError(
                f"{class_name} is one graph, with train_mask, val_mask and test_mask.",
                steps="leave out split; split_rule and split_seed draw the masks",
            )
        for key in arguments:
            if key not in pipeline_keys | _DEFAULTS.keys():
                raise unknown_name_error(
                    f"argument of {class_name}",
                    key,
                    sorted(inspect.signature(type(self)).parameters),
                    command=f"help(kmip_data.{class_name})",
                )

    def _select_graphs(
        self, first_transform: Transform | None, pre_filter: Callable[[Data], bool]
    ) -> None:
        """Keep the graphs for which ``pre_filter`` is true, before any transform of the user's."""
        indices = []
        for index in range(self.len()):
            data = self.get(index)
            if pre_filter(data if first_transform is None else first_transform(data)):
                indices.append(index)
        self._indices = indices


def home_from_arguments(root: Folder | None, arguments: Mapping[str, Any]) -> Folder | None:
    """Return the folder passed as ``root`` or as ``home``; ``UsageError`` if both are given."""
    home = home_argument(arguments.get("home"), root)
    return home.path if isinstance(home, Home) else home


def _check_options(options: Mapping[str, Any], home: Folder | None) -> str | None:
    """Return the normalised part of the split; ``UsageError`` if an option has a wrong value."""
    if isinstance(home, str) and part_name(home) in _VALID_PARTS and not Path(home).exists():
        raise UsageError(
            f"root is {home!r}, the name of a part of the split.",
            steps="split=…, or the masks of a single graph; as a folder, ./" + home,
        )
    part = part_name(options["split"])
    if part is not None and part not in _VALID_PARTS:
        raise unknown_part_error(part, PARTS)
    # Opening never replaces a build: that takes an explicit command.
    if options["force_reload"]:
        raise UsageError(
            "force_reload=True: opening a dataset never rebuilds it.",
            steps=[
                "rebuild damaged files",
                Command("kmip-data verify BUILD --repair"),
            ],
        )
    return part


def _compose_transforms(transforms: Sequence[Transform | None]) -> Transform | None:
    """Return one transform that applies the given ones in order; ``None`` if there are none."""
    steps = [transform for transform in transforms if transform is not None]
    return Compose(steps) if len(steps) > 1 else next(iter(steps), None)


def dataset_names_of_class(dataset_class: type[BuiltDataset]) -> list[str]:
    """Return the names of the datasets that a class covers, sorted."""
    class_name = load_manifest(dataset_class.dataset_name).dataset_class
    return [name for name in dataset_names() if load_manifest(name).dataset_class == class_name]


def dataset_name_of_class(
    name: str, dataset_class: type[BuiltDataset], kind: str = "graph", prefix: str = ""
) -> str:
    """Return the full name of one of the class's datasets: lower case, with ``-`` for ``_``.

    All names of the class begin with ``prefix``, which ``name`` does not have. ``kind`` is for the
    error about an unknown name.
    """
    names = [full.removeprefix(prefix) for full in dataset_names_of_class(dataset_class)]
    normalised = name.lower().replace("_", "-")
    if normalised not in names:
        raise unknown_name_error(kind, name, names)
    return prefix + normalised
