"""From the configuration of a run to its data: build and added columns, made first where they are missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kmip_data.builds.find import obtain, obtain_columns, split_name
from kmip_data.builds.home import Build, Home, list_builds, open_target
from kmip_data.format.splits import read_split
from kmip_data.manifest import dataset_names
from kmip_data.models.registry import POSITIONAL
from kmip_data.models.training.config.keys import DataConfig, RunConfig
from kmip_data.models.training.config.presets import is_build_folder
from kmip_data.models.training.data.many_graphs import ManyGraphs
from kmip_data.models.training.data.one_graph import OneGraph
from kmip_data.models.training.data.run_data import RunData, check_columns


def open_data(
    config: RunConfig, *, home: Home, required: tuple[str, ...] = ("train", "val"), **build_options: Any
) -> RunData:
    """Open the build that ``config.data`` means, building it first where it is missing.

    A positional encoding that the network reads is added to it where that is missing, unless ``build=False``.

    Parameters
    ----------
    required
        Parts that must not be empty.
    build_options
        As for :func:`kmip_data.builds.find.obtain`.

    Raises
    ------
    UsageError
        There is no such dataset, split or view, a part is empty, or the data are not to train on.
    """
    build, name = _obtain(config.data, home, **build_options)
    check_columns(build, config)
    encoding = POSITIONAL[config.model.positional].encoding
    if encoding is not None and build_options.pop("build", True):
        obtain_columns(build, [encoding.name], **build_options)
    split = read_split(build.path / build.card.splits[name].file)
    kind = ManyGraphs if split.node_code is None else OneGraph
    return kind(build, name, config, required)


def _obtain(data: DataConfig, home: Home, **options: Any) -> tuple[Build, str]:
    target = data.dataset
    if is_build_folder(target) or os.sep in target:
        # What it was built with, and whether it is a sample, is on its card.
        build = open_target(Path(target).expanduser().absolute(), home, data.parameters)
    elif target not in dataset_names() and any(b.card.dataset == target for b in list_builds(home)):
        build = open_target(target, home, data.parameters, sample=data.sample)
    else:
        build = obtain(target, data.parameters, data.split, home=home, sample=data.sample, **options)
    return build, split_name(build, data.split)


__all__ = ["RunData", "open_data"]
