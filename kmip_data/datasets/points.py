"""Point clouds: rooms and shapes as k-NN graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, PartArguments, RuleArguments
from kmip_data.datasets.inputs import feature_views
from kmip_data.datasets.pyg_arguments import PYG_PROCESSING_ARGUMENTS, accept_pyg_order


class S3DIS(BuiltDataset):
    """S3DIS 1 m blocks, k-NN graphs.

    Indoor scans cut in 1 m × 1 m blocks of 4,096 points; semantic segmentation in 13 classes.

    Items are ``Data(x=[N, 9], edge_index=[2, E], y=[N], pos=[N, 3])``.

    ``x`` has nine columns in file order, as in the paper's code: position relative to the block
    centre in metres, colour from 0 to 1, position in the room from 0 to 1. Unlike PyTorch
    Geometric's class, it has a validation split and reads from disk, and builds with different
    parameters do not overwrite each other.

    Parameters
    ----------
    train
        PyTorch Geometric's argument, instead of ``split``: True for all blocks outside
        ``test_area`` (``"trainval"``), False for the test split.
    features
        ``"all"``: nine columns, as in the paper's code; ``"position-color"``: six, as in its text.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.
    k
        Neighbours per point.
    knn_rule
        exact: the k nearest other points; torch-cluster: the upstream rule, which differs if more
        than k points coincide.
    short_graphs
        For records of fewer than k + 1 points: skip them, or keep them with fewer neighbours.
        Default: raise an error.
    split_rule
        upstream: validation blocks drawn at random, as in the paper's code; room: whole rooms, so
        that no validation block overlaps a train block; stratified: drawn with equal fractions of
        the blocks' most frequent classes.
    split_seed
        Seed of the split rule.
    test_area
        Area whose blocks are the test part.
    val_fraction
        Fraction of the other areas' blocks for validation. Default: 3294/20291.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's class: root, test_area,
        train, transform, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "s3dis"

    @accept_pyg_order(
        *("root", "test_area", "train", *PYG_PROCESSING_ARGUMENTS),
        train=lambda _, value: {"split": "trainval" if value else "test"},
    )
    def __init__(  # noqa: PLR0913 -- the parameters of its build and split
        self,
        root: Folder | None = None,
        *pyg: object,
        train: bool | None = None,
        features: Literal["all", "position-color"] = "all",
        edge_attr: bool = False,
        k: int = 32,
        knn_rule: Literal["exact", "torch-cluster"] = "exact",
        short_graphs: Literal["skip", "keep"] | None = None,
        split_rule: Literal["upstream", "room", "stratified"] = "upstream",
        split_seed: int = 0,
        test_area: int = 6,
        val_fraction: float | None = None,
        **arguments: Unpack[PartArguments],
    ) -> None:
        self._open(
            root,
            arguments,
            views=feature_views("s3dis", features),
            edge_lengths=edge_attr,
            k=k,
            knn_rule=knn_rule,
            short_graphs=short_graphs,
            split_rule=split_rule,
            split_seed=split_seed,
            test_area=test_area,
            val_fraction=val_fraction,
        )


class ShapeNetPart(BuiltDataset):
    """ShapeNet-Part, k-NN graphs.

    3D shapes of 16 categories with normals; part segmentation in 50 labels.

    Items are ``Data(x=[N, 6], edge_index=[2, E], y=[N], category=[1], pos=[N, 3])``.

    ``x`` has the normal, then the position: the order that produced the paper's numbers.

    Parameters
    ----------
    categories
        One or more category names (``"Airplane"``); ``None`` for all 16. The ``category`` of an item
        is its position in this list.
    include_normals
        As in PyTorch Geometric: if False, items have no ``x``.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.
    k
        Neighbours per point.
    knn_rule
        exact: the k nearest other points; torch-cluster: the upstream rule, which differs if more
        than k points coincide.
    short_graphs
        For records of fewer than k + 1 points: skip them, or keep them with fewer neighbours.
        Default: raise an error.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's class: root, categories,
        include_normals, split, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "shapenet-part"

    @accept_pyg_order(
        *("root", "categories", "include_normals", "split", *PYG_PROCESSING_ARGUMENTS),
        include_normals=lambda _, value: (
            {} if value else {"columns": ["edge_index", "y", "pos", "category"]}
        ),
    )
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        categories: str | Sequence[str] | None = None,
        include_normals: bool = True,
        edge_attr: bool = False,
        k: int = 8,
        knn_rule: Literal["exact", "torch-cluster"] = "exact",
        short_graphs: Literal["skip", "keep"] | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        names = (categories,) if isinstance(categories, str) else tuple(categories or ())
        self._open(
            root,
            arguments,
            edge_lengths=edge_attr,
            category=names,
            k=k,
            knn_rule=knn_rule,
            short_graphs=short_graphs,
        )
