"""What an encoding that can be added to a build is: its name, its columns, how it is computed."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column

MOST: Final = 1024  #: eigenvectors or steps
MOST_SEED: Final = 999_999_999


@dataclass(frozen=True)
class Graphs:
    """The edges of some graphs, one after the other."""

    node_ptr: NDArray[np.int64]  #: (G + 1,), where the nodes of each begin
    edge_ptr: NDArray[np.int64]  #: (G + 1,), likewise its edges
    edge_index: NDArray[np.integer[Any]]  #: (2, ΣE), nodes numbered inside each graph
    keys: Sequence[str] = ()  #: of the records, for what is drawn at random; else their numbers are taken

    def joined(self) -> NDArray[np.int64]:
        """Edges with nodes numbered over all graphs, int64 (2, ΣE)."""
        first = np.repeat(self.node_ptr[:-1], np.diff(self.edge_ptr))
        return self.edge_index + first


@dataclass(frozen=True)
class Encoding(ABC):
    """One encoding with its parameter. Equal encodings have equal names.

    A subclass is one module of ``kmip_data.graphs.encodings``, named by ``ENCODING``, and found by being
    there.
    """

    version: ClassVar[int] = 1  #: raise it whenever the bytes change
    stem: ClassVar[str]  #: of its name, before the parameter; and of its flag of ``kmip-data encode``
    help: ClassVar[str]  #: of that flag
    about: ClassVar[str]  #: one sentence for the card, with ``{parameter}`` where that belongs
    metavar: ClassVar[str] = ""  #: letter for a parameter that is a number, from 1 to :data:`MOST`
    choices: ClassVar[tuple[str, ...]] = ()  #: of a parameter that is not a number, the usual one first
    seeded: ClassVar[bool] = False  #: whether ``-seedS`` may follow in its name, up to :data:`MOST_SEED`
    names_nodes: ClassVar[bool] = False  #: whether its values are numbers of nodes of the same graph

    parameter: Any

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Make it from a name; None where the name is another's."""
        text = name.removeprefix(cls.stem)
        number = not cls.choices and re.fullmatch(r"[1-9]\d{0,3}", text) and int(text) <= MOST
        fits = text != name and (number or text in cls.choices)
        return cls(int(text) if number else text) if fits else None

    @property
    def name(self) -> str:
        """Name of the added column: its folder, and what ``columns=[…]`` takes."""
        return f"{self.stem}{self.parameter}"

    @property
    def definition(self) -> str:
        """One sentence for the card: :attr:`about` with the parameter filled in."""
        return self.about.format(**vars(self))

    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The arrays it fills."""

    def column(self, level: str, attribute: str, width: int, **more: Any) -> Column:
        """Describe values, ``width`` of each node or graph; float32 unless ``more`` says so."""
        more = {"stored": "float32", "presented": "float32", "doc": self.definition, **more}
        return Column(key=f"{level}/{attribute}", attribute=attribute, shape=(width,), **more)

    @abstractmethod
    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, NDArray[Any]]:
        """Fill the columns for some graphs; ``check`` is called now and then, to stop by an exception."""


def check_edges(edge_index: NDArray[np.integer[Any]], num_nodes: int) -> None:
    """Raise DamagedInput if an edge leads to a node that is not there."""
    if edge_index.size and (edge_index.min() < 0 or edge_index.max() >= num_nodes):
        raise DamagedInput(
            "An edge leads to a node that is not there.",
            expected=f"nodes 0 to {num_nodes - 1}",
            found=f"{edge_index.min()} to {edge_index.max()}",
        )
