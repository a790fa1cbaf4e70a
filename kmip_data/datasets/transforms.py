"""Transforms that go with the datasets."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from kmip_data.format.card import Card
from kmip_data.graphs.encodings.degree_profile import DegreeProfile, local_degree_profile
from kmip_data.manifest import Standardisation


class LocalDegreeProfile(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Transform that appends the local degree profile to ``x``, or makes it ``x``.

    Parameters
    ----------
    rule
        Of which PyTorch Geometric: ``"2.0"`` or ``"2.8"``, see
        :func:`kmip_data.graphs.encodings.degree_profile.local_degree_profile`.
    """

    def __init__(self, rule: DegreeProfile = "2.0") -> None:
        self.rule = rule

    def forward(self, data: Data) -> Data:
        """Return ``data`` with five more columns of ``x``, float32."""
        profile = local_degree_profile(data.edge_index.numpy(), data.num_nodes, self.rule)
        x = torch.from_numpy(profile)
        data.x = x if data.x is None else torch.cat([data.x.view(len(x), -1), x], dim=-1)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rule!r})"


class Standardise(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Transform that takes the mean from ``x`` and ``edge_attr`` and divides by the deviation.

    It is given the constants of each column; ``None`` leaves the attribute as it is.
    """

    def __init__(self, x: Standardisation | None = None, edge_attr: Standardisation | None = None) -> None:
        self._constants = {
            name: (torch.tensor(constants.mean), torch.tensor(constants.std))
            for name, constants in (("x", x), ("edge_attr", edge_attr))
            if constants is not None
        }

    @classmethod
    def of(cls, card: Card) -> Standardise:
        """Return the one with the constants of a build: its card's, not the manifest's of today."""
        found = card.statistics["standardisation"]
        constants = {key: Standardisation.model_validate(value) for key, value in found.items()}
        return cls(constants.get("node/x"), constants.get("edge/attr"))

    def forward(self, data: Data) -> Data:
        """Return ``data`` with the attributes standardised, float32."""
        for name, (mean, std) in self._constants.items():
            data[name] = (data[name] - mean) / std
        return data
