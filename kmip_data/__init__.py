"""Ready graph datasets, HDF5 shards and fast readers for k-MIP graph transformers.

Public names are imported on first use (PEP 562), so ``import kmip_data`` loads neither torch nor h5py.

>>> from kmip_data import S3DIS
>>> dataset = S3DIS(split="train", k=32)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

NAMES = re.compile(
    r"^from \S+ import \w+ as (\w+)", re.MULTILINE
)  #: public names in the stub of a package


def public_name(package: str, stub: str, name: str) -> Any:
    """Import a public name of a package on first use.

    The stub, which type checkers read, is the only list of them. A line that ends in ``# deprecated: TEXT``
    keeps its name, and each use of it warns with the text.
    """
    pattern = rf"^from (\S+) import \w+ as {re.escape(name)}\b(?:.*# deprecated: (.+))?"
    if (line := re.search(pattern, stub, re.MULTILINE)) is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(line[1]), name)
    if line[2]:
        warnings.warn(
            f"{package}.{name} is deprecated: {line[2]}",
            DeprecationWarning,
            stacklevel=2,
        )
    else:
        setattr(sys.modules[package], name, value)
    return value


_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
__all__ = [*NAMES.findall(_STUB), "__version__"]  # noqa: PLE0604 -- all of them text
__getattr__ = partial(public_name, __name__, _STUB)
__dir__ = partial(sorted, __all__)
