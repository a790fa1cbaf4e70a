"""Pipeline of graphs in memory: the pipeline of graph files, without raw files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
from torch import Tensor

from kmip_data.arrays import I64, U8, Array
from kmip_data.columns.attribute_levels import MaskUse
from kmip_data.errors import UsageError
from kmip_data.files import atomic_writes
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import ItemForm
from kmip_data.format.split_files import NO_PART, PART_CODES, part_name, parts_problem
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import CardAdditions, Prepared, RawCopy, RecordTable, Split
from kmip_data.pipelines.datasets.graphs import OwnGraphsPipeline
from kmip_data.pipelines.datasets.graphs.findings import Attributes, Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams, InferredGraphParams
from kmip_data.pipelines.graph_arrays.spooled_graphs import spool_graphs
from kmip_data.pipelines.own.format import check_named_columns
from kmip_data.pipelines.own.graphs import graphs_of_tables
from kmip_data.pipelines.own.networks import Networks
from kmip_data.pipelines.own.roles import Roles, find_roles
from kmip_data.pipelines.own_split import GraphSplitParams, OwnSplitParams
from kmip_data.saving.frames import is_frame, table_of_frame

IndicesOrMask = Sequence[int] | Array | Tensor  #: indices or a boolean mask
GIVEN_RULE = "given"  #: name of the user's split and its rule


@dataclass(frozen=True)
class SavedGraphs:
    """Spool of graphs with their attributes, written before the build has a key."""

    folder: Path
    forms: Mapping[str, ItemForm]  #: key of an attribute -> its form, if a number or a string
    digest: str  #: SHA-256 (hex) over names, sizes, dtypes and values of all graphs in order


def update_digest(digest: Any, graph: GraphRecord) -> None:
    """Add name, size, dtypes and values of a graph to a digest."""
    digest.update(f"{graph.key} {graph.num_nodes}\n".encode())
    arrays = dict(graph.columns)
    if graph.edge_index is not None:
        arrays["edge_index"] = graph.edge_index
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        is_text = array.dtype == object  # its buffer has addresses
        digest.update(
            repr(array.tolist()).encode() if is_text else np.ascontiguousarray(array).data
        )


class InMemoryTables:
    """Graphs as tables of any library, or as networkx graphs whose attributes become tables."""

    def __init__(self, source: Any) -> None:
        self._ignored: dict[str, str] = {}
        self._known_roles: Roles | None = None  #: those of networkx graphs
        if isinstance(source, Mapping):
            self._tables = [
                table_of_frame(name, frame, self._ignored, may_have_ids=name != "edges")
                for name, frame in source.items()
                if frame is not None
            ]
            return
        networks = Networks()
        for number, graph in enumerate(source):
            networks.add(graph, f"{number:08d}")
        options = ReadOptions(GraphParams())
        self._known_roles = networks.roles("networkx", options, self._ignored)
        self._tables = [*self._known_roles.tables.values()]

    @classmethod
    def from_objects(cls, source: Any) -> InMemoryTables | None:
        """Return the tables of frames or networkx graphs; ``None`` for objects of other types."""
        if is_frame(source):
            source = {"edges": source}
        elif isinstance(source, nx.Graph):
            source = [source]
        is_list = isinstance(source, list | tuple)
        if is_list and source and all(isinstance(graph, nx.Graph) for graph in source):
            return cls(source)
        if not isinstance(source, Mapping):
            return None
        names = {"nodes", "edges", "graphs"}
        if not {"edges"} <= {*source} <= names:
            step = "kmip_data.save({'nodes': nodes, 'edges': edges}, folder)"
            if {*map(part_name, source)} <= PART_CODES.keys():
                step = _call_with_parts(source)
            raise UsageError(
                f"The tables are called {', '.join(map(str, source)) or 'nothing'}.",
                expected="edges, and optionally nodes and graphs",
                steps=step,
            )
        return cls(source)

    def roles(self, options: ReadOptions, findings: Findings) -> Roles:
        """Return the tables in their roles, as file readers do."""
        findings.notices.ignored.update(self._ignored)
        check_named_columns(self._tables, options, findings)
        return self._known_roles or find_roles(self._tables, options, findings)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over names, types and values of all columns."""
        digest = hashlib.sha256()
        for table in self._tables:
            digest.update(f"{table.name} {table.categories}\n".encode())
            for name, cells in table.columns.items():
                digest.update(f"{name} {cells.type}\n".encode())
                rows = pd.util.hash_pandas_object(cells.to_pandas(), index=False)
                digest.update(rows.to_numpy().tobytes())
        return digest.hexdigest()


class InMemoryPipeline(OwnGraphsPipeline):
    """Pipeline of ``kmip_data.save``, which keeps the dtypes of the graphs and the user's split."""

    in_process = True

    def __init__(
        self,
        manifest: Manifest,
        graphs: SavedGraphs | InMemoryTables,
        split: Mapping[str, IndicesOrMask] | None,
    ) -> None:
        super().__init__(manifest)
        self._graphs = graphs
        self.warnings: list[str] = []  #: notes on columns and arguments of the call
        self._split = None if split is None else _with_part_names(split)

    def ingest(self, raw: RawCopy, options: ReadOptions, spool: Path) -> Findings:
        """Spool the graphs of tables, or move the spool of other graphs into its place."""
        if isinstance(self._graphs, SavedGraphs):
            atomic_writes.rename_into_place(self._graphs.folder, spool)
            return Findings(Attributes(forms=dict(self._graphs.forms)))
        findings = Findings()
        roles = self._graphs.roles(options, findings)
        spool_graphs(spool, graphs_of_tables(roles, options, findings))
        return findings

    def mask_use(self, graphs: int) -> MaskUse:
        """Return the use of masks: the split of a single graph, unless the user gives one."""
        return "split" if self._split is None and graphs == 1 else "attributes"

    def card_additions(self, prepared: Prepared, params: InferredGraphParams) -> CardAdditions:
        """Return the kinds of the features, the warnings, and a note for each column not stored.

        Only tables have warnings: graphs of tensors are as their user made them.
        """
        additions = super().card_additions(prepared, params)
        warnings = additions.notes if isinstance(self._graphs, InMemoryTables) else []
        not_stored = [
            f"not stored: {line}"
            for line in params.inferred.summary["ignored"]
            if line.partition(": ")[0] not in params.ignore
        ]
        self.warnings = [*warnings, *not_stored]
        notes = [*self.warnings]
        if "direction" in params.inferred.summary:
            notes.append(f"direction: {params.inferred.summary['direction']}")
        statistics = {
            "kinds": additions.statistics["kinds"],
            "files": {"directed": params.inferred.summary["directed"]},
        }
        return replace(additions, statistics=statistics, notes=notes)

    def splits_to_write(self, params: InferredGraphParams) -> list[OwnSplitParams]:
        """Return the user's split, one per column of its masks; by default those of ``build graphs``.

        A single graph without targets has none: only a run decides whether nodes are predicted.
        """
        if params.group and self._split is not None:
            raise UsageError(
                f"group={params.group!r} is for a random split, but split= gives the parts.",
                steps="leave out one of the two",
            )
        if params.group:
            return [GraphSplitParams()]
        if self._split is None:
            is_undecided = params.inferred.target is None and params.inferred.counts[0] == 1
            has_split = isinstance(self._graphs, InMemoryTables) or params.masks is not None
            return self.default_splits(params) if has_split or not is_undecided else []
        columns = {np.shape(rows)[1] for rows in self._split.values() if np.ndim(rows) == 2}
        if len(columns) > 1:
            raise UsageError(f"The masks have different numbers of columns: {sorted(columns)}.")
        return [GraphSplitParams(fold=fold) for fold in range(columns.pop() if columns else 1)]

    def split(self, records: RecordTable, params: OwnSplitParams, raw_folder: Path | None) -> Split:
        """Return the user's split, of nodes if there is a single graph; by default the graph's masks."""
        if self._split is None or not isinstance(params, GraphSplitParams):
            split = super().split(records, params, raw_folder)
            has_drawn_val = split.rule == GIVEN_RULE and "val_fraction" in split.parameters
            if has_drawn_val and not isinstance(self._graphs, InMemoryTables):
                # The masks of a graph are saved as they are, though none is for val.
                params = params.model_copy(update={"val_fraction": 0.0})
                split = super().split(records, params, raw_folder)
            return split
        is_single_graph = len(records.keys) == 1
        count = int(records.node_counts[0]) if is_single_graph else len(records.keys)
        name = GIVEN_RULE
        options = {}
        parts = {}
        for part, indices_or_mask in self._split.items():
            array = np.asarray(indices_or_mask)
            if array.ndim == 2:
                array = array[:, params.fold]
                name = f"{GIVEN_RULE}-fold{params.fold}"
                options = {"fold": params.fold}
            parts[part] = _positions_of_part(array, count, part)
        if problem := parts_problem(parts, count):
            raise UsageError(f"The split is invalid: {problem}.")
        if not is_single_graph:
            return Split(
                name, GIVEN_RULE, options, {part: rows.tolist() for part, rows in parts.items()}
            )
        code: U8 = np.full(count, NO_PART, np.uint8)
        for part, rows in parts.items():
            code[rows] = PART_CODES[part]
        return Split(name, GIVEN_RULE, options, part_codes=code)


def _call_with_parts(graphs_by_part: Mapping[str, Sequence[object]]) -> str:
    """Return the call that saves lists of graphs by part: one list, and positions in it."""
    first = 0
    ranges = []
    for part, graphs in graphs_by_part.items():
        ranges.append(f"{part!r}: range({first}, {first + len(graphs)})")
        first += len(graphs)
    joined = ", ".join(f"*graphs[{part!r}]" for part in graphs_by_part)
    return f"kmip_data.save([{joined}], folder, split={{{', '.join(ranges)}}})"


def _with_part_names(split: Mapping[str, IndicesOrMask]) -> dict[str, IndicesOrMask]:
    """Return a split with the standard name of each part, such as ``val`` for OGB's ``valid``."""
    parts: dict[str, IndicesOrMask] = {}
    for name, rows in split.items():
        part = part_name(name) or name
        if part in parts:
            raise UsageError(
                f"The split has the part {part} twice: {', '.join(map(repr, split))}.",
                steps="leave out one of the two",
            )
        parts[part] = rows
    return parts


def _positions_of_part(array: Array, count: int, part: str) -> I64:
    """Return the positions in a part, from indices or a boolean mask (count,)."""
    if array.dtype == np.bool_ and array.shape == (count,):
        array = np.flatnonzero(array)
    if part not in PART_CODES or array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(
            f"The part {part!r} of the split is invalid.",
            expected=(
                f"train, val or test: positions from 0 to {count - 1}, or a boolean mask [{count}]"
            ),
            found=f"{array.dtype} {list(array.shape)}: {array.reshape(-1)[:8].tolist()}",
        )
    return array.astype(np.int64)
