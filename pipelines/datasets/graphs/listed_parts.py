"""Parts of graphs, or of the nodes of a single graph, by lists such as ``train.txt`` next to the files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import NODE_ID, node_id_texts
from kmip_data.format.split_files import NO_PART
from kmip_data.pipelines.companion_files.part_lists import (
    ItemNames,
    add_part,
    listed_parts,
    refuse_unknown_names,
)
from kmip_data.pipelines.companion_files.table_texts import TableText
from kmip_data.pipelines.datasets.graphs.findings import Findings

_KEY = "graph/split"
_LIST_SUFFIXES = (".csv", ".json", ".tsv", ".txt")
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]+)\.0*")
_SEVERAL_CELLS = re.compile(r"[\s,;|]")
PartLists = Mapping[str, Mapping[str, Sequence[str]]]  #: file -> names in it, by part


def find_part_lists(folder: Path, files: Sequence[str]) -> PartLists:
    """Return the files that list parts; lines of several cells are rows of a table."""
    lists: dict[str, Mapping[str, Sequence[str]]] = {}
    for file in files:
        path = folder / file
        if path.suffix.lower() not in _LIST_SUFFIXES:
            continue
        text = TableText(file, path.name.partition(".")[0], path)
        parts = listed_parts(text)
        names = [*chain.from_iterable(parts.values())]
        if names and (text.is_json or not any(map(_SEVERAL_CELLS.search, names))):
            lists[file] = parts
    return lists if len(lists) < len(files) else {}


def add_listed_parts(
    graphs: Iterator[GraphRecord], lists: PartLists, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs with their part; the parts of a single graph's nodes are masks.

    Raises ``DamagedInput`` if the files have parts already, or if a list has an unknown name.
    """
    first = list(islice(graphs, 2))
    node_ids = first[0].columns.get(NODE_ID) if len(first) == 1 else None
    are_numbers = len(first) == 1 and (node_ids is None or node_ids.ndim == 1)

    def id_of(name: str) -> str:
        """Return a whole number in the notation of the ids, as in the tables; other names unchanged."""
        number = _WHOLE_NUMBER.fullmatch(name)
        return number[1] if are_numbers and number else name

    codes: dict[str, int] = {}
    for file, parts in lists.items():
        for part, listed in parts.items():
            add_part(codes, file, part, [*map(id_of, listed)])
    attributes = findings.attributes
    if attributes.masks is not None or attributes.part_keys:
        raise DamagedInput(
            f"{next(iter(lists))} and a column or masks give parts.",
            steps="keep one of both, and leave the other out of the folder",
        )
    used: set[str | None] = set()
    noun = "graph"
    if len(first) == 1:
        noun = "node"
        names = _names_of_nodes(first[0])
        used = {*names}
        attributes.masks = np.array([codes.get(name, NO_PART) for name in names], np.uint8)
        yield from first
    else:
        attributes.part_keys.append(_KEY)
        entries = ItemNames(codes)
        for graph in chain(first, graphs):
            entry = entries.find(graph.key)
            used.add(entry)
            code = np.array([codes.get(entry or "", NO_PART)], np.uint8)
            yield replace(graph, columns={**graph.columns, _KEY: code})
    for file, parts in lists.items():
        names = [*chain.from_iterable(parts.values())]
        unknown = [name for name in names if id_of(name) not in used]
        refuse_unknown_names(file, names, unknown, noun)


def _names_of_nodes(graph: GraphRecord) -> list[str]:
    """Return the id of each node as a text, or the number of its row."""
    ids = graph.columns.get(NODE_ID)
    if ids is None:
        return [*map(str, range(graph.num_nodes))]
    return node_id_texts(ids)
