"""k-MIP search and attention, GPS networks, and what trains, compares and analyses them.

Public names are imported on first use: ``from kmip_data.models import KMIPAttention`` loads torch,
``import kmip_data.models`` does not.

All modules use the same letters in shapes:

====  ====================================================================================
G     graphs in a batch; ``ptr`` (G + 1) holds the first row of each graph, then N
N     rows of all graphs, concatenated: nodes, or the queries of a search
M     key rows, if there are separate keys
E     edges; a neighbour table (N, k) stores k sources per node
H     attention heads
d, v  channels of a node, edge, query or key; channels of a value
k     keys per query
C     classes or targets
W     nodes of the largest graph, to which the others are padded
R, B  rows per block, and number of blocks
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
