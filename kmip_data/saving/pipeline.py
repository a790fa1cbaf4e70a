"""Pipeline of graphs in memory: the pipeline of graph files, without a raw file."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import networkx as nx
import numpy as np
import pandas as pd
from torch import Tensor

from kmip_data.arrays import I64, U8, Array
from kmip_data.columns.attribute_levels import AttributeLevels
from kmip_data.columns.column_uses import Level
from kmip_data.columns.infer import InferredColumns
from kmip_data.columns.target_inference import Target
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.schema import ItemForm
from kmip_data.format.split_files import NO_PART, NODE_PARTS, parts_problem
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import CardAdditions, Prepared, RawFolder, Records, Split
from kmip_data.pipelines.datasets.graphs import OwnGraphsPipeline
from kmip_data.pipelines.datasets.graphs.findings import (
    Attributes,
    Findings,
    MaskUse,
    Notices,
    key_columns_by_level,
)
from kmip_data.pipelines.datasets.graphs.given_parts import GraphSplitParams
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import ResolvedGraphParams
from kmip_data.pipelines.datasets.graphs.readers.networkx_files import add_graph
from kmip_data.pipelines.datasets.graphs.tables.graphs_of_tables import graphs_of_tables
from kmip_data.pipelines.datasets.graphs.tables.table import Table, attribute_tables
from kmip_data.pipelines.user_files import OwnSplitParams

IndicesOrMask = Sequence[int] | Array | Tensor  #: indices or a boolean mask
RULE = "given"  #: name of the split and its rule


class SpooledGraphs:
    """Graphs as arrays by attribute, which are read several times: in memory, or from a temporary file."""

    def __init__(self, spool: IO[bytes] | None) -> None:
        self.levels = AttributeLevels()
        self.forms: dict[str, ItemForm] = {}
        self._spool = spool
        self._graphs: list[Any] = []  #: graphs, or where they begin in the file
        self._digest = hashlib.sha256()

    def add(self, graph: GraphRecord, forms: Mapping[str, ItemForm]) -> None:
        """Append a graph; refuse it where an attribute is a number or text here alone."""
        if self.levels.graphs and forms != self.forms:
            names = sorted(key.partition("/")[2] for key, _ in forms.items() ^ self.forms.items())
            raise UsageError(
                f"Graph {graph.key} has another type than before in {', '.join(names)}.",
                next="give every graph a tensor, a number or a text",
            )
        self.forms = dict(forms)
        where = f"Graph {graph.key}"
        self.levels.add(graph.columns, graph.num_nodes, _edge_count(graph), where, forms)
        self._digest.update(f"{graph.key} {graph.num_nodes}\n".encode())
        arrays = {**graph.columns, "edge_index": np.asarray(graph.edge_index)}
        for name, array in arrays.items():
            self._digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
            if array.dtype != object:  # the edge_index of a graph without edges
                self._digest.update(np.ascontiguousarray(array).data)
        if self._spool is None:
            self._graphs.append(graph)
            return
        self._graphs.append(self._spool.tell())
        pickle.dump(graph, self._spool, pickle.HIGHEST_PROTOCOL)

    def graphs_from(self, first: int) -> Iterator[GraphRecord]:
        """Yield the graphs from position ``first``."""
        if self._spool is None:
            yield from self._graphs[first:]
            return
        self._spool.seek(self._graphs[first])
        for _ in self._graphs[first:]:
            yield pickle.load(self._spool)  # noqa: S301 -- written above

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over names, sizes, dtypes and values of all graphs, in order."""
        return self._digest.hexdigest()


def _edge_count(graph: GraphRecord) -> int | None:
    return None if graph.edge_index is None else graph.num_edges


class GivenTables:
    """Graphs as tables of pandas, or as graphs of networkx, whose attributes become tables."""

    def __init__(self, given: Any) -> None:
        self._frames: dict[Level, pd.DataFrame] = {}
        self._rows: dict[Level, list[dict[str, object]]] = {"graph": [], "node": [], "edge": []}
        if isinstance(given, Mapping):
            for level in self._rows:
                if (frame := given.get(f"{level}s")) is not None:
                    self._frames[level] = _with_file_dtypes(frame)
        else:
            for number, graph in enumerate(given):
                add_graph(graph, f"{number:08d}", f"graph {number}", self._rows)
            for rows in self._rows.values():
                for row in rows:
                    row.update({key: _array_as_list(value) for key, value in row.items()})

    @classmethod
    def from_objects(cls, given: Any) -> GivenTables | None:
        """Return the tables of frames by level, a frame of edges, and graphs of networkx; else ``None``."""
        if isinstance(given, pd.DataFrame):
            given = {"edges": given}
        elif isinstance(given, nx.Graph):
            given = [given]
        is_list = isinstance(given, list | tuple)
        if is_list and given and all(isinstance(graph, nx.Graph) for graph in given):
            return cls(given)
        if not isinstance(given, Mapping):
            return None
        levels = {"nodes", "edges", "graphs"}
        if not {"edges"} <= {*given} <= levels:
            raise UsageError(
                f"The tables are called {', '.join(map(str, given)) or 'nothing'}.",
                expected="edges, and optionally nodes and graphs",
                next="kmip_data.save({'nodes': nodes, 'edges': edges}, folder)",
            )
        return cls(given)

    def tables(self, notices: Notices) -> dict[Level, Table]:
        """Return the tables in the form that readers of files return."""
        if not self._frames:
            return attribute_tables(self._rows, "networkx", notices)
        return {level: Table(f"{level}s", frame, 0, "row") for level, frame in self._frames.items()}

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over names, dtypes and values of all columns."""
        digest = hashlib.sha256(repr(self._rows).encode())
        for level, frame in self._frames.items():
            digest.update(f"{level} {frame.dtypes.to_dict()}".encode())
            rows = pd.util.hash_pandas_object(frame.astype(str), index=False)
            digest.update(rows.to_numpy().tobytes())
        return digest.hexdigest()


_NUMPY: dict[str, Any] = {
    "i": "int64",
    "u": "uint64",
    "f": "float64",
    "b": "bool",
}  #: kind -> dtype


def _array_as_list(value: object) -> object:
    """Return an array as a list, whose ``repr`` has all values."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _with_file_dtypes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the dtypes that tables of files have."""
    columns = {}
    for name, values in frame.items():
        plain = values
        if isinstance(values.dtype, pd.CategoricalDtype):
            plain = values.astype(object)
        elif values.dtype.kind in "mM":
            plain = values.astype(str).where(values.notna())
        elif values.dtype.kind in "iufb" and not isinstance(values.dtype, np.dtype):
            # pandas' own dtypes, which know missing values.
            plain = values.astype("float64" if values.hasnans else _NUMPY[values.dtype.kind])
        elif values.dtype == object:
            plain = values.map(_array_as_list)
        columns[str(name)] = plain
    return pd.DataFrame(columns).reset_index(drop=True)


class InMemoryPipeline(OwnGraphsPipeline):
    """Pipeline of ``kmip_data.save``: graphs in memory, their dtypes and, if given, their split."""

    in_process = True

    def __init__(
        self,
        manifest: Manifest,
        graphs: SpooledGraphs | GivenTables,
        split: Mapping[str, IndicesOrMask] | None,
    ) -> None:
        super().__init__(manifest)
        self._graphs = graphs
        self._split = split

    def read(
        self, folder: Path, members: Sequence[str], options: ReadOptions, first: int = 0
    ) -> tuple[Findings, Iterator[GraphRecord]]:
        """Return the findings, complete after the last graph, and the graphs from ``first``."""
        graphs = self._graphs
        if isinstance(graphs, GivenTables):
            findings = Findings()
            tables = graphs.tables(findings.notices)
            return findings, islice(graphs_of_tables(tables, options, findings), first, None)
        findings = Findings(Attributes(forms=dict(graphs.forms)))
        levels = graphs.levels.levels_by_attribute()
        is_split_by_masks = self._split is None and graphs.levels.graphs == 1
        mask_use: MaskUse = "split" if is_split_by_masks else "attributes"

        def keyed_graphs() -> Iterator[GraphRecord]:
            for graph in graphs.graphs_from(first):
                where = f"Graph {graph.key}"
                yield key_columns_by_level(
                    graph, levels, where, options, findings, mask_use=mask_use, exact=True
                )

        return findings, keyed_graphs()

    def size_of(self, raw: RawFolder) -> int:
        """Return 0: there are no files."""
        return 0

    def card_additions(self, prepared: Prepared, params: ResolvedGraphParams) -> CardAdditions:
        """Return the parts that masks give: there are no files to describe."""
        return replace(super().card_additions(prepared, params), statistics={}, notes=())

    def target(
        self, inference: InferredColumns, options: ReadOptions, findings: Findings
    ) -> Target:
        """Return the column of the targets, in the dtype that they have; ask where classes may be numbers."""
        target = super().target(inference, options, findings)
        if isinstance(self._graphs, GivenTables):
            return target
        column = replace(
            target.column, form=findings.attributes.forms.get(inference.target, "axis")
        )
        given = np.result_type(*{y.dtype for y in inference.targets})
        of_floats = given.kind == "f"
        if column.num_classes is None and of_floats:
            column = replace(column, stored=given.name, presented=given.name)
        elif column.num_classes is None and options.params.task is None:
            raise DamagedInput(
                f"y has integers in rows of {max(column.shape, default=1)}: classes, or numbers.",
                next="--set task=regression where they are numbers; data.y = data.y.squeeze(1) where a row"
                " has one class",
            )
        keeps = not of_floats  # a class is an integer, and a label among several may be missing
        if column.shape:
            keeps = of_floats or not target.missing
        if column.num_classes and keeps:
            column = replace(column, presented=given.name)
        return replace(target, column=column)

    def chosen_splits(self, params: ResolvedGraphParams) -> list[OwnSplitParams]:
        """Return the given split, or one for each column of its masks; else the splits of the graph's masks."""
        if self._split is None:
            is_divided = isinstance(self._graphs, GivenTables) or params.inferred.masks is not None
            return self.default_splits(params) if is_divided else []
        columns = {np.shape(chosen)[1] for chosen in self._split.values() if np.ndim(chosen) == 2}
        if len(columns) > 1:
            raise UsageError(f"The masks have {sorted(columns)} columns, not equally many.")
        return [GraphSplitParams(fold=fold) for fold in range(columns.pop() if columns else 1)]

    def split(self, records: Records, params: OwnSplitParams, raw: Path | None) -> Split:
        """Return the given split, of nodes for a single graph; else by the graph's masks."""
        if self._split is None or not isinstance(params, GraphSplitParams):
            return super().split(records, params, raw)
        # A single graph is split by its nodes, several by themselves.
        alone = len(records.keys) == 1
        count = int(records.nodes[0]) if alone else len(records.keys)
        name = RULE
        options = {}
        parts = {}
        for part, given in self._split.items():
            chosen = np.asarray(given)
            if chosen.ndim == 2:
                chosen = chosen[:, params.fold]
                name = f"{RULE}-fold{params.fold}"
                options = {"fold": params.fold}
            parts[part] = _positions_of_part(chosen, count, part)
        if problem := parts_problem(parts, count):
            raise UsageError(f"The split does not fit: {problem}.")
        if not alone:
            return Split(name, RULE, options, {part: rows.tolist() for part, rows in parts.items()})
        code: U8 = np.full(count, NO_PART, np.uint8)
        for part, rows in parts.items():
            code[rows] = NODE_PARTS[part]
        return Split(name, RULE, options, node_code=code)


def _positions_of_part(chosen: Array, count: int, part: str) -> I64:
    """Return indices, given as such or as a boolean mask (n,)."""
    array = chosen
    if array.dtype == np.bool_ and array.shape == (count,):
        array = np.flatnonzero(array)
    if part not in NODE_PARTS or array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(
            f"The part {part!r} of the split does not fit.",
            expected=(
                f"train, val or test: positions from 0 to {count - 1}, or a boolean mask [{count}]"
            ),
            found=f"{array.dtype} {list(array.shape)}: {array.reshape(-1)[:8].tolist()}",
        )
    return array.astype(np.int64)
