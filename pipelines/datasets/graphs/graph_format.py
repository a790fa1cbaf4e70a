"""Interface of a file format of your own graphs: recognise the files, then read them graph by graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams


class GraphReader(Protocol):
    """Reader of one file format."""

    def __call__(
        self, folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
    ) -> Iterator[GraphRecord]:
        """Yield the graphs of all ``files`` in ``folder``, and complete ``findings`` on the way.

        Columns of a record are called ``node/…``, ``edge/…`` and ``graph/…``, with a row for each
        node, for each edge, and for the graph. The same files give the same graphs in the same
        order: they are read once for the schema, and again for each shard, up to its last graph.

        Raises ``DamagedInput``, with file and line, for anything that is not a graph.
        """


@dataclass(frozen=True)
class GraphFormat:
    """File format: what it expects, how it is recognised, and its reader."""

    expected: str  #: files of the format, for the error about unknown files
    #: True for names of files -> their first bytes, decompressed, if the files are of this format.
    recognises: Callable[[Mapping[str, bytes], GraphParams], bool]
    read: GraphReader
