"""k-MIP search and attention, GPS networks and their trainer.

Public names are imported on first use: ``from kmip_data.models import KMIPAttention`` loads torch,
``import kmip_data.models`` does not.

Letters in shapes are the same everywhere:

====  ====================================================================================
G     graphs of a batch; ``ptr`` (G + 1) says where each begins among the rows of all
N     rows of all graphs, one graph after another: nodes, or the queries of a search
M     rows of the keys, where these are not the queries' own
E     edges; (N, k) is the table of a graph whose nodes have k sources each
H     attention heads
d, v  channels of a node or edge, length of a query and key; length of a value
k     keys that a query attends to
C     classes or targets
W     nodes of the largest graph, to which others are padded
R, B  rows of a block, and blocks, where a part of a search is done at once
====  ====================================================================================
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

# Public name to its module: the stub next to this file, which type checkers read, is the only list of them.
_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_PUBLIC = dict(re.findall(r"^from (?=\S+ import \w+ as (\w+))(\S+)", _STUB, re.MULTILINE))

__all__ = [*_PUBLIC]  # noqa: PLE0604 -- all of them text


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        msg = f"module 'kmip_data.models' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
