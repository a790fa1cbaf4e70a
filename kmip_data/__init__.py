"""Ready graph datasets, HDF5 shards and fast readers for k-MIP graph transformers.

Public names are imported on first use (PEP 562), so ``import kmip_data`` loads neither torch nor h5py.

>>> from kmip_data import S3DIS
>>> dataset = S3DIS(split="train", k=32)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# In a source checkout the sub-packages are siblings of this folder (see setup.py): find them there.
_ROOT = Path(__file__).resolve().parent.parent
if (_ROOT / "setup.py").is_file() and (_ROOT / "pipelines").is_dir():
    __path__.append(str(_ROOT))

# Public name to its module: the stub next to this file, which type checkers read, is the only list of them.
_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_PUBLIC = dict(re.findall(r"^from (?=\S+ import \w+ as (\w+))(\S+)", _STUB, re.MULTILINE))

__all__ = [*_PUBLIC, "__version__"]  # noqa: PLE0604 -- all of them text


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'kmip_data' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
