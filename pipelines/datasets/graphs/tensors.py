"""Files of ``torch.save``: a list of ``Data``, one, or the collated pair of an ``InMemoryDataset``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array, fits
from kmip_data.errors import DamagedInput
from kmip_data.format.splits import NODE_PARTS, part_name
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.roles import MASKS
from kmip_data.pipelines.datasets.graphs.tables import ColumnFacts, GraphParams, first_member
from kmip_data.pipelines.formats.pickles import never_called
from kmip_data.pipelines.formats.tensors import NUMPY, PYG, PickledData, separated, stream_values
from kmip_data.pipelines.shared.checks import check_edges, nodes_of

WANTS = ".pt of torch.save: Data, a list of them, or (data, slices)"
#: Besides Data: the dictionaries of a collated pair.
_ALLOWED = {
    **NUMPY,
    **PYG,
    "collections.defaultdict": lambda *_: {},
    "builtins.dict": never_called("dict"),
    "__builtin__.dict": never_called("dict"),
}
_NEXT = (
    "save Data with dense tensors of real numbers: batch.to_data_list(), data.to_homogeneous(), "
    "x.to_dense(), x.float(), torch.view_as_real(x).flatten(1)"
)
_ROWS_OF_NODES = ("x", "feat", "pos", "batch", "node_type", "n_id")


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if a file is a zip with a pickle, or a bare pickle, which its reader refuses."""
    return any(
        first_member(head).endswith(b"data.pkl") or head.startswith(b"\x80")
        for head in heads.values()
    )


def read(folder: Path, files: Sequence[str], facts: ColumnFacts) -> Iterator[GraphRecord]:
    """Yield the graphs of all files; arrays are views of a file until the next graph is requested.

    Files called train, val and test are parts.
    """
    # Levels of attributes are known once all graphs have been seen.
    levels: dict[str, list[str]] = {}
    columns = facts.params._read[0].columns  # noqa: SLF001
    for column in columns:
        levels[column.attribute] = [column.level]
    if not columns:
        for _, _, graph in _graphs(folder, files, facts):
            for attribute, fitting in _fitting(graph).items():
                possible = levels.get(attribute, fitting)
                levels[attribute] = [level for level in possible if level in fitting]

    parts = [NODE_PARTS.get(part_name(Path(file).stem) or "") for file in files]
    if None not in parts:
        facts.parts.append("graph/file")
    for file, where, graph in _graphs(folder, files, facts):
        record = _record(graph, levels, where, facts)
        if None not in parts:
            code = np.array([parts[files.index(file)]], np.uint8)
            record = replace(record, columns={**record.columns, "graph/file": code})
        yield record


def _graphs(
    folder: Path, files: Sequence[str], facts: ColumnFacts
) -> Iterator[tuple[str, str, GraphRecord]]:
    """Yield file, place and arrays by attribute of each graph."""
    for file in files:
        stem = f"{Path(file).with_suffix('')}/" if len(files) > 1 else ""
        number = 0
        try:
            for value in stream_values(folder / file, _ALLOWED):
                for item in _items(value, file):
                    where = f"{file}, graph {number} (from 0)"
                    yield file, where, _graph(item, f"{stem}{number:08d}", where, facts)
                    number += 1
        except DamagedInput as error:
            error.parts["next"] = error.parts["next"] or _NEXT
            raise


def _items(value: object, file: str) -> Iterator[dict[str, object]]:
    """Yield the attributes of each graph of an item or a collated pair."""
    slices = None  # of a pair of a single graph, too
    if isinstance(value, tuple) and len(value) in {2, 3} and isinstance(value[1], dict | None):
        value, slices = value[:2]
    item = value.mapping if isinstance(value, PickledData) else value
    if not isinstance(item, dict):
        raise DamagedInput(f"{file} holds {type(value).__name__}.", expected=WANTS)
    if slices is None:
        yield item
    else:
        yield from separated(item, slices, file)


def _graph(item: dict[str, object], name: str, where: str, facts: ColumnFacts) -> GraphRecord:
    """Return the arrays of an item, without texts, from which nothing is computed."""
    item = dict(item)
    label = facts.label_of(item, ("y",), where)
    if label:
        item["y"] = item.pop(label)
    edges = item.pop("edge_index", None)
    kind = getattr(edges, "dtype", type(edges).__name__)
    shape = getattr(edges, "shape", ())
    if (
        not isinstance(edges, np.ndarray)
        or edges.dtype.kind not in "iu"
        or not fits(shape, (2, None))
    ):
        raise DamagedInput(
            f"{where}: edge_index is {kind} {shape}, not integers of shape (2, any)."
        )
    nodes = item.pop("num_nodes", None)
    if not isinstance(nodes, int):
        values = map(item.get, _ROWS_OF_NODES)
        rows = [value for value in values if isinstance(value, np.ndarray) and value.ndim]
        nodes = len(rows[0]) if rows else nodes_of(edges)
    check_edges(edges, nodes, where)
    arrays: dict[str, Array] = {}
    for attribute, value in item.items():
        if isinstance(value, str):
            facts.ignored[attribute] = "a text"
            continue
        if value is None:
            continue
        array = np.asarray(value) if isinstance(value, bool | int | float) else value
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
            raise DamagedInput(
                f"{where}: {attribute} is {type(value).__name__}, not a tensor or number.",
                next=f"leave it out (del data.{attribute}) before torch.save",
            )
        arrays[attribute] = array
    return GraphRecord(key=name, num_nodes=nodes, columns=arrays, edge_index=edges)


def _fitting(graph: GraphRecord) -> dict[str, list[str]]:
    """Return the levels that fit the rows of each attribute, the likeliest first."""
    fitting = {}
    for attribute, array in graph.columns.items():
        rows = array.shape[:1]
        levels = {"node": (graph.num_nodes,), "edge": (graph.num_edges,), "graph": rows}
        order = ["node", "edge", "graph"]
        if "edge" in attribute:
            order = ["edge", "node", "graph"]
        elif attribute == "y":
            order = ["node", "graph"]
        fitting[attribute] = [level for level in order if levels[level] == rows]
    return fitting


def _record(
    graph: GraphRecord, levels: Mapping[str, list[str]], where: str, facts: ColumnFacts
) -> GraphRecord:
    """Return the graph with its columns by key."""
    columns: dict[str, Array] = {}
    masks = {}
    for attribute, array in graph.columns.items():
        if attribute in MASKS:
            masks[attribute] = array
            continue
        level = levels[attribute][0]
        rows = array
        if level == "graph" and (array.ndim < 2 or len(array) != 1):
            # A number, or a row of them.
            rows = array.reshape(1) if array.size == 1 else array[None]
        if attribute == "y":
            columns |= facts.labels((*facts.params.label, "y")[0], rows, level)
        else:
            columns[f"{level}/{attribute}"] = rows
    columns |= facts.masks(masks, graph.num_nodes, where)
    return replace(graph, columns=columns)
