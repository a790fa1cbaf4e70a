"""k-MIP search and attention, GPS networks and their trainer.

Public names are imported on first use: ``from kmip_data.models import KMIPAttention`` loads torch,
``import kmip_data.models`` does not.

Letters in shapes are the same everywhere:

====  ====================================================================================
G     graphs of a batch; ``ptr`` (G + 1): first row of each among the rows of all
N     rows of all graphs, concatenated: nodes, or the queries of a search
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

import lazy_loader

_public_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _public_name(name)
    except AttributeError as error:
        if name in __all__ or name.startswith("_"):
            raise
        from kmip_data.text import missing_attribute_message

        raise AttributeError(missing_attribute_message(__name__, name, __all__)) from error
