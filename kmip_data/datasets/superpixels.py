"""Pictures as graphs of superpixels."""

from __future__ import annotations

from typing import Literal, Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, PartArguments
from kmip_data.datasets.transforms import Standardise


class _Superpixels(BuiltDataset):
    def __init__(
        self,
        root: Folder | None = None,
        *,
        split_rule: Literal["upstream", "stratified"] = "upstream",
        split_seed: int = 0,
        standardise: bool = False,
        **arguments: Unpack[PartArguments],
    ) -> None:
        self._open(
            root,
            arguments,
            class_transform=lambda build: Standardise(build.card) if standardise else None,
            split_rule=split_rule,
            split_seed=split_seed,
        )


class PascalVOCSP(_Superpixels):
    """PascalVOC-SP (LRGB), superpixel graphs.

    11,355 pictures as graphs of about 480 superpixels; the class of each, 21 with background.

    Items are ``Data(x=[N, 14], edge_index=[2, E], edge_attr=[E, 2], y=[N])``.

    ``x`` has mean, deviation, largest and least red, green, blue of a superpixel, row and column of
    its centre in pixels; ``edge_attr`` strength and length of a boundary; ``y`` the class at the
    centre, 0 background.

    Parameters
    ----------
    split_rule
        ``"upstream"``: the published parts; ``"stratified"``: parts are drawn by the rule that made
        the published ones (of COCO-SP train and val alone), with ``split_seed``.
    split_seed
        Seed of ``"stratified"``; on PascalVOC-SP 0 gives the published parts.
    standardise
        Standardise ``x`` and ``edge_attr`` by the published constants, for your own models: the
        encoders ``voc`` and ``coco`` of the trainer include it.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "pascalvoc-sp"


class COCOSP(_Superpixels):
    """COCO-SP (LRGB), superpixel graphs.

    123,286 pictures as graphs of about 480 superpixels; the class of each, 81 with background.

    Items are ``Data(x=[N, 14], edge_index=[2, E], edge_attr=[E, 2], y=[N])``.

    ``x`` has mean, deviation, largest and least red, green, blue of a superpixel, row and column of
    its centre in pixels; ``edge_attr`` strength and length of a boundary; ``y`` the class at the
    centre, 0 background.

    Parameters
    ----------
    split_rule
        ``"upstream"``: the published parts; ``"stratified"``: parts are drawn by the rule that made
        the published ones (of COCO-SP train and val alone), with ``split_seed``.
    split_seed
        Seed of ``"stratified"``; on PascalVOC-SP 0 gives the published parts.
    standardise
        Standardise ``x`` and ``edge_attr`` by the published constants, for your own models: the
        encoders ``voc`` and ``coco`` of the trainer include it.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "coco-sp"


class CIFAR10Superpixels(BuiltDataset):
    """CIFAR10 superpixels (benchmarking-gnns).

    60,000 pictures as graphs of up to 150 superpixels, eight edges from each; ten classes.

    Items are ``Data(x=[N, 5], edge_index=[2, E], edge_attr=[E, 1], y=[1], pos=[N, 2])``.

    Parameters
    ----------
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "cifar10"


class MNISTGraphs(BuiltDataset):
    """MNIST superpixels (benchmarking-gnns).

    70,000 handwritten digits as graphs of up to 75 superpixels, eight edges from each; ten
    classes.

    Items are ``Data(x=[N, 3], edge_index=[2, E], edge_attr=[E, 1], y=[1], pos=[N, 2])``.

    Parameters
    ----------
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "mnist"
