"""What the pipelines of molecules share: their parameters, columns and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from numpy.typing import NDArray
from pydantic import Field

from kmip_data.format.record import GraphRecord
from kmip_data.format.schema import Column
from kmip_data.pipelines.base import Params
from kmip_data.pipelines.molecules.features import (
    ATOM_FIELDS,
    ATOM_SIZES,
    BOND_FIELDS,
    BOND_SIZES,
    Molecule,
)
from kmip_data.pipelines.shared.columns import index_column


class MoleculeParams(Params):
    """Parameters of graphs made from SMILES."""

    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="a SMILES that RDKit refuses: stop, or skip the record and list it on the card",
    )


def molecule_columns() -> tuple[Column, Column]:
    """``x`` and ``edge_attr``: indices into lists of known values, one byte each."""
    doc = "features of the Open Graph Benchmark, each an index"
    return (
        index_column("node/x", ATOM_FIELDS, max(ATOM_SIZES) - 1, doc),
        index_column("edge/attr", BOND_FIELDS, max(BOND_SIZES) - 1, doc),
    )


def as_record(key: str, molecule: Molecule, more: Mapping[str, NDArray[Any]]) -> GraphRecord:
    """Return the record of a molecule; ``more`` are its columns besides those of :func:`molecule_columns`."""
    return GraphRecord(
        key=key,
        num_nodes=len(molecule.x),
        columns={"node/x": molecule.x, "edge/attr": molecule.edge_attr, **more},
        edge_index=molecule.edge_index,
    )
