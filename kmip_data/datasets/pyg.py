"""PyTorch Geometric's classes that cover several of ours or differ in name, with its call signatures."""

from __future__ import annotations

from typing import Any

from kmip_data.datasets import shipped
from kmip_data.datasets.base import BuiltDataset, Folder
from kmip_data.datasets.pyg_calls import STEPS
from kmip_data.manifest import load_manifest, shipped_datasets, unknown_name


def LRGBDataset(  # noqa: N802 -- PyTorch Geometric's name
    root: Folder | None, name: str, split: str = "train", *steps: Any, **arguments: Any
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
        :class:`~kmip_data.datasets.shipped.PascalVOCSP` and so on.

    Raises
    ------
    UsageError
        The name is unknown.
    """
    dataset_class = _named("LRGBDataset", "dataset of LRGB", name)
    return dataset_class(root, split=split, **_steps(steps), **arguments)


def GNNBenchmarkDataset(  # noqa: N802 -- PyTorch Geometric's name
    root: Folder | None, name: str, split: str = "train", *steps: Any, **arguments: Any
) -> BuiltDataset:
    """Open a dataset of "Benchmarking GNNs", called as PyTorch Geometric's class.

    Arguments and errors are those of :func:`LRGBDataset`.
    """
    dataset_class = _named("GNNBenchmarkDataset", "dataset of Benchmarking GNNs here", name)
    return dataset_class(root, split=split, **_steps(steps), **arguments)


def ShapeNet(  # noqa: N802 -- PyTorch Geometric's name
    root: Folder | None = None,
    categories: str | list[str] | None = None,
    include_normals: bool = True,
    split: str = "trainval",
    *steps: Any,
    **arguments: Any,
) -> shipped.ShapeNetPart:
    """Open :class:`~kmip_data.datasets.shipped.ShapeNetPart`, called as PyTorch Geometric's ``ShapeNet``.

    The defaults are PyTorch Geometric's: ``split`` is ``"trainval"``. The items are ours, with
    edges; ``x`` has the position, too, and is left out without normals. Other arguments are those
    of :func:`LRGBDataset`.
    """
    return shipped.ShapeNetPart(root, categories, include_normals, split, *steps, **arguments)


def _named(title: str, kind: str, name: str) -> type[BuiltDataset]:
    """Return our class of a dataset that a class of PyTorch Geometric, ``title``, has by name."""
    manifests = [load_manifest(dataset) for dataset in shipped_datasets()]
    classes = {
        manifest.name: manifest.dataset_class for manifest in manifests if manifest.pyg == title
    }
    if name.lower() not in classes:
        raise unknown_name(kind, name, [*classes], command="kmip-data list")
    dataset_class: type[BuiltDataset] = getattr(shipped, classes[name.lower()])
    return dataset_class


def _steps(values: tuple[Any, ...]) -> dict[str, Any]:
    """Return the last positional arguments of PyTorch Geometric's classes by name."""
    if len(values) > len(STEPS):
        raise TypeError(f"takes at most {len(STEPS)} more positional arguments: {', '.join(STEPS)}")
    return dict(zip(STEPS, values, strict=False))
