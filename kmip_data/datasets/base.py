"""Base of the dataset classes: their common arguments, and how they open a build."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from typing import Any, ClassVar, Unpack

from torch_geometric.data import Data
from torch_geometric.transforms import Compose

from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.home import Build, Home, home_argument
from kmip_data.errors import UsageError, unknown_name_error
from kmip_data.files.path_errors import absolute_path
from kmip_data.format.card import CARD_NAME
from kmip_data.format.schema import View
from kmip_data.format.split_files import PARTS, TRAIN_AND_VAL, part_name
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.find import obtain, obtain_split, parameter_names
from kmip_data.plugins import import_installed_plugin
from kmip_data.reading.dataset import ShardedDataset

Folder = str | os.PathLike[str]
Transform = Callable[[Data], Data]


class Arguments(BuildArguments, total=False):
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


class PartArguments(Arguments, total=False):
    """Arguments of a dataset of many graphs, with a part of a split."""

    split: str | None


class RuleArguments(PartArguments, total=False):
    """Arguments of a dataset of many graphs, with the rule that draws its split.

    Only datasets whose rules are ``"upstream"`` and ``"stratified"`` have these; others list their
    own rules.
    """

    split_rule: str | None
    split_seed: int | None


_PARTS = {*PARTS, TRAIN_AND_VAL}
_DEFAULTS: dict[str, object] = {
    **dict.fromkeys(RuleArguments.__annotations__),
    **{field.name: field.default for field in fields(ExecutionOptions)},
    "split": "train",
    "force_reload": False,
    "build": True,
    "sample": False,
}


class BuiltDataset(ShardedDataset):
    """A shipped dataset, opened from the home folder or built there.

    A dataset's class needs its ``dataset_name`` alone; it takes the parameters of its pipeline as
    keywords. An ``__init__`` of its own shows them, with their defaults, and passes them to
    :meth:`_open`.

    Parameters
    ----------
    root
        A folder, as in PyTorch Geometric: either the home folder for raw files and builds, or a
        build folder. Default: ``$KMIP_DATA_HOME``, else the user's data folder. ``home`` is another
        name for it.
    split
        ``"train"``, ``"val"`` (also ``"valid"``), ``"test"``, ``"trainval"``; ``None``: all graphs
        in source order.
    split_rule, split_seed
        ``"upstream"``: the published parts; ``"stratified"``: parts of the same sizes with nearly
        equal shares of the classes, drawn by LRGB's rule with the seed.
    transform
        Applied to each item when it is read.
    pre_transform
        Applied before ``transform``, also on each read. To store results use ``kmip-data encode``
        or ``kmip_data.save``.
    pre_filter
        Keeps graphs for which it returns True. Called with each graph when the dataset is opened.
    force_reload
        Must be False; ``kmip-data verify BUILD --repair`` rebuilds damaged files.
    columns
        Names of the attributes that items have, and of columns that ``kmip-data encode`` added
        (``["rwse20"]``): see :class:`~kmip_data.reading.dataset.ShardedDataset`.
    build
        Download and build missing data; ``False``: an error with the command instead.
    sample
        Use generated raw files in the upstream layout; never a silent substitute.
    limit
        Use only N graphs, spread evenly over all.
    *pyg
        More positional arguments have the order of PyTorch Geometric's class.
    **arguments
        How to build: ``archives``, ``offline``, ``accept_license``, ``jobs``, ``output``,
        ``engine``, ``scheduler``, ``quiet``: see
        :class:`~kmip_data.builds.execution_options.ExecutionOptions`.
    """

    #: Name of the dataset; of a class with several, one whose parameters all of them have.
    dataset_name: ClassVar[str]
    #: False for a single graph: masks tell train, val and test nodes, so there is no argument ``split``.
    has_parts: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """Show the keys of ``**arguments`` one by one in help and completion."""
        super().__init_subclass__()
        signature = inspect.signature(cls.__init__)
        _, *shown = signature.parameters.values()
        if shown and str(shown[-1].annotation).startswith("Unpack["):
            shown.pop()
            left_out = {argument.name for argument in shown}
            if not cls.has_parts:
                left_out.add("split")
            for key, annotation in RuleArguments.__annotations__.items():
                if key not in left_out:
                    shown.append(
                        Parameter(
                            key,
                            Parameter.KEYWORD_ONLY,
                            default=_DEFAULTS[key],
                            annotation=annotation.__forward_arg__,
                        )
                    )
        cls.__signature__ = signature.replace(parameters=shown)

    def __init__(self, root: Folder | None = None, **arguments: Unpack[RuleArguments]) -> None:
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
        """Find or build the dataset that the arguments select, and read a part of its split.

        ``parameters`` of the build and of its split are the arguments of a class of its own, others
        may be among ``arguments``. The transform that ``class_transform`` makes for the build precedes
        the user's; ``required_columns`` are read besides the user's.
        """
        import_installed_plugin("datasets", self.dataset_name)
        of_records, of_split = parameter_names(self.dataset_name)
        own_keys = (of_records | of_split) - parameters.keys()
        for key in arguments:
            if key == "split" and not self.has_parts:
                raise UsageError(
                    f"{type(self).__name__} is one graph, with train_mask, val_mask and test_mask.",
                    next="leave out split; split_rule and split_seed draw the masks",
                )
            if key not in own_keys | _DEFAULTS.keys():
                title = type(self).__name__
                raise unknown_name_error(
                    f"argument of {title}",
                    key,
                    sorted(inspect.signature(type(self)).parameters),
                    command=f"help(kmip_data.{title})",
                )

        root = root_from_arguments(root, arguments)
        options = {**_DEFAULTS, **arguments}
        if isinstance(root, str) and part_name(root) in _PARTS and not Path(root).exists():
            raise UsageError(
                f"root is {root!r}, the name of a part of the split.",
                next="split=…, or the masks of a single graph; as a folder, ./" + root,
            )
        part = part_name(options["split"])
        if part is not None and part not in _PARTS:  # before a download and a build
            raise unknown_name_error(
                "part of the split", str(part), PARTS, command="split=None, for all"
            )
        # Opening never replaces a build: an explicit command builds again.
        if options["force_reload"]:
            raise UsageError(
                "force_reload=True: a build is not made again by opening it.",
                next="kmip-data verify BUILD --repair, or remove it and build again",
            )

        # One list of arguments, three receivers: build, split, and what all classes share.
        parameters |= {key: options[key] for key in own_keys & options.keys()}
        rule = {}
        for key in of_split & parameters.keys():
            value = parameters.pop(key)
            if value is not None:
                rule[key] = value

        name = name or self.dataset_name
        # ``root`` may be the home folder, or a build itself, which its card shows.
        name_or_folder: Folder = name
        if root is not None and (absolute_path(root, "root") / CARD_NAME).is_file():
            name_or_folder = absolute_path(root, "root")
        build = obtain(
            name_or_folder,
            parameters,
            rule,
            home=root,
            sample=options["sample"],
            build=options["build"],
            dataset=name,
            **{key: options[key] for key in BuildArguments.__annotations__},
        )

        # The class's own transform goes first: the user's see items as documented.
        prepare = class_transform(build)
        steps = (prepare, options["pre_transform"], options["transform"])
        transforms = [step for step in steps if step is not None]
        transform = Compose(transforms) if len(transforms) > 1 else next(iter(transforms), None)
        super().__init__(
            build,
            part if self.has_parts else None,
            transform,
            split_name=obtain_split(build, rule),
            columns=[*required_columns, *(options["columns"] or ())] or None,
            views=views,
            edge_lengths=edge_lengths,
        )
        if options["pre_filter"] is not None:
            self._select_graphs(prepare, options["pre_filter"])

    def _select_graphs(self, prepare: Transform | None, keep: Callable[[Data], bool]) -> None:
        """Select the graphs that ``keep`` is true of, before any transform of the user's."""
        indices = []
        for number in range(self.len()):
            data = self.get(number)
            if keep(data if prepare is None else prepare(data)):
                indices.append(number)
        self._indices = indices


def root_from_arguments(root: Folder | None, arguments: Mapping[str, Any]) -> Folder | None:
    """Return ``root``, or the argument ``home``, which means the same; ``UsageError`` for both."""
    folder = home_argument(arguments.get("home"), root)
    return folder.root if isinstance(folder, Home) else folder


def names_of_class(dataset_class: type[BuiltDataset]) -> list[str]:
    """Return the names of the datasets of a class, sorted."""
    title = load_manifest(dataset_class.dataset_name).dataset_class
    return [name for name in dataset_names() if load_manifest(name).dataset_class == title]


def dataset_name_of_class(name: str, dataset_class: type[BuiltDataset]) -> str:
    """Return the name of a dataset of a class, given in any case and with ``_`` for ``-``."""
    known = names_of_class(dataset_class)
    wanted = name.lower().replace("_", "-")
    if wanted not in known:
        raise unknown_name_error("graph", name, known)
    return wanted
