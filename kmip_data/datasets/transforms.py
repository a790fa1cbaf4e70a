"""Transforms of items: local degree profile, and standardised features."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from kmip_data.format.card import Card
from kmip_data.graphs.encodings.degree_profile import Rule, local_degree_profile
from kmip_data.manifest import Standardisation


class LocalDegreeProfile(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Append the local degree profile to ``x``, or replace ``x`` by it.

    ``rule`` is the version of PyTorch Geometric to follow, ``"2.0"`` or ``"2.8"``: see
    :func:`kmip_data.graphs.encodings.degree_profile.local_degree_profile`.
    """

    def __init__(self, rule: Rule = "2.0") -> None:
        self.rule = rule

    def forward(self, data: Data) -> Data:
        """Return ``data`` with five more columns of ``x``, float32."""
        x = torch.from_numpy(
            local_degree_profile(data.edge_index.numpy(), data.num_nodes, self.rule)
        )
        data.x = x if data.x is None else torch.cat([data.x.view(len(x), -1), x], dim=-1)
        return data


class Standardise(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Transform that standardises ``x`` and ``edge_attr`` by the constants on the card of a build."""

    def __init__(self, card: Card) -> None:
        self._constants = {}
        for name, key in (("x", "node/x"), ("edge_attr", "edge/attr")):
            constants = Standardisation.model_validate(card.statistics["standardisation"][key])
            mean = torch.tensor(constants.mean)
            self._constants[name] = mean, torch.tensor(constants.std)

    def forward(self, data: Data) -> Data:
        """Return ``data`` with the attributes standardised, float32."""
        for name, (mean, std) in self._constants.items():
            data[name] = (data[name] - mean) / std
        return data
