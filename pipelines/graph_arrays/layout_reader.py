"""Read raw files, and check their arrays against the manifest's layout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.columns.conform_to_schema import conform_rows
from kmip_data.errors import DamagedInput, KmipDataError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema, View
from kmip_data.manifest import ColumnLayout, Layout, Manifest
from kmip_data.pipelines.common_columns import class_column
from kmip_data.pipelines.formats.npz import NpzFile
from kmip_data.pipelines.formats.text import read_lines
from kmip_data.pipelines.graph_arrays.graph_checks import all_in_range
from kmip_data.pipelines.graph_arrays.reverse_edges import edges_in_both_directions

BATCH_GRAPHS = 256  #: graphs checked at a time
_COMMA_SEPARATED = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*")
RawGraph = Mapping[str, Any]  #: attributes of one graph, by name
T = TypeVar("T")


class RawReader:
    """Reader of a folder of raw files that keeps track of the item being read.

    ``current_item`` is that file, line or record. :meth:`find_path` and :meth:`track_items` set it,
    and errors begin with it.
    """

    def __init__(self, folder: Path, dataset: str) -> None:
        self.folder = folder
        self.current_item = dataset  #: the dataset until a file is opened

    def find_path(self, pattern: str) -> Path:
        """Return the only file whose name matches ``pattern``."""
        matching_files = sorted(self.folder.glob(pattern))
        if len(matching_files) != 1:
            raise DamagedInput(f"{len(matching_files)} files are named {pattern}, not one.")
        self.current_item = matching_files[0].name
        return matching_files[0]

    def open_npz(self, pattern: str) -> NpzFile:
        """Open the only ``.npz`` file that matches ``pattern``."""
        return NpzFile(self.find_path(pattern))

    def lines(self, pattern: str, *, header: int = 0) -> Iterator[str]:
        """Yield the lines of a text file after ``header`` lines."""
        lines = read_lines(self.find_path(pattern))[header:]
        return self.track_items("line", lines, header + 1)

    def track_items(self, name: str, items: Iterable[T], first: int = 0) -> Iterator[T]:
        """Yield the items of the current file, so that errors name the item."""
        file = self.current_item
        for number, item in enumerate(items, first):
            self.current_item = f"{file}, {name} {number}"
            yield item
        self.current_item = file

    def parse_indices(self, text: str, below: int, count: int | None = None) -> I64:
        """Parse comma-separated integers, from 0 to ``below`` - 1; require ``count`` of them if given."""
        if _COMMA_SEPARATED.fullmatch(text):
            numbers = np.fromstring(text, np.int64, sep=",")
            if all_in_range(numbers, below) and count in {None, len(numbers)}:
                return numbers
        required = "" if count is None else f"{count} "
        raise DamagedInput(
            f"{self.current_item}: {text[:40]!r}, not {required}integers from 0 to {below - 1:,}."
        )

    @contextmanager
    def convert_item_errors(self) -> Iterator[None]:
        """Convert Python's errors, which do not name a file, to errors about the current item."""
        try:
            yield
        except KmipDataError:
            raise
        except (
            ArithmeticError,
            AttributeError,
            EOFError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            problem = "is not laid out as published"
            if isinstance(error, KeyError) and isinstance(error.args[0], str):
                problem = f"has no {error.args[0][:80]!r}"
            raise DamagedInput(f"{self.current_item} {problem}.") from error


def schema_of(manifest: Manifest, key_length: int = 64) -> Schema:
    """Return the schema of the manifest's layout."""
    layout = manifest.layout
    views = [
        View(attribute=name, source=source, start=start, stop=stop)
        for name, (source, start, stop) in layout.views.items()
    ]
    return Schema(
        columns=columns_of(manifest),
        views=tuple(views),
        edges="index",
        max_nodes=manifest.max_nodes,
        directed=not (layout.undirected or layout.both_ways),
        key_length=key_length,
    )


def columns_of(manifest: Manifest) -> tuple[Column, ...]:
    """Return the columns of the manifest's layout."""
    return tuple(column_of(key, form) for key, form in manifest.layout.columns.items())


def column_of(key: str, form: ColumnLayout) -> Column:
    """Return a column of the layout; a column with ``classes`` holds labels."""
    if form.classes is not None:
        return class_column(key, form.classes, form.doc)
    name = key.partition("/")[2]
    attribute = form.attribute or ("edge_attr" if name == "attr" else name)
    values = form.model_dump(exclude={"classes", "attribute"})
    return Column(key=key, attribute=attribute, **values)


def concatenate_graphs(
    graphs: Sequence[RawGraph],
    schema: Schema,
    layout: Layout,
    where: str,
) -> tuple[dict[str, Array], I64]:
    """Check and concatenate the arrays of graphs, and cast them to the stored dtypes.

    Returns the arrays by attribute, and the number of rows of each graph in each array, (graphs,
    arrays). Raises ``DamagedInput``, beginning with ``where``, if a column has another shape, or
    values out of bounds, not finite or not representable; if an edge leads out of its graph; or if
    a reverse edge is missing that the layout promises.
    """
    # 1. Check that edges stay inside their graph.
    nodes = [len(graph["x"]) for graph in graphs]
    pairs = []
    for graph, count in zip(graphs, nodes, strict=True):
        ends = np.asarray(graph["edge_index"])
        if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
            raise DamagedInput(f"{where}: edges are {ends.dtype} {ends.shape}, not numbers (2, E).")
        if not 0 < count <= schema.max_nodes:
            raise DamagedInput(f"{where}: {count:,} nodes, not 1 to {schema.max_nodes:,}.")
        pairs.append(ends)
    rows = {"node": nodes, "edge": [ends.shape[1] for ends in pairs], "graph": [1] * len(graphs)}
    edges = np.concatenate(pairs, axis=1)
    inside = edges < (nodes[0] if len(nodes) == 1 else np.repeat(nodes, rows["edge"]))
    if edges.size and (edges.min() < 0 or not inside.all()):
        raise DamagedInput(
            f"{where}: edges of nodes {edges.min():,} to {edges.max():,}, of {nodes[-1]:,}."
        )

    # 2. Check and cast the columns.
    arrays = {}
    counts = []
    for column in schema.columns:
        values = [np.asarray(graph[column.attribute]) for graph in graphs]
        arrays[column.attribute] = concatenate_column(values, column, rows[column.level], where)
        counts.append(rows[column.level])

    # 3. Check or add reverse edges. Nodes are numbered across graphs, so one sort serves the batch.
    last = np.cumsum(nodes)
    first = last - nodes
    if layout.both_ways == "checked":
        batch_edges = edges + np.repeat(first, rows["edge"])
        _check_both_ways(batch_edges, sum(nodes), arrays.get("edge_attr"), where)
    if layout.undirected:
        batch_edges = edges + np.repeat(first, rows["edge"])
        both_directions = edges_in_both_directions(batch_edges.T, sum(nodes))
        # They are sorted by source, hence by graph.
        ends = np.searchsorted(both_directions[0], last)
        rows["edge"] = np.diff(ends, prepend=0).tolist()
        edges = both_directions - np.repeat(first, rows["edge"])
    arrays["edge_index"] = edges.T.astype(schema.index_dtype)
    return arrays, np.array([*counts, rows["edge"]], np.int64).T


def concatenate_column(
    values: Sequence[Array], column: Column, rows: Sequence[int], where: str
) -> Array:
    """Concatenate a column's values (rows, …) of several graphs; raise as :func:`concatenate_graphs`."""
    is_graph_level = column.level == "graph"
    for array, count in zip(values, rows, strict=True):
        shape = column.shape if is_graph_level else (count, *column.shape)
        if array.shape != shape or array.dtype.kind not in "biuf":
            raise DamagedInput(
                f"{where}: {column.attribute} is {array.dtype} {array.shape}, not numbers {shape}.",
                expected=f"layout.columns.{column.key}.shape = {list(column.shape)} of the manifest",
            )
    joined_rows = np.stack(values) if is_graph_level else np.concatenate(values)
    return conform_rows(joined_rows, column, where)


def _check_both_ways(edges: Array, nodes: int, attr: Array | None, where: str) -> None:
    """Refuse an edge without its reverse, or whose reverse has other attributes."""
    # Encode each edge as one number. Sorted, edges and reverse edges must be equal.
    forward = edges[0] * nodes + edges[1]
    reverse = edges[1] * nodes + edges[0]
    by_forward = np.argsort(forward, kind="stable")
    by_reverse = np.argsort(reverse, kind="stable")
    has_reverses = np.array_equal(forward[by_forward], reverse[by_reverse])
    has_equal_attributes = attr is None or np.array_equal(attr[by_forward], attr[by_reverse])
    if not has_reverses or not has_equal_attributes:
        raise DamagedInput(f"{where}: an edge without its reverse.")


def concatenate_in_batches(
    graphs: Iterable[RawGraph], schema: Schema, layout: Layout, raw: RawReader
) -> Iterator[tuple[dict[str, Array], I64]]:
    """Apply :func:`concatenate_graphs` to batches of graphs; an error names its graph."""
    named_graphs = ((raw.current_item, graph) for graph in graphs)
    while batch := list(islice(named_graphs, BATCH_GRAPHS)):
        try:
            arrays = concatenate_graphs(
                [graph for _, graph in batch], schema, layout, raw.current_item
            )
        except Exception:
            # Check graph by graph to find the one at fault.
            for item, graph in batch:
                raw.current_item = item
                concatenate_graphs([graph], schema, layout, item)
            raise
        yield arrays


def record_of(key: str, graph: Mapping[str, Array], schema: Schema) -> GraphRecord:
    """Return the record of a graph's arrays, as :func:`concatenate_graphs` returns them, edges (E, 2)."""
    columns = {}
    for column in schema.columns:
        rows = graph[column.attribute]
        columns[column.key] = rows[0] if column.level == "graph" else rows
    return GraphRecord(
        key=key,
        num_nodes=len(graph["x"]),
        columns=columns,
        edge_index=np.ascontiguousarray(graph["edge_index"].T),
    )
