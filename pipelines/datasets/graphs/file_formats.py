"""Registry of the file formats for your own graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kmip_data.columns.column_roles import DESCRIPTION_NAME
from kmip_data.errors import Command, DamagedInput, Step
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat, refuse_several_folders
from kmip_data.pipelines.datasets.graphs.listed_parts import (
    PartLists,
    add_listed_parts,
    find_part_lists,
)
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import OTHER_FORMATS_REMEDY, GraphParams
from kmip_data.pipelines.datasets.graphs.readers import (
    array_files,
    networkx_files,
    planetoid_files,
    smiles_tables,
    torch_files,
    tudataset_files,
)
from kmip_data.pipelines.own import format as own_tables
from kmip_data.pipelines.own.files import head_of_table

#: Formats in the order in which they are tried; the first that recognises the files reads them.
FORMATS = (
    planetoid_files.FORMAT,
    torch_files.FORMAT,
    array_files.FORMAT,
    networkx_files.FORMAT,
    tudataset_files.FORMAT,
    smiles_tables.FORMAT,
    own_tables.FORMAT,
)
#: Formats of texts that have no names of files for the parts of a split.
_FORMATS_OF_TEXTS = (networkx_files.FORMAT, smiles_tables.FORMAT, own_tables.FORMAT)
#: Formats whose files may lie in several folders, a graph each. Tables check this.
_FORMATS_OF_FOLDERS = (networkx_files.FORMAT, own_tables.FORMAT)


def read_graphs(
    folder: Path, members: Sequence[str], options: ReadOptions
) -> tuple[Findings, Iterator[GraphRecord]]:
    """Return the graphs of raw files, and findings that are complete after the last graph.

    Raises ``DamagedInput`` for an unknown format, and ``OutOfResources`` if the files need more
    memory than allowed.
    """
    files = [name for name in members if name != DESCRIPTION_NAME]
    heads = {name: head_of_table(folder / name, options.memory) for name in files}
    file_format = _find_format(heads, options)
    lists: PartLists = {}
    if file_format in _FORMATS_OF_TEXTS:
        lists = find_part_lists(folder, files)
        files = [name for name in files if name not in lists]
        file_format = _find_format({name: heads[name] for name in files}, options)
    if file_format is None:
        raise _unknown_format_error(heads)
    if file_format not in _FORMATS_OF_FOLDERS:
        refuse_several_folders(files)
    unread = GraphParams.model_fields.keys() - file_format.parameters
    reason = f"{file_format.name} are read without it"
    options.refuse_unread(dict.fromkeys(sorted(unread), reason))
    findings = Findings()
    graphs = file_format.read(folder, files, options, findings)
    return findings, add_listed_parts(graphs, lists, findings) if lists else graphs


def _find_format(heads: Mapping[str, bytes], options: ReadOptions) -> GraphFormat | None:
    """Return the format of files with these first bytes; ``None`` if it is unknown."""
    # A described column of SMILES settles the format.
    described = options.described
    if described is not None and any(column.use == "smiles" for column in described.columns):
        return smiles_tables.FORMAT
    for file_format in FORMATS:
        if file_format.recognises(heads, options.params):
            return file_format
    return None


def _unknown_format_error(heads: Mapping[str, bytes]) -> DamagedInput:
    """Return the error for files that no format recognises."""
    steps: list[Step] = [OTHER_FORMATS_REMEDY]
    if any(name.lower().endswith(".bin") for name in heads):
        words = "kmip-data build points --name NAME --archive PATH --set bin=COLUMNS"
        steps = [
            "a graph of DGL: torch.save(torch_geometric.utils.from_dgl(graph), 'graph.pt')",
            "a laser scan: build points",
            Command(*words.split()),
        ]
    shown = [f"{name} begins with {head[:24]!r}" for name, head in heads.items()]
    return DamagedInput(
        "The files are not graphs in a known format.",
        expected="; or ".join(file_format.expected for file_format in FORMATS),
        found="; ".join(shown[:4]),
        steps=steps,
    )
