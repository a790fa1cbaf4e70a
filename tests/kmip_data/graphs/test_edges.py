"""Functions of edges refuse those that lead to nodes that are not there: compiled code does not look."""

from __future__ import annotations

import numpy as np
import pytest
from support.cases import Cases

from kmip_data.errors import DamagedInput
from kmip_data.graphs.encodings.degree_profile import local_degree_profile
from kmip_data.graphs.encodings.lappe import laplacian_encoding
from kmip_data.graphs.encodings.rwse import random_walk_encoding


def test_edges_that_lead_nowhere():
    with Cases() as cases:
        for function in [local_degree_profile, laplacian_encoding, random_walk_encoding]:
            for node in [-1, 3, 2**40]:
                for row in [0, 1]:
                    with cases(f"{function!r} {node!r} {row!r}"):
                        edges = np.array([[0, 1, 2], [1, 2, 0]])
                        function(edges, 3)
                        edges[row, 1] = node
                        with pytest.raises(DamagedInput, match="missing node"):
                            function(edges, 3)
