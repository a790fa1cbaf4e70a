"""Datasets that PyTorch Geometric has under another class name, with its call signatures."""

from __future__ import annotations

from typing import Any

import kmip_data
from kmip_data.datasets.base import BuiltDataset, Folder
from kmip_data.datasets.points import ShapeNetPart
from kmip_data.datasets.pyg_arguments import PYG_PROCESSING_ARGUMENTS
from kmip_data.errors import unknown_name_error
from kmip_data.manifest import load_manifest
from kmip_data.strict_model import shipped_datasets


def LRGBDataset(  # noqa: N802 -- PyTorch Geometric's name
    root: Folder | None, name: str, split: str = "train", *steps: object, **arguments: Any
) -> BuiltDataset:
    """Open a dataset of LRGB, called as PyTorch Geometric's class.

    Parameters
    ----------
    root
        Home folder, or a build folder; ``None``: the default home.
    name
        Name of the dataset, such as ``"Peptides-func"``, in any case.
    split
        ``"train"``, ``"val"`` or ``"test"``.
    *steps, **arguments
        ``transform``, ``pre_transform``, ``pre_filter``, ``force_reload``, and the keywords of our
        class.

    Returns
    -------
    BuiltDataset
        Instance of our class, such as :class:`~kmip_data.datasets.superpixels.PascalVOCSP`.

    Raises
    ------
    UsageError
        The name is unknown.
    """
    return _open_by_name("LRGBDataset", name, steps, root=root, split=split, **arguments)


def GNNBenchmarkDataset(  # noqa: N802 -- PyTorch Geometric's name
    root: Folder | None, name: str, split: str = "train", *steps: object, **arguments: Any
) -> BuiltDataset:
    """Open a dataset of "Benchmarking GNNs", called as PyTorch Geometric's class.

    Arguments and errors as for :func:`LRGBDataset`.
    """
    return _open_by_name("GNNBenchmarkDataset", name, steps, root=root, split=split, **arguments)


def ShapeNet(  # noqa: N802 -- PyTorch Geometric's name
    root: Folder | None = None,
    categories: str | list[str] | None = None,
    include_normals: bool = True,
    split: str = "trainval",
    *steps: object,
    **arguments: Any,
) -> ShapeNetPart:
    """Open :class:`~kmip_data.datasets.points.ShapeNetPart`, called as PyTorch Geometric's ``ShapeNet``.

    The defaults are PyTorch Geometric's: ``split`` is ``"trainval"``. The items are ours: they have
    edges, and ``x`` also has the position. Without normals there is no ``x``. The other arguments
    are those of :func:`LRGBDataset`.
    """
    return ShapeNetPart(root, categories, include_normals, split, *steps, **arguments)


def _open_by_name(
    pyg_class: str, name: str, steps: tuple[object, ...], **arguments: Any
) -> BuiltDataset:
    """Open the dataset ``name`` of a class of PyTorch Geometric.

    ``steps`` are its last positional arguments, ``arguments`` the keywords of our class.
    """
    manifests = [load_manifest(dataset) for dataset in shipped_datasets()]
    classes = {
        manifest.name: manifest.dataset_class for manifest in manifests if manifest.pyg == pyg_class
    }
    if name.lower() not in classes:
        raise unknown_name_error(f"dataset of {pyg_class}", name, [*classes])
    if len(steps) > len(PYG_PROCESSING_ARGUMENTS):
        raise TypeError(
            f"takes at most {len(PYG_PROCESSING_ARGUMENTS)} more positional arguments: "
            f"{', '.join(PYG_PROCESSING_ARGUMENTS)}"
        )
    step_arguments: dict[str, Any] = dict(zip(PYG_PROCESSING_ARGUMENTS, steps, strict=False))
    dataset_class: type[BuiltDataset] = getattr(kmip_data, classes[name.lower()])
    return dataset_class(**step_arguments, **arguments)
