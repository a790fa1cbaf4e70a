"""From the configuration of a run to its data: build and added columns, made first where they are missing."""

from __future__ import annotations

from typing import Unpack

from kmip_data.builds.home import BuildArguments, Home
from kmip_data.format.splits import read_split
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.presets import folder_of
from kmip_data.models.training.data.many_graphs import ManyGraphs
from kmip_data.models.training.data.one_graph import OneGraph
from kmip_data.models.training.data.run_data import RunData, check_columns
from kmip_data.pipelines.find import obtain, obtain_columns, split_name


def open_data(
    config: RunConfig,
    *,
    home: Home,
    required: tuple[str, ...] = ("train", "val"),
    build: bool = True,
    **build_options: Unpack[BuildArguments],
) -> RunData:
    """Open the build that ``config.data`` means, building it first where it is missing.

    An encoding that the network reads is added to it where that is missing, unless ``build=False``.
    ``required`` are parts that must not be empty; others as for
    :func:`kmip_data.pipelines.find.obtain`.
    Raises ``UsageError`` where there is no such dataset, split or view, a part is empty, or the data cannot
    be trained on.
    """
    data = config.data
    target = folder_of(data.dataset) or data.dataset
    found = obtain(
        target, data.parameters, data.split, home=home, sample=data.sample, build=build, **build_options
    )
    name = split_name(found, data.split)
    check_columns(found, config)
    if build:
        obtain_columns(found, [encoding.name for encoding in config.model.encodings], **build_options)
    split = read_split(found.path / found.card.splits[name].file, records=found.card.split_records)
    kind = ManyGraphs if split.node_code is None else OneGraph
    return kind(found, name, config, required)
