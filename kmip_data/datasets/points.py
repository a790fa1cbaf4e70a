"""Point clouds: rooms and shapes as k-NN graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, PartArguments, RuleArguments
from kmip_data.datasets.inputs import feature_views
from kmip_data.datasets.pyg_arguments import STEPS, accept_pyg_order


class S3DIS(BuiltDataset):
    """S3DIS 1 m blocks, k-NN graphs.

    Indoor scans cut in 1 m × 1 m blocks of 4,096 points; semantic segmentation in 13 classes.

    Items are ``Data(x=[N, 9], edge_index=[2, E], y=[N], pos=[N, 3])``.

    ``x`` has the nine columns in file order (position relative to the block centre [m], colour 0 to
    1, position in the room 0 to 1), as in the paper's code. Unlike PyTorch Geometric's class it has
    a validation part, reads from disk, and keeps builds of different parameters apart.

    Parameters
    ----------
    train
        As in PyTorch Geometric, instead of ``split``: True, all blocks outside ``test_area``
        (``"trainval"``); False, the test part.
    features
        ``"all"``: nine columns, as in the code; ``"position-color"``: six, as in the text.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.
    k
        Neighbours per point.
    knn_rule
        exact: k nearest other points; torch-cluster: the upstream rule, which differs where
        more than k points coincide.
    short_graphs
        Records of fewer than k + 1 points: skip them, or keep them with fewer neighbours
        (default: an error).
    split_rule
        upstream: validation blocks drawn at random, as the paper's code does; room: whole
        rooms, so that no validation block overlaps a train block; stratified: drawn with equal
        shares of the blocks' most frequent classes.
    split_seed
        Seed of the rule, where it draws.
    test_area
        Area whose blocks are the test set.
    val_fraction
        Validation share of the other areas (default: 3294/20291).
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: root, test_area,
        train, transform, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "s3dis"

    @accept_pyg_order(
        *("root", "test_area", "train", *STEPS),
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

    ``x`` has the normal, then the position, the order that produced the paper's numbers.

    Parameters
    ----------
    categories
        Name or names of the categories to take (``"Airplane"``); ``None``: all 16. ``category`` of
        an item is then its position among those taken.
    include_normals
        As in PyTorch Geometric: False leaves out ``x``.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.
    k
        Neighbours per point.
    knn_rule
        exact: k nearest other points; torch-cluster: the upstream rule, which differs where
        more than k points coincide.
    short_graphs
        Records of fewer than k + 1 points: skip them, or keep them with fewer neighbours
        (default: an error).
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: root, categories,
        include_normals, split, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "shapenet-part"

    @accept_pyg_order(
        *("root", "categories", "include_normals", "split", *STEPS),
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
