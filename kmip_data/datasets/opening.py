"""Open a finished build by its folder, its name or its address."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch_geometric.data import Data

from kmip_data.builds.home import Home
from kmip_data.pipelines.find import find
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.wording import is_address


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
    """Open a finished build. Nothing is built, and no complete file is downloaded.

    Parameters
    ----------
    path_or_name
        A build folder, the name of a dataset with one matching build, or the address of a push
        (``https://…``, ``s3://…``, ``hf://…``), from which only the rows that are read are fetched.
    home
        Home folder with the builds and the cache of remote blocks; default ``$KMIP_DATA_HOME`` or the
        user's data folder.
    sample
        True to look for a sample.
    split, split_name, columns, transform
        See :class:`ShardedDataset`.
    **parameters
        Values that the build must have (``k=16``, ``compression="gzip"``), also if its folder is given.
        With a name, the other parameters have the defaults of the dataset.

    Raises
    ------
    UsageError
        No build or several builds match, a name is unknown, or the folder holds a build with other
        values.
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
        find(afar.path, parameters, sample=sample)  # refuses a build with other parameters
        return ShardedDataset(afar, split, transform, split_name=split_name, columns=columns)
    build = find(path_or_name, parameters, home=home, sample=sample)
    return ShardedDataset(build, split, transform, split_name=split_name, columns=columns)
