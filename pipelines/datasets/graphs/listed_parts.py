"""Parts of graphs, or of the nodes of a single graph, by lists such as ``train.txt`` next to the files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from kmip_data.columns.part_masks import part_code
from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import NODE_ID, node_id_texts
from kmip_data.pipelines.companion_files.part_lists import ListedParts, PartList
from kmip_data.pipelines.datasets.graphs.findings import Findings

_KEY = "graph/split"
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]+)\.0*")


def add_listed_parts(
    graphs: Iterator[GraphRecord], lists: Sequence[PartList], findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs with their part; the parts of a single graph's nodes are masks.

    Raises ``DamagedInput`` if the files have parts already, or if a list has an unknown name.
    """
    first = list(islice(graphs, 2))
    attributes = findings.attributes
    if attributes.masks is not None or attributes.part_keys:
        raise DamagedInput(
            f"{lists[0].file} and a column or masks give parts.",
            steps="keep one of both, and leave the other out of the folder",
        )
    if len(first) == 1:
        ids = first[0].columns.get(NODE_ID)
        are_numbers = ids is None or ids.ndim == 1
        parts = ListedParts(lists, _whole_number if are_numbers else str, are_paths=False)
        names = range(first[0].num_nodes) if ids is None else node_id_texts(ids)
        attributes.masks = np.array([part_code(parts.part(str(name))) for name in names], np.uint8)
        yield from first
    else:
        parts = ListedParts(lists)
        attributes.part_keys.append(_KEY)
        for graph in chain(first, graphs):
            code = np.array([part_code(parts.part(graph.key))], np.uint8)
            yield replace(graph, columns={**graph.columns, _KEY: code})
    parts.refuse_unknown_names("node" if len(first) == 1 else "graph")


def _whole_number(name: str) -> str:
    """Return a whole number in the notation of ids; other names unchanged."""
    number = _WHOLE_NUMBER.fullmatch(name)
    return number[1] if number else name
