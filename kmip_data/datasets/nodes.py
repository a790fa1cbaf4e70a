"""Node classification on one graph: web pages, papers, products."""

from __future__ import annotations

from typing import Literal, Unpack

from kmip_data.datasets.base import (
    BuiltDataset,
    DatasetArguments,
    Folder,
    RuleArguments,
    dataset_name_of_class,
)
from kmip_data.datasets.pyg_arguments import accept_pyg_order, accept_root_and_split


class _PublishedFolds(BuiltDataset):
    has_parts = False

    @accept_pyg_order("root", "name", "transform", "pre_transform", "force_reload")
    def __init__(
        self,
        name: str,
        *pyg: object,
        root: Folder | None = None,
        fold: int = 0,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, arguments, name=dataset_name_of_class(name, type(self)), fold=fold)


class GeomGCN(_PublishedFolds):
    """Six node-classification graphs of Geom-GCN, of web pages or actors.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N])``. Edges have one direction, as published; the masks are one of the ten published
    splits.

    Parameters
    ----------
    name
        ``"actor"``, ``"cornell"``, ``"texas"``, ``"wisconsin"``, ``"chameleon"`` or ``"squirrel"``, in
        any case.
    split_rule
        upstream: the published masks; stratified: redrawn with the same sizes and equal class
        fractions.
    split_seed
        Seed of the split rule.
    fold
        Number of the published split, from 0.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's classes: root, name,
        transform, pre_transform, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "actor"


class HeterophilousGraphDataset(_PublishedFolds):
    """Node-classification graphs of Platonov et al.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N])``. Each edge has both directions; the masks are one of the ten published splits,
    ``fold``.

    Parameters
    ----------
    name
        ``"minesweeper"``, ``"tolokers"``, ``"roman-empire"``, ``"amazon-ratings"``, ``"questions"``,
        ``"chameleon-filtered"`` or ``"squirrel-filtered"``, in any case.
    split_rule
        upstream: the published masks; stratified: redrawn with the same sizes and equal class
        fractions.
    split_seed
        Seed of the split rule.
    fold
        Number of the published split, from 0.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's class: root, name,
        transform, pre_transform, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "minesweeper"


class Planetoid(BuiltDataset):
    """Cora, CiteSeer and PubMed: citation graphs with the subject of each paper.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N])``; by default the masks are the public split.

    Parameters
    ----------
    name
        ``"cora"``, ``"citeseer"`` or ``"pubmed"``, in any case.
    split_rule
        upstream: the public split; per-class: drawn as in tunedGNN, 20 nodes of each class for
        train, 500 others for val, 1,000 for test; stratified: the public split's sizes with equal
        class fractions.
    split_seed
        Seed of the split rule.
    fold
        Number of the published split, from 0.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's class: root, name,
        split, num_train_per_class, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "cora"
    has_parts = False

    @accept_pyg_order(
        *("root", "name", "split", "num_train_per_class", "num_val", "num_test"),
        *("transform", "pre_transform", "force_reload"),
    )
    def __init__(
        self,
        name: str,
        *pyg: object,
        root: Folder | None = None,
        split_rule: Literal["upstream", "per-class", "stratified"] = "upstream",
        split_seed: int = 0,
        fold: int = 0,
        **arguments: Unpack[DatasetArguments],
    ) -> None:
        self._open(
            root,
            arguments,
            name=dataset_name_of_class(name, type(self)),
            split_rule=split_rule,
            split_seed=split_seed,
            fold=fold,
        )


class _Citations(BuiltDataset):
    @accept_root_and_split
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        edges: Literal["published", "undirected"] = "published",
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, arguments, edges=edges)


class OGBNArxiv(_Citations):
    """ogbn-arxiv (OGB), citations of papers.

    169,343 papers of computer science on arXiv and their citations; the subject of each, 40
    classes.

    Items are ``Data(x=[N, 128], edge_index=[2, E], y=[N], node_year=[N, 1])``.

    Parameters
    ----------
    edges
        published: as in OGB's class, where citations have one direction and each product link is
        followed by its reverse; undirected: both directions, sorted, without duplicates, as by
        PyTorch Geometric's ``ToUndirected``.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "ogbn-arxiv"


class OGBNProducts(_Citations):
    """ogbn-products (OGB), products bought together.

    2,449,029 products of Amazon, linked where they were bought together; the category of each,
    47 classes.

    Items are ``Data(x=[N, 100], edge_index=[2, E], y=[N])``.

    Parameters
    ----------
    edges
        published: as in OGB's class, where citations have one direction and each product link is
        followed by its reverse; undirected: both directions, sorted, without duplicates, as by
        PyTorch Geometric's ``ToUndirected``.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "ogbn-products"
