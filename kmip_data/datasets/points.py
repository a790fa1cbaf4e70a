"""The datasets as classes, as a PyTorch Geometric user expects them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from torch_geometric.data import Data

from kmip_data.builds.find import BUILD_OPTIONS, locate, obtain
from kmip_data.builds.home import Build, Home, open_target
from kmip_data.errors import UsageError
from kmip_data.format.card import CARD_NAME
from kmip_data.format.schema import View
from kmip_data.manifest import load_manifest, unknown_name
from kmip_data.reading.dataset import ShardedDataset

Folder = str | os.PathLike[str]
#: Arguments of PyTorch Geometric's classes that have no meaning here, and what to use instead.
_REFUSED: Final = {
    "pre_transform": "transform, columns that kmip-data encode adds, or kmip_data.save of what it gives",
    "pre_filter": "index_select of the dataset, or kmip_data.save of what is left",
    "force_reload": "nothing: each choice of parameters is a build of its own; kmip-data verify --repair",
    "log": "quiet",
    "train": 'split="train", "val" or "test"',
    "split": "the masks of the one graph: train_mask, val_mask, test_mask",  # of a city
}

KnnRule = Literal["exact", "torch-cluster"]
ShortGraphs = Literal["skip", "keep"] | None

#: Views of ``x`` besides ``all``, every column: dataset -> name -> first column, last column + 1.
FEATURES: Final = {"s3dis": {"position-color": (0, 6)}}


def feature_views(dataset: str, name: str) -> tuple[View, ...]:
    """Return the views that give ``dataset`` the features called ``name``; none for ``all``.

    Raises
    ------
    UsageError
        The dataset has no such features.
    """
    known = FEATURES.get(dataset, {})
    if name == "all":
        return ()
    if name not in known:
        raise UsageError(
            f"{dataset} has no set of features called {name!r}.",
            expected=", ".join(["all", *known]),
            found=repr(name),
            left="nothing was changed",
        )
    start, stop = known[name]
    return (View(attribute="x", source="node/x", start=start, stop=stop),)


class S3DIS(ShardedDataset):
    """S3DIS: indoor scans cut in 1 m × 1 m blocks of 4,096 points, with their k nearest neighbours.

    Items are ``Data(x=[4096, 9], edge_index=[2, 4096·k], y=[4096], pos=[4096, 3])``; ``x`` has the
    nine columns in file order (position centred on the block [m], colour 0 to 1, position in the
    room 0 to 1), as the paper's code fed them. Unlike PyTorch Geometric's class it has a validation
    part, reads from the disk and never mixes up builds of different parameters.

    Parameters
    ----------
    root
        A folder, as in PyTorch Geometric: raw files and builds are kept in it (it is the home), or
        it is itself a build folder. Default: ``home``.
    home
        The home folder, shared by all datasets; default ``$KMIP_DATA_HOME``, else the user's data
        folder.
    split
        ``"train"``, ``"val"``, ``"test"``; ``None``: all blocks in source order.
    k
        Neighbours a point.
    test_area
        Area (1 to 6) whose blocks are the test part.
    split_rule
        ``"upstream"``: validation blocks drawn at random, as the paper's code does; ``"room"``:
        whole rooms, so that no validation block overlaps a train block; ``"stratified"``: train
        and val dealt anew by LRGB's rule, with nearly equal shares of the classes.
    split_seed, val_fraction
        Seed and share of the validation draw (default: 3,294 of 20,291).
    features
        ``"all"``: nine columns, what the code fed; ``"position-color"``: six, what the text says.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.
    transform
        Applied to each item when it is read.
    columns
        Names of the attributes that items have, and of columns that ``kmip-data encode`` added
        (``["rwse20"]``): see :class:`~kmip_data.reading.dataset.ShardedDataset`.
    build
        Build what is missing, downloading it first; ``False``: an error that names the command.
    sample
        Blocks generated in the upstream layout, never a silent substitute.
    limit
        Only so many blocks, spread evenly over all.
    knn_rule, short_graphs
        See ``kmip-data build s3dis --help``.
    **build_options
        ``archives``, ``offline``, ``accept_license``, ``jobs``, ``output``, ``compression``,
        ``quiet``: see :func:`kmip_data.pipelines.build.build_dataset`.

    Examples
    --------
    >>> from kmip_data import S3DIS
    >>> dataset = S3DIS(split="train", k=32)  # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913 -- each is a parameter of the dataset
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        k: int = 32,
        test_area: int = 6,
        split_rule: Literal["upstream", "room", "stratified"] = "upstream",
        split_seed: int = 0,
        val_fraction: float | None = None,
        features: Literal["all", "position-color"] = "all",
        edge_attr: bool = False,
        transform: Callable[[Data], Data] | None = None,
        columns: Sequence[str] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        knn_rule: KnnRule = "exact",
        short_graphs: ShortGraphs = None,
        **build_options: Any,
    ) -> None:
        views = feature_views("s3dis", features)
        found, split_name = open_dataset(
            "s3dis",
            root,
            home,
            {"k": k, "knn_rule": knn_rule, "short_graphs": short_graphs, "limit": limit},
            {
                "split": split_rule,
                "test_area": test_area,
                "split_seed": split_seed,
                "val_fraction": val_fraction,
            },
            build=build,
            sample=sample,
            **build_options,
        )
        super().__init__(
            found,
            split,
            transform,
            split_name=split_name,
            columns=columns,
            views=views,
            edge_lengths=edge_attr,
        )


class ShapeNetPart(ShardedDataset):
    """ShapeNet-Part: 16,881 shapes of 16 categories with normals, 50 part labels, k-NN graphs.

    Items are ``Data(x=[N, 6], edge_index=[2, N·k], y=[N], pos=[N, 3], category=[1])``; ``x`` has
    the normal, then the position, the order that produced the paper's numbers.

    Parameters
    ----------
    root, home, split, k, transform, build, sample, limit, knn_rule, short_graphs, **build_options
        See :class:`S3DIS`.
    split_rule, split_seed
        ``"upstream"``: the published parts; ``"stratified"``: parts of the same sizes with nearly
        equal shares of the classes, drawn by LRGB's rule with the seed.
    categories
        Name or names of the categories to take (``"Airplane"``); ``None``: all 16. ``category`` of
        an item is then its position among those taken.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.

    Examples
    --------
    >>> from kmip_data import ShapeNetPart
    >>> dataset = ShapeNetPart(split="test", categories=["Airplane", "Chair"])  # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913 -- each is a parameter of the dataset
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        k: int = 8,
        categories: str | Sequence[str] | None = None,
        edge_attr: bool = False,
        transform: Callable[[Data], Data] | None = None,
        columns: Sequence[str] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        knn_rule: KnnRule = "exact",
        short_graphs: ShortGraphs = None,
        **build_options: Any,
    ) -> None:
        names = (categories,) if isinstance(categories, str) else tuple(categories or ())
        found, split_name = open_dataset(
            "shapenet-part",
            root,
            home,
            {
                "k": k,
                "category": names,
                "knn_rule": knn_rule,
                "short_graphs": short_graphs,
                "limit": limit,
            },
            {},
            build=build,
            sample=sample,
            **build_options,
        )
        super().__init__(
            found, split, transform, split_name=split_name, columns=columns, edge_lengths=edge_attr
        )


def open_dataset(
    name: str,
    root: Folder | None,
    home: Folder | Home | None,
    parameters: Mapping[str, Any],
    split_parameters: Mapping[str, Any],
    *,
    build: bool,
    sample: bool,
    split_rule: str | None = None,
    split_seed: int | None = None,
    **build_options: Any,
) -> tuple[Build, str]:
    """Return the build that the arguments of a dataset class mean, and the name of its split.

    ``split_rule`` and ``split_seed`` are for the classes that name neither among their own arguments:
    every dataset has the rule ``"stratified"``.
    """
    from kmip_data.pipelines.build import ensure_split

    for option in build_options:
        if option not in BUILD_OPTIONS:
            raise _unknown_argument(name, option)
    rule = {"split": split_rule, "split_seed": split_seed}
    split_parameters = {
        **split_parameters,
        **{key: value for key, value in rule.items() if value is not None},
    }
    if root is not None and home is not None:
        raise UsageError("root and home are the same thing.", expected="one of them", found="both")
    folder = Path(root).expanduser().absolute() if root is not None else None
    where = locate(folder if folder is not None else home)
    if folder is not None and (folder / CARD_NAME).is_file():
        found = open_target(folder, where, parameters, sample=sample, dataset=name)
    else:
        found = obtain(
            name, parameters, split_parameters, home=where, sample=sample, build=build, **build_options
        )
    return found, ensure_split(found, split_parameters)


def _unknown_argument(dataset: str, name: str) -> UsageError:
    """Say what to use in the place of an argument that the class of a dataset does not have."""
    import kmip_data

    title = load_manifest(dataset).dataset_class
    command = f"help(kmip_data.{title}), in Python"
    if name in _REFUSED:
        return UsageError(
            f"{title} does not take {name}.",
            expected=f"use {_REFUSED[name]}",
            found=f"{name}=…",
            left="nothing was changed",
            next=command,
        )
    own = inspect.signature(getattr(kmip_data, title)).parameters
    known = {*own, "split_rule", "split_seed", *BUILD_OPTIONS} - {"build_options"}
    return unknown_name(f"argument of {title}", name, sorted(known), command=command)
