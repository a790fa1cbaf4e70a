"""Transforms of items: local degree profile and standardisation."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from kmip_data.format.card import Card
from kmip_data.graphs.encodings.degree_profile import Rule, local_degree_profile
from kmip_data.manifest import Standardisation


class LocalDegreeProfile(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Append the local degree profile to ``x``, which may be missing.

    ``rule`` is the version of PyTorch Geometric to follow, ``"2.0"`` or ``"2.8"``: see
    :func:`kmip_data.graphs.encodings.degree_profile.local_degree_profile`.
    """

    def __init__(self, rule: Rule = "2.0") -> None:
        self.rule = rule

    def forward(self, data: Data) -> Data:
        """Return ``data`` with five float32 columns appended to ``x``."""
        profile = torch.from_numpy(
            local_degree_profile(data.edge_index.numpy(), data.num_nodes, self.rule)
        )
        if data.x is None:
            data.x = profile
        else:
            data.x = torch.cat([data.x.view(len(profile), -1), profile], dim=-1)
        return data


class StandardiseFeatures(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Standardise ``x`` and ``edge_attr`` by the mean and deviation on a build's card."""

    def __init__(self, card: Card) -> None:
        self._constants = {}
        for name, key in (("x", "node/x"), ("edge_attr", "edge/attr")):
            constants = Standardisation.model_validate(card.statistics["standardisation"][key])
            mean = torch.tensor(constants.mean)
            self._constants[name] = mean, torch.tensor(constants.std)

    def forward(self, data: Data) -> Data:
        """Return ``data`` with both attributes standardised, float32."""
        for name, (mean, std) in self._constants.items():
            data[name] = (data[name] - mean) / std
        return data
