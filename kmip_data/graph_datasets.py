"""The datasets of many small graphs as classes: molecules, superpixels, call graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch_geometric.data import Data

from kmip_data.datasets import Folder, open_dataset
from kmip_data.home import Home
from kmip_data.sharded import ShardedDataset

OnError = Literal["stop", "skip"]


class PeptidesFunc(ShardedDataset):
    """Peptides-func (LRGB): 15,535 peptides, ten functions of which several may hold.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 10])``: features of the Open
    Graph Benchmark as int64 indices, each bond in both directions, labels as float32 0 and 1.

    Parameters
    ----------
    root, home, split, transform, build, sample, limit, **build_options
        See :class:`~kmip_data.datasets.S3DIS`.
    on_error
        A SMILES that RDKit refuses: ``"stop"``, or ``"skip"`` the record and list it on the card.

    Examples
    --------
    >>> from kmip_data import PeptidesFunc
    >>> dataset = PeptidesFunc(split="test")  # doctest: +SKIP
    """

    def __init__(
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        transform: Callable[[Data], Data] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        on_error: OnError = "stop",
        **build_options: Any,
    ) -> None:
        found, split_name = open_dataset(
            "peptides-func",
            root,
            home,
            {"on_error": on_error, "limit": limit},
            {},
            build=build,
            sample=sample,
            **build_options,
        )
        super().__init__(found, split, transform, split_name=split_name)


class PeptidesStruct(ShardedDataset):
    """Peptides-struct (LRGB): 15,535 peptides, eleven properties of their 3D structure.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 11])``, as those of
    :class:`PeptidesFunc` but for the targets, which are standardised.

    Parameters
    ----------
    root, home, split, transform, build, sample, limit, on_error, **build_options
        See :class:`PeptidesFunc`.
    target_scaling
        ``"none"``: the targets as published, which were standardised over all rows, test rows among
        them; ``"train"``: with mean and deviation of the train rows alone, which are then in
        ``card.statistics["target_scaling"]``.
    """

    def __init__(
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        target_scaling: Literal["none", "train"] = "none",
        transform: Callable[[Data], Data] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        on_error: OnError = "stop",
        **build_options: Any,
    ) -> None:
        found, split_name = open_dataset(
            "peptides-struct",
            root,
            home,
            {"target_scaling": target_scaling, "on_error": on_error, "limit": limit},
            {},
            build=build,
            sample=sample,
            **build_options,
        )
        super().__init__(found, split, transform, split_name=split_name)
