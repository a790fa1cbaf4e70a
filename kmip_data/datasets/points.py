"""Point-cloud datasets: S3DIS and ShapeNet-Part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, PartArguments, RuleArguments
from kmip_data.datasets.inputs import feature_views

KnnRule = Literal["exact", "torch-cluster"]
ShortGraphs = Literal["skip", "keep"] | None


class S3DIS(BuiltDataset):
    """S3DIS: indoor scans cut into 1 m × 1 m blocks of 4,096 points, with their k nearest neighbours.

    Items are ``Data(x=[4096, 9], edge_index=[2, 4096·k], y=[4096], pos=[4096, 3])``; ``x`` has the
    nine columns in file order (position relative to the block centre [m], colour 0 to 1, position in the
    room 0 to 1), as in the paper's code. Unlike PyTorch Geometric's class it has a validation part, reads
    from disk, and keeps builds of different parameters apart.

    Parameters
    ----------
    root
        A folder, as in PyTorch Geometric: either the home folder for raw files and builds, or a build
        folder. Default: ``home``.
    home
        Home folder of all datasets; default ``$KMIP_DATA_HOME``, else the user's data folder.
    split
        ``"train"``, ``"val"`` (also ``"valid"``), ``"test"``, ``"trainval"``; ``None``: all blocks in source
        order.
    train
        As in PyTorch Geometric, instead of ``split``: True, all blocks outside ``test_area`` (``"trainval"``);
        False, the test part.
    k
        Neighbours per point.
    test_area
        Area (1 to 6) of the test part.
    split_rule
        ``"upstream"``: random validation blocks, as in the paper's code; ``"room"``: complete rooms, so
        that no validation block overlaps a train block; ``"stratified"``: train and val by LRGB's rule,
        with nearly equal shares of the classes.
    split_seed, val_fraction
        Seed and share of the validation draw (default: 3,294 of 20,291).
    features
        ``"all"``: nine columns, as in the code; ``"position-color"``: six, as in the text.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.
    transform
        Applied to each item when it is read.
    pre_transform
        Applied before ``transform``, on each read, too: ``kmip-data encode`` or ``kmip_data.save`` store.
    pre_filter
        Selects the graphs of which it is true. It is called with each graph when the dataset is opened.
    force_reload
        Must be False: ``kmip-data verify BUILD --repair`` makes damaged files again.
    columns
        Names of the attributes that items have, and of columns that ``kmip-data encode`` added
        (``["rwse20"]``): see :class:`~kmip_data.reading.dataset.ShardedDataset`.
    build
        Download and build missing data; ``False``: an error with the command instead.
    sample
        Use generated blocks in the upstream layout; never a silent substitute.
    limit
        Use only N blocks, spread evenly over all.
    knn_rule, short_graphs
        See ``kmip-data info s3dis``.
    *pyg
        More positional arguments have the order of PyTorch Geometric's class:
        ``S3DIS(root, test_area, train, transform, …)``.
    **arguments
        How to build: ``archives``, ``offline``, ``accept_license``, ``jobs``, ``output``,
        ``compression``, ``engine``, ``scheduler``, ``quiet``: see
        :class:`~kmip_data.builds.home.BuildOptions`.
    """

    _name = "s3dis"

    def __init__(  # noqa: PLR0913 -- options, by keyword
        self,
        root: Folder | None = None,
        *pyg: Any,
        k: int = 32,
        test_area: int = 6,
        train: bool | None = None,
        split_rule: Literal["upstream", "room", "stratified"] = "upstream",
        split_seed: int = 0,
        val_fraction: float | None = None,
        features: Literal["all", "position-color"] = "all",
        edge_attr: bool = False,
        knn_rule: KnnRule = "exact",
        short_graphs: ShortGraphs = None,
        **arguments: Unpack[PartArguments],
    ) -> None:
        parameters = {"k": k, "knn_rule": knn_rule, "short_graphs": short_graphs}
        rule: dict[str, object] = {"split": split_rule, "split_seed": split_seed}
        rule |= {"test_area": test_area, "val_fraction": val_fraction}
        views = feature_views(self._name, features)
        self._open(root, parameters, rule, arguments, views=views, edge_lengths=edge_attr)


class ShapeNetPart(BuiltDataset):
    """ShapeNet-Part: 16,881 shapes of 16 categories with normals, 50 part labels, k-NN graphs.

    Items are ``Data(x=[N, 6], edge_index=[2, N·k], y=[N], pos=[N, 3], category=[1])``; ``x`` has
    the normal, then the position, the order that produced the paper's numbers.

    Parameters
    ----------
    root, home, split, k, transform, build, sample, limit, knn_rule, short_graphs, **arguments
        See :class:`S3DIS`.
    split_rule, split_seed
        ``"upstream"``: the published parts; ``"stratified"``: parts of the same sizes with nearly
        equal shares of the classes, drawn by LRGB's rule with the seed.
    categories
        Name or names of the categories to take (``"Airplane"``); ``None``: all 16. ``category`` of
        an item is then its position among those taken.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.
    include_normals
        As in PyTorch Geometric: False leaves out ``x``.
    *pyg
        More positional arguments have the order of PyTorch Geometric's class:
        ``ShapeNetPart(root, categories, include_normals, split, …)``.
    """

    _name = "shapenet-part"

    def __init__(
        self,
        root: Folder | None = None,
        *pyg: Any,
        k: int = 8,
        categories: str | Sequence[str] | None = None,
        include_normals: bool = True,
        edge_attr: bool = False,
        knn_rule: KnnRule = "exact",
        short_graphs: ShortGraphs = None,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        names = (categories,) if isinstance(categories, str) else tuple(categories or ())
        parameters = {"k": k, "category": names, "knn_rule": knn_rule, "short_graphs": short_graphs}
        self._open(root, parameters, {}, arguments, edge_lengths=edge_attr)
