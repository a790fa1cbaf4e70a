"""The encodings that can be added to a build, by name: what they compute and the columns they fill."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import UsageError
from kmip_data.graphs.degree_profile import FIELDS, DegreeProfile, local_degree_profile
from kmip_data.graphs.laplacian import laplacian_encoding
from kmip_data.graphs.random_walk import random_walk_encoding
from kmip_data.schema import Column

MOST: Final = 1024  #: eigenvectors or steps


@dataclass(frozen=True)
class Graphs:
    """The edges of some graphs, one after the other.

    Attributes
    ----------
    node_ptr, edge_ptr
        int64 (G + 1), where the nodes and edges of each begin.
    edge_index
        (2, ΣE), nodes numbered inside each graph.
    """

    node_ptr: NDArray[np.int64]
    edge_ptr: NDArray[np.int64]
    edge_index: NDArray[np.integer[Any]]

    def joined(self) -> NDArray[np.int64]:
        """Edges with nodes numbered over all graphs, int64 (2, ΣE)."""
        first = np.repeat(self.node_ptr[:-1], np.diff(self.edge_ptr))
        return self.edge_index + first


class Encoding(ABC):
    """One encoding with its parameter. Equal encodings have equal names."""

    version: ClassVar[int] = 1  #: raise it whenever the bytes change

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the added column: its folder, and what ``columns=[…]`` takes."""

    @property
    @abstractmethod
    def definition(self) -> str:
        """One sentence for the card."""

    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The arrays it fills."""

    @abstractmethod
    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, NDArray[Any]]:
        """Fill the columns for some graphs; ``check`` is called now and then, to stop by an exception."""


@dataclass(frozen=True)
class RandomWalk(Encoding):
    """RWSE: return probabilities of ``steps`` steps of a random walk."""

    steps: int

    @property
    def name(self) -> str:
        """``rwse20``."""
        return f"rwse{self.steps}"

    @property
    def definition(self) -> str:
        """For the card."""
        return f"diagonals of P, P², … to the power {self.steps}; P = D⁻¹A of the stored edges"

    def columns(self) -> tuple[Column, ...]:
        """``rwse`` (N, T)."""
        return (
            Column(
                key="node/rwse",
                attribute="rwse",
                stored="float32",
                presented="float32",
                shape=(self.steps,),
                doc=self.definition,
                low=0.0,
            ),
        )

    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, NDArray[Any]]:
        """All graphs at once: they are one graph of several components."""
        check()
        nodes = int(graphs.node_ptr[-1])
        return {
            "node/rwse": random_walk_encoding(graphs.joined(), nodes, self.steps, node_ptr=graphs.node_ptr)
        }


@dataclass(frozen=True)
class Laplacian(Encoding):
    """LapPE: the ``count`` smallest eigenpairs of the Laplacian."""

    count: int

    @property
    def name(self) -> str:
        """``lappe10``."""
        return f"lappe{self.count}"

    @property
    def definition(self) -> str:
        """For the card."""
        return (
            f"{self.count} smallest eigenpairs of D - A of the simple, undirected graph, "
            "the trivial one among them; NaN where there are fewer; the largest entry of a vector is positive"
        )

    def columns(self) -> tuple[Column, ...]:
        """``lappe_vectors`` (N, K), and ``lappe_values`` (K) a graph."""
        wanted: dict[str, Any] = {
            "stored": "float32",
            "presented": "float32",
            "shape": (self.count,),
            "finite": False,
            "doc": self.definition,
        }
        return (
            Column(key="graph/lappe_values", attribute="lappe_values", low=0.0, **wanted),
            Column(key="node/lappe_vectors", attribute="lappe_vectors", low=-1.0001, high=1.0001, **wanted),
        )

    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, NDArray[Any]]:
        """Graph by graph."""
        values = np.empty((len(graphs.node_ptr) - 1, self.count), np.float32)
        vectors = np.empty((int(graphs.node_ptr[-1]), self.count), np.float32)
        ends = zip(pairwise(graphs.node_ptr.tolist()), pairwise(graphs.edge_ptr.tolist()), strict=True)
        for g, ((a, b), (start, stop)) in enumerate(ends):
            check()
            edges = graphs.edge_index[:, start:stop]
            values[g], vectors[a:b] = laplacian_encoding(edges, b - a, self.count)
        return {"graph/lappe_values": values, "node/lappe_vectors": vectors}


@dataclass(frozen=True)
class Profile(Encoding):
    """The local degree profile by one of its two rules."""

    rule: DegreeProfile = "2.0"

    @property
    def name(self) -> str:
        """``degree-profile-2.0``."""
        return f"degree-profile-{self.rule}"

    @property
    def definition(self) -> str:
        """For the card."""
        return f"local degree profile as PyTorch Geometric {self.rule} has it"

    def columns(self) -> tuple[Column, ...]:
        """``degree_profile`` (N, 5)."""
        return (
            Column(
                key="node/degree_profile",
                attribute="degree_profile",
                stored="float32",
                presented="float32",
                shape=(len(FIELDS),),
                fields=FIELDS,
                doc=self.definition,
                low=0.0,
            ),
        )

    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, NDArray[Any]]:
        """All graphs at once."""
        check()
        profile = local_degree_profile(graphs.joined(), int(graphs.node_ptr[-1]), self.rule)
        return {"node/degree_profile": profile}


_NAMES: Final[Mapping[str, Callable[[str], Encoding]]] = {
    r"rwse([1-9]\d{0,3})": lambda steps: RandomWalk(int(steps)),
    r"lappe([1-9]\d{0,3})": lambda count: Laplacian(int(count)),
    r"degree-profile-(2\.[08])": lambda rule: Profile("2.0" if rule == "2.0" else "2.8"),
}


def parse_encoding(name: str) -> Encoding:
    """Return the encoding of a name such as ``rwse20``, ``lappe10`` or ``degree-profile-2.0``.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    for pattern, make in _NAMES.items():
        if (match := re.fullmatch(pattern, name)) is not None:
            encoding = make(match[1])
            if max(column.shape[0] for column in encoding.columns()) <= MOST:
                return encoding
    raise UsageError(
        f"There is no encoding called {name!r}.",
        expected=f"rwseT, lappeK (T, K from 1 to {MOST}), degree-profile-2.0 or degree-profile-2.8",
        found=repr(name),
        left="nothing was changed",
        next="kmip-data encode --help",
    )
