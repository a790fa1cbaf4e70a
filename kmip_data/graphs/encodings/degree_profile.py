"""Local degree profile: five numbers of the degrees around a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from kmip_data.format.schema import Column
from kmip_data.graphs.degree_profile import FIELDS, local_degree_profile
from kmip_data.graphs.encoding import Encoding, Graphs


class Profile(Encoding):
    """The local degree profile by one of its two rules."""

    stem = "degree-profile-"
    choices = ("2.0", "2.8")
    help = "Local degree profile, by the rule of that PyTorch Geometric.  [default rule: 2.0]"

    @property
    def definition(self) -> str:
        """For the card."""
        return f"local degree profile as PyTorch Geometric {self.parameter} has it"

    def columns(self) -> tuple[Column, ...]:
        """``degree_profile`` (N, 5)."""
        return (self.column("node", "degree_profile", len(FIELDS), fields=FIELDS, low=0.0),)

    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, NDArray[Any]]:
        """All graphs at once."""
        check()
        profile = local_degree_profile(graphs.joined(), int(graphs.node_ptr[-1]), self.parameter)
        return {"node/degree_profile": profile}


ENCODING = Profile
