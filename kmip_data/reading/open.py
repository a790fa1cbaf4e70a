"""A finished build as a dataset, by its folder or its name; exported as ``kmip_data.open``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch_geometric.data import Data

from kmip_data.builds.find import find
from kmip_data.builds.home import Home
from kmip_data.reading.dataset import ShardedDataset


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
    """Open a finished build; nothing is ever built or downloaded.

    Parameters
    ----------
    path_or_name
        A build folder, or the name of a dataset with one finished build that matches.
    home
        Where builds are looked for; default ``$KMIP_DATA_HOME`` or the user's data folder.
    sample
        Look for a sample.
    split, split_name, columns, transform
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
    build = find(path_or_name, parameters, home=home, sample=sample)
    return ShardedDataset(build, split, transform, split_name=split_name, columns=columns)
