"""Ready graph datasets, HDF5 shards and fast readers for k-MIP graph transformers.

Public names are imported on first use (PEP 562), so ``import kmip_data`` loads neither torch nor h5py.

>>> from kmip_data import S3DIS
>>> dataset = S3DIS(split="train", k=32)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kmip_data.builds.find import open_build as open  # noqa: A004
    from kmip_data.datasets.city import CityNetwork
    from kmip_data.datasets.points import S3DIS, ShapeNetPart
    from kmip_data.datasets.small_graphs import (
        COCOSP,
        CIFAR10Superpixels,
        LocalDegreeProfile,
        MalNetTiny,
        PascalVOCSP,
        PCQMContact,
        PeptidesFunc,
        PeptidesStruct,
    )
    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.reading.lightning import GraphDataModule
    from kmip_data.reading.loader import GraphLoader, batch_neighbors, expand_edges
    from kmip_data.saving.save import save

__version__ = "0.1.0"

# In a source checkout the sub-packages are siblings of this folder (see setup.py): find them there.
_ROOT = Path(__file__).resolve().parent.parent
if (_ROOT / "setup.py").is_file() and (_ROOT / "pipelines").is_dir():
    __path__.append(str(_ROOT))

_PUBLIC = {
    "S3DIS": "kmip_data.datasets.points:S3DIS",
    "ShapeNetPart": "kmip_data.datasets.points:ShapeNetPart",
    "CIFAR10Superpixels": "kmip_data.datasets.small_graphs:CIFAR10Superpixels",
    "COCOSP": "kmip_data.datasets.small_graphs:COCOSP",
    "CityNetwork": "kmip_data.datasets.city:CityNetwork",
    "LocalDegreeProfile": "kmip_data.datasets.small_graphs:LocalDegreeProfile",
    "MalNetTiny": "kmip_data.datasets.small_graphs:MalNetTiny",
    "PCQMContact": "kmip_data.datasets.small_graphs:PCQMContact",
    "PascalVOCSP": "kmip_data.datasets.small_graphs:PascalVOCSP",
    "PeptidesFunc": "kmip_data.datasets.small_graphs:PeptidesFunc",
    "PeptidesStruct": "kmip_data.datasets.small_graphs:PeptidesStruct",
    "ShardedDataset": "kmip_data.reading.dataset:ShardedDataset",
    "GraphLoader": "kmip_data.reading.loader:GraphLoader",
    "batch_neighbors": "kmip_data.reading.loader:batch_neighbors",
    "expand_edges": "kmip_data.reading.loader:expand_edges",
    "GraphDataModule": "kmip_data.reading.lightning:GraphDataModule",
    "open": "kmip_data.builds.find:open_build",
    "save": "kmip_data.saving.save:save",
}

__all__ = [
    "COCOSP",
    "S3DIS",
    "CIFAR10Superpixels",
    "CityNetwork",
    "GraphDataModule",
    "GraphLoader",
    "LocalDegreeProfile",
    "MalNetTiny",
    "PCQMContact",
    "PascalVOCSP",
    "PeptidesFunc",
    "PeptidesStruct",
    "ShapeNetPart",
    "ShardedDataset",
    "__version__",
    "batch_neighbors",
    "expand_edges",
    "open",
    "save",
]


def __getattr__(name: str) -> Any:
    target = _PUBLIC.get(name)
    if target is None:
        msg = f"module 'kmip_data' has no attribute {name!r}"
        raise AttributeError(msg)
    module, attribute = target.split(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
