"""Raw CSV files of OGB: ``edge.csv.gz``, ``num-node-list.csv.gz``, ``num-edge-list.csv.gz`` and others.

Each file has a row for each node, edge or graph, in the order of the graphs, and no names of columns.
Nodes are numbered from 0 in each graph. ``split/RULE/{train,valid,test}.csv.gz`` list rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from kmip_data.arrays import I64
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.split_files import PARTS, part_name
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.graphs_from_tables import graphs_from_tables
from kmip_data.pipelines.datasets.graphs.tables.read_table import read_table
from kmip_data.pipelines.datasets.graphs.tables.table import Table, tables_from_frames

_EXPECTED = "OGB's raw files (edge.csv.gz, num-node-list.csv.gz, num-edge-list.csv.gz, …)"
_REMEDY = "correct the file, or download the files of the dataset again"
_EDGES = "edge"
_SIZES: dict[Level, str] = {"node": "num-node-list", "edge": "num-edge-list"}
_FEATURES: dict[Level, str] = {"node": "node-feat", "edge": "edge-feat"}
_LABELS: dict[Level, str] = {"node": "node-label", "graph": "graph-label"}


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if the files of edges and of the numbers of nodes and edges exist."""
    return {_EDGES, *_SIZES.values()} <= {*map(_stem, heads)}


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs in order; all files are in memory."""
    dataset = _Files(folder, files, options, findings)

    # 1. Sizes of the graphs; edges with numbers through all graphs.
    sizes = {level: dataset.sizes(name) for level, name in _SIZES.items()}
    graphs = len(sizes["node"])
    if len(sizes["edge"]) != graphs:
        raise DamagedInput(
            f"{_SIZES['edge']} has {len(sizes['edge']):,} rows, but {_SIZES['node']} has {graphs:,}.",
            steps="use both files of one dataset",
        )
    rows: dict[Level, int] = {
        "graph": graphs, "node": int(sizes["node"].sum()), "edge": int(sizes["edge"].sum())
    }  # fmt: skip
    graph_of = {level: np.repeat(np.arange(graphs), counts) for level, counts in sizes.items()}
    ends = dataset.frame(_EDGES, rows["edge"]).to_numpy()
    if ends.shape[1:] != (2,) or ends.dtype.kind != "i":
        raise DamagedInput(
            "edge.csv is not two columns of integers.", expected=_EXPECTED, steps=_REMEDY
        )
    size = sizes["node"][graph_of["edge"]]
    is_outside = ((ends < 0) | (ends >= size[:, None])).any(axis=1)
    if is_outside.any():
        row = int(is_outside.argmax())
        raise DamagedInput(
            f"edge.csv, line {row + 1}: an edge leads out of its graph.",
            expected=f"numbers below {size[row]}, the nodes of graph {graph_of['edge'][row]}",
            found=f"{ends[row, 0]}, {ends[row, 1]}",
            steps=_REMEDY,
        )
    first_nodes = np.cumsum(sizes["node"]) - sizes["node"]
    ends = ends + first_nodes[graph_of["edge"], None]

    # 2. Tables with features, labels and parts.
    frames: dict[Level, pd.DataFrame] = {
        "graph": pd.DataFrame({known_columns.GRAPH_KEY: range(graphs)}),
        "node": dataset.frame(_FEATURES["node"], rows["node"], "feature "),
        "edge": dataset.frame(_FEATURES["edge"], rows["edge"], "feature "),
    }
    frames["node"][known_columns.GRAPH_KEY] = graph_of["node"]
    frames["node"][known_columns.NODE_KEY] = range(rows["node"])
    frames["edge"][known_columns.GRAPH_KEY] = graph_of["edge"]
    frames["edge"][[known_columns.SOURCE_KEY, known_columns.TARGET_KEY]] = ends
    for level, name in _LABELS.items():
        labels = dataset.frame(name, rows[level], "label ")
        if not len(labels.columns):
            continue
        options.refuse_unread({"label": f"the labels are in {name}.csv"})
        names = tuple(map(str, labels.columns))
        frames[level][[*names]] = labels
        parts = dataset.parts(rows[level])
        if parts is not None:
            frames[level][known_names.PART_NAME] = parts
        options = options.with_params(label=names)
        break
    unread = (name for name in files if name not in dataset.read_files)
    findings.notices.ignored |= dict.fromkeys(unread, "no file of this format")
    yield from graphs_from_tables(tables_from_frames(frames, "OGB", 0), options, findings)


@dataclass
class _Files:
    """Files of one dataset, read as tables without names of columns."""

    folder: Path
    files: Sequence[str]
    options: ReadOptions
    findings: Findings
    read_files: set[str] = field(default_factory=set)

    def frame(self, stem: str, rows: int | None = None, prefix: str = "") -> pd.DataFrame:
        """Return a file with as many ``rows``; a table without columns if it does not exist."""
        name = next((name for name in self.files if _stem(name) == stem), None)
        if name is None:
            return pd.DataFrame(index=range(rows or 0))
        self.read_files.add(name)
        table = self._read(name)
        if rows not in {None, len(table.frame)}:
            raise DamagedInput(
                f"{name} has {len(table.frame):,} rows, not {rows:,}.", steps=_REMEDY
            )
        return table.frame.add_prefix(prefix)

    def _read(self, name: str) -> Table:
        """Return a file as a table, whose first line is data."""
        options = self.options.with_params(header="no")
        return read_table(
            self.folder / name, "", options, self.findings.notices, is_only_table=True
        )

    def sizes(self, stem: str) -> I64:
        """Return the number of nodes or edges of each graph."""
        frame = self.frame(stem)
        numbers = frame.to_numpy()
        if numbers.shape[1:] != (1,) or numbers.dtype.kind != "i" or (numbers < 0).any():
            raise DamagedInput(
                f"{stem}.csv is not a column of sizes.", expected=_EXPECTED, steps=_REMEDY
            )
        return numbers.reshape(-1).astype(np.int64)

    def parts(self, rows: int) -> list[str] | None:
        """Return the part of each row by the first folder of lists; ``None`` without lists."""
        lists = {
            name: part_name(_stem(name).lower()) for name in self.files if "split/" in f"/{name}"
        }
        rules = sorted(
            {str(PurePosixPath(name).parent) for name, part in lists.items() if part in PARTS}
        )
        if not rules:
            return None
        parts = np.full(rows, "", object)
        for name, part in lists.items():
            if part not in PARTS or str(PurePosixPath(name).parent) != rules[0]:
                continue
            self.read_files.add(name)
            listed = self._read(name).frame.to_numpy().reshape(-1)
            if listed.dtype.kind != "i" or ((listed < 0) | (listed >= rows)).any():
                raise DamagedInput(
                    f"{name} lists numbers that are no rows, 0 to {rows - 1:,}.", steps=_REMEDY
                )
            parts[listed] = part
        return [*parts]


def _stem(name: str) -> str:
    """Return the name of a file without folders and suffixes: ``edge`` of ``raw/edge.csv.gz``."""
    file = PurePosixPath(name).name
    return file.removesuffix(".gz").removesuffix(".csv") if ".csv" in file else ""


FORMAT = GraphFormat(
    name="files of OGB",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=COMMON_PARAMETERS | {"feature", "ignore", "undirected"},
)
