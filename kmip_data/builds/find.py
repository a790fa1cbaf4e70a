"""From a name or a folder to a finished build and its dataset; the one place where the core builds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kmip_data.builds.home import Build, Home, find_build, list_builds, open_target
from kmip_data.errors import UsageError
from kmip_data.manifest import dataset_names, load_manifest, unknown_name
from kmip_data.wording import as_options

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from kmip_data.reading.dataset import ShardedDataset

#: Keyword arguments of ``build_dataset`` that say how to build, not what.
BUILD_OPTIONS = (
    "archives",
    "offline",
    "accept_license",
    "jobs",
    "output",
    "compression",
    "engine",
    "scheduler",
    "quiet",
)


def open_build(
    path_or_name: str | os.PathLike[str],
    split: str | None = None,
    *,
    home: str | os.PathLike[str] | Home | None = None,
    sample: bool = False,
    split_name: str | None = None,
    columns: Sequence[str] | None = None,
    transform: Callable[[Data], Data] | None = None,
    **parameters: Any,
) -> ShardedDataset:
    """Open a finished build; nothing is ever built or downloaded (exported as ``kmip_data.open``).

    Parameters
    ----------
    path_or_name
        A build folder, or the name of a dataset with one finished build that matches.
    split
        ``"train"``, ``"val"``, ``"test"``; ``None``: all records. A dataset of one graph always
        gives its graph, with boolean ``train_mask``, ``val_mask`` and ``test_mask``.
    home
        Where builds are looked for; default ``$KMIP_DATA_HOME`` or the user's data folder.
    sample
        Look for a sample.
    split_name
        Which of the build's splits; ``None``: its default.
    columns, transform
        See :class:`~kmip_data.reading.dataset.ShardedDataset`.
    **parameters
        Values the build must have (``k=16``, ``compression="gzip"``), also where its folder is given;
        with a name, defaults of the dataset for the others.

    Raises
    ------
    UsageError
        No build matches (the ``build`` command is named), several do, or a name is unknown; or the
        folder holds a build with other values.
    DamagedInput
        The build is damaged.

    Examples
    --------
    >>> import kmip_data
    >>> graphs = kmip_data.open("s3dis", "train", k=32)  # doctest: +SKIP
    """
    from kmip_data.reading.dataset import ShardedDataset

    name = os.fspath(path_or_name)
    defaults = record_parameters(name, {}) if name in dataset_names() else {}
    build = open_target(path_or_name, locate(home), parameters, defaults=defaults, sample=sample)
    return ShardedDataset(build, split, transform, split_name=split_name, columns=columns)


def obtain(
    name: str,
    parameters: Mapping[str, Any] | None = None,
    split_parameters: Mapping[str, Any] | None = None,
    *,
    home: Home,
    sample: bool = False,
    build: bool = True,
    **build_options: Any,
) -> Build:
    """Return the finished build of a dataset with the split asked for, building what is missing.

    Parameters
    ----------
    parameters, split_parameters
        Of the dataset's pipeline; defaults for those not given.
    build
        Whether a missing build is built; a missing split is always added, from the finished build.
    **build_options
        :data:`BUILD_OPTIONS`, as for :func:`kmip_data.pipelines.build.build_dataset`.

    Raises
    ------
    UsageError
        A name or value is wrong, several builds match, or none does and ``build`` is false.
    """
    from kmip_data.pipelines.build import build_dataset, ensure_split

    for option in build_options:
        if option not in BUILD_OPTIONS:
            raise unknown_name(
                "option", option, list(BUILD_OPTIONS), command=f"kmip-data build {name} --help"
            )
    values = record_parameters(name, parameters or {})
    if build:
        return build_dataset(
            name,
            parameters=values,
            split_parameters=split_parameters or {},
            home=home,
            sample=sample,
            **build_options,
        )
    stored = {"compression": build_options["compression"]} if "compression" in build_options else {}
    found = find_build(home, name, {**values, **stored}, sample=sample)
    if found is None:
        usual = record_parameters(name, {})
        asked = {key: value for key, value in values.items() if value != usual[key]}
        words = ["kmip-data build", name, as_options(asked), "--sample" if sample else ""]
        command = " ".join(word for word in words if word)
        others = [other.path.name for other in list_builds(home) if other.card.dataset == name]
        raise UsageError(
            f"There is no finished build of {name!r} with these parameters.",
            expected=f"one under {home.built} with {_listed(values)}",
            found=f"others: {', '.join(others)}" if others else "none",
            left="nothing was changed",
            next=f"{command}, or build=True",
        )
    ensure_split(found, split_parameters or {})
    return found


def split_name(build: Build, split_parameters: Mapping[str, Any] | None = None) -> str:
    """Return the name of the split that the parameters mean, adding it beside the shards if it is missing.

    Raises
    ------
    UsageError
        A name or value is wrong, or the build is not of a shipped dataset and has no such rule.
    """
    from kmip_data.pipelines.build import ensure_split

    return ensure_split(build, split_parameters)


def obtain_columns(build: Build, names: Sequence[str], **options: Any) -> None:
    """Add the columns that the build does not have yet; ``rwse20`` is a name.

    Parameters
    ----------
    **options
        ``jobs``, ``engine``, ``scheduler`` and ``quiet`` of :data:`BUILD_OPTIONS`; others have no effect.

    Raises
    ------
    UsageError
        There is no encoding of that name, or the build folder may not be written to.
    DamagedInput
        A shard is damaged.
    """
    from kmip_data.builds.columns import added_names
    from kmip_data.graphs.encodings import parse_encoding

    missing = [parse_encoding(name) for name in names if name not in added_names(build.path)]
    if missing:
        from kmip_data.pipelines.finishing.encode import encode_build

        taken = {name: options[name] for name in ("jobs", "engine", "scheduler", "quiet") if name in options}
        encode_build(build, missing, **taken)


def record_parameters(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a dataset as its card has them: those given, checked, and the defaults.

    Raises
    ------
    UsageError
        A name is unknown (the nearest is suggested) or a value is out of range.
    """
    from kmip_data.pipelines.base import load_pipeline
    from kmip_data.pipelines.parameters import check_params

    pipeline = load_pipeline(load_manifest(name))
    return check_params(pipeline.Params, given, name).model_dump(mode="json")


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in values.items())


def locate(home: str | os.PathLike[str] | Home | None) -> Home:
    """Return the home folder that is meant."""
    return home if isinstance(home, Home) else Home.locate(home)
