"""``kmip_data.open``: open a finished build by folder, name or address."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from kmip_data.builds.home import Build, Home
from kmip_data.datasets.base import Folder, Transform
from kmip_data.errors import Command, UsageError, answer_unknown_keywords
from kmip_data.format.card import read_card
from kmip_data.manifest import dataset_names
from kmip_data.pipelines.find_builds import check_card, find_build
from kmip_data.plugins import import_installed_plugin
from kmip_data.reading.dataset import ShardedDataset


@answer_unknown_keywords(
    **dict.fromkeys(["name", "path", "folder", "dataset"], "path_or_name=…"),
    **dict.fromkeys(["pre_transform", "pre_filter"], "transform=…, on reading"),
    force_reload="leave it out: an opened build is never rebuilt",
    train="split='train'",
)
def open(  # noqa: A001 -- its public name
    path_or_name: Folder,
    split: str | None = None,
    *,
    home: Folder | Home | None = None,
    root: Folder | Home | None = None,
    sample: bool = False,
    split_name: str | None = None,
    columns: Sequence[str] | None = None,
    transform: Transform | None = None,
    **parameters: Any,
) -> ShardedDataset:
    """Open a finished build, without building it; a build at an address is pulled into the home.

    Parameters
    ----------
    path_or_name
        The path of a build folder (``./mine``), a name in the home, or the address of a push
        (``https://…``, ``s3://…``, ``hf://…``), of which the missing files are pulled.
    home, root
        Home folder with the builds, under either name. Default: ``$KMIP_DATA_HOME``, else the
        user's data folder.
    sample
        Look for a sample build.
    split, split_name, columns, transform
        See :class:`ShardedDataset`. ``split_name`` is a key of ``card.splits``, such as
        ``room-area6-seed0``; dataset classes draw a missing split by ``split_rule``.
    **parameters
        Values that the build must have (``k=16``), also if its folder is given. With a name, the
        other parameters have the defaults of the dataset.

    Raises
    ------
    UsageError
        No build or several builds of a published dataset match, a name is unknown, or the folder
        or address holds a build with other values.
    DamagedInput, SourceUnavailable
        The build is damaged; an address does not answer.
    """
    # An address, such as s3://bucket/name, not a folder or a name.
    if re.match("[a-z][a-z0-9+.-]+://", os.fspath(path_or_name)):
        from kmip_data.sharing.pull import RemotePush

        push = RemotePush(os.fspath(path_or_name))
        address = push.remote.address
        if push.card is None:
            raise UsageError(
                f"{address} is not a build but a run.",
                steps=Command("kmip-data pull", address),
            )
        check_card(push.card, address, parameters, sample=sample)  # before anything is pulled
        folder = push.pull(Home.locate(home, root), verify=False).path
        build = Build(folder, read_card(folder))
    else:
        if path_or_name not in dataset_names():
            import_installed_plugin("datasets", os.fspath(path_or_name))
        try:
            build = find_build(path_or_name, parameters, home=home, root=root, sample=sample)
        except UsageError as error:
            if error.correction is not None:
                error.steps = [f"kmip_data.open({error.correction[1]!r})"]
            raise
    return ShardedDataset(build, split, transform, split_name=split_name, columns=columns)
