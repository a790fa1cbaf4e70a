"""MalNet-Tiny: function call graphs of five types of Android apps, without features.

Raw layout: ``<type>/<family>/<SHA-256>.edgelist``, with five comment lines and one directed edge per
line, and ``type/{train,val,test}.txt``, with the path of one graph per line. Facts and deviations:
``docs/datasets/malnet-tiny.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import I32
from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.base import (
    Pipeline,
    Prepared,
    RawCopy,
    RecordTable,
    Split,
    Unit,
    require_raw,
)
from kmip_data.pipelines.common_columns import class_column
from kmip_data.pipelines.formats.text import parse_edges, read_lines
from kmip_data.pipelines.parameters import BuildParams, PublishedSplitParams
from kmip_data.pipelines.units_and_splits import split_from_lists, units_by_size

LABEL_ORDERS = {
    "alphabetical": ("addisplay", "adware", "benign", "downloader", "trojan"),
    "first-seen": ("adware", "benign", "downloader", "trojan", "addisplay"),
}
EDGE_LIST_BYTES_PER_UNIT = 8 * 2**20  #: a shard has about a third of these bytes


class MalNetTinyParams(BuildParams):
    """Parameters that change the records."""

    isolated: Literal["drop", "keep"] = Field(
        default="drop",
        description="drop: only nodes with an edge to another node, as in GraphGPS and the k-MIP code; keep: "
        "all node numbers up to the largest, as in PyTorch Geometric since 2.1",
    )
    label_order: Literal["alphabetical", "first-seen"] = Field(
        default="alphabetical",
        description="alphabetical: addisplay 0 to trojan 4, as in GraphGPS and the k-MIP code; first-seen: "
        "adware 0, benign 1, downloader 2, trojan 3, addisplay 4, as in PyTorch Geometric since 2.1",
    )


class MalNetTinyPipeline(Pipeline[MalNetTinyParams, PublishedSplitParams]):
    """Pipeline of ``malnet-tiny``."""

    version = 1
    folder_name_templates = (("isolated", "{}-isolated"), ("label_order", "{}"))
    Params = MalNetTinyParams

    def schema(self, params: MalNetTinyParams) -> Schema:
        """Return the schema: directed edges, and the type of the app as label."""
        names = LABEL_ORDERS[params.label_order]
        label = class_column("graph/y", len(names), f"type of the app: {', '.join(names)}")
        return Schema(
            columns=(label,),
            max_nodes=self.manifest.max_nodes,
            key_length=64,
        )

    def class_names(self, params: MalNetTinyParams) -> Sequence[str]:
        """Return the types of apps in label order."""
        return LABEL_ORDERS[params.label_order]

    def prepare(self, raw: RawCopy, params: MalNetTinyParams, workdir: Path) -> Prepared:
        """Check that the lists name exactly the existing graphs, so that the archive is complete."""
        listed: set[str] = set()
        for names in read_part_lists(raw.path).values():
            listed.update(f"{name}.edgelist" for name in names)
        paths = raw.path.glob("*/*/*.edgelist")
        existing_files = {path.relative_to(raw.path).as_posix() for path in paths}
        if listed != existing_files:
            missing = len(listed - existing_files)
            unlisted = len(existing_files - listed)
            raise DamagedInput(
                f"The lists do not partition the graphs: {missing} listed graphs are missing, "
                f"{unlisted} graphs are not listed, such as {min(listed ^ existing_files)}."
            )
        return Prepared(raw.path)

    def units(self, prepared: Prepared, params: MalNetTinyParams) -> list[Unit]:
        """Assign the listed graphs (train, val, test) by file size."""
        names = list(itertools.chain(*read_part_lists(prepared.path).values()))
        sizes = {}
        for position in params.positions_to_build(len(names)):
            name = names[position]
            sizes[name] = (prepared.path / f"{name}.edgelist").stat().st_size
        return units_by_size(sizes, EDGE_LIST_BYTES_PER_UNIT, "graphs")

    def records(
        self, prepared: Prepared, unit: Unit, params: MalNetTinyParams
    ) -> Iterator[GraphRecord]:
        """Yield the graphs of one unit in list order."""
        label = {name: i for i, name in enumerate(LABEL_ORDERS[params.label_order])}
        for name in unit.selection["graphs"]:
            file = f"{name}.edgelist"
            edges = parse_graph((prepared.path / file).read_bytes(), file)
            nodes = int(edges.max()) + 1
            if params.isolated == "drop":
                nodes, edges = drop_isolated(edges)
            malware_type, _, key = name.split("/")
            columns = {"graph/y": np.array(label[malware_type], np.uint8)}
            yield GraphRecord(
                key=key,
                num_nodes=nodes,
                columns=columns,
                edge_index=edges,
            )

    def split(
        self, records: RecordTable, params: PublishedSplitParams, raw_folder: Path | None
    ) -> Split:
        """Apply the published lists in their order."""
        lists = read_part_lists(require_raw(self.manifest, raw_folder))
        keys = {}
        for part, names in lists.items():
            keys[part] = [name.rpartition("/")[2] for name in names]
        return split_from_lists(keys, records.keys, "lists")


PIPELINE = MalNetTinyPipeline


def parse_graph(data: bytes, name: str) -> I32:
    """Return the edges of one file, int32 (2, E), checked against the counts in its comments."""
    header, edges = parse_edges(data, name=name)
    if not edges.size:
        raise DamagedInput(f"{name} has no edges.")
    # Only the counts reveal a file that was truncated at a line break.
    declared = next(filter(_COUNTS.fullmatch, header), None)
    if declared is None:
        raise DamagedInput(f"{name} has no comment line such as # Nodes: 3623, Edges: 6260")
    nodes = np.count_nonzero(np.bincount(edges.reshape(-1)))
    counted = f"# Nodes: {nodes}, Edges: {edges.shape[1]}"
    if counted != declared.strip():
        raise DamagedInput(f"{name} is incomplete: it has {counted!r}, not {declared.strip()!r}.")
    return edges


_COUNTS = re.compile(r"# Nodes: \d{1,9}, Edges: \d{1,9}\s*")


def drop_isolated(edges: I32) -> tuple[int, I32]:
    """Keep the nodes with an edge to another node; return their number and int32 (2, E').

    Remaining self-loops move to the end, in node order, like PyTorch Geometric's
    ``remove_isolated_nodes``, which GraphGPS applies to these graphs.
    """
    is_loop = edges[0] == edges[1]
    other_edges = edges[:, ~is_loop]
    is_kept = np.zeros(int(edges.max(initial=-1)) + 1, np.bool_)
    is_kept[other_edges.reshape(-1)] = True
    new_number = np.cumsum(is_kept, dtype=np.int32) - 1
    loop_nodes = np.unique(edges[0, is_loop])
    loops = new_number[loop_nodes[is_kept[loop_nodes]]]
    renumbered = np.concatenate([new_number[other_edges], np.stack([loops, loops])], axis=1)
    return int(is_kept.sum()), renumbered


def read_part_lists(folder: Path) -> dict[str, list[str]]:
    """Return the graphs of each part, ``<type>/<family>/<SHA-256>``, in list order."""
    lists = {}
    digests = set()
    for part in PARTS:
        file = f"type/{part}.txt"
        path = folder / file
        # The list of a part may be empty in a subset.
        is_empty = path.is_file() and not path.stat().st_size
        lists[part] = [] if is_empty else read_lines(path)
        for line_number, line in enumerate(lists[part], 1):
            match = _GRAPH_NAME.fullmatch(line)
            if match is None or match[1] not in LABEL_ORDERS["alphabetical"] or match[2] in digests:
                raise DamagedInput(
                    f"{file}, line {line_number}: not a graph of one of the five types, or a duplicate: "
                    f"{line[:160]!r}",
                    expected="<type>/<family>/<SHA-256>",
                )
            digests.add(match[2])
    return lists


_GRAPH_NAME = re.compile(r"([a-z]+)/[A-Za-z0-9_-]{1,64}/([0-9A-F]{64})")
