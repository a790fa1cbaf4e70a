"""Superpixel datasets: CIFAR10, PascalVOC-SP and COCO-SP."""

from __future__ import annotations

from typing import Literal, Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, PartArguments
from kmip_data.datasets.inputs import Standardise


class CIFAR10Superpixels(BuiltDataset):
    """CIFAR10 as graphs of up to 150 superpixels: 45,000, 5,000 and 10,000 pictures of ten classes.

    Items are ``Data(x=[N, 5], edge_index=[2, E], edge_attr=[E, 1], y=[1], pos=[N, 2])``; ``x`` has the mean
    colour and the position, as GraphGPS and the k-MIP code feed them, ``edge_attr`` the similarity of the
    two superpixels, and every node has eight out-edges.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.points.S3DIS`.
    split_rule, split_seed
        See :class:`~kmip_data.datasets.points.ShapeNetPart`.
    """

    _name = "cifar10"


class _Superpixels(BuiltDataset):
    """Base of PascalVOC-SP and COCO-SP."""

    def __init__(
        self,
        root: Folder | None = None,
        *,
        split_rule: Literal["upstream", "stratified"] = "upstream",
        split_seed: int = 0,
        standardise: bool = False,
        **arguments: Unpack[PartArguments],
    ) -> None:
        rule = {"split": split_rule, "split_seed": split_seed}
        build, split = self._find(self._name, root, {}, rule, arguments)
        self._read(build, split, arguments, Standardise.of(build.card) if standardise else None)


class PascalVOCSP(_Superpixels):
    """PascalVOC-SP (LRGB): 11,355 pictures as graphs of about 480 superpixels, 21 classes of nodes.

    Items are ``Data(x=[N, 14], edge_index=[2, E], edge_attr=[E, 2], y=[N])``: mean, deviation, largest and
    least red, green, blue of a superpixel, row and column of its centre in pixels; strength and length of a
    boundary; the class at the centre, 0 background.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.points.S3DIS`.
    split_rule
        ``"upstream"``: the published parts; ``"stratified"``: val and test are drawn by the rule that made
        the published ones, with ``split_seed``.
    split_seed
        Seed of ``"stratified"``; 0 gives the published parts.
    standardise
        Standardise ``x`` and ``edge_attr`` by the published constants, for your own models: the encoders
        ``voc`` and ``coco`` of the trainer include it.
    """

    _name = "pascalvoc-sp"


class COCOSP(_Superpixels):
    """COCO-SP (LRGB): 123,286 pictures as graphs of about 480 superpixels, 81 classes of nodes.

    Items are those of :class:`PascalVOCSP`; ``y`` has the ranks 0 to 80 of COCO's category ids, 0 background.

    Parameters
    ----------
    root, home, split, standardise, transform, build, sample, limit, **arguments
        See :class:`PascalVOCSP`.
    split_rule
        ``"upstream"``: the published parts, val drawn at random; ``"stratified"``: train and val are drawn by
        LRGB's rule with ``split_seed``, test is the published one.
    split_seed
        Seed of ``"stratified"``.
    """

    _name = "coco-sp"
