"""Interface of a file format for your own graphs: recognise the files, and read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.text import list_names

#: Parameters of every format: targets and the choice of graphs.
COMMON_PARAMETERS = frozenset({"class_name", "label", "limit", "task"})


class GraphReader(Protocol):
    """Reader of one file format."""

    def __call__(
        self, folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
    ) -> Iterator[GraphRecord]:
        """Yield the graphs of all ``files`` in ``folder``; complete ``findings`` by the last graph.

        Keys of columns begin with ``node/``, ``edge/`` or ``graph/``: a row for each node, for each
        edge, or for the graph. A name without a level is an attribute, whose level is inferred from
        its rows in all graphs. Columns of bytes begin with ``text/``, and are read only by the format.
        The files are read once, and graphs are written to a spool; an array must not change after
        its graph was yielded.

        Call ``options.check_memory`` with the peak memory of reading, in bytes, before allocating: the
        bytes of a large array, or the file's size times the bytes that its parser takes for each.
        ``_BYTES_PER_FILE_BYTE`` of ``networkx_files.py`` is such a factor.

        Raises ``DamagedInput`` with file and line if the files are not valid graphs.
        """


def refuse_several_folders(files: Sequence[str]) -> None:
    """Refuse files in several folders that are no graph each: they may be several datasets."""
    folders = dict.fromkeys(file.partition("/")[0] for file in files)
    if len(folders) > 1 and all("/" in file for file in files):
        raise DamagedInput(
            f"The files lie in {len(folders)} folders, which may be a dataset each: {list_names(folders)}.",
            steps="use one of these folders, or move the files of one dataset into one folder",
        )


@dataclass(frozen=True)
class GraphFormat:
    """File format with its reader."""

    name: str  #: plural noun for messages, such as ``tables of edges``
    expected: str  #: description of the files, for the error about unknown formats
    #: True if files, given by name with their first bytes (decompressed), have this format.
    recognises: Callable[[Mapping[str, bytes], GraphParams], bool]
    read: GraphReader
    #: Fields of ``GraphParams`` that can change what is built; any other that is given is refused.
    parameters: frozenset[str]
