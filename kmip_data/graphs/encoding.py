"""Base class of the encodings that can be added to a build as columns, and the encoding of a name."""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from kmip_data.arrays import I64, Array, Integers
from kmip_data.errors import DamagedInput, UsageError, unknown_name_error
from kmip_data.format.schema import Column
from kmip_data.registry import import_modules_in, with_plugin_entries

MAX_NUMBER = 1024  #: eigenvectors or steps


@dataclass(frozen=True)
class Graphs:
    """The edges of several graphs, one after the other."""

    node_ptr: I64  #: (G + 1,), first node of each graph
    edge_ptr: I64  #: (G + 1,), first edge of each graph
    edge_index: Integers  #: (2, ΣE), nodes numbered within each graph
    #: Keys of the records, which seed random draws; without keys their positions do
    keys: Sequence[str] = ()

    def joined_edges(self) -> I64:
        """Return the edges with nodes numbered over all graphs, int64 (2, ΣE)."""
        first = np.repeat(self.node_ptr[:-1], np.diff(self.edge_ptr))
        return self.edge_index + first


@dataclass(frozen=True)
class Encoding(ABC):
    """One encoding with its parameter. Equal encodings have equal names.

    A subclass is ``ENCODING`` of a module in ``kmip_data.graphs.encodings``, where it is
    discovered.
    """

    version: ClassVar[int] = 1  #: raise it whenever the bytes change
    stem: ClassVar[str]  #: beginning of its name
    help: ClassVar[str]  #: its line in the help of ``kmip-data encode``
    about: ClassVar[str]  #: one sentence for the card, with ``{parameter}`` as placeholder
    #: letter for a numeric parameter, from 1 to :data:`MAX_NUMBER`; empty: none
    metavar: ClassVar[str] = ""
    choices: ClassVar[tuple[str, ...]] = ()  #: values of another parameter, the default first
    seeded: ClassVar[bool] = False  #: True if ``-seedS`` may follow, up to 999,999,999
    #: Peak memory, measured on streets (2.8 edges a node), for a forecast
    bytes_a_node: ClassVar[int] = 250
    names_nodes: ClassVar[bool] = False  #: True if its values are node numbers in the same graph
    note: ClassVar[str] = ""  #: for the card: where another machine may give other bytes

    parameter: Any = ""

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the encoding of a name; ``None`` for the name of another encoding."""
        if not name.startswith(cls.stem):
            return None
        text = name.removeprefix(cls.stem)
        if cls.metavar:
            fits = re.fullmatch(r"[1-9]\d{0,3}", text) and int(text) <= MAX_NUMBER
            return cls(int(text)) if fits else None
        return cls(text) if text in (cls.choices or ("",)) else None

    @property
    def name(self) -> str:
        """Name of the added column, in its folder and in ``columns=[…]``."""
        return f"{self.stem}{self.parameter}"

    @property
    def definition(self) -> str:
        """One sentence for the card."""
        return self.about.format(**vars(self))

    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """Return the columns that it fills."""

    def column(self, level: str, attribute: str, width: int, **more: Any) -> Column:
        """Return the column of ``width`` values per node or graph, float32 unless ``more`` overrides it."""
        more = {"stored": "float32", "presented": "float32", "doc": self.definition, **more}
        return Column(
            key=f"{level}/{attribute}",
            attribute=attribute,
            shape=(width,),
            **more,
        )

    @abstractmethod
    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, Array]:
        """Fill the columns for some graphs; ``check`` is called regularly and may raise to stop."""


def check_edge_bounds(edge_index: Integers, num_nodes: int) -> None:
    """Raise DamagedInput if an edge (2, E) leads to a missing node: compiled code does not check."""
    if edge_index.size and (edge_index.min() < 0 or edge_index.max() >= num_nodes):
        raise DamagedInput(
            f"An edge leads to a missing node: {edge_index.min()} to {edge_index.max()}, "
            f"with {num_nodes} nodes."
        )


def known_encodings() -> tuple[type[Encoding], ...]:
    """Return the encodings, one per module of ``kmip_data.graphs.encodings``, and plugins' encodings."""
    return tuple(with_plugin_entries("encodings", _shipped_encodings()).values())


@functools.cache
def _shipped_encodings() -> dict[str, type[Encoding]]:
    from kmip_data.graphs import encodings

    return {module.ENCODING.stem: module.ENCODING for module in import_modules_in(encodings)}


def parse_encoding(name: str) -> Encoding:
    """Return the encoding of a name such as ``rwse20``, ``lappe10`` or ``degree-profile-2.0``.

    Raises ``UsageError`` if no encoding has that name.
    """
    for encoding_class in known_encodings():
        if (encoding := encoding_class.parse(name)) is not None:
            return encoding
    known = []
    for encoding_class in known_encodings():
        example = "20" if encoding_class.metavar else ""
        names = [
            encoding_class.stem + parameter for parameter in encoding_class.choices or (example,)
        ]
        if name == encoding_class.stem.rstrip("-"):
            error = UsageError(
                f"The encoding {name} needs {'a number' if encoding_class.metavar else 'a version'}.",
                expected=" or ".join(names),
                next=f"{names[0]} in place of {name}",
            )
            error.correction = (name, names[0])
            raise error
        known += names
    raise unknown_name_error(
        "encoding",
        name,
        known,
        command=f"kmip-data encode --help; numbers go up to {MAX_NUMBER:,}",
    )
