"""Base class of encodings that can be added to a build as columns, and parsing of their names."""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from kmip_data.arrays import I64, Array, Integers
from kmip_data.errors import Command, DamagedInput, UsageError, unknown_name_error
from kmip_data.format.schema import Column
from kmip_data.registry import import_modules_in, with_plugin_entries

MAX_PARAMETER = 1024  #: maximum number of eigenvectors or steps


@dataclass(frozen=True)
class ConcatenatedGraphs:
    """Edges of several graphs, concatenated."""

    node_ptr: I64  #: (G + 1,), first node of each graph
    edge_ptr: I64  #: (G + 1,), first edge of each graph
    edge_index: Integers  #: (2, ΣE), nodes numbered within each graph
    #: keys of the records, which seed random draws; if empty, their positions do
    keys: Sequence[str] = ()

    def edges_over_all_graphs(self) -> I64:
        """Return the edges with nodes numbered over all graphs, int64 (2, ΣE)."""
        first = np.repeat(self.node_ptr[:-1], np.diff(self.edge_ptr))
        return self.edge_index + first


@dataclass(frozen=True)
class Encoding(ABC):
    """One encoding with its parameter. Equal encodings have equal names.

    To be discovered, a subclass must be the ``ENCODING`` of a module in
    ``kmip_data.graphs.encodings``. An example without parameter:

    >>> class Degree(Encoding):
    ...     prefix = "degree"
    ...     help = "Number of out-edges of each node."
    ...     definition_template = "number of out-edges of each node"
    ...     def columns(self):
    ...         return (self.column("node", "degree", width=1, low=0.0),)
    ...     def compute(self, graphs, check):
    ...         sources, _ = graphs.edges_over_all_graphs()
    ...         degree = np.bincount(sources, minlength=graphs.node_ptr[-1])
    ...         return {"node/degree": degree[:, None].astype(np.float32)}
    >>> edges = np.array([[0, 0, 1], [1, 2, 2]])
    >>> ptr = np.array([0, 3])
    >>> graph = ConcatenatedGraphs(node_ptr=ptr, edge_ptr=ptr, edge_index=edges)
    >>> Degree().compute(graph, check=lambda: None)["node/degree"][:, 0].tolist()
    [2.0, 1.0, 0.0]
    """

    version: ClassVar[int] = 1  #: increment it whenever the bytes change
    prefix: ClassVar[str]  #: name without the parameter: ``rwse`` of ``rwse20``
    help: ClassVar[str]  #: line in the help of ``kmip-data encode``
    definition_template: ClassVar[str]  #: for the card; may contain ``{parameter}``
    #: letter for a parameter from 1 to :data:`MAX_PARAMETER` in the help, such as ``T`` of
    #: ``rwseT``; empty if the parameter is no number
    parameter_letter: ClassVar[str] = ""
    #: values of a parameter that is no number, default first
    parameter_choices: ClassVar[tuple[str, ...]] = ()
    seeded: ClassVar[bool] = False  #: True if ``-seedS`` may follow, up to 999,999,999
    #: peak memory for estimates, measured on streets (2.8 edges per node)
    bytes_per_node: ClassVar[int] = 250
    has_node_numbers: ClassVar[bool] = False  #: True if values are node numbers in the same graph
    note: ClassVar[str] = ""  #: note for the card if other machines may compute other bytes

    parameter: Any = ""

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse a name such as ``rwse20``; ``None`` if it belongs to another encoding."""
        if not name.startswith(cls.prefix):
            return None
        text = name.removeprefix(cls.prefix)
        if cls.parameter_letter:
            is_valid = re.fullmatch(r"[1-9]\d{0,3}", text) and int(text) <= MAX_PARAMETER
            return cls(int(text)) if is_valid else None
        return cls(text) if text in (cls.parameter_choices or ("",)) else None

    @property
    def name(self) -> str:
        """Name of the added column and its folder, for ``columns=[…]``."""
        return f"{self.prefix}{self.parameter}"

    @property
    def definition(self) -> str:
        """Definition for the card, in one sentence."""
        return self.definition_template.format(**vars(self))

    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """Return the columns that :meth:`compute` fills."""

    def column(self, level: str, attribute: str, width: int, **options: Any) -> Column:
        """Return a column of ``width`` values per row, float32 unless ``options`` override it."""
        options = {"stored": "float32", "presented": "float32", "doc": self.definition, **options}
        return Column(
            key=f"{level}/{attribute}",
            attribute=attribute,
            shape=(width,),
            **options,
        )

    @abstractmethod
    def compute(self, graphs: ConcatenatedGraphs, check: Callable[[], None]) -> dict[str, Array]:
        """Return the columns of ``graphs`` by key. Call ``check`` regularly: it raises to cancel."""


def check_edge_bounds(edge_index: Integers, num_nodes: int) -> None:
    """Raise ``DamagedInput`` if an edge (2, E) leads to a missing node: compiled code does not check."""
    if edge_index.size and (edge_index.min() < 0 or edge_index.max() >= num_nodes):
        raise DamagedInput(
            f"An edge leads to a missing node: {edge_index.min()} to {edge_index.max()}, "
            f"with {num_nodes} nodes."
        )


def known_encodings() -> tuple[type[Encoding], ...]:
    """Return all encoding classes, from ``kmip_data.graphs.encodings`` and from plugins."""
    return tuple(with_plugin_entries("encodings", _shipped_encodings()).values())


@functools.cache
def _shipped_encodings() -> dict[str, type[Encoding]]:
    from kmip_data.graphs import encodings

    return {module.ENCODING.prefix: module.ENCODING for module in import_modules_in(encodings)}


def parse_encoding(name: str) -> Encoding:
    """Parse the name of any encoding, such as ``rwse20``, ``lappe10`` or ``degree-profile-2.0``.

    Raises ``UsageError`` if no encoding has that name.
    """
    for encoding_class in known_encodings():
        if (encoding := encoding_class.parse(name)) is not None:
            return encoding
    known_names = []
    for encoding_class in known_encodings():
        example = "20" if encoding_class.parameter_letter else ""
        names = [
            encoding_class.prefix + parameter
            for parameter in encoding_class.parameter_choices or (example,)
        ]
        if name == encoding_class.prefix.rstrip("-"):
            error = UsageError(
                f"The encoding {name} needs {'a number' if encoding_class.parameter_letter else 'a version'}.",
                expected=" or ".join(names),
                steps=f"{names[0]} in place of {name}",
            )
            error.correction = (name, names[0])
            raise error
        known_names += names
    raise unknown_name_error(
        "encoding",
        name,
        known_names,
        command=[f"numbers go up to {MAX_PARAMETER:,}", Command("kmip-data encode --help")],
    )
