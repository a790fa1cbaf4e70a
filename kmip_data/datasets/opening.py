"""Open a finished build by its folder, its name or its address."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch_geometric.data import Data

from kmip_data.builds.find import find
from kmip_data.builds.home import Home
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.sharing.addresses import is_address


def open(  # noqa: A001 -- its public name
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
    """Open a finished build; nothing is ever built, or downloaded whole.

    Parameters
    ----------
    path_or_name
        A build folder, the name of a dataset with one finished build that matches, or the address of a
        push (``https://…``, ``s3://…``, ``hf://…``), of which only what is needed is fetched.
    home
        Where builds are looked for, and blocks from afar kept; default ``$KMIP_DATA_HOME`` or the user's
        data folder.
    sample
        Look for a sample.
    split, split_name, columns, transform
        See :class:`ShardedDataset`.
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
    SourceUnavailable
        An address does not answer.

    Examples
    --------
    >>> import kmip_data
    >>> graphs = kmip_data.open("s3dis", "train", k=32)  # doctest: +SKIP
    """
    if is_address(path_or_name):
        from kmip_data.sharing.afar import open_afar

        afar = open_afar(os.fspath(path_or_name), Home.locate(home))
        find(afar.path, parameters, sample=sample)  # the build that is asked for?
        return ShardedDataset(afar, split, transform, split_name=split_name, columns=columns)
    build = find(path_or_name, parameters, home=home, sample=sample)
    return ShardedDataset(build, split, transform, split_name=split_name, columns=columns)
