"""What the pipelines of molecules share: their parameters, columns, and how a SMILES becomes a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from numpy.typing import NDArray
from pydantic import Field

from kmip_data.format.record import GraphRecord, Skipped
from kmip_data.format.schema import Column
from kmip_data.pipelines.base import Params
from kmip_data.pipelines.molecules.features import (
    ATOM_FIELDS,
    ATOM_SIZES,
    BOND_FIELDS,
    BOND_SIZES,
    Molecule,
    RefusedSmilesError,
    refused,
)

KEY_LENGTH = 8  #: digits of a row number


class MoleculeParams(Params):
    """Parameters of graphs made from SMILES."""

    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="a SMILES that RDKit refuses: stop, or skip the record and list it on the card",
    )


def molecule_columns() -> tuple[Column, Column]:
    """``x`` and ``edge_attr``: indices into lists of known values, one byte each."""
    atoms = Column(
        key="node/x",
        attribute="x",
        stored="uint8",
        presented="int64",
        shape=(len(ATOM_FIELDS),),
        fields=ATOM_FIELDS,
        low=0,
        high=max(ATOM_SIZES) - 1,
        doc="features of the Open Graph Benchmark, each an index",
    )
    bonds = Column(
        key="edge/attr",
        attribute="edge_attr",
        stored="uint8",
        presented="int64",
        shape=(len(BOND_FIELDS),),
        fields=BOND_FIELDS,
        low=0,
        high=max(BOND_SIZES) - 1,
        doc="features of the Open Graph Benchmark, each an index",
    )
    return atoms, bonds


def row_key(row: int) -> str:
    """Key of the record of a row."""
    return f"{row:06d}"


def as_record(key: str, molecule: Molecule, more: Mapping[str, NDArray[Any]]) -> GraphRecord:
    """Return the record of a molecule; ``more`` are its columns besides those of :func:`molecule_columns`."""
    return GraphRecord(
        key=key,
        num_nodes=len(molecule.x),
        columns={"node/x": molecule.x, "edge/attr": molecule.edge_attr, **more},
        edge_index=molecule.edge_index,
    )


def record_or_skip(
    key: str, smiles: str, make: Callable[[], GraphRecord], params: MoleculeParams, dataset: str
) -> GraphRecord | Skipped:
    """Return what ``make`` makes of a SMILES, or that it is left out.

    Raises
    ------
    DamagedInput
        It raised :class:`~kmip_data.pipelines.molecules.features.RefusedSmilesError`, and ``params.on_error``
        is ``stop``.
    """
    try:
        return make()
    except RefusedSmilesError as error:
        if params.on_error == "skip":
            return Skipped(key, f"{smiles[:80]}: {error}")
        raise refused(key, smiles, error, dataset) from error


def deal_rows(chosen: Sequence[int], per_unit: int) -> list[list[int]]:
    """Cut rows into runs of ``per_unit``."""
    return [list(chosen[at : at + per_unit]) for at in range(0, len(chosen), per_unit)]
