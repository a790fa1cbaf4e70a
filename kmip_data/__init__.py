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
from collections.abc import Callable
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# In a source checkout the sub-packages are siblings of this folder (see setup.py): find them there.
_ROOT = Path(__file__).resolve().parent.parent
if (_ROOT / "setup.py").is_file() and (_ROOT / "pipelines").is_dir():
    __path__.append(str(_ROOT))


def public_names(module: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return ``__all__`` and ``__getattr__`` of a package whose names are imported on first use.

    The stub next to ``file``, which type checkers read, is the only list of them. A line that ends in
    ``# deprecated: TEXT`` keeps its name, and each use of it warns with the text.
    """
    stub = Path(file).with_suffix(".pyi").read_text("utf-8")
    line = re.compile(r"^from (\S+) import \w+ as (\w+)(?:.*# deprecated: (.+))?", re.MULTILINE)
    places = {name: (source, text) for source, name, text in line.findall(stub)}

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        source, text = places[name]
        value = getattr(importlib.import_module(source), name)
        if text:
            warnings.warn(f"{module}.{name} is deprecated: {text}", DeprecationWarning, stacklevel=2)
        else:
            setattr(sys.modules[module], name, value)
        return value

    return list(places), get


_names, __getattr__ = public_names(__name__, __file__)
__all__ = [*_names, "__version__"]  # noqa: PLE0604 -- all of them text


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
