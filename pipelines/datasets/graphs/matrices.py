"""Matrix Market files (``.mtx``): the adjacency matrix of a graph each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.arrays import edges_of
from kmip_data.pipelines.datasets.graphs.tables import Facts, GraphParams
from kmip_data.pipelines.shared.checks import check_edges

WANTS = ".mtx of Matrix Market"
_BYTES_OF_ENTRY = (
    48  #: memory for each stored entry: both halves of a symmetric matrix, and its edges
)


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if all files begin with the banner of the format."""
    return all(head.startswith(b"%%MatrixMarket") for head in heads.values())


def read(folder: Path, files: Sequence[str], facts: Facts) -> Iterator[GraphRecord]:
    """Yield the graph of each file; a symmetric matrix has each edge in both directions."""
    from scipy import io, sparse

    for file in files:
        try:
            rows, columns, entries, _, values, _ = io.mminfo(folder / file)
            if rows != columns or values == "complex":
                raise ValueError(f"{rows:,} x {columns:,} {values} values")  # noqa: TRY301
            facts.claim(_BYTES_OF_ENTRY * entries + 8 * rows, file)
            matrix = sparse.coo_array(io.mmread(folder / file, spmatrix=False))
        except (ValueError, OverflowError, TypeError, OSError) as error:
            raise DamagedInput(
                f"{file} is no adjacency matrix: {error}.", expected=WANTS
            ) from error
        edges, weights = edges_of(matrix)
        check_edges(edges, rows, file)
        key = str(Path(file).with_suffix(""))
        yield GraphRecord(
            key=key, num_nodes=rows, columns=weights, edge_index=edges.astype(np.int64)
        )
