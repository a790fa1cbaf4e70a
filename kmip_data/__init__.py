"""Ready graph datasets, HDF5 shards and fast readers for k-MIP graph transformers.

Public names are imported on first use (PEP 562), so ``import kmip_data`` loads neither torch nor
h5py.

>>> from kmip_data import S3DIS
>>> dataset = S3DIS(split="train", k=32)  # doctest: +SKIP
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.1.0"

__getattr__, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*_names, "__version__"]  # noqa: PLE0604 -- all of them text


def __dir__() -> list[str]:
    return sorted(__all__)
