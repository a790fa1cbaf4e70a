"""Image datasets as graphs of superpixels."""

from __future__ import annotations

from typing import Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, RuleArguments
from kmip_data.datasets.pyg_arguments import accept_root_and_split
from kmip_data.datasets.transforms import StandardiseFeatures


class _Superpixels(BuiltDataset):
    @accept_root_and_split
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        standardise: bool = False,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(
            root,
            arguments,
            class_transform=lambda build: StandardiseFeatures(build.card) if standardise else None,
        )


class PascalVOCSP(_Superpixels):
    """PascalVOC-SP (LRGB), superpixel graphs.

    11,355 pictures as graphs of about 480 superpixels; the class of each, 21 with background.

    Items are ``Data(x=[N, 14], edge_index=[2, E], edge_attr=[E, 2], y=[N])``.

    ``x`` has the mean, deviation, maximum and minimum of red, green and blue in a superpixel, then
    row and column of its centre in pixels; ``edge_attr`` has strength and length of a boundary;
    ``y`` is the class at the centre, 0 for background.

    Parameters
    ----------
    split_rule
        ``"upstream"``: the published parts; ``"stratified"``: parts drawn with ``split_seed`` by the
        rule behind the published ones (COCO-SP: only train and val).
    split_seed
        Seed of ``"stratified"``. On PascalVOC-SP, 0 gives the published parts.
    standardise
        Standardise ``x`` and ``edge_attr`` by the published constants. Meant for your own models:
        the trainer's encoders ``voc`` and ``coco`` include this step.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "pascalvoc-sp"


class COCOSP(_Superpixels):
    """COCO-SP (LRGB), superpixel graphs.

    123,286 pictures as graphs of about 480 superpixels; the class of each, 81 with background.

    Items are ``Data(x=[N, 14], edge_index=[2, E], edge_attr=[E, 2], y=[N])``.

    ``x`` has the mean, deviation, maximum and minimum of red, green and blue in a superpixel, then
    row and column of its centre in pixels; ``edge_attr`` has strength and length of a boundary;
    ``y`` is the class at the centre, 0 for background.

    Parameters
    ----------
    split_rule
        ``"upstream"``: the published parts; ``"stratified"``: parts drawn with ``split_seed`` by the
        rule behind the published ones (COCO-SP: only train and val).
    split_seed
        Seed of ``"stratified"``. On PascalVOC-SP, 0 gives the published parts.
    standardise
        Standardise ``x`` and ``edge_attr`` by the published constants. Meant for your own models:
        the trainer's encoders ``voc`` and ``coco`` include this step.
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
